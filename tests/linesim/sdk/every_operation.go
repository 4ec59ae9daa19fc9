// Calls each method of the SDK's clients; the arguments come by standard input, by the method's name in small letters.
package main

import (
	"bytes"
	"encoding/json"
	"log"
	"os"
	"reflect"
	"regexp"
	"strings"

	token "github.com/line/line-bot-sdk-go/v8/linebot/channel_access_token"
	api "github.com/line/line-bot-sdk-go/v8/linebot/messaging_api"
)

var told struct {
	Url, Token string
	Steps      map[string][]json.RawMessage
}
var other = regexp.MustCompile("WithHttpInfo$|^(Do|Url|WithContext)$")

func main() {
	must(0, json.NewDecoder(os.Stdin).Decode(&told))
	clients := []any{
		must(api.NewMessagingApiAPI(told.Token, api.WithEndpoint(told.Url))),
		must(api.NewMessagingApiBlobAPI(told.Token, api.WithBlobEndpoint(told.Url))),
		must(token.NewChannelAccessTokenAPI(token.WithEndpoint(told.Url))),
	}
	// What takes the default menu away comes last.
	for _, late := range []bool{false, true} {
		for _, client := range clients {
			value := reflect.ValueOf(client)
			for i := range value.NumMethod() {
				name, method := value.Type().Method(i).Name, value.Method(i)
				if !other.MatchString(name) && strings.HasPrefix(name, "Cancel") == late {
					method.Call(arguments(name, method.Type()))
				}
			}
		}
	}
}

// A picture is two arguments: its type and its bytes.
func arguments(name string, method reflect.Type) (made []reflect.Value) {
	values, known := told.Steps[strings.ToLower(name)]
	if !known {
		log.Fatal("no arguments for ", name)
	}
	for _, value := range values {
		var picture struct{ Png []byte }
		if json.Unmarshal(value, &picture) == nil && picture.Png != nil {
			made = append(made, reflect.ValueOf("image/png"), reflect.ValueOf(bytes.NewReader(picture.Png)))
			continue
		}
		argument := reflect.New(method.In(len(made)))
		must(0, json.Unmarshal(value, argument.Interface()))
		made = append(made, argument.Elem())
	}
	return
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
