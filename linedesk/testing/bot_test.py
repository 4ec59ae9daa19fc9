"""`BotTest`: a bot in a conversation within one process, in milliseconds.

Rules, talk, decisions and timers are those of production; only the services behind them are
replaced: MongoDB by `memory`, LINE by the list of sends, the thread that fires timers by `advance`.
"""

from __future__ import annotations

import inspect
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

from dispatcher.conversations.mailbox import Following
from jobworker.bot.bot import Bot, Rule
from jobworker.bot.events import model_of
from jobworker.bot.gather import MOST_TOGETHER, Gathering, answered
from jobworker.bot.talk import Talk, TalkContext
from jobworker.bot.timers import STATE_TIMER
from jobworker.effects import is_timer
from jobworker.errors import NoTimerHandler, PermanentError
from jobworker.line.month import MonthlyQuota
from jobworker.line.profiles import is_fresh
from jobworker.record.conversations import Decision
from jobworker.record.waiting_answers import ButtonShown, fetched, kept
from jobworker.sending.button import BEFORE_END_SECONDS, SlowAnswers, may_be_offered, message_of
from linedesk.store.documents import Document, conversation_id, make_document, name_of
from linedesk.store.limits import TOKEN_LIFE
from linedesk.store.records.answers import KEPT_FOR
from linedesk.store.records.timers import RUN_AT
from linedesk.store.redaction import message_id_of, unsent_id_of
from linedesk.store.timers import make_timer_document
from linedesk.testing.answers import Sent
from linedesk.testing.errors import BotWarning, EndlessTimers, NotHere
from linedesk.testing.files import SentContents
from linedesk.testing.memory import Memory, as_stored
from linedesk.testing.people import CHANNEL, People
from linedesk.testing.remote import RemoteBot
from linedesk.testing.webhooks import Webhooks


@dataclass
class Line:
    """The queue of one conversation: messages being gathered, and later documents."""

    documents: deque[Document] = field(default_factory=deque)
    gathering: Gathering | None = None
    """The time of the first of them."""
    until: datetime | None = None
    """When gathering ends unless more messages come; None for an empty queue."""

    def due(self) -> datetime:
        """`until` of a queue that is not empty."""
        assert self.until is not None, "nothing waits there"
        return self.until


START = datetime(2027, 1, 4, 0, 0, tzinfo=UTC)
"""A Monday, nine in the morning in Tokyo."""
MOST_FIRINGS = 1_000
FAILED = (
    "In production the handler is tried HANDLER_TRIES times in all, without any effects in "
    "between; then the event becomes a dead letter."
)
REFUSED = "In production the event becomes a dead letter at once: each further try would fail, too."


class BotTest(People):
    """A simulated environment for one bot.

    `settings` overrides the bot's own settings, `secrets` has its declared secrets. An exception of
    a handler reaches the test, and its decisions have no effect. `api` is the value of `talk.api`:
    the test's stand-in for LINE's MessagingApi. `slow_answers` is the operator's setting
    SLOW_ANSWERS. With `remote` events and decisions pass through JSON, as with worker processes
    (DISPATCHER_WORKERS=amqp), and values that JSON cannot hold are refused.
    """

    quota: MonthlyQuota
    """The value of `talk.quota`; a test may set it at any time."""

    def __init__(
        self,
        bot: Bot,
        *,
        settings: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
        start: datetime = START,
        api: Any = None,
        slow_answers: str = "push",
        remote: bool = False,
    ) -> None:
        if not isinstance(bot, Bot):
            raise NotHere(
                "this is not a Bot and calls LINE by itself: test it with `pytest --real-stack`"
            )
        if start.tzinfo is None:
            raise ValueError("start has no time zone")
        super().__init__(bot, Webhooks())
        self.bot = bot
        self.settings = _settings_of(bot, settings or {})
        self.secrets = _secrets_of(bot, secrets or {})
        given = {"settings": self.settings, "secrets": self.secrets}
        self._remote = RemoteBot(bot, **given) if remote else None
        self._rules = self._remote.rules if self._remote is not None else bot
        self.quota = MonthlyQuota()
        self._now = start.astimezone(UTC)
        self._api = api
        self._slow_answers = SlowAnswers(slow_answers)
        self._takes = timedelta(0)
        self._memory = Memory()
        self._lines: dict[str, Line] = {}
        self._handled: set[str] = set()
        self._names: dict[str, str] = {}
        self._contents = SentContents()

    @property
    def now(self) -> datetime:
        return self._now

    def id(self, name: str) -> str:
        return name

    def names(self, user: str, name: str) -> None:
        self._names[user] = name

    def takes(self, seconds: float) -> None:
        """Make the next handler take `seconds`.

        A reply token is valid for 60 s. With SLOW_ANSWERS=button the user gets a button if a
        handler still runs ten seconds before its end; `taps` then delivers the answer.
        """
        self._takes = timedelta(seconds=seconds)

    def _rows(self) -> list[Document]:
        return self._memory.rows()

    def _stored(self, id_: str) -> Document:
        return self._memory.stored(id_)

    def _meet(self, user: str | None, group: str | None) -> None:
        """Do nothing: all users and groups exist."""

    def _keep_content(self, message_id: str, kind: str, data: bytes, name: str) -> None:
        self._contents.keep(message_id, data, name)

    # Processing of an event.

    def _handle(self, event: Document) -> tuple[Sent, ...]:
        document = make_document(event, channel=CHANNEL, accept_time=self._now)
        if name_of(document) in self._handled:
            # LINE delivers it a second time.
            return ()
        self._handled.add(name_of(document))
        self._memory.end_old_answers(self._now - KEPT_FOR)
        return (*self._put(as_stored(document)), *self._fire_until(self._now))

    def _put(self, document: Document) -> tuple[Sent, ...]:
        """Append a document to its conversation's queue."""
        line = self._lines.setdefault(conversation_id(document), Line())
        line.documents.append(document)
        return self._work_off(line)

    def _work_off(self, line: Line) -> tuple[Sent, ...]:
        """Process the queue of a conversation, up to messages that are still gathered."""
        sent: list[Sent] = []
        while line.documents:
            count = self._gathered(line)
            if not count:
                break
            together = [line.documents.popleft() for _ in range(count)]
            line.gathering, line.until = None, None
            sent.extend(self._decide(together, behind=line.documents))
        return tuple(sent)

    def _gathered(self, line: Line) -> int:
        """The number of documents at the head to process together now; 0 if they wait."""
        first, *behind = line.documents
        talk = Talk(first, self._around(first))
        if talk.raw.get("type") != "message" or talk.user_id is None:
            return 1
        rule = self._rules.rule_in(talk, model_of(first["event"]))
        if rule is None or rule.gather is None:
            return 1
        clock = (self._now - START).total_seconds()
        line.gathering = line.gathering or Gathering(rule.gather, first, is_old=False, clock=clock)
        count, wait_seconds = line.gathering.look(
            Following(behind, MOST_TOGETHER - 1, is_cut=False, is_reading=False),
            belongs=partial(self._rules.gathers, rule, talk),
            now=self._now,
            clock=clock,
        )
        line.until = self._now + timedelta(seconds=wait_seconds)
        return 0 if wait_seconds else 1 + count

    def _go_to(self, moment: datetime) -> tuple[Sent, ...]:
        sent = self._fire_until(moment.astimezone(UTC))
        self._now = moment.astimezone(UTC)
        return sent

    def _fire_until(self, moment: datetime) -> tuple[Sent, ...]:
        """Fire timers and process gathered messages up to `moment`, each at its time."""
        sent: list[Sent] = []
        waiting = [line for line in self._lines.values() if line.until is not None]
        while line := min(waiting, key=Line.due, default=None):
            if line.due() > moment:
                break
            sent.extend(self._ring_until(line.due()))
            if line.until is not None:
                self._now = max(self._now, line.due())
                sent.extend(self._work_off(line))
            waiting = [line for line in self._lines.values() if line.until is not None]
        return (*sent, *self._ring_until(moment))

    def _ring_until(self, moment: datetime) -> tuple[Sent, ...]:
        sent: list[Sent] = []
        at_once = 0
        while (row := self._memory.due(moment)) is not None:
            at_once = 0 if row[RUN_AT] > self._now else at_once + 1
            if at_once > MOST_FIRINGS:
                raise EndlessTimers(f"the timer {row['name']!r} fired {MOST_FIRINGS} times at once")
            self._now = max(self._now, row[RUN_AT].astimezone(UTC))
            document = make_timer_document(row, accept_time=self._now)
            sent.extend(self._put(as_stored(document)))
        return tuple(sent)

    def _decide(
        self, documents: Sequence[Document], *, behind: Iterable[Document]
    ) -> tuple[Sent, ...]:
        """Decide documents like `jobworker.turn.Turns`."""
        document = documents[0]
        tap = fetched(document, lambda: self._memory.load(document), now=self._now)
        if tap is not None:
            return self._record(document, tap)
        heard, decision, took = self._decision(documents, behind)
        if not heard:
            return ()
        self._now += took
        by_token = answered(heard)
        is_shown = (
            self._slow_answers is SlowAnswers.BUTTON
            and may_be_offered(by_token)
            and took >= TOKEN_LIFE - timedelta(seconds=BEFORE_END_SECONDS)
        )
        if not is_shown:
            return self._record(document, decision, is_late=took >= TOKEN_LIFE)
        button = Sent(document["key"], "reply", (message_of(name_of(by_token)),))
        waits = kept(decision, by_token, ButtonShown.YES, now=self._now)
        return (button, *self._record(document, waits))

    def _record(
        self, document: Document, decision: Decision, *, is_late: bool = False
    ) -> tuple[Sent, ...]:
        """Record the decision; returns the sends, with late replies as pushes."""
        if document["event"].get("mode") == "standby":
            decision = decision.given_up
        with _explained():
            sends = self._memory.record(document, decision)
        way = {"way": "push"} if is_late else {}
        return tuple(_sent({**one, **(way if one["way"] == "reply" else {})}) for one in sends)

    def _decision(
        self, documents: Sequence[Document], behind: Iterable[Document]
    ) -> tuple[Sequence[Document], Decision, timedelta]:
        """Run the handler; returns its decision and its duration."""
        document, took = documents[0], timedelta(0)
        heard: Sequence[Document] = [document]
        event = model_of(document["event"])
        talk = Talk(document, self._around(document))
        with _explained():
            rule = self._rules.rule_in(talk, event)
            if rule is not None and rule.gather is not None:
                taken_back = {unsent_id_of(one) for one in behind} - {None}
                heard = [one for one in documents if message_id_of(one) not in taken_back]
                if not heard:
                    return heard, talk.decision(), took
                event = [model_of(one["event"]) for one in heard]
                talk.gathered(heard)
            if rule is not None and rule.profile is True:
                self._tell_profile(talk)
            if document["event"].get("type") in ("follow", "unfollow"):
                talk.know_friend(document["event"]["type"] == "follow")
            if rule is not None:
                took, self._takes = self._takes, took
                self._call(rule, event, talk)
            decision = talk.decision()
        self._check_timers(decision)
        return heard, decision, took

    def _call(self, rule: Rule, event: Any, talk: Talk) -> None:
        # Its return type is None, but a bot without type hints may return a message.
        handler: Callable[..., object] = rule.handler
        with self._contents.while_handling():
            if self._remote is not None:
                handler = self._remote.handler_of(rule)
                answer = self._remote.call(rule, talk)
            else:
                answer = handler(event, talk)
        if isinstance(answer, str) or hasattr(answer, "to_dict"):
            _warn_of_unsent(handler)

    def _check_timers(self, decision: Decision) -> None:
        """Warn now of timers without a handler."""
        for one in filter(is_timer, decision.effects):
            waits = one[RUN_AT] is not None and one["name"] != STATE_TIMER
            if waits and not self._rules.has_timer(one["name"]):
                raise NoTimerHandler(
                    f"no handler for the timer {one['name']!r}: it becomes a dead letter when it "
                    f"fires"
                )

    def _tell_profile(self, talk: Talk) -> None:
        """Simulate LINE's profile of a user who can be answered, once a day."""
        if talk.user_id is None or talk.reply_token is None:
            return
        if not is_fresh(talk.profile, self._now):
            name = self._names.get(talk.user_id, talk.user_id)
            talk.know_profile({"displayName": name, "at": self._now})

    def _around(self, document: Document) -> TalkContext:
        return TalkContext(
            load=lambda: self._memory.load(document),
            api=self._line_api,
            content=self._contents.fetch,
            quota=lambda: self.quota,
            now=lambda: self._now,
            per_member=self._rules.per_member,
            settings=self.settings,
            secrets=self.secrets,
        )

    def _line_api(self) -> Any:
        if self._api is None:
            raise NotHere("talk.api: there is no LINE here; give BotTest(bot, api=...) a stand-in")
        return self._api


def _settings_of(bot: Bot, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values with which the dispatcher would start. Raises ValueError if it would not start."""
    unknown = given.keys() - bot.settings.keys()
    if unknown:
        raise ValueError(f"the bot has no setting {', '.join(sorted(unknown))}")
    settings = {**bot.settings, **given}
    if bot.check_settings is not None:
        bot.check_settings(settings)
    return MappingProxyType(settings)


def _secrets_of(bot: Bot, given: Mapping[str, str]) -> Mapping[str, str]:
    """The values with which the dispatcher would start. Raises ValueError if it would not start."""
    missing = [name for name in bot.secrets if name not in given]
    if missing:
        raise ValueError(f"the bot needs BotTest(..., secrets={{{missing[0]!r}: ...}})")
    return MappingProxyType({name: given[name] for name in bot.secrets})


def _sent(effect: Document) -> Sent:
    to = effect["to"]
    return Sent(tuple(to) if isinstance(to, list) else to, effect["way"], tuple(effect["messages"]))


def _warn_of_unsent(handler: Callable[..., object]) -> None:
    """Warn with the file and line of the handler instead of the kit."""
    function = inspect.unwrap(handler)
    code = getattr(function, "__code__", None)
    name = getattr(handler, "__qualname__", handler)
    told = f"the handler {name} returns a message, which is not sent: use talk.reply"
    if code is None:
        warnings.warn(told, BotWarning, stacklevel=2)
    else:
        warnings.warn_explicit(told, BotWarning, code.co_filename, code.co_firstlineno)


@contextmanager
def _explained() -> Iterator[None]:
    """Add the effect in production to a handler's exception."""
    try:
        yield
    except PermanentError as error:
        error.add_note(REFUSED)
        raise
    except Exception as error:
        error.add_note(FAILED)
        raise
