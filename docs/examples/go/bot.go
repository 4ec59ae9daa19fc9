// A bot in Go: go build -o bot . && linedesk worker --command ./bot

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

var number = regexp.MustCompile(`^[0-9]{1,6}$`)

func textOf(event Object) string {
	message, _ := event["message"].(Object)
	text, _ := message["text"].(string)
	return text
}

func text(events []Object, talk *Talk) error {
	words := textOf(events[0])
	switch {
	case number.MatchString(words):
		seconds, _ := strconv.Atoi(words)
		talk.After(float64(seconds), "ring:"+talk.EventID, Object{"seconds": seconds})
		talk.Reply(fmt.Sprintf("%d秒後にお知らせします", seconds))
	case words == "名前":
		talk.Expect("name", 600)
		talk.Reply("お名前は？")
	case words == "混雑":
		// linedesk calls the handler again, with a pause; nothing of a failed try is done.
		if talk.Try < 3 {
			return errors.New("the shop's server is busy")
		}
		talk.Reply("お待たせしました")
	case words == "故障":
		return Lasting{"no further try would help"}
	default:
		count := 1
		if former, ok := talk.Data["count"].(json.Number); ok {
			n, _ := former.Int64()
			count += int(n)
		}
		talk.Data["count"] = count
		name, ok := talk.Data["name"].(string)
		if !ok {
			name = "お客"
		}
		talk.Reply(fmt.Sprintf("%sさん、%d回目の「%s」ですね。", name, count, words))
	}
	return nil
}

func name(events []Object, talk *Talk) error {
	talk.Data["name"] = textOf(events[0])
	talk.SetState("")
	talk.Reply(fmt.Sprintf("%sさん、はじめまして。", textOf(events[0])))
	return nil
}

func tooLate(events []Object, talk *Talk) error {
	talk.Push("お名前はまた今度。")
	return nil
}

func ring(events []Object, talk *Talk) error {
	timer := events[0]["timer"].(Object)
	data := timer["data"].(Object)
	talk.Push(fmt.Sprintf("%v秒経ちました", data["seconds"]))
	return nil
}

func photos(events []Object, talk *Talk) error {
	talk.Reply(fmt.Sprintf("写真%d枚ですね。", len(events)))
	return nil
}

func anythingElse(events []Object, talk *Talk) error { return nil }

func main() {
	Run("1.0", []Rule{
		{Name: "text", Event: "message", Message: "text", Handler: text},
		{Name: "name", Event: "message", Message: "text", State: "name", Handler: name},
		{Name: "photos", Event: "message", Message: "image", Gather: 1, Handler: photos},
		{Name: "ring", Timer: "ring", Handler: ring},
		{Name: "tooLate", Timeout: "name", Handler: tooLate},
		{Name: "anythingElse", Handler: anythingElse},
	})
}
