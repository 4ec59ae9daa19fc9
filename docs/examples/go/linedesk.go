// The worker contract of linedesk (docs/reference/worker-contract.md) for Go 1.19 and newer.
// Copy this file beside your bot; bot.go shows how to use it.

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime/debug"
	"time"
)

const contract = 1

// Object is a JSON object. Its numbers are json.Number, so that they go back as they came.
type Object = map[string]any

// Handler gets one event, or with Gather several.
type Handler func(events []Object, talk *Talk) error

// Rule says when a handler runs.
type Rule struct {
	Name    string  `json:"name"`
	Event   string  `json:"event,omitempty"`
	Message string  `json:"message,omitempty"`
	State   string  `json:"state,omitempty"`
	Timer   string  `json:"timer,omitempty"`
	Timeout string  `json:"timeout,omitempty"`
	Profile bool    `json:"profile,omitempty"`
	Limit   float64 `json:"limit,omitempty"`
	Gather  float64 `json:"gather,omitempty"`
	Handler Handler `json:"-"`
}

// Lasting is an error that another try would meet, too: the event becomes a dead letter at once.
type Lasting struct{ Message string }

func (e Lasting) Error() string { return e.Message }

type job struct {
	Attempt string    `json:"attempt"`
	Rule    string    `json:"rule"`
	Try     int       `json:"try"`
	Now     time.Time `json:"now"`
	Key     string    `json:"key"`
	EventID string    `json:"eventId"`
	Events  []Object  `json:"events"`
	State   *string   `json:"state"`
	Data    Object    `json:"data"`
	Profile Object    `json:"profile"`
}

type start struct {
	Settings map[string]string `json:"settings"`
	Secrets  map[string]string `json:"secrets"`
}

// Talk is one conversation during one call of a handler. It notes what to do; linedesk does it.
type Talk struct {
	Data     Object // change it as you like; it is stored with the decision
	Key      string // the user, group or room
	EventID  string
	Try      int // 1 for the first
	Profile  Object
	Settings map[string]string
	Secrets  map[string]string

	state   *string
	now     time.Time
	began   time.Time
	actions []Object
}

func (t *Talk) note(do string, fields Object) {
	fields["do"] = do
	t.actions = append(t.actions, fields)
}

// Now is the time by the dispatcher's clock.
func (t *Talk) Now() time.Time { return t.now.Add(time.Since(t.began)) }

// Reply takes texts or message objects of LINE, five at most in one call; so does Push.
func (t *Talk) Reply(messages ...any) { t.note("reply", Object{"messages": messages}) }

// Push sends to the conversation.
func (t *Talk) Push(messages ...any) { t.note("push", Object{"messages": messages}) }

// State is empty where the conversation has none.
func (t *Talk) State() string {
	if t.state == nil {
		return ""
	}
	return *t.state
}

// SetState enters a state; an empty one ends it.
func (t *Talk) SetState(state string) {
	t.state = &state
	if state == "" {
		t.note("state", Object{"state": nil})
		return
	}
	t.note("state", Object{"state": state})
}

// Expect enters a state that ends by itself.
func (t *Talk) Expect(state string, seconds float64) {
	t.state = &state
	t.note("expect", Object{"state": state, "within": seconds, "now": t.moment()})
}

// After has the rule of this timer run once in so many seconds.
func (t *Talk) After(seconds float64, name string, data Object) {
	t.note("after", Object{"seconds": seconds, "name": name, "data": data, "now": t.moment()})
}

// Cancel ends a timer.
func (t *Talk) Cancel(name string) { t.note("cancel", Object{"name": name}) }

func (t *Talk) moment() string { return t.Now().UTC().Format(time.RFC3339Nano) }

// Run speaks with linedesk until standard input ends.
func Run(version string, rules []Rule) {
	handlers := map[string]Handler{}
	for _, rule := range rules {
		handlers[rule.Name] = rule.Handler
	}
	var known start
	input := bufio.NewReader(os.Stdin)
	for {
		line, err := input.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		var message struct {
			Type string `json:"type"`
		}
		must(err)
		must(json.Unmarshal(line, &message))
		switch message.Type {
		case "start":
			must(json.Unmarshal(line, &known))
			table := Object{"perMember": false, "rules": rules}
			send(Object{"type": "hello", "contract": contract, "version": version, "rules": table})
		case "job":
			var one job
			decoder := json.NewDecoder(bytes.NewReader(line))
			decoder.UseNumber()
			must(decoder.Decode(&one))
			send(decide(one, known, handlers[one.Rule]))
		}
	}
}

func decide(one job, known start, handler Handler) (decision Object) {
	talk := &Talk{
		Data: copied(one.Data).(Object), Key: one.Key, EventID: one.EventID, Try: one.Try,
		Profile: one.Profile, Settings: known.Settings, Secrets: known.Secrets,
		state: one.State, now: one.Now, began: time.Now(), actions: []Object{},
	}
	defer func() {
		if found := recover(); found != nil {
			told := fmt.Sprintf("panic: %v\n%s", found, debug.Stack())
			decision = failed(one.Attempt, "panic", told, false)
		}
	}()
	if err := handler(one.Events, talk); err != nil {
		var lasting Lasting
		what := fmt.Sprintf("%T", err)
		return failed(one.Attempt, what, fmt.Sprintf("%s: %v", what, err), errors.As(err, &lasting))
	}
	decision = Object{
		"type": "decision", "attempt": one.Attempt, "outcome": "decided", "actions": talk.actions,
	}
	if !reflect.DeepEqual(talk.Data, one.Data) {
		decision["data"] = talk.Data
	}
	return decision
}

// failed has `what` for the log, which must not quote a user; the traceback may.
func failed(attempt, what, traceback string, lasting bool) Object {
	return Object{
		"type": "decision", "attempt": attempt, "outcome": "failed",
		"what": what, "traceback": traceback, "lasting": lasting,
	}
}

func copied(value any) any {
	switch one := value.(type) {
	case Object:
		found := Object{}
		for name, each := range one {
			found[name] = copied(each)
		}
		return found
	case []any:
		found := make([]any, len(one))
		for n, each := range one {
			found[n] = copied(each)
		}
		return found
	}
	return value
}

func send(message Object) {
	line, err := json.Marshal(message)
	must(err)
	_, err = os.Stdout.Write(append(line, '\n'))
	must(err)
}

// must ends the program: linedesk counts a failed try and starts another one.
func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
