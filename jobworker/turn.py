"""A turn: one run of a job through its stages, from the look whether it is decided to its record.

| stage | ends the turn if | with |
| --- | --- | --- |
| `_found` | an earlier leader has decided it | its result |
| `_taken_back` | its message was taken back, or its timer was set again | no handler, no record |
| `_no_room` | the conversation's outbox is full | a wait |
| `_condemned` | it killed a process, or an operator dropped it | dead letters |
| `_replayed` | it replays a dead letter | the letter's effect |
| `_given_up_before` | its handler was given up, and `@bot.failed` decides | dead letters and that |
| `_handle` | the handler decides, fails, or has to wait (`jobworker.decide`) | its decision |
| `_commit` | always | the record |

A job may need several turns and holds no thread in between. Once it is decided, only the record is
repeated. Errors of MongoDB, of the gate and of worker processes become waits in one place,
`Turn.result`.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from bson.dbref import DBRef

from dispatcher.commit.committer import WAIT_SECONDS
from dispatcher.conversations.mailbox import Condemned, Job, JobResult, Wait
from jobworker.async_handlers import Awaited
from jobworker.bot.bot import Rule
from jobworker.bot.events import is_event, is_fired_timer
from jobworker.bot.gather import answered
from jobworker.bot.talk import Talk, TalkContext
from jobworker.decide import Case, Decided, decide, decide_awaited, decide_given_up, is_awaited
from jobworker.errors import NOT_ITS_FAULT, GateClosed, LineAway, WorkerAway
from jobworker.handler_context import Abandoned, HandlerContext
from jobworker.handler_retry import Failure, RetryLimits, letters_of, raised
from jobworker.handler_runner import HandlerRunner
from jobworker.line.profiles import LaterProfiles, ProfileFetch
from jobworker.metrics import since_ms
from jobworker.record.conversations import ConversationStore, Decision, Outbound, Recording
from jobworker.record.dead_letters import carried_out, change_of, refused
from jobworker.record.schedule import Schedule
from jobworker.record.waiting_answers import kept
from jobworker.runs import FAILED, UNHEARD, JobMemo, JobRun, Runs
from jobworker.sending.button import OfferedButton
from jobworker.sending.outbox import Outbox
from jobworker.unsend import Unsends
from linedesk.runtime.backoff import growing_seconds, pause_seconds
from linedesk.store.documents import Document, conversation_id, name_of, text_of
from linedesk.store.errors import StoreUnavailable, WriteRefused
from linedesk.store.records.answers import state_of
from linedesk.store.records.events import ACCEPT_TIME
from linedesk.store.records.letters import (
    NO_LETTER,
    NO_ROW,
    TRIES,
    WRITE_REFUSED,
    Cause,
    asks_for_effect,
    under_replay,
)
from linedesk.store.records.waits import Why, reason

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Turns:
    """Takes the turns of all jobs with one bot, by its parts (see `jobworker.assembly`)."""

    runner: HandlerRunner
    tries: int
    """The total number of runs of a failing handler."""
    limits: RetryLimits
    handler_seconds: float
    """A handler with a longer limit than this is a slow one."""
    conversations: ConversationStore
    outbox: Outbox
    unsends: Unsends
    schedule: Schedule
    fetch: Callable[..., ProfileFetch]
    """Makes the fetch of a profile: `fetch(document, user_id, done=…)`."""
    names: LaterProfiles
    """Fetches profiles that no answer waits for."""
    around: Callable[..., TalkContext]
    """Makes the services of a talk: `around(load=…, per_member=…)`."""
    lease_is_fresh: Callable[[], bool]
    runs: Runs
    """Counts and records each run of a job."""
    animate: Callable[[Document, HandlerContext], Callable[[], None]]
    """Shows the user that a handler runs; returns the function to call at its end."""
    offer_button: Callable[..., OfferedButton | None]
    """Called when a handler is called for an event (`jobworker.sending.button.Buttons.begin`)."""
    masked: Callable[[str], str]
    """Masks every secret in a text that is stored."""
    awaited: set[Awaited] = field(default_factory=set)
    """The calls of handlers outside the pool whose result no run has taken."""
    without_worker: OrderedDict[Job, None] = field(default_factory=OrderedDict)
    """The jobs for which no worker was free, in order."""

    def take_over(self, epoch: int) -> None:
        """Become the holder of the epoch; steps load the outboxes of predecessors. Raises
        StoreUnavailable.
        """
        self.conversations.epoch = epoch
        self.unsends.take_over()
        self.outbox.take_over()

    def decide(self, job: Job) -> JobResult | Wait:
        """Run a job once; raises Replaced if a successor has taken over."""
        memo = job.memo = job.memo or JobMemo()
        if isinstance(job.document.get("event"), DBRef):
            # The driver makes this of any object with `$ref` and `$id`.
            job.document["event"] = dict(job.document["event"].as_doc())
        if not is_event(job.document):
            log.error("not a front desk document, skipped id=%s", job.document["_id"])
            return JobResult.DONE
        if memo.awaited is not None and (ended := self._outside(job, memo.awaited)) is not None:
            return ended
        if memo.call is not None and memo.call.is_abandoned:
            # If an operator released it, no row says so yet.
            self.runs.abandoned(job.document, memo)
        turn = Turn(job, self)
        try:
            result = turn.result()
        except Abandoned:
            # Counted and recorded when it was abandoned; another run decides.
            log.warning("abandoned handler returned after all event_id=%s", turn.name)
            return Wait.because(Why.DEFERRED)
        self.runs.ended(job.document, memo, result)
        self.without_worker.pop(job, None)
        if isinstance(result, Wait) and result.why["code"] == Why.NO_WORKER:
            self.without_worker[job] = None
        elif self.without_worker:
            # This one may have had a worker's thread.
            with suppress(KeyError):
                self.without_worker.popitem(last=False)[0].resume()
        return result

    def _outside(self, job: Job, one: Awaited) -> Wait | None:
        """The handler runs, or has run, outside the pool; None if a turn may take its result."""
        give_up = job.given_up_for
        if give_up is not None and not one.is_over:
            one.abandon()
        if not one.is_over:
            return Wait.because(Why.HANDLER_RUNS)
        if one.failure is None and give_up is None:
            return None
        self.take(job, one)
        if give_up is None:
            assert one.failure is not None, "checked above"
            return self.did_not_return(job, one.failure)
        if one.failure is not None:
            job.given_up_for = replace(give_up, stack=one.failure.traceback)
        return None

    def begin_outside(self, job: Job, rule: Rule, event: Any, one: Awaited) -> Wait:
        """Run a handler outside the pool. Raises WorkerAway, StoreUnavailable."""
        self.awaited.add(one)
        try:
            one.talk.read()
            self.runner.begin(rule, event, one)
        except BaseException:
            # First this: what ends with it does not resume the job.
            one.handling.end()
            one.at_end.close()
            self.awaited.discard(one)
            job.awaits = False
            raise
        job.memo.awaited = one
        return Wait.because(Why.HANDLER_RUNS)

    def take(self, job: Job, one: Awaited) -> None:
        """Take the result of a handler outside the pool."""
        memo: JobMemo = job.memo
        memo.awaited, job.awaits = None, False
        self.awaited.discard(one)
        memo.run.handler_began = one.handling.since
        memo.run.end_handler()
        one.at_end.close()

    def did_not_return(self, job: Job, failure: Failure) -> Wait:
        """Handle an abandoned handler: a failed try, and the job runs again later."""
        memo: JobMemo = job.memo
        self.runs.abandoned(job.document, memo)
        if memo.given_up is not None:
            self.failed_again(job, failure)
            memo.decision = letters_of(memo.heard_with(job.document), memo.given_up)
            return Wait.because(Why.DEFERRED, 0.0)
        outcome = self.failed(job, failure)
        return outcome if isinstance(outcome, Wait) else Wait.because(Why.DEFERRED, 0.0)

    def failed(self, job: Job, failure: Failure) -> Wait | Condemned:
        """Count a failed try: the handler is tried again later, or its event is given up."""
        memo: JobMemo = job.memo
        memo.failures += 1
        memo.passing_failures += failure.passing
        memo.bugs += failure.comes_again
        now, rule, limits = datetime.now(UTC), memo.rule, self.limits
        first_at = memo.first_at or now
        memo.passing_at = (memo.passing_at or now) if failure.passing else None
        name, what, place = name_of(job.document), failure.what, failure.place
        tries = self.tries if rule is None or rule.tries is None else rule.tries
        failures = memo.bugs if failure.comes_again else memo.failed_tries
        since = memo.passing_at or first_at
        if failure.ends_it(failures=failures, tries=tries, first_at=since, limits=limits):
            log.error(
                "handler failed, given up event_id=%s attempts=%d error=%s at=%s lasting=%s",
                *(name, memo.failures, what, place, failure.lasting),
                extra={"below": failure.traceback},
            )
            memo.given_up = failure.give_up(attempts=memo.failures, first_at=first_at)
            # `@bot.failed` is other code than what took these workers down.
            memo.lost_by = frozenset()
            return memo.given_up
        pause = failure.pause_seconds(
            failures=memo.failures if failure.passing else failures,
            backoff=() if rule is None else rule.backoff,
            limits=limits,
        )
        log.warning(
            "handler failed, trying again event_id=%s attempt=%d seconds=%.1f error=%s at=%s",
            *(name, memo.failures, pause, what, place),
            extra={"below": failure.traceback},
        )
        most = failure.most(tries, limits)
        return Wait.because(Why.HANDLER_FAILED, pause, failures=memo.failures, tries=most)

    def asks_failed(self, job: Job) -> bool:
        """Whether the bot has `@bot.failed`, and it may get the event: no replay, and no timer
        without a rule.
        """
        has_rule = job.memo.rule is not None or not is_fired_timer(job.document["event"])
        has_one = self.runner.bot().on_failed is not None
        return has_one and has_rule and under_replay(job.document) is None

    def failed_again(self, job: Job, failure: Failure) -> None:
        """`@bot.failed` failed, too: it decides nothing, and is not tried again."""
        log.error(
            "the handler of given up events failed event_id=%s error=%s at=%s",
            *(name_of(job.document), failure.what, failure.place),
            extra={"below": failure.traceback},
        )


class Turn:
    """One run of a job on one thread; `run` has its times and its outcome."""

    def __init__(self, job: Job, turns: Turns) -> None:
        if job.memo.awaited is None:
            job.memo.run = JobRun()
        self.run: JobRun = job.memo.run
        self.name = name_of(job.document)
        self._job = job
        self._memo: JobMemo = job.memo
        self._id = conversation_id(job.document)
        self._turns = turns
        self._load = partial(turns.conversations.load, job.document)

    @property
    def _document(self) -> Document:
        """The job's document; an edit that waits behind it replaces its text."""
        return self._job.document

    def result(self) -> JobResult | Wait:
        """Return how the turn ends. Raises Abandoned, Replaced, AccessRefused."""
        try:
            result = self._through_the_stages()
            if isinstance(result, JobResult) and asks_for_effect(self._document):
                self._turns.unsends.deadletters.note_carried_out(self._document)
        except WorkerAway as error:
            return self._away(error)
        except GateClosed as error:
            is_away = isinstance(error, LineAway)
            return self._again(Why.LINE_NOT_CALLED if is_away else Why.NO_TURN, error)
        except StoreUnavailable as error:
            is_decided = self._memo.decision is not None
            return self._again(Why.NOT_RECORDED if is_decided else Why.STORE_SILENT, error)
        return result

    def _through_the_stages(self) -> JobResult | Wait:
        memo = self._memo
        try:
            if memo.recording is not None:
                return self._recorded(memo.recording)
            has_run = memo.awaited is not None
            ended = None if has_run else _first(self._found, self._taken_back, self._no_room)
            if ended is None and memo.decision is None:
                before = self._condemned, self._replayed, self._given_up_before
                ended = _first(*(() if has_run else before), self._handle)
            if isinstance(ended, Condemned):
                memo.decision, ended = self._given_up(ended), None
            elif isinstance(ended, Decided):
                memo.decision, self.run.outcome, ended = ended.decision, ended.outcome, None
            return ended or self._commit()
        except WriteRefused as error:
            return self._past_its_record(error)

    def _again(self, why: Why, error: Exception | None = None) -> Wait:
        """Wait a moment, longer each time."""
        memo = self._memo
        memo.store_failures += 1
        pause = pause_seconds(memo.store_failures, most=self._turns.limits.store_pause_seconds)
        self.run.error = why.value if error is None else type(error).__name__
        # MongoDB's outage, the lease and LINE's breaker are said once by their own parts.
        is_told = error is not None or why is Why.LEASE_NOT_FRESH
        level = logging.DEBUG if is_told else logging.WARNING
        told = "not decided, trying again event_id=%s error=%s"
        log.log(level, told, self.name, error or why.value)
        return Wait.because(why, pause)

    def _away(self, error: WorkerAway) -> Wait:
        """Give the job to another worker process, because its own is away; that is no failed
        try.
        """
        memo, limits = self._memo, self._turns.limits
        if error.worker is not None:
            memo.lost_by |= {error.worker}
            memo.away, seconds = 0, 0.0
            log.warning("handed out again event_id=%s: %s", self.name, error)
        else:
            memo.away = 1 if error.reserved else memo.away + 1
            seconds = growing_seconds(
                memo.away, first=limits.away_pause_seconds, most=limits.store_pause_seconds
            )
        return Wait(reason(Why.NO_WORKER, cause=str(error)), seconds)

    # Before it is decided.

    def _found(self) -> JobResult | None:
        """Whether a predecessor has decided it."""
        if not self._job.again or self._memo.checked:
            return None
        conversation = self._turns.conversations.read(self._document)
        if self.name in conversation.applied:
            log.info("decided before the restart event_id=%s", self.name)
            return JobResult.ALREADY_APPLIED
        self._turns.unsends.learn(conversation.id, conversation.unsent)
        self._memo.checked = True
        return None

    def _taken_back(self) -> JobResult | Wait | None:
        """Whether its message was taken back, or its timer was overtaken: no handler runs."""
        if self._memo.decision is not None:
            return None
        if not (
            self._turns.unsends.ends(self._document)
            or self._turns.schedule.overtook(self._document)
        ):
            return None
        self._memo.disband(self._job)
        return self._finish(UNHEARD)

    def _no_room(self) -> Wait | None:
        # An event to give up sends nothing and should be out of the way.
        if self._job.given_up_for is not None:
            return None
        if not self._turns.outbox.waits_for_room(self._id, self._job.resume):
            return None
        return Wait.because(Why.OUTBOX_FULL)

    # The decision.

    def _condemned(self) -> Condemned | None:
        condemned = self._job.given_up_for
        if condemned is not None:
            # Only this event is given up: the others are gathered again.
            self._memo.disband(self._job)
            log.error(
                "given up event_id=%s attempts=%d cause=%s",
                *(self.name, condemned.attempts, condemned.cause),
            )
            cause = condemned.cause.after_a_send(self._memo.has_sent)
            condemned = replace(condemned, cause=cause)
        return condemned

    def _replayed(self) -> Decided | None:
        """A replayed effect, or an event without a row or letter behind it, runs no handler."""
        document, letters = self._document, self._turns.unsends.deadletters
        if asks_for_effect(document):
            decision = carried_out(document, letters.replayed_by(document))
            return Decided(decision or refused(document, NO_LETTER))
        if not is_fired_timer(document["event"]) or self._turns.schedule.stands_behind(document):
            return None
        # A given-up event is replayed with the event that its letter holds.
        again = letters.replayed_by(document, **{"document.event": {"$eq": document["event"]}})
        return None if again is not None else Decided(refused(document, NO_ROW))

    def _given_up_before(self) -> Decided | Condemned | Wait | None:
        """Let `@bot.failed` decide, in a run of its own; its failure changes nothing."""
        give_up = self._memo.given_up
        if give_up is None or not self._turns.asks_failed(self._job):
            return give_up
        decided = self._decided(decide_given_up)
        if isinstance(decided, Failure):
            self._turns.failed_again(self._job, decided)
            return give_up
        assert isinstance(decided, Decided), "no stage of it waits"
        letters = self._given_up(give_up).effects
        told = decided.decision
        return Decided(replace(told, effects=[*letters, *told.effects]))

    def _handle(self) -> Decided | Condemned | Wait:
        one = self._memo.awaited
        if one is not None:
            self._turns.take(self._job, one)
        try:
            decided = self._decided(decide if one is None else partial(decide_awaited, one=one))
        except WorkerAway:
            self._memo.tries -= one is not None
            raise
        if isinstance(decided, Failure):
            self.run.outcome, self.run.error = FAILED, decided.what
            self.run.place = None if decided.place == "-" else decided.place.rpartition("/")[2]
            ended = self._turns.failed(self._job, decided)
            if isinstance(ended, Condemned) and self._turns.asks_failed(self._job):
                return Wait.because(Why.DEFERRED, 0.0)
            return ended
        if isinstance(decided, Wait) and decided.why["code"] == Why.FETCHING_PROFILE:
            self._fetch_profile(str(text_of(self._document["event"], "source", "userId")))
        return decided

    def _decided(
        self, step: Callable[[Case], Decided | Failure | Wait]
    ) -> Decided | Failure | Wait:
        """Take a step of `jobworker.decide`; the bot's own errors end here, around one job."""
        memo = self._memo
        case = Case(
            self._job,
            memo,
            self._turns.runner,
            make_talk=self._talk,
            load=self._load,
            taken_back=self._turns.unsends.ends,
            edit_of=self._turns.unsends.edit_of,
            call=self._call if memo.given_up is None else self._call_failed,
            handler_seconds=self._turns.handler_seconds,
        )
        try:
            decided = step(case)
        except Abandoned:
            raise
        except BaseException as error:
            if isinstance(error, NOT_ITS_FAULT) and not (memo.call and memo.call.has_sent):
                raise
            # If SystemExit ended the thread, the key would be left behind silently.
            return raised(error, has_sent=memo.has_sent, masked=self._turns.masked)
        if isinstance(decided, Decided) and memo.has_sent:
            # A message that was sent is not decided again, whatever state it was based on.
            decided = replace(decided, decision=replace(decided.decision, read_n=None))
        return decided

    def _talk(self) -> Talk:
        per_member = self._turns.runner.bot().per_member
        around = self._turns.around(load=self._load, per_member=per_member)
        return Talk(self._document, around)

    def _fetch_profile(self, user_id: str) -> None:
        def done(profile: Document | None) -> None:
            self._memo.profile = profile
            if profile is not None:
                self._turns.conversations.keep_first_name(self._document, profile)
            self._job.resume()

        self._turns.fetch(self._document, user_id, done=done).begin()

    def _call(self, rule: Rule, event: Any, talk: Talk) -> Failure | Wait | None:
        memo, run = self._memo, self.run
        self._offer_button()
        log.debug(
            "started event_id=%s thread=%s since_accept_ms=%.1f",
            *(self.name, run.thread, since_ms(self._document[ACCEPT_TIME])),
        )
        if memo.first_at is None:
            memo.first_at = datetime.now(UTC)
            self._turns.runs.waited(self._document, memo.first_at)
        memo.tries += 1
        call = memo.begin_call(self._document)
        talk.try_number = call.number + self._document.get(TRIES, 0)
        end_animation = self._turns.animate(self._document, call)
        run.handler_began = time.monotonic()
        runner = self._turns.runner
        # First this: until the run ends, only the call is abandoned and not its thread.
        self._job.awaits = is_awaited(rule, self._job)
        handling = self._job.begin_handler(runner.limit_of(rule))
        try:
            if self._job.awaits:
                one = Awaited(talk, call, handling, ended=self._job.resume)
                return self._turns.begin_outside(self._job, rule, event, one)
            with call.under(handling):
                return runner.run(rule, event, talk, call)
        except WorkerAway as error:
            memo.tries -= 1
            if error.worker is None:
                run.handler_began = None
            raise
        finally:
            if memo.awaited is None:
                run.end_handler()
                end_animation()
            else:
                memo.awaited.at_end.callback(end_animation)

    def _call_failed(self, rule: Rule, event: Any, talk: Talk) -> Failure | None:
        runner, call = self._turns.runner, self._memo.begin_call(self._document)
        with call.under(self._job.begin_handler(runner.limit_of(rule))):
            return runner.run(rule, event, talk, call)

    def _offer_button(self) -> None:
        """Arrange a button for the handler's event, to be shown unless it is decided first."""
        memo = self._memo
        if memo.button is not None or self._turns.runner.bot().sends_by_itself:
            return
        heard = memo.heard_with(self._document)
        # The notes of a predecessor.
        noted = self._load().answers if self._job.again else {}
        document = next((one for one in heard if name_of(one) in noted), answered(heard))
        memo.button = self._turns.offer_button(
            document, state_of(noted.get(name_of(document))), has_sent=lambda: memo.has_sent
        )

    # Given up.

    def _given_up(self, give_up: Condemned) -> Decision:
        """Return the decision "a dead letter for each event that was handled together"."""
        decision = letters_of(self._memo.heard_with(self._document), give_up)
        if not asks_for_effect(self._document):
            return decision
        return replace(decision, effects=[self._replayable(one) for one in decision.effects])

    def _replayable(self, letter: Document) -> Document:
        """The letter of a replayed send or timer, with the effect itself. Its document names only
        the first letter, which is deleted a week after the replay.
        """
        first = self._turns.unsends.deadletters.replayed_by(self._document)
        if first is None or "effect" not in first:
            return letter
        rest = {name: value for name, value in letter.items() if name != "document"}
        return {**rest, "effect": first["effect"]}

    def _past_its_record(self, error: WriteRefused) -> JobResult | Wait:
        """MongoDB refuses the record: write the dead letters outside of it."""
        memo = self._memo
        self.run.error = type(error).__name__
        applied = self._turns.conversations.read(self._document).applied
        if (found := self._found_applied(applied)) is not None:
            return found
        letters = memo.decision.given_up.effects if memo.decision is not None else []
        if not letters:
            log.error("given up event_id=%s cause=%s", self.name, error)
            cause = Cause(WRITE_REFUSED, error.about).after_a_send(memo.has_sent)
            first_at = memo.first_at or datetime.now(UTC)
            letters = self._given_up(Condemned(cause, max(memo.tries, 1), first_at)).effects
        for letter in letters:
            self._turns.unsends.deadletters.write(letter)
        return JobResult.DONE

    # The end.

    def _commit(self) -> JobResult | Wait:
        memo, turns, document = self._memo, self._turns, self._document
        decision = memo.edits.noted(self._named(self._by_its_button()))
        # A handler that has sent by itself must at least not send again.
        if decision.is_empty and not memo.has_sent:
            return self._finish(self.run.outcome)
        if document["event"].get("mode") == "standby":
            log.info("standby event, nothing is carried out event_id=%s", self.name)
            decision = decision.given_up
            if decision.is_empty:
                return self._finish()
        if not turns.lease_is_fresh():
            return self._again(Why.LEASE_NOT_FRESH)
        # guard: names-forgotten-first
        if memo.forgets:
            # Before the record: a profile read earlier is not written afterwards.
            turns.names.forget(self._id)
        turns.outbox.know(self._id)
        messages = _messages_of(memo, document)
        message_id = messages.pop(self.name)
        effects = turns.conversations.placed(decision.to_carry_out)
        with turns.outbox.sender.at_once(self._id, effects) as call:
            memo.recording = turns.conversations.enter_record(
                document,
                decision,
                effects,
                message_id=message_id,
                gathered=messages,
                call=call,
                letters=[change_of(one) for one in decision.letters],
            )
            note_seconds = turns.outbox.sender.limits.note_seconds
            return self._recorded(memo.recording, WAIT_SECONDS if call is None else note_seconds)

    def _recorded(self, recording: Recording, seconds: float = WAIT_SECONDS) -> JobResult | Wait:
        """Wait for the record, and carry it out. Without certainty the job asks again later."""
        memo, turns = self._memo, self._turns
        try:
            recorded = turns.conversations.recorded(recording, seconds=seconds)
        except StoreUnavailable:
            # A withdrawn write is never made, another one may be, and has to be carried out then.
            if recording.write.is_ended and not recording.write.matched:
                memo.recording = None
            raise
        memo.recording = None
        if recorded.outdated:
            return self._changed()
        if recorded.unsent:
            return self._found_unsent()
        if recorded.applied:
            return self._found_applied(recorded.applied) or JobResult.ALREADY_APPLIED
        turns.outbox.add(self._id, Outbound(recorded.effects, recorded.call, is_tried=False))
        turns.unsends.deadletters.written(*recording.decision.letters)
        log.debug("decided event_id=%s effects=%d", self.name, len(recording.decision.effects))
        if memo.learns:
            # A replay has no reply token, so no profile was fetched before its handler.
            later = memo.learns == "later" or under_replay(self._document) is not None
            turns.names.want(self._document, sender=later)
        return JobResult.RECORDED

    def _by_its_button(self) -> Decision:
        """Return the decision; its answer waits for a tap if a button has used the token."""
        decision, button = self._memo.decision, self._memo.button
        assert decision is not None
        if button is None:
            return decision
        return kept(decision, button.document, button.end(), now=datetime.now(UTC))

    def _named(self, decision: Decision) -> Decision:
        """Add the profile that LINE returned for the event to a decision to give up.

        A handler that succeeded has it among its own changes. This reads the conversation, and
        raises StoreUnavailable while MongoDB is away; then only the record is repeated.
        """
        profile = None if self._memo.forgets else self._memo.profile
        # LINE's refusal has no name to search for.
        if profile is None or "displayName" not in profile or decision.given_up.is_empty:
            return decision
        talk = self._talk()
        talk.know_profile(profile)
        told = talk.decision()
        return replace(
            decision,
            changes={**decision.changes, **told.changes},
            gone=[*decision.gone, *told.gone],
        )

    def _finish(self, outcome: str | None = None) -> JobResult:
        """End a job without a record."""
        self.run.outcome = outcome
        return JobResult.DONE

    def _changed(self) -> Wait:
        """The decision is based on an older state of the conversation: decide again."""
        self._turns.conversations.forget(self._id)
        self._memo.decision = None
        return self._again(Why.CONVERSATION_CHANGED)

    def _found_applied(self, applied: Iterable[str]) -> JobResult | Wait | None:
        """Return the result if these names are applied; None if no event of the job is among them.

        A predecessor may have gathered fewer messages: each of the others is decided again.
        """
        memo = self._memo
        names = {name_of(one) for one in memo.decided_with(self._document)}
        done = names & set(applied)
        if not done:
            return None
        # guard: some-of-them-applied -> never
        if done < names:
            memo.disband(self._job)
            memo.found_applied |= done
            if self.name not in done:
                memo.decision = memo.given_up = None
                return self._again(Why.DECIDED_ELSEWHERE)
        return JobResult.ALREADY_APPLIED

    def _found_unsent(self) -> JobResult | Wait:
        """The record found a message taken back. The other messages are handled without it."""
        memo, unsends = self._memo, self._turns.unsends
        heard = memo.heard_with(self._document)
        if len(heard) == 1:
            unsends.met(heard[0])
            return self._finish(UNHEARD)
        found = self._turns.conversations.read(self._document)
        unsends.learn(found.id, found.unsent)
        memo.decision = memo.given_up = None
        if memo.has_sent:
            # Its own sends would be made once more.
            memo.heard = [one for one in heard if not unsends.ends(one)]
            failure = Failure("unsent_among_them", "-", "", lasting=True, has_sent=True)
            first_at = memo.first_at or datetime.now(UTC)
            give_up = failure.give_up(attempts=memo.tries, first_at=first_at)
            memo.decision = letters_of(memo.heard, give_up)
        return self._again(Why.MESSAGE_TAKEN_BACK)


def _first(*stages: Callable[[], Any]) -> Any:
    """Return the result of the first stage that has one."""
    return next((one for stage in stages if (one := stage()) is not None), None)


def _messages_of(memo: JobMemo, document: Document) -> dict[str, str | None]:
    """The names of the events decided together, each with its message's id if it was handled."""
    heard = {
        name_of(one): text_of(one["event"], "message", "id") for one in memo.heard_with(document)
    }
    return {name_of(one): heard.get(name_of(one)) for one in memo.decided_with(document)}
