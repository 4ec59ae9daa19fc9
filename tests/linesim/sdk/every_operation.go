// Calls each method of the SDK's clients; the arguments come by standard input, by the method's name in small letters.
package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"os"
	"reflect"
	"strings"

	token "github.com/line/line-bot-sdk-go/v8/linebot/channel_access_token"
	api "github.com/line/line-bot-sdk-go/v8/linebot/messaging_api"
)

type Told struct {
	Url, Token string
	Steps      map[string][]json.RawMessage
}

func main() {
	var told Told
	must(json.NewDecoder(os.Stdin).Decode(&told))
	messaging, err := api.NewMessagingApiAPI(told.Token, api.WithEndpoint(told.Url))
	must(err)
	blob, err := api.NewMessagingApiBlobAPI(told.Token, api.WithBlobEndpoint(told.Url))
	must(err)
	tokens, err := token.NewChannelAccessTokenAPI(token.WithEndpoint(told.Url))
	must(err)
	var late []func()
	for _, client := range []any{messaging, blob, tokens} {
		value := reflect.ValueOf(client)
		for i := range value.NumMethod() {
			name, method := value.Type().Method(i).Name, value.Method(i)
			if strings.HasSuffix(name, "WithHttpInfo") || name == "Do" || name == "Url" || name == "WithContext" {
				continue
			}
			values, known := told.Steps[strings.ToLower(name)]
			if !known {
				log.Fatal("no arguments for ", name)
			}
			call := func() { method.Call(arguments(method.Type(), values)) }
			// What takes the default menu away comes last.
			if strings.HasPrefix(name, "Cancel") {
				late = append(late, call)
			} else {
				call()
			}
		}
	}
	for _, call := range late {
		call()
	}
}

// A picture is two arguments: its type and its bytes.
func arguments(method reflect.Type, values []json.RawMessage) []reflect.Value {
	var made []reflect.Value
	for _, value := range values {
		var picture struct{ Png []byte }
		if json.Unmarshal(value, &picture) == nil && picture.Png != nil {
			var reader io.Reader = bytes.NewReader(picture.Png)
			made = append(made, reflect.ValueOf("image/png"), reflect.ValueOf(reader))
			continue
		}
		argument := reflect.New(method.In(len(made)))
		must(json.Unmarshal(value, argument.Interface()))
		made = append(made, argument.Elem())
	}
	return made
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
