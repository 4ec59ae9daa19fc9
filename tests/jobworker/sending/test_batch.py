"""The standing of a batch at the gate."""

from __future__ import annotations

from datetime import UTC, datetime

from dispatcher.conversations.conversations import Conversation
from jobworker.errors import LineError, OutcomeUnknown
from jobworker.line.answer import LineAnswer
from jobworker.record.batches import ReadyBatch
from jobworker.sending.batch import Batch
from jobworker.sending.conversation_outbox import (
    ConversationOutbox,
    Go,
    Moment,
    PendingSend,
    SendLimits,
    standing_of,
)
from jobworker.sending.verdict import CallOutcome
from linedesk.store.records.calls import TurnClass
from tests.jobworker.worker_harness import a_send

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
LIMITS = SendLimits()


def a_batch() -> Batch:
    """Two conversations, whose pushes were recorded at the monotonic times 0 and 5."""
    boxes = []
    for user, at in (("U1", 0.0), ("U2", 5.0)):
        box = ConversationOutbox(Conversation(f"main/{user}"), LIMITS, lambda *_: None)
        send = a_send(to=user, at=NOW)
        standing = standing_of(send, box.id, LIMITS, now=at, at=NOW)
        box.append(PendingSend(f"{user}-1", send, standing, Moment(NOW, at)))
        boxes.append(box)
    ready = ReadyBatch("key", NOW, {box.id: ("1",) for box in boxes})
    return Batch(
        ready, [], boxes, now=5.0, made=Moment(NOW, 5.0), limits=LIMITS, granted=lambda *_: None
    )


def judged(batch: Batch, answer: LineAnswer | LineError) -> CallOutcome:
    """The meaning of this answer to its call."""
    plan = batch.plan(5.0, lambda path: 0.0)
    assert isinstance(plan, Go)
    batch.begin_call()
    batch.answer = answer
    return batch.judged(plan, 5.0)


def test_a_batch_has_the_best_standing_of_its_conversations() -> None:
    standing = a_batch().standing(5.0)
    assert (standing.turn_class, standing.place) == (TurnClass.CHAT, LIMITS.push_seconds)


def test_after_a_call_without_a_verdict_it_is_worth_no_more_than_any_other_push() -> None:
    """Otherwise one on which LINE always fails would repeatedly be the breaker's probe."""
    batch = a_batch()
    batch.failed(judged(batch, OutcomeUnknown("late")), 7.0)
    standing = batch.standing(7.0)
    assert (standing.turn_class, standing.place) == (TurnClass.OTHER, 7.0 + LIMITS.push_seconds)


def test_after_a_call_that_line_held_back_it_goes_to_the_end_of_its_class() -> None:
    batch = a_batch()
    batch.failed(judged(batch, LineAnswer(401)), 7.0)
    standing = batch.standing(7.0)
    assert (standing.turn_class, standing.place) == (TurnClass.CHAT, 7.0 + LIMITS.push_seconds)
