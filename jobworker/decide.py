"""Decides an event: documents, conversation and clock go in, a decision or a wait comes out.

The stages know neither MongoDB nor threads. The caller gives them the conversation, the documents
behind the event, and the function that calls the handler.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any

from linebot.v3.models import UnknownEvent

from dispatcher.conversations.mailbox import HandlerCall, Job, Wait
from jobworker.async_handlers import Awaited
from jobworker.bot.bot import Rule
from jobworker.bot.events import TimerEvent, model_of
from jobworker.bot.gather import Gathering
from jobworker.bot.talk import Talk
from jobworker.errors import NOT_ITS_FAULT
from jobworker.handler_context import Abandoned
from jobworker.handler_retry import Failure
from jobworker.handler_runner import HandlerRunner
from jobworker.line.profiles import is_fresh
from jobworker.record.conversations import Decision, StoredConversation, checked
from jobworker.record.edits import editable_id, edited_at, is_edit, newest
from jobworker.record.waiting_answers import fetched
from jobworker.runs import NO_HANDLER, UNHEARD, JobMemo
from linedesk.store.documents import Document, name_of, text_of
from linedesk.store.records.letters import under_replay
from linedesk.store.records.waits import Why
from linedesk.store.redaction import message_id_of, unsent_id_of

NOTHING = Decision({}, [])
KEPT_OF_EDITED = ("markAsReadToken", "quotedMessageId")


@dataclass(frozen=True)
class Decided:
    """A decision; `outcome` is its name in `jobs` if it differs from that of the record."""

    decision: Decision
    outcome: str | None = None


@dataclass
class Case:
    """One event under decision, and all that the decision depends on."""

    job: Job
    memo: JobMemo
    runner: HandlerRunner
    make_talk: Callable[[], Talk]
    load: Callable[[], StoredConversation]
    """The conversation as stored."""
    taken_back: Callable[[Document], bool]
    """Whether a document's message was taken back by its sender."""
    edit_of: Callable[[Document], Document | None]
    """The newest stored edit of a document's message."""
    call: Callable[[Rule, Any, Talk], Failure | Wait | None]
    """Calls the handler; a Wait if it runs outside the pool."""
    handler_seconds: float
    """A handler with a longer limit than this is a slow one."""
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    clock: float = field(default_factory=time.monotonic)
    """Monotonic seconds."""
    rule: Rule | None = field(default=None, init=False)

    @cached_property
    def talk(self) -> Talk:
        """The handler's talk."""
        return self.make_talk()

    def choose(self, rules: Iterator[Rule], event: Any, talk: Talk) -> Rule | None:
        """Choose one of the rules that may take an event, within the limit of all handlers."""
        handling = self.job.handling = HandlerCall()
        try:
            return self.runner.choose(rules, event, talk, lost_by=self.memo.lost_by)
        finally:
            if not handling.end():
                raise Abandoned("a filter did not return in time")

    @cached_property
    def event(self) -> Any:
        """The SDK's model of the event."""
        return model_of(self.job.document["event"])


def decide(case: Case) -> Decided | Failure | Wait:
    """Return the result of the first stage that has one. Raises the handler's errors."""
    results = (stage(case) for stage in STAGES)
    return next(one for one in results if one is not None)


def _tap(case: Case) -> Decided | None:
    """A tap on the button of a slow answer is decided without a handler."""
    decision = fetched(case.job.document, case.load, now=case.now)
    return None if decision is None else Decided(decision)


def _edited(case: Case) -> Decided | None:
    """A text gets that of its newest edit; an edit that is older than a handled one is dropped."""
    job, edits = case.job, case.memo.edits
    id_, at = editable_id(job.document), edited_at(job.document)
    if id_ is None or case.memo.gathered:
        return None
    if case.runner.bot().sends_by_itself and not is_edit(job.document):
        # Its WebhookHandler may have no handler for the message, and one for the edit.
        return None
    # LINE's reference, "Edit event": there are none in 1:1 chats, which need not be read.
    if is_edit(job.document) or text_of(job.document, "event", "source", "type") != "user":
        edits.before = case.load().edits
    handled = edits.before.get(id_, -1)
    if is_edit(job.document):
        # A replay may bring the newest one again.
        if handled > at or (handled == at and under_replay(job.document) is None):
            return Decided(NOTHING, UNHEARD)
        edits.times.setdefault(id_, at)
    job.document = _newest(case, job.document)
    return None


def _find_rule(case: Case) -> None:
    memo = case.memo
    case.rule = rule = case.runner.rule_in(case.talk, case.event, case.choose)
    memo.is_unreadable = isinstance(case.event, UnknownEvent)
    if rule is None and not is_edit(case.job.document):
        # The message's own handler does not see the edit: it comes as an event.
        memo.edits.times.clear()
    # guard: gathered-for-this-rule -> never
    if rule != memo.rule:
        # The conversation was in an older state.
        memo.disband(case.job)
        memo.rule = rule
    # Also if the handler fails: its changes are dropped, including a `talk.forget`.
    memo.learns, memo.forgets = rule.profile if rule is not None else False, False


def _profile(case: Case) -> Wait | None:
    """The sender's profile is fetched first if the handler asks for it, once for an event."""
    memo, talk = case.memo, case.talk
    if case.rule is None or case.rule.profile is not True or memo.profile_asked:
        return None
    if talk.user_id is None or talk.reply_token is None:
        return None
    is_known = is_fresh(talk.profile, case.now)
    # Only now: if reading the conversation failed, the profile is requested again.
    memo.profile_asked = True
    return None if is_known else Wait.because(Why.FETCHING_PROFILE)


def _slow_place(case: Case) -> Wait | None:
    limit = case.rule.limit if case.rule is not None else None
    if limit is None or limit <= case.handler_seconds or is_awaited(case.rule, case.job):
        return None
    if case.job.take_slow_place():
        return None
    return Wait.because(Why.NO_SLOW_PLACE)


def _gather(case: Case) -> Wait | Decided | None:
    """Gather the messages of one sender. A repeated handler gets the same, without later ones."""
    rule, memo, job = case.rule, case.memo, case.job
    if rule is None or rule.gather is None:
        return None
    if not memo.gathered:
        along: Sequence[Document] = ()
        if case.talk.user_id is not None:
            memo.gathering = memo.gathering or Gathering(
                rule.gather, job.document, is_old=job.again, clock=case.clock
            )
            following = job.following()
            belongs = partial(_belongs, case, rule)
            found = memo.gathering.look(following, belongs=belongs, now=case.now, clock=case.clock)
            if found.wait_seconds > 0:
                return Wait.because(Why.GATHERING, found.wait_seconds)
            along = following.documents[: found.count]
        along = along[: job.take_along(len(along))]
        memo.gathered = (job.document, *(_newest(case, one) for one in along))
    memo.heard = _heard(case)
    return None if memo.heard else Decided(NOTHING, UNHEARD)


def _newest(case: Case, document: Document) -> Document:
    """A document with the text of the newest edit that waits, which counts as handled with it."""
    times, id_ = case.memo.edits.times, editable_id(document)
    if id_ is None:
        return document
    if case.memo.edits.before.get(id_, -1) > edited_at(document):
        # The message comes after its edit.
        edit = case.edit_of(document)
    else:
        edit = None
    after = max(edited_at(edit or document), times.get(id_, 0))
    edit = newest(case.job.behind(), id_, after=after) or edit
    if edit is None:
        return document
    times[id_] = edited_at(edit)
    return _with_text_of(document, edit)


def _with_text_of(document: Document, edit: Document) -> Document:
    """A copy with the edit's message; the event, its time, its reply token and what no edit has
    (LINE's reference, "Edit event": the token to mark as read) stay.
    """
    before = document["event"]["message"]
    kept = {name: before[name] for name in KEPT_OF_EDITED if name in before}
    message = {**kept, **edit["event"]["message"]}
    return {**document, "event": {**document["event"], "message": message}}


def _belongs(case: Case, rule: Rule, document: Document) -> bool:
    """Whether the document goes with the event, unless it is decided already."""
    is_decided = name_of(document) in case.memo.found_applied
    try:
        return not is_decided and case.runner.bot().gathers(rule, case.talk, document, case.choose)
    except (*NOT_ITS_FAULT, Abandoned):
        raise
    except Exception:  # noqa: BLE001 - its own condition: it fails alone, in its turn
        return False


def _heard(case: Case) -> Sequence[Document]:
    """Return the handler's messages: all except those taken back by an earlier or queued unsend.

    An event that is there twice, as it may be while recvq lacks its index, is passed once.
    """
    # guard: unsend-in-line -> in_line = set[str | None]()
    in_line = {unsent_id_of(one) for one in case.job.following().documents} - {None}
    once: dict[str, Document] = {}
    for one in case.memo.gathered:
        once.setdefault(name_of(one), one)
    return [
        one
        for one in once.values()
        if message_id_of(one) not in in_line and not case.taken_back(one)
    ]


def _handle(case: Case) -> Decided | Failure | Wait:
    decided = _decided_by(case, case.rule)
    is_line_event = not isinstance(case.event, TimerEvent)
    if case.rule is None and is_line_event and isinstance(decided, Decided):
        return replace(decided, outcome=NO_HANDLER)
    return decided


def decide_given_up(case: Case) -> Decided | Failure | Wait:
    """Return the decision of `@bot.failed` about an event that is given up. Raises its errors."""
    rule = case.runner.bot().on_failed
    return Decided(NOTHING) if rule is None else _decided_by(case, rule)


def is_awaited(rule: Rule | None, job: Job) -> bool:
    """Whether the rule's handler runs outside the pool."""
    # guard: a-named-one-keeps-its-thread -> return rule is not None and rule.is_async
    return rule is not None and rule.is_async and not job.is_named


def decide_awaited(case: Case, one: Awaited) -> Decided | Failure:
    """Return the decision of a handler that has run outside the pool. Raises its errors."""
    return one.outcome() or _decision_of(case.memo, one.talk)


def _decided_by(case: Case, rule: Rule | None) -> Decided | Failure | Wait:
    memo, talk = case.memo, case.talk
    event = case.event
    if memo.gathered:
        event = [model_of(one["event"]) for one in memo.heard]
        talk.gathered(memo.heard)
    if memo.profile is not None:
        talk.know_profile(memo.profile)
    kind = talk.raw.get("type")
    if kind in ("follow", "unfollow"):
        talk.know_friend(kind == "follow")
    if rule is not None:
        # A handler that is slow by design is worth a push after its token has expired.
        talk.may_be_late = rule.limit is not None
        if (ended := case.call(rule, event, talk)) is not None:
            return ended
    return _decision_of(memo, talk)


def _decision_of(memo: JobMemo, talk: Talk) -> Decided:
    decision = checked(talk.decision())
    if talk.forgot:
        memo.learns, memo.forgets = False, True
    return Decided(decision)


STAGES: Sequence[Callable[[Case], Decided | Failure | Wait | None]] = (
    _tap,
    _edited,
    _find_rule,
    _profile,
    _slow_place,
    _gather,
    _handle,
)
