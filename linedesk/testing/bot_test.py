"""`BotTest`: a bot in a conversation within one process, in milliseconds.

The core's pure step (`jobworker.decide`) decides each event, with the rules, talk and timers of
production. Only the services behind them are replaced: MongoDB by `memory`, LINE by the list of
sends, the thread that fires timers by `advance`.
"""

from __future__ import annotations

import inspect
import math
import mimetypes
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pydantic import SecretStr

from dispatcher.commit.tracker import Slot
from dispatcher.conversations.mailbox import Job, Mailbox, Wait
from jobworker.bot.bot import Bot, Rule
from jobworker.bot.content import Content, content_id
from jobworker.bot.gather import answered
from jobworker.bot.talk import Talk, TalkContext
from jobworker.decide import Case, Decided, decide
from jobworker.effects import is_timer
from jobworker.errors import ContentNotFound, NoTimerHandler, PermanentError
from jobworker.handler_runner import HandlerRunner
from jobworker.line.month import MonthlyQuota
from jobworker.record.conversations import Decision
from jobworker.record.waiting_answers import ButtonShown, kept
from jobworker.runs import JobMemo
from jobworker.sending.button import BEFORE_END_SECONDS, SlowAnswers, may_be_offered, message_of
from linedesk.bots.load import read_bot_secrets, read_bot_settings
from linedesk.store.documents import Document, conversation_id, make_document, name_of
from linedesk.store.limits import TOKEN_LIFE
from linedesk.store.records.answers import KEPT_FOR
from linedesk.store.records.timers import RUN_AT
from linedesk.store.records.waits import Why
from linedesk.store.timers import STATE_TIMER, make_timer_document
from linedesk.testing.answers import Sent
from linedesk.testing.errors import BotWarning, EndlessTimers, NotHere
from linedesk.testing.memory import Memory, as_stored
from linedesk.testing.people import CHANNEL, People, told_by_operator
from linedesk.testing.webhooks import Webhooks

START = datetime(2027, 1, 4, 0, 0, tzinfo=UTC)
"""A Monday, nine in the morning in Tokyo."""
ALONE: Any = SimpleNamespace(lock=nullcontext(), is_reading=False)
"""The owner of all mailboxes: a test has one thread."""
MOST_FIRINGS = 1_000
FAILED = (
    "In production the handler is tried HANDLER_TRIES times in all, without any effects in "
    "between; then the event becomes a dead letter."
)
REFUSED = "In production the event becomes a dead letter at once: each further try would fail, too."


class BotTest(People):
    """A simulated environment for one bot.

    `settings` overrides the bot's own settings, `secrets` has its declared secrets; SettingsError
    is raised as at the dispatcher's start. An exception of a handler reaches the test, and its
    decisions have no effect. `api` is the value of `talk.api`:
    the test's stand-in for LINE's MessagingApi. `slow_answers` is the operator's setting
    SLOW_ANSWERS.
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
    ) -> None:
        if not isinstance(bot, Bot):
            raise NotHere(
                "this is not a Bot and calls LINE by itself: test it with `pytest --real-stack`"
            )
        if start.tzinfo is None:
            raise ValueError("start has no time zone")
        super().__init__(bot, Webhooks())
        self.bot = bot
        given = {name: told_by_operator(value) for name, value in (settings or {}).items()}
        self.settings = read_bot_settings(bot, given)
        hidden = {name: SecretStr(value) for name, value in (secrets or {}).items()}
        self.secrets = read_bot_secrets(bot, hidden)
        self.quota = MonthlyQuota()
        self._now = start.astimezone(UTC)
        self._api = api
        self._slow_answers = SlowAnswers(slow_answers)
        self._takes = 0.0
        self._memory = Memory()
        self._mailboxes: dict[str, Mailbox] = {}
        # When the messages that a conversation gathers are looked at again.
        self._gathers_until: dict[str, datetime] = {}
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
        self._takes = seconds

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
        """Append a document to the mailbox of its conversation."""
        id_ = conversation_id(document)
        mailbox = self._mailboxes.setdefault(id_, Mailbox(id_))
        slot = Slot(document["_id"], token=None)
        mailbox.jobs.append(Job(mailbox, document, slot, again=False, owner=ALONE))
        return self._work_off(id_)

    def _work_off(self, id_: str) -> tuple[Sent, ...]:
        """Decide the documents of a conversation, up to messages that are still gathered."""
        mailbox, sent = self._mailboxes[id_], list[Sent]()
        self._gathers_until.pop(id_, None)
        while mailbox.jobs:
            result: tuple[Sent, ...] | Wait = ()
            try:
                result = self._result(mailbox.jobs[0])
            finally:
                if not isinstance(result, Wait):
                    for _ in range(1 + mailbox.along):
                        mailbox.jobs.popleft()
                    mailbox.along = 0
            if isinstance(result, Wait):
                self._gathers_until[id_] = self._now + timedelta(seconds=result.seconds or 0.0)
                break
            sent.extend(result)
        return tuple(sent)

    def _go_to(self, moment: datetime) -> tuple[Sent, ...]:
        sent = self._fire_until(moment.astimezone(UTC))
        self._now = moment.astimezone(UTC)
        return sent

    def _fire_until(self, moment: datetime) -> tuple[Sent, ...]:
        """Fire timers and process gathered messages up to `moment`, each at its time."""
        sent: list[Sent] = []
        while self._gathers_until:
            id_, due = min(self._gathers_until.items(), key=lambda one: one[1])
            if due > moment:
                break
            sent.extend(self._ring_until(due))
            if id_ in self._gathers_until:
                self._now = max(self._now, due)
                sent.extend(self._work_off(id_))
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

    def _result(self, job: Job) -> tuple[Sent, ...] | Wait:
        """Decide a document; returns the sends, or the wait for more messages."""
        memo = job.memo = job.memo or JobMemo()
        if self._memory.overtook(job.document):
            return ()
        case = self._case(job, memo)
        with _explained():
            decided = decide(case)
        if isinstance(decided, Wait) and decided.why["code"] == Why.FETCHING_PROFILE:
            user_id = str(case.talk.user_id)
            name = self._names.get(user_id, user_id)
            memo.profile = {"displayName": name, "at": self._now}
            return self._result(job)
        if not isinstance(decided, Decided):
            assert isinstance(decided, Wait), "a handler's failure is raised here"
            return decided
        self._check_timers(decided.decision)
        return self._carried_out(job.document, memo, decided.decision)

    def _case(self, job: Job, memo: JobMemo) -> Case:
        document = job.document
        return Case(
            job,
            memo,
            HandlerRunner(self.bot),
            make_talk=lambda: Talk(document, self._around(document)),
            load=partial(self._memory.load, document),
            # An unsend comes after its message: in the same mailbox, or when that is decided.
            taken_back=lambda document: False,
            call=partial(self._call, memo),
            handler_seconds=math.inf,
            now=self._now,
            clock=(self._now - START).total_seconds(),
        )

    def _carried_out(
        self, document: Document, memo: JobMemo, decision: Decision
    ) -> tuple[Sent, ...]:
        """Record the decision; returns the sends, with late replies as pushes."""
        heard = memo.heard_with(document)
        if not heard:
            return ()
        took = timedelta(seconds=memo.run.handler_seconds or 0.0)
        self._now += took
        by_token, button = answered(heard), tuple[Sent, ...]()
        if (
            self._slow_answers is SlowAnswers.BUTTON
            and may_be_offered(by_token)
            and took >= TOKEN_LIFE - timedelta(seconds=BEFORE_END_SECONDS)
        ):
            button = (Sent(document["key"], "reply", (message_of(name_of(by_token)),)),)
            decision = kept(decision, by_token, ButtonShown.YES, now=self._now)
        if document["event"].get("mode") == "standby":
            decision = decision.given_up
        is_late = took >= TOKEN_LIFE
        recorded = self._memory.record(document, decision)
        return (*button, *(_sent(one, is_late=is_late) for one in recorded))

    def _call(self, memo: JobMemo, rule: Rule, event: Any, talk: Talk) -> None:
        memo.run.handler_seconds, self._takes = self._takes, 0.0
        # Its return type is None, but a bot without type hints may return a message.
        handler: Callable[..., object] = rule.handler
        with self._contents.while_handling():
            answer = handler(event, talk)
        if isinstance(answer, str) or hasattr(answer, "to_dict"):
            _warn_of_unsent(handler)

    def _check_timers(self, decision: Decision) -> None:
        """Warn now of timers without a handler."""
        for one in filter(is_timer, decision.effects):
            waits = one[RUN_AT] is not None and one["name"] != STATE_TIMER
            if waits and not self.bot.has_timer(one["name"]):
                raise NoTimerHandler(
                    f"no handler for the timer {one['name']!r}: it becomes a dead letter when it "
                    f"fires"
                )

    def _around(self, document: Document) -> TalkContext:
        return TalkContext(
            load=lambda: self._memory.load(document),
            api=self._line_api,
            content=self._contents.fetch,
            quota=lambda: self.quota,
            now=lambda: self._now,
            per_member=self.bot.per_member,
            settings=self.settings,
            secrets=self.secrets,
        )

    def _line_api(self) -> Any:
        if self._api is None:
            raise NotHere("talk.api: there is no LINE here; give BotTest(bot, api=...) a stand-in")
        return self._api


def _sent(effect: Document, *, is_late: bool) -> Sent:
    to, way = effect["to"], effect["way"]
    way = "push" if is_late and way == "reply" else way
    return Sent(tuple(to) if isinstance(to, list) else to, way, tuple(effect["messages"]))


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


class SentContents:
    """Files of users by message id, with their names, for `talk.content`."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[bytes, str]] = {}
        self._passing: list[Path] = []

    def keep(self, message_id: str, data: bytes, name: str) -> None:
        """Store a file that a user sends."""
        self._kept[message_id] = data, name

    def fetch(self, message: Any, to: str | os.PathLike[str] | None = None, **_: Any) -> Content:
        """Like `jobworker.bot.content.ContentDownloads.fetch`, at once and without its limits."""
        message_id = content_id(message)
        if message_id not in self._kept:
            raise ContentNotFound(f"no user of this test has sent {message_id}")
        data, name = self._kept[message_id]
        path = Path(to) if to is not None else self._passing_file()
        path.write_bytes(data)
        return Content(path, mimetypes.guess_type(name)[0] or "application/octet-stream", len(data))

    @contextmanager
    def while_handling(self) -> Iterator[None]:
        """Delete files without a name when the handler ends."""
        try:
            yield
        finally:
            while self._passing:
                self._passing.pop().unlink(missing_ok=True)

    def _passing_file(self) -> Path:
        handle, name = tempfile.mkstemp(prefix="linedesk-")
        os.close(handle)
        self._passing.append(Path(name))
        return Path(name)
