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


def named(talk: Talk, words: str) -> str:
    """The words after the sender's name; without it if LINE did not return it in time."""
    return f"{talk.display_name}さん、{words}" if talk.display_name else words


@bot.add(MessageEvent, message=TextMessageContent)
def text(event: MessageEvent, talk: Talk) -> None:
    talk.reply(named(talk, f"はい、{event.message.text}、ですね。"))


@bot.add(MessageEvent, message=ImageMessageContent)
def image(event: MessageEvent, talk: Talk) -> None:
    talk.reply(named(talk, "写真ですね..."))


@bot.add(MessageEvent, message=VideoMessageContent)
def video(event: MessageEvent, talk: Talk) -> None:
    talk.reply(named(talk, "動画ですね..."))


@bot.add(MessageEvent, message=AudioMessageContent)
def audio(event: MessageEvent, talk: Talk) -> None:
    talk.reply(named(talk, "ボイスメッセージですね..."))


@bot.add(MessageEvent, message=FileMessageContent)
def file(event: MessageEvent, talk: Talk) -> None:
    talk.reply(named(talk, "ファイルですね..."))


@bot.add(MessageEvent, message=LocationMessageContent)
def location(event: MessageEvent, talk: Talk) -> None:
    talk.reply(named(talk, "位置情報ですね..."))


@bot.add(MessageEvent, message=StickerMessageContent)
def sticker(event: MessageEvent, talk: Talk) -> None:
    talk.reply(named(talk, "スタンプですね"))


@bot.add(FollowEvent)
def follow(event: FollowEvent, talk: Talk) -> None:
    """Greet a new friend. The profile was fetched for this event and is stored with the welcome."""
    talk.reply("ようこそ！")


@bot.add(UnfollowEvent)
def unfollow(event: UnfollowEvent, talk: Talk) -> None:
    talk.forget()
