"""The timers of the chaos suite: set, moved, cancelled and repeated by the bot, and the verdict.

A message sets three. When the first one fires, it cancels the last one, which is due later, and
moves the middle one from far away to soon; that one then sets itself again. Handlers and the
thread that fires timers thus write every row in turn. A user's first message also sets a daily one.

Readers write once and then get issues at the same moments and with the same texts: many
conversations wait with the same message, and share a multicast.
"""

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
# Between two issues.
ISSUE_SECONDS = 3
READER = "読者"
# The delay depends on the damage. The verdict checks that each timer fires once and not before its
# time.
WITHIN_SECONDS = 3600.0

CANCELLED = "@cancelled"
DAILY = "@daily"


def sets_timers(number: int) -> bool:
    return number % 13 == 4


def first_issue(written: float) -> int:
    """The Unix time of the first issue for a reader who wrote at this time."""
    return (int(written) // ISSUE_SECONDS + 1) * ISSUE_SECONDS


def set_timers(text: str, number: int, talk: Talk) -> None:
    """The actions of a message's handler."""
    written = datetime.fromtimestamp(talk.raw["timestamp"] / 1000, UTC)
    if sets_timers(number):
        for name, seconds in [
            ("first", FIRST_SECONDS),
            ("moved", FAR_SECONDS),
            ("cancelled", CANCELLED_SECONDS),
        ]:
            talk.at(written + timedelta(seconds=seconds), f"{name}:{text}", text=text, number=1)
    if text.startswith(READER):
        set_issue(f"issue:{text}", first_issue(written.timestamp()), number, talk)
    if number == 1:
        minute = (written + timedelta(seconds=60 + DAILY_SECONDS)).replace(second=0, microsecond=0)
        talk.every(f"{minute:%H:%M}", "daily", tz="UTC", text=text)


def set_issue(name: str, at: int, left: int, talk: Talk) -> None:
    """Set the timer for the next issue, up to the given number."""
    if left:
        talk.at(datetime.fromtimestamp(at, UTC), name, at=at, left=left)


def add_timers(bot: Bot) -> None:
    """Add the timers' handlers to the bot."""

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

    @bot.timer("issue")
    def issue(event: TimerEvent, talk: Talk) -> None:
        at = event.data["at"]
        talk.push(f"issue-{at}")
        set_issue(event.name, at + ISSUE_SECONDS, event.data["left"] - 1, talk)

    @bot.timer("daily")
    def daily(event: TimerEvent, talk: Talk) -> None:
        talk.push(f"{event.data['text']}{DAILY}")


def timers_of(deliveries: Sequence[Delivery], rows: Sequence[Mapping[str, Any]]) -> list[Timer]:
    """The expected timers: for each accepted message, and each daily row that has fired."""
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
    """Timers due before are still awaited."""
    return now + timedelta(minutes=3)


def _timers(event: Mapping[str, Any]) -> Iterator[Timer]:
    text = event["message"]["text"]
    number = int(text.rpartition("-")[2])
    chat, written = event["source"]["userId"], event["timestamp"] / 1000
    if text.startswith(READER):
        first = first_issue(written)
        for at in range(first, first + number * ISSUE_SECONDS, ISSUE_SECONDS):
            yield _timer(chat, f"issue-{at}", at)
    if not sets_timers(number):
        return
    due = written + FIRST_SECONDS
    yield _timer(chat, f"{text}@first", due)
    for number in range(1, REPEATS + 1):
        due += NEXT_SECONDS
        yield _timer(chat, f"{text}@moved-{number}", due)


def _timer(chat: str, text: str, due: float) -> Timer:
    return Timer(chat, text, due, WITHIN_SECONDS)
