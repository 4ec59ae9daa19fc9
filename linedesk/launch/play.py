"""The demo's conversations: the acts of users in each scene, and the answers that they need.

linesim's judge compares each scene with LINE's record of it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from linedesk.launch.stage import Stage
from linedesk.settings.errors import DemoFailed
from linedesk.store.documents import SCHEDULE, Document
from linesim import Report, Timer, check
from linesim.judge.history import asked_in, attribute, said_in
from linesim.model.calls import Call
from linesim.model.deliveries import Delivery
from linesim.model.deliveries import Event as LineEvent
from linesim.model.events import redelivered
from linesim.model.world import Group, User
from linesim.people.drafts import Drafts

ANSWER_SECONDS = 15.0
# The clock is moved to this time before a timer's time and passes it by itself. This shows the
# delay of the message, and that none is early.
LEAD_SECONDS = 0.5
# Time-outs of states, which send no message by themselves, have names with this prefix.
WAITING: Document = {"runAt": {"$type": "date"}, "name": {"$not": {"$regex": "^~"}}}
# The dispatcher's log line, with --verbose, at the start of a handler.
_STARTED = re.compile(r" started event_id=(\S+) .*?since_accept_ms=([\d.]+)")

Found = TypeVar("Found")


@dataclass(frozen=True)
class Deed:
    """One action of a user; `shown` is its text in the transcript, and `draft` makes its event.

    `answer` is what the bot has to say. A deed without one is complete when its handler has
    started, or at once where the bot has no handler for it.
    """

    who: str
    shown: str
    draft: Callable[[Drafts], LineEvent]
    answer: str | None = None
    has_handler: bool = True


@dataclass
class Event:
    """One deed's event: its webhook, the start of its handler and the calls with its answer."""

    deed: Deed
    event_id: str
    delivery: Delivery
    started_ms: float | None = None
    answers: Sequence[Call] = ()

    @property
    def is_done(self) -> bool:
        """Whether its deed is complete."""
        has_started = self.started_ms is not None or not self.deed.has_handler
        return has_started and (self.deed.answer is None or bool(self.answers))

    def answered_ms(self, call: Call) -> float:
        """From its webhook to this call of LINE."""
        return (call.started - self.delivery.started) * 1000


@dataclass(frozen=True)
class Ring:
    """A message of a timer that reached LINE: its due time, and the delay until LINE got it."""

    who: str
    text: str
    due: float
    """Unix seconds."""
    late_ms: float


@dataclass
class Scene:
    """A part of the conversation, and a closing `remark`.

    In a scene by the clock the users are idle: the clock was moved ahead by `advanced` seconds, and
    `rings` arrived.
    """

    title: str
    events: Sequence[Event] = ()
    remark: str = ""
    advanced: float = 0.0
    rings: Sequence[Ring] = ()


class Play:
    """Acts on a stage; `events` and `rings` have all that happened, in order.

    Every method raises DemoFailed, naming the scene, if a message is missing, wrong or too early,
    or if one came twice.
    """

    def __init__(self, stage: Stage) -> None:
        self.sim = stage.sim
        self.events: list[Event] = []
        self.rings: Sequence[Ring] = ()
        self._stage = stage
        self._answers: dict[str, Sequence[str]] = {}
        self._timers: list[Timer] = []

    def act(self, title: str, *deeds: Deed) -> Scene:
        """Each deed is one webhook; returns once all have their answers."""
        return self.burst(title, [[deed] for deed in deeds])

    def burst(self, title: str, webhooks: Sequence[Sequence[Deed]]) -> Scene:
        """Webhooks of several deeds each; returns once all have their answers."""
        events = [event for deeds in webhooks for event in self._send(deeds)]
        self._until(title, lambda: self._are_done(events))
        self.judge(title)
        return Scene(title, events)

    def act_twice(self, title: str, deed: Deed, later: Deed) -> Scene:
        """LINE delivers the deed a second time; a later deed proves that it has no other answer."""
        (first,) = self.act(title, deed).events
        again = self._stage.deliver(*map(redelivered, first.delivery.events))
        (last,) = self.act(title, later).events
        milliseconds = f"{again.milliseconds:.1f} ms"
        remark = f"the redelivery was answered with 200 after {milliseconds} and not handled again"
        return Scene(title, [first, last], remark)

    def fire(self, title: str, *expected: tuple[User, str], waiting: int) -> Scene:
        """Move the clock to the next timer, once `waiting` timers wait, and wait for the messages
        of the next timers of these users.
        """
        rows = self._until(title, lambda: self._waiting(waiting))
        advanced = (rows[0]["runAt"] - self._stage.now()) / timedelta(seconds=1) - LEAD_SECONDS
        for who, text in expected:
            row = next(row for row in rows if row["key"] == who.user_id)
            rows.remove(row)
            due = row["runAt"].timestamp()
            self._timers.append(Timer(who.user_id, text, due, within_seconds=ANSWER_SECONDS))
        if advanced > 0:
            self.sim.advance(advanced)
        self.rings = self._until(title, self._all_rings)
        self.judge(title)
        return Scene(title, advanced=max(advanced, 0.0), rings=self.rings[-len(expected) :])

    def judge(self, title: str) -> Report:
        """linesim's judgement of all that happened so far."""
        report = check(self.sim, expect=self._expected, expect_timers=self._timers)
        problems = [*report.problems(), *self._unexpected()]
        if problems:
            raise DemoFailed(f"{title}: {'; '.join(problems)}")
        return report

    def _send(self, deeds: Sequence[Deed]) -> list[Event]:
        drafted = [deed.draft(self.sim.drafts) for deed in deeds]
        for deed, event in zip(deeds, drafted, strict=True):
            self._answers[event["webhookEventId"]] = (deed.answer,) if deed.answer else ()
        delivery = self._stage.deliver(*drafted)
        pairs = zip(deeds, delivery.event_ids, strict=True)
        events = [Event(deed, event_id, delivery) for deed, event_id in pairs]
        self.events += events
        return events

    def _until(self, title: str, look: Callable[[], Found | None]) -> Found:
        try:
            return self._stage.wait_for(look, "dispatcher", seconds=ANSWER_SECONDS)
        except DemoFailed as error:
            missing = [f"{e.deed.who} {e.deed.shown}" for e in self.events if not e.is_done]
            told = [f"not answered: {one}" for one in missing] + self._unexpected()
            raise DemoFailed(f"{title}: {'; '.join([*told, str(error)])}") from error

    def _are_done(self, events: Sequence[Event]) -> bool:
        """Whether these are, after a look for the start and the answers of each event so far."""
        starts = dict(_STARTED.findall(self._stage.log_of("dispatcher")))
        asked = asked_in(self.sim.deliveries, self._expected)
        attribute(asked.values(), said_in(self.sim.calls))
        for event in self.events:
            if event.event_id in starts:
                event.started_ms = float(starts[event.event_id])
            event.answers = [call for said in asked[event.event_id].said for call in said]
        return all(event.is_done for event in events)

    def _expected(self, event: LineEvent) -> Sequence[str]:
        return self._answers.get(event["webhookEventId"], ())

    def _unexpected(self) -> list[str]:
        """The texts that are neither an answer nor a timer's message."""
        asked = asked_in(self.sim.deliveries, self._expected).values()
        wanted = {(each.chat, text) for each in asked for text in each.texts}
        wanted |= {(timer.chat, timer.text) for timer in self._timers}
        return [
            f"not expected: {said[1]}" for said in said_in(self.sim.calls) if said not in wanted
        ]

    def _waiting(self, count: int) -> list[Document] | None:
        """The timers that wait, the next one first, if there are exactly `count`."""
        rows = list(self._stage.database[SCHEDULE].find(WAITING).sort("runAt"))
        return rows if len(rows) == count else None

    def _all_rings(self) -> Sequence[Ring] | None:
        """The message of each timer, once all have reached LINE."""
        said = {place: deque(calls) for place, calls in said_in(self.sim.calls).items()}
        users, rings = self.sim.platform.world.users, []
        for timer in self._timers:
            if not (calls := said.get((timer.chat, timer.text))):
                return None
            late_ms = (calls.popleft().at - timer.due) * 1000
            rings.append(Ring(users[timer.chat].name, timer.text, timer.due, late_ms))
        return rings


def says(who: User, text: str, answer: str, *, chat: Group | None = None) -> Deed:
    """A text message, and the bot's answer."""
    where = f"{who.name} @{chat.name}" if chat else who.name
    return Deed(where, text, lambda drafts: drafts.text(who, text, chat=chat), answer)


def heard(who: User, text: str, *, chat: Group | None = None) -> Deed:
    """A text message to the parrot."""
    return says(who, text, f"{who.name}さん、はい、{text}、ですね。", chat=chat)


BURST = 5


def parrot_scenes(play: Play) -> Iterator[Scene]:
    """People of all kinds, a group, a burst, a redelivery."""
    names = ("佐藤花子", "田中太郎", "Émile 🦜")
    people = hanako, taro, emily = [play.sim.add_user(name, friend=False) for name in names]

    def adds_the_bot(who: User) -> Deed:
        return Deed(who.name, "(adds the bot)", lambda drafts: drafts.follow(who), "ようこそ！")

    yield play.act("three people add the bot as a friend", *map(adds_the_bot, people))
    yield play.act(
        "each of them says hello",
        heard(hanako, "こんにちは！今日もいい天気ですね ☀️"),
        heard(taro, "改行も\n大丈夫？👨‍👩‍👧‍👦"),
        Deed(emily.name, "[sticker]", lambda d: d.sticker(emily), "Émile 🦜さん、スタンプですね"),
        Deed(
            hanako.name,
            "[photo]",
            lambda d: d.medium("image", hanako),
            "佐藤花子さん、写真ですね...",
        ),
        Deed(
            taro.name,
            "[location] 東京タワー",
            lambda d: d.location(taro),
            "田中太郎さん、位置情報ですね...",
        ),
    )
    camp = play.sim.add_group("週末キャンプ", [hanako, taro], present=False)
    yield play.act(
        "a group invites the bot",
        Deed(camp.name, "(invites the bot)", lambda drafts: drafts.join(camp), has_handler=False),
        heard(taro, "テントは誰が持ってくる？", chat=camp),
    )
    yield play.burst(
        f"all write at once, {BURST} messages each; everyone is answered in order",
        [[heard(who, f"{number}つ目です") for who in people] for number in range(1, BURST + 1)],
    )
    yield play.act_twice(
        "LINE delivers one webhook twice; it is answered once",
        heard(hanako, "これは二度届きます"),
        heard(hanako, "これは一度だけ"),
    )
    yield play.act(
        "one of them blocks the bot",
        Deed(emily.name, "(blocks the bot)", lambda drafts: drafts.unfollow(emily)),
    )


def timer_scenes(play: Play) -> Iterator[Scene]:
    """Seconds that pass, several of them at once, and a change of mind."""
    # Imported here: everything has started by now, and it imports the SDK.
    from linedesk.bots.timer import HELP, OUT_OF_RANGE

    hanako, taro = (play.sim.add_user(name) for name in ("佐藤花子", "田中太郎"))
    yield play.act(
        "a number sets a timer; anything else is explained",
        says(hanako, "180", "180秒後にお知らせします"),
        says(hanako, "１８０", "180秒後にお知らせします"),
        says(taro, "その他の言葉", HELP),
        says(taro, "0", OUT_OF_RANGE),
    )
    yield play.fire("three minutes later", *[(hanako, "180秒経ちました")] * 2, waiting=2)
    yield play.act(
        "one user cancels her timer",
        says(hanako, "60", "60秒後にお知らせします"),
        says(hanako, "90", "90秒後にお知らせします"),
        says(taro, "120", "120秒後にお知らせします"),
        says(hanako, "キャンセル", "2個のタイマーを止めました。"),
    )
    scene = play.fire("two minutes later", (taro, "120秒経ちました"), waiting=1)
    scene.remark = "the cancelled timer was due before it, and did not fire"
    yield scene


def reminder_scenes(play: Play) -> Iterator[Scene]:
    """A daily time, a question asked back, and nagging until there is an answer."""
    hanako, not_set = play.sim.add_user("佐藤花子"), "設定されてないですよ"
    yield play.act(
        "nothing is set yet",
        says(hanako, "設定教えて", not_set),
        says(hanako, "こんにちは", "時間を設定してください"),
    )
    yield play.act(
        "25 is not an hour, so the bot asks again",
        says(hanako, "25時30分", "何時ですか？"),
        says(hanako, "8時", "8時30分ですね。わかりました。"),
        says(hanako, "設定教えて", "8時30分に設定されています"),
    )
    yield play.fire("half past eight in Tokyo", (hanako, "飲んだ？"), waiting=1)
    # The next day's, and the next in ten minutes.
    yield play.fire("no answer for ten minutes", (hanako, "飲んだ？？"), waiting=2)
    yield play.act(
        "any answer ends the questions; then good-bye",
        says(hanako, "飲みました", "よくできました"),
        says(hanako, "ばいばい", "設定を削除しました。 ばいばい"),
        says(hanako, "設定教えて", not_set),
    )
