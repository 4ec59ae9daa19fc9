"""The parrot: repeats texts, and names photos, stickers and other messages."""

from __future__ import annotations

from linebot.v3.webhooks import (
    AudioMessageContent,
    FileMessageContent,
    FollowEvent,
    ImageMessageContent,
    LocationMessageContent,
    MessageEvent,
    StickerMessageContent,
    TextMessageContent,
    UnfollowEvent,
    VideoMessageContent,
)

from linedesk import Bot, Talk

bot = Bot(profiles=True)

NAMES = {
    ImageMessageContent: "写真ですね...",
    VideoMessageContent: "動画ですね...",
    AudioMessageContent: "ボイスメッセージですね...",
    FileMessageContent: "ファイルですね...",
    LocationMessageContent: "位置情報ですね...",
    StickerMessageContent: "スタンプですね",
}


def named(talk: Talk, words: str) -> str:
    """The words after the sender's name; without it if LINE did not return it in time."""
    return f"{talk.display_name}さん、{words}" if talk.display_name else words


@bot.add(MessageEvent, message=TextMessageContent)
def text(event: MessageEvent, talk: Talk) -> None:
    talk.reply(named(talk, f"はい、{event.message.text}、ですね。"))


@bot.add(MessageEvent, message=list(NAMES))
def no_text(event: MessageEvent, talk: Talk) -> None:
    talk.reply(named(talk, NAMES[type(event.message)]))


@bot.add(FollowEvent)
def follow(event: FollowEvent, talk: Talk) -> None:
    """Greet a new friend. The profile was fetched for this event and is stored with the welcome."""
    talk.reply("ようこそ！")


@bot.add(UnfollowEvent)
def unfollow(event: UnfollowEvent, talk: Talk) -> None:
    talk.forget()
