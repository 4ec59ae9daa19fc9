"""A bot with all that an export keeps: state, data, and timers of each kind."""

from datetime import UTC, datetime
from typing import Any

from linebot.v3.webhooks import MessageEvent, TextMessageContent

from linedesk import Bot, Talk, TimerEvent

keeper = Bot()


@keeper.add(MessageEvent, message=TextMessageContent)
def count(event: MessageEvent, talk: Talk) -> None:
    talk.data["回"] = talk.data.get("回", 0) + 1
    answer = f"{talk.data['回']}: {event.message.text} {talk.state}"
    if event.message.text == "timers":
        talk.state = "待つ"
        # No dispatcher of this database fires it.
        talk.at(datetime(2026, 1, 1, tzinfo=UTC), "egg")
        talk.every("07:30", "morning", tz="Asia/Tokyo")
        talk.after(3600, "later")
    (talk.push if event.message.text == "push" else talk.reply)(answer)


@keeper.timer("egg")
@keeper.timer("morning")
@keeper.timer("later")
def ring(event: TimerEvent, talk: Talk) -> None:
    talk.push(f"ring {event.name}")


def texts(bubbles: list[Any]) -> list[str]:
    return [bubble.text for bubble in bubbles]
