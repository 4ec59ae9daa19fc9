// An echo bot with line-bot-sdk-go. Without LINE_API_BASE it calls LINE itself.
package main

import (
	"cmp"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"

	"github.com/line/line-bot-sdk-go/v8/linebot/messaging_api"
	"github.com/line/line-bot-sdk-go/v8/linebot/webhook"
)

func main() {
	token := os.Getenv("LINE_CHANNEL_ACCESS_TOKEN")
	base := cmp.Or(os.Getenv("LINE_API_BASE"), "https://api.line.me")
	dataBase := cmp.Or(os.Getenv("LINE_API_DATA_BASE"), "https://api-data.line.me")
	api, err := messaging_api.NewMessagingApiAPI(token, messaging_api.WithEndpoint(base))
	if err != nil {
		log.Fatal(err)
	}
	blob, err := messaging_api.NewMessagingApiBlobAPI(token, messaging_api.WithBlobEndpoint(dataBase))
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/callback", func(w http.ResponseWriter, request *http.Request) {
		callback, err := webhook.ParseRequest(os.Getenv("LINE_CHANNEL_SECRET"), request)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, event := range callback.Events {
			if message, ok := event.(webhook.MessageEvent); ok {
				if err := answer(api, blob, message); err != nil {
					log.Print(err)
				}
			}
		}
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+cmp.Or(os.Getenv("PORT"), "3000"), nil))
}

func answer(
	api *messaging_api.MessagingApiAPI,
	blob *messaging_api.MessagingApiBlobAPI,
	event webhook.MessageEvent,
) error {
	var words string
	switch message := event.Message.(type) {
	case webhook.TextMessageContent:
		words = message.Text
	case webhook.ImageMessageContent:
		content, err := blob.GetMessageContent(message.Id)
		if err != nil {
			return err
		}
		defer content.Body.Close()
		size, err := io.Copy(io.Discard, content.Body)
		if err != nil {
			return err
		}
		words = fmt.Sprintf("%d bytes", size)
	default:
		return nil
	}
	_, err := api.ReplyMessage(&messaging_api.ReplyMessageRequest{
		ReplyToken: event.ReplyToken,
		Messages:   []messaging_api.MessageInterface{messaging_api.TextMessage{Text: words}},
	})
	return err
}
