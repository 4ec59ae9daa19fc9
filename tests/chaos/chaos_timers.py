"""The timers of the chaos suite: what the bot sets, moves, cancels and repeats, and the verdict.

A message sets three. The first, when it rings, cancels the last one, which is due later, and moves
the one between from far away to soon; that one then sets itself anew. So every row is written
by handlers and by the scheduler in turn. A user's first message sets a daily one, too.

Every fourth message subscribes to the news of the next moment, which are the same for all: so many
conversations wait with the same text, and share a multicast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from linedesk import Bot, Talk, TimerEvent
from linesim.judge.checker import Timer
from linesim.model.deliveries import Delivery

FIRST_SECONDS = 1.0
NEXT_SECONDS = 0.5
CANCELLED_SECONDS = 3.0
FAR_SECONDS = 3600.0
REPEATS = 2
# A user's daily timer is set for a minute that begins no sooner.
DAILY_SECONDS = 5.0
# The moments of the news, and how they begin.
NEWS_SECONDS = 4
NEWS = "news-"
# How late is a matter of what was broken; judged is that each comes, once and not before its time.
WITHIN_SECONDS = 3600.0

CANCELLED = "@cancelled"
DAILY = "@daily"


def sets_timers(number: int) -> bool:
    return number % 13 == 4


def moment_of_news(number: int, written: float) -> int | None:
    """When the news come that a message of this time subscribes to, in Unix time; None: it does
    not.
    """
    return (int(written) // NEWS_SECONDS + 1) * NEWS_SECONDS if number % 4 == 1 else None


def set_timers(text: str, number: int, talk: Talk) -> None:
    """What a message's handler does."""
    written = datetime.fromtimestamp(talk.raw["timestamp"] / 1000, UTC)
    if sets_timers(number):
        for name, seconds in [
            ("first", FIRST_SECONDS),
            ("moved", FAR_SECONDS),
            ("cancelled", CANCELLED_SECONDS),
        ]:
            talk.at(written + timedelta(seconds=seconds), f"{name}:{text}", text=text, number=1)
    moment = moment_of_news(number, written.timestamp())
    if moment is not None:
        talk.at(datetime.fromtimestamp(moment, UTC), f"news:{text}", moment=moment)
    if number == 1:
        minute = (written + timedelta(seconds=60 + DAILY_SECONDS)).replace(second=0, microsecond=0)
        talk.every(f"{minute:%H:%M}", "daily", tz="UTC", text=text)


def add_timers(bot: Bot) -> None:
    """Give the bot what happens when they ring."""

    @bot.timer("first")
    def first(event: TimerEvent, talk: Talk) -> None:
        text = event.data["text"]
        talk.push(f"{text}@first")
        talk.cancel(f"cancelled:{text}")
        talk.after(NEXT_SECONDS, f"moved:{text}", text=text, number=1)

    @bot.timer("moved")
    def moved(event: TimerEvent, talk: Talk) -> None:
        text, number = event.data["text"], event.data["number"]
        talk.push(f"{text}@moved-{number}")
        if number < REPEATS:
            talk.after(NEXT_SECONDS, event.name, text=text, number=number + 1)

    @bot.timer("cancelled")
    def cancelled(event: TimerEvent, talk: Talk) -> None:
        talk.push(f"{event.data['text']}{CANCELLED}")

    @bot.timer("news")
    def news(event: TimerEvent, talk: Talk) -> None:
        talk.push(f"{NEWS}{event.data['moment']}")

    @bot.timer("daily")
    def daily(event: TimerEvent, talk: Talk) -> None:
        talk.push(f"{event.data['text']}{DAILY}")


def timers_of(deliveries: Sequence[Delivery], rows: Sequence[Mapping[str, Any]]) -> list[Timer]:
    """What has to ring: for each message that was taken, and each daily row that has rung."""
    events = {
        event["webhookEventId"]: event
        for delivery in deliveries
        if delivery.delivered
        for event in delivery.events
        if event["type"] == "message"
    }
    timers = [timer for event in events.values() for timer in _timers(event)]
    daily = [
        _timer(row["key"], row["data"]["text"] + DAILY, row["rang"].timestamp())
        for row in rows
        if row.get("rang") is not None
    ]
    return timers + daily


def wrong_rows(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows that wait although nothing should, or do not although they should."""
    now = datetime.now(UTC)
    wrong = []
    for row in rows:
        if "setAside" in row:
            wrong.append(f"{row['_id']} is set aside: {row['setAside']}")
        elif row["every"] is None and row["runAt"] is not None:
            wrong.append(f"{row['_id']} still waits")
        elif row["every"] is not None and (row["runAt"] is None or row["runAt"] < soon(now)):
            wrong.append(f"{row['_id']} does not wait for its next time")
    return wrong


def soon(now: datetime) -> datetime:
    """What is due before is still to be waited for."""
    return now + timedelta(minutes=3)


def _timers(event: Mapping[str, Any]) -> Iterator[Timer]:
    text = event["message"]["text"]
    number = int(text.rpartition("-")[2])
    moment = moment_of_news(number, event["timestamp"] / 1000)
    if moment is not None:
        yield _timer(event["source"]["userId"], f"{NEWS}{moment}", moment)
    if not sets_timers(number):
        return
    due = event["timestamp"] / 1000 + FIRST_SECONDS
    yield _timer(event["source"]["userId"], f"{text}@first", due)
    for number in range(1, REPEATS + 1):
        due += NEXT_SECONDS
        yield _timer(event["source"]["userId"], f"{text}@moved-{number}", due)


def _timer(chat: str, text: str, due: float) -> Timer:
    return Timer(chat, text, due, WITHIN_SECONDS)
