"""The worker decides a job, records the decision, and hands its effects to the outbox.

A job may need several runs: it is deferred and holds no thread while a profile is fetched, a failed
handler waits, or MongoDB does not answer. After its handler has decided, only the record is
repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from bson.dbref import DBRef

from jobworker.bot.bot import Rule
from jobworker.bot.events import is_event, is_fired_timer, model_of
from jobworker.bot.gather import answered
from jobworker.bot.talk import Talk, TalkContext, no_content
from jobworker.bursts import Bursts
from jobworker.effects import of_event
from jobworker.errors import NOT_ITS_FAULT, GateClosed, WorkerAway
from jobworker.handler_context import Abandoned, HandlerContext
from jobworker.handler_retry import (
    AFTER_A_SEND,
    LIMITS,
    Failure,
    HandlerFailed,
    RetryLimits,
    did_not_return,
    given_up,
    raised,
)
from jobworker.handlers import Handlers, HandlerTry
from jobworker.line.loading import no_animation
from jobworker.line.month import MonthlyQuota
from jobworker.line.profiles import LaterProfiles, ProfileFetch, is_fresh
from jobworker.metrics import since_ms
from jobworker.record.conversations import Conversation, Conversations, Decision, Outbound, checked
from jobworker.record.dead_letters import NO_LETTER, NO_ROW, carried_out, refused
from jobworker.record.schedule import Schedule
from jobworker.record.waiting_answers import fetched, kept
from jobworker.runs import (
    FAILED,
    FETCHING,
    FULL,
    SLOW_ONES,
    UNHEARD,
    JobMemo,
    JobRun,
    Runs,
    failed_words,
    undecided_words,
)
from jobworker.sending.button import OfferedButton, no_button
from jobworker.sending.outbox import Outbox
from jobworker.unsend import Unsends
from linedesk.contract import Job, JobResult
from linedesk.runtime.backoff import growing_seconds, pause_seconds
from linedesk.store.documents import Document, conversation_id, name_of, text_of
from linedesk.store.errors import StoreUnavailable, WriteRefused
from linedesk.store.queue.replays import asks_for_effect, under_replay
from linedesk.store.records.answers import state_of
from linedesk.store.records.events import ACCEPT_TIME


@dataclass(frozen=True)
class DeciderParts:
    """The parts that the decider uses (see `jobworker.assembly`)."""

    conversations: Conversations
    outbox: Outbox
    unsends: Unsends
    schedule: Schedule
    fetch: Callable[..., ProfileFetch]
    """Makes the fetch of a profile: `fetch(document, user_id, done=…)`."""
    names: LaterProfiles
    """Fetches profiles that no answer waits for."""
    api: Callable[[], Any]
    """The SDK's MessagingApi, made when a handler first needs it."""
    later: Callable[[float, Callable[[], None]], None]
    lease_is_fresh: Callable[[], bool]
    runs: Runs
    """Counts and records each run of a job."""
    content: Callable[..., Any] = no_content
    """Fetches a user's content: `content(message, to)` (see `jobworker.bot.content`)."""
    animate: Callable[[Document, HandlerContext], Callable[[], None]] = no_animation
    """Shows the user that a handler runs; returns the function to call at its end."""
    offer_button: Callable[..., OfferedButton | None] = no_button
    """Called when a handler is called for an event (`jobworker.sending.button.Buttons.begin`)."""
    quota: Callable[[], MonthlyQuota] = MonthlyQuota
    """The known state of the month's quota; quick."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The bot's own settings."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """The bot's own secrets."""
    masked: Callable[[str], str] = str
    """Masks every secret in a text that is stored."""


log = logging.getLogger(__name__)


class Decider:
    """Decides documents with one bot, whose handlers `handlers` calls.

    `tries` is the total number of runs of a failing handler. A handler with a limit above
    `handler_seconds` is a slow one.
    """

    def __init__(
        self,
        handlers: Handlers,
        parts: DeciderParts,
        *,
        tries: int,
        limits: RetryLimits = LIMITS,
        handler_seconds: float = 60.0,
    ) -> None:
        self._handlers = handlers
        self._parts = parts
        self._tries = tries
        self._limits = limits
        self._handler_seconds = handler_seconds
        self._bursts = Bursts(handlers.bot, parts.unsends, later=parts.later)

    def take_over(self, epoch: int) -> None:
        """Become the holder of the epoch; steps handle the outboxes of predecessors."""
        self._parts.conversations.epoch = epoch
        self._parts.unsends.take_over()
        self._parts.outbox.take_over()

    def has_room(self) -> bool:
        """Whether the outboxes have room for more decisions."""
        return self._parts.outbox.has_room

    def decide(self, job: Job) -> JobResult:
        """Run a job once; raises Replaced if a successor has taken over."""
        memo = job.memo = job.memo or JobMemo()
        memo.wake = None
        if isinstance(job.document.get("event"), DBRef):
            # The driver makes this of any object with `$ref` and `$id`.
            job.document["event"] = dict(job.document["event"].as_doc())
        if not is_event(job.document):
            log.error("not a front desk document, skipped id=%s", job.document["_id"])
            return JobResult.DONE
        if memo.call is not None and memo.call.is_abandoned:
            # If an operator released it, no row says so yet.
            self._parts.runs.abandoned(job.document, memo)
        run = memo.run = JobRun()
        try:
            verdict = self._decide_or_give_up(job, memo, run)
            if verdict is not JobResult.DEFERRED and asks_for_effect(job.document):
                self._parts.unsends.deadletters.note_carried_out(job.document)
        except Abandoned:
            # Counted and recorded when it was abandoned.
            log.warning("abandoned handler returned after all event_id=%s", name_of(job.document))
            return JobResult.DEFERRED
        except WorkerAway as error:
            verdict = self._away(job, memo, error)
        except (StoreUnavailable, GateClosed) as error:
            verdict = self._undecided(job, memo, run, error)
        self._parts.runs.ended(job.document, memo, run, verdict)
        return verdict

    def _undecided(self, job: Job, memo: JobMemo, run: JobRun, error: Exception) -> JobResult:
        """Park the job for a while, because MongoDB or the gate is not available."""
        memo.store_failures += 1
        pause = pause_seconds(memo.store_failures, most=self._limits.store_pause_seconds)
        run.error = type(error).__name__
        job.because = undecided_words(error, memo, pause)
        log.warning("not decided, trying again event_id=%s error=%s", name_of(job.document), error)
        self._parts.later(pause, job.resume)
        return JobResult.DEFERRED

    def _away(self, job: Job, memo: JobMemo, error: WorkerAway) -> JobResult:
        """Give the job to another worker process, because its own is away; that is no failed
        try.
        """
        if error.worker is not None:
            memo.died_with.add(error.worker)
            memo.away = 0
            log.warning("handed out again event_id=%s: %s", name_of(job.document), error)
        job.because = str(error)
        if error.worker is not None:
            self._parts.later(0.0, job.resume)
        else:
            memo.away = 1 if error.reserved else memo.away + 1
            pause = growing_seconds(
                memo.away,
                first=self._limits.away_pause_seconds,
                most=self._limits.store_pause_seconds,
            )
            self._parts.later(pause, job.resume)
        return JobResult.DEFERRED

    def _decide_or_give_up(self, job: Job, memo: JobMemo, run: JobRun) -> JobResult:
        """Decide the job; if MongoDB refuses the record, write the dead letter outside of it."""
        try:
            return self._decide(job, memo, run)
        except WriteRefused as error:
            run.error = type(error).__name__
            applied = self._parts.conversations.load(job.document).applied
            if (found := self._found_applied(job, memo, applied)) is not None:
                return found
            decision = memo.decision or Decision({}, [])
            letters = decision.given_up.effects or [
                self._replayable(one, _letter_past_its_record(one, error, memo))
                for one in memo.heard_with(job.document)
            ]
        for letter in letters:
            self._parts.unsends.deadletters.write(letter)
        return JobResult.DONE

    def _decide(self, job: Job, memo: JobMemo, run: JobRun) -> JobResult:
        if job.again and not memo.checked:
            if self._was_applied(job.document):
                return JobResult.ALREADY_APPLIED
            memo.checked = True
        if memo.decision is None and self._ends_unheard(job.document):
            self._bursts.disband(job, memo)
            return self._finish(job, run, UNHEARD)
        full = self._parts.outbox.waits_for_room
        # An event to give up sends nothing and should be out of the way.
        if job.given_up_for is None and full(conversation_id(job.document), job.resume):
            job.because = FULL
            return JobResult.DEFERRED
        if memo.decision is None and job.given_up_for is not None:
            # Only this event is given up: the others are gathered again.
            self._bursts.disband(job, memo)
            decision = given_up(job.document, job.given_up_for, has_sent=memo.has_sent)
            letters = [self._replayable(job.document, one) for one in decision.effects]
            memo.decision = replace(decision, effects=letters)
        memo.decision = memo.decision or self._without_handler(job.document)
        if memo.decision is None and not self._run_handler(job, memo, run):
            return JobResult.DEFERRED
        decision = self._with_name(job, self._by_its_button(memo))
        # A handler that has sent by itself must at least not send again.
        if decision.is_empty and not memo.has_sent:
            return self._finish(job, run, run.outcome)
        return self._record(job, decision, run)

    def _with_name(self, job: Job, decision: Decision) -> Decision:
        """Add the profile that LINE returned for the event to a decision to give up.

        A handler that succeeded has it among its own changes. This reads the conversation, and
        raises StoreUnavailable while MongoDB is away; then only the record is repeated.
        """
        profile = job.memo.profile
        # LINE's refusal has no name to search for.
        if profile is None or "displayName" not in profile or decision.given_up.is_empty:
            return decision
        talk = self._talk(job.document)
        talk.know_profile(profile)
        told = talk.decision()
        return replace(
            decision,
            changes={**decision.changes, **told.changes},
            gone=[*decision.gone, *told.gone],
        )

    def _without_handler(self, document: Document) -> Decision | None:
        """Return the decision about a replayed effect, a tap for a waiting answer, or a refused
        event; None for all others.
        """
        load = partial(self._parts.conversations.load, document)
        if (tap := fetched(document, load, now=datetime.now(UTC))) is not None:
            return tap
        letters = self._parts.unsends.deadletters
        if asks_for_effect(document):
            decision = carried_out(document, letters.replayed_by(document))
            return decision or refused(document, NO_LETTER)
        if not is_fired_timer(document["event"]) or self._parts.schedule.stands_behind(document):
            return None
        # A given-up event is replayed with the event that its letter holds.
        again = letters.replayed_by(document, **{"document.event": {"$eq": document["event"]}})
        return None if again is not None else refused(document, NO_ROW)

    def _replayable(self, document: Document, letter: Document) -> Document:
        """The letter of a replayed send or timer, with the effect itself. Its document names only
        the first letter, which is deleted a week after the replay.
        """
        if not asks_for_effect(document):
            return letter
        first = self._parts.unsends.deadletters.replayed_by(document)
        if first is None or "effect" not in first:
            return letter
        rest = {name: value for name, value in letter.items() if name != "document"}
        return {**rest, "effect": first["effect"]}

    def _was_applied(self, document: Document) -> bool:
        """Whether a predecessor has decided it. A predecessor cannot decide it from now on."""
        if self._parts.outbox.has_adopted(conversation_id(document)):
            conversation = self._parts.conversations.load(document)
        else:
            conversation = self._adopt(document)
        if name_of(document) not in conversation.applied:
            self._parts.unsends.learn(document, conversation.unsent)
            return False
        log.info("decided before the restart event_id=%s", name_of(document))
        return True

    def _adopt(self, document: Document) -> Conversation:
        """Make the conversation belong to this epoch, and its outbox known."""
        id_ = conversation_id(document)
        stored = self._parts.conversations.adopt(id_, document)
        self._parts.outbox.add(id_, Outbound.of(stored))
        return Conversation.from_document(id_, stored)

    def _finish(self, job: Job, run: JobRun, outcome: str | None = None) -> JobResult:
        """End a job without a record. The first one of a key in an epoch adopts its conversation;
        otherwise a frozen predecessor could still record the event later.
        """
        # guard: first-end-adopts
        if not self._parts.outbox.has_adopted(conversation_id(job.document)):
            conversation = self._adopt(job.document)
            if (found := self._found_applied(job, job.memo, conversation.applied)) is not None:
                return found
            decision = job.memo.decision
            if decision is not None and decision.is_outdated_by(conversation.n):
                raise self._outdated(job)
        run.outcome = outcome
        return JobResult.DONE

    def _found_applied(self, job: Job, memo: JobMemo, applied: Iterable[str]) -> JobResult | None:
        """Return the result if these names are applied; None if no event of the job is among them.

        A predecessor may have gathered fewer messages: each of the others is decided again. Raises
        StoreUnavailable if that is true of the job's own.
        """
        names = {name_of(one) for one in memo.decided_with(job.document)}
        done = names & set(applied)
        if not done:
            return None
        # guard: some-of-them-applied -> never
        if done < names:
            self._bursts.disband(job, memo)
            memo.found_applied |= done
            if name_of(job.document) not in done:
                memo.decision = None
                raise StoreUnavailable("another process has decided a message gathered with it")
        return JobResult.ALREADY_APPLIED

    def _outdated(self, job: Job) -> StoreUnavailable:
        """Return the error for a decision that has to be repeated."""
        job.memo.decision = None
        return StoreUnavailable("the conversation was read before its last record")

    def _ends_unheard(self, document: Document) -> bool:
        """Whether no handler has to run: its message was taken back, or its timer was overtaken."""
        return self._parts.unsends.ends(document) or self._parts.schedule.overtook(document)

    # The handler.

    def _run_handler(self, job: Job, memo: JobMemo, run: JobRun) -> bool:
        """Let the bot decide; False if the job has to wait first."""
        event = model_of(job.document["event"])
        talk = self._talk(job.document)
        try:
            rule = self._handlers.rule_in(talk, event)
            # guard: gathered-for-this-rule -> never
            if rule != memo.rule:
                # The conversation was in an older state.
                self._bursts.disband(job, memo)
                memo.rule = rule
            # Also if the handler fails: its changes are dropped, including a `talk.forget`.
            memo.learns, memo.forgets = rule.profile if rule is not None else False, False
            if rule is not None and not self._may_begin(job, memo, rule, talk):
                return False
            if rule is not None and rule.gather is not None:
                if not memo.heard:
                    run.outcome, memo.decision = UNHEARD, NOTHING
                    return True
                event = [model_of(one["event"]) for one in memo.heard]
                talk.gathered(memo.heard)
            if memo.profile is not None:
                talk.know_profile(memo.profile)
            self._note_friendship(talk)
            if rule is not None:
                # A handler that is slow by design is worth a push after its token has expired.
                talk.may_be_late = rule.limit is not None
                self._call_handler(job, memo, run, rule, event, talk)
            decision = checked(talk.decision())
            # A message that was sent is not decided again, whatever state it was based on.
            memo.decision = replace(decision, read_n=None) if memo.has_sent else decision
            if talk.forgot:
                memo.learns, memo.forgets = False, True
        except Abandoned:
            raise
        except (Exception, SystemExit) as error:
            if isinstance(error, NOT_ITS_FAULT) and not memo.has_sent:
                raise
            # The bot's own errors end here, around one job. If SystemExit ended the thread, the key
            # would be left behind silently.
            run.outcome, run.error = FAILED, type(error).__name__
            if isinstance(error, HandlerFailed):
                run.error = error.failure.what
                return self._handler_failed(job, memo, error.failure)
            return self._handler_failed(
                job, memo, raised(error, has_sent=memo.has_sent, masked=self._parts.masked)
            )
        return True

    def _talk(self, document: Document) -> Talk:
        around = TalkContext(
            load=lambda: self._parts.conversations.load(document),
            api=self._parts.api,
            content=self._parts.content,
            quota=self._parts.quota,
            now=self._parts.now,
            per_member=self._handlers.bot().per_member,
            settings=self._parts.settings,
            secrets=self._parts.secrets,
        )
        return Talk(document, around)

    def _may_begin(self, job: Job, memo: JobMemo, rule: Rule, talk: Talk) -> bool:
        """Whether the handler may begin because all it needs is there."""
        if rule.profile is True and self._waits_for_profile(job, memo, talk):
            return False
        is_slow = rule.limit is not None and rule.limit > self._handler_seconds
        if is_slow and not job.take_slow_place():
            job.because = SLOW_ONES
            return False
        return rule.gather is None or self._bursts.gather(job, memo, rule, rule.gather, talk)

    def _call_handler(
        self, job: Job, memo: JobMemo, run: JobRun, rule: Rule, event: Any, talk: Talk
    ) -> None:
        self._offer_button(job, memo)
        since_accept_ms = since_ms(job.document[ACCEPT_TIME])
        log.debug(
            "started event_id=%s thread=%s since_accept_ms=%.1f",
            *(name_of(job.document), run.thread, since_accept_ms),
        )
        if memo.first_at is None:
            memo.first_at = datetime.now(UTC)
            self._parts.runs.waited(job.document, memo.first_at)
        memo.tries += 1
        memo.call = HandlerContext(
            job.document, answered=answered(memo.heard) if memo.heard else None
        )
        end_animation = self._parts.animate(job.document, memo.call)
        documents = memo.heard_with(job.document)
        one = HandlerTry(job, memo, run, rule, event, talk, documents, memo.call)
        run.begin_handler()
        try:
            with memo.call.under(job.begin_handler(self._handlers.limit_of(rule))):
                self._handlers.call(one)
        except WorkerAway as error:
            memo.tries -= 1
            if error.worker is None:
                run.never_began()
            raise
        finally:
            run.end_handler()
            end_animation()

    def _offer_button(self, job: Job, memo: JobMemo) -> None:
        """Arrange a button for the handler's event, to be shown unless it is decided first."""
        if memo.button is not None or self._handlers.bot().sends_by_itself:
            return
        heard = memo.heard_with(job.document)
        # The notes of a predecessor.
        noted = self._parts.conversations.load(job.document).answers if job.again else {}
        document = next((one for one in heard if name_of(one) in noted), answered(heard))
        memo.button = self._parts.offer_button(
            document, state_of(noted.get(name_of(document))), has_sent=lambda: memo.has_sent
        )

    def _by_its_button(self, memo: JobMemo) -> Decision:
        """Return the decision; its answer waits for a tap if a button has used the token."""
        assert memo.decision is not None
        if memo.button is None:
            return memo.decision
        shown = memo.button.end()
        return kept(memo.decision, memo.button.document, shown, now=datetime.now(UTC))

    def _note_friendship(self, talk: Talk) -> None:
        kind = talk.raw.get("type")
        if kind in ("follow", "unfollow"):
            talk.know_friend(kind == "follow")

    def _waits_for_profile(self, job: Job, memo: JobMemo, talk: Talk) -> bool:
        """Whether the sender's profile is being fetched; it is fetched once for an event."""
        if memo.profile_asked or talk.user_id is None or talk.reply_token is None:
            return False
        known = is_fresh(talk.profile, datetime.now(UTC))
        # Only now: if reading the conversation failed, the profile is requested again.
        memo.profile_asked = True
        if known:
            return False
        job.because = FETCHING

        def done(profile: Document | None) -> None:
            memo.profile = profile
            job.resume()

        self._parts.fetch(job.document, talk.user_id, done=done).begin()
        return True

    def did_not_return(self, job: Job, stack: str) -> None:
        """Handle an abandoned handler: a failed try, and the job runs again later."""
        self._parts.runs.abandoned(job.document, job.memo)
        failure = did_not_return(stack, has_sent=job.memo.has_sent)
        if self._handler_failed(job, job.memo, failure):
            job.resume()

    def _handler_failed(self, job: Job, memo: JobMemo, failure: Failure) -> bool:
        """Try again later, or decide to give up; True if that is decided."""
        memo.failures += 1
        memo.passing_failures += failure.passing
        first_at = memo.first_at or datetime.now(UTC)
        name, what, place = name_of(job.document), failure.what, failure.place
        if not failure.ends_it(
            failures=memo.failed_tries, tries=self._tries, first_at=first_at, limits=self._limits
        ):
            pause = pause_seconds(
                memo.failures,
                first=self._limits.first_pause_seconds,
                most=self._limits.longest_pause_seconds,
            )
            log.warning(
                "handler failed, trying again event_id=%s attempt=%d seconds=%.1f error=%s at=%s",
                *(name, memo.failures, pause, what, place),
            )
            job.because = failed_words(memo.failures, pause)
            self._parts.later(pause, job.resume)
            return False
        log.error(
            "handler failed, given up event_id=%s attempts=%d error=%s at=%s lasting=%s",
            *(name, memo.failures, what, place, failure.lasting),
        )
        memo.decision = failure.decision(
            memo.heard_with(job.document), attempts=memo.failures, first_at=first_at
        )
        return True

    # The record.

    def _record(self, job: Job, decision: Decision, run: JobRun) -> JobResult:
        document, memo = job.document, job.memo
        if document["event"].get("mode") == "standby":
            log.info("standby event, nothing is carried out event_id=%s", name_of(document))
            decision = decision.given_up
            if decision.is_empty:
                return self._finish(job, run)
        if not self._parts.lease_is_fresh():
            raise StoreUnavailable("the lease is not fresh")
        # guard: names-forgotten-first
        if memo.forgets:
            # Before the record: a profile read earlier is not written afterwards.
            self._parts.names.forget(conversation_id(document))
        messages = _messages_of(memo, document)
        recorded = self._parts.conversations.record(
            document,
            decision,
            unsaved=job.unsaved(),
            message_id=messages.pop(name_of(document)),
            gathered=messages,
            adopted=self._parts.outbox.has_adopted(conversation_id(document)),
        )
        if recorded.outdated:
            raise self._outdated(job)
        if recorded.unsent:
            return self._found_unsent(job, memo, run)
        self._parts.outbox.add(conversation_id(document), recorded.outbox)
        if recorded.adopted is not None:
            self._found_applied(job, memo, recorded.adopted["applied"])
        log.debug("decided event_id=%s effects=%d", name_of(document), len(decision.effects))
        if memo.learns:
            # A replay has no reply token, so no profile was fetched before its handler.
            later = memo.learns == "later" or under_replay(document) is not None
            self._parts.names.want(document, sender=later)
        return (
            JobResult.RECORDED if recorded.is_ours or recorded.along else JobResult.ALREADY_APPLIED
        )

    def _found_unsent(self, job: Job, memo: JobMemo, run: JobRun) -> JobResult:
        """Handle a record that found a message taken back. The other messages are handled without
        it: raises StoreUnavailable.
        """
        unsends = self._parts.unsends
        heard = memo.heard_with(job.document)
        if len(heard) == 1:
            unsends.met(heard[0])
            return self._finish(job, run, UNHEARD)
        unsends.learn(job.document, self._parts.conversations.load(job.document).unsent)
        memo.decision = None
        if memo.has_sent:
            # Its own sends would be made once more.
            memo.heard = [one for one in heard if not unsends.ends(one)]
            failure = Failure(UNSENT_AMONG_THEM + AFTER_A_SEND, "-", "", lasting=True)
            memo.decision = failure.decision(
                memo.heard, attempts=memo.tries, first_at=memo.first_at or datetime.now(UTC)
            )
        raise StoreUnavailable("a gathered message was taken back by its sender")


NOTHING = Decision({}, [])
UNSENT_AMONG_THEM = "a message handled together with it was taken back"


def _messages_of(memo: JobMemo, document: Document) -> dict[str, str | None]:
    """The names of the events decided together, each with its message's id if it was handled."""
    heard = {
        name_of(one): text_of(one["event"], "message", "id") for one in memo.heard_with(document)
    }
    return {name_of(one): heard.get(name_of(one)) for one in memo.decided_with(document)}


def _letter_past_its_record(document: Document, error: WriteRefused, memo: JobMemo) -> Document:
    """Return the letter of an event that cannot be recorded."""
    log.error("given up event_id=%s cause=%s", name_of(document), error)
    return of_event(
        document,
        cause=str(error) + memo.has_sent * AFTER_A_SEND,
        traceback="",
        attempts=max(memo.tries, 1),
        first_at=memo.first_at or datetime.now(UTC),
    )
