"""The field `answers` of the conversations: answers that wait for a tap on their button.

An answer is in one place at a time: here or in the outbox. Each move is one update, so no crash
loses or doubles it. After a day of waiting it becomes a dead letter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from dispatcher.commit.committer import WAIT_SECONDS, Change, Committer
from jobworker.effects import Send, SendMethod, of_effect
from jobworker.record.conversations import ConversationStore, Decision, StoredConversation
from jobworker.record.dead_letters import DeadLetters, change_of
from jobworker.record.looks import Look
from jobworker.record.record import unrecorded
from linedesk.store.documents import CONVERSATIONS, Document, conversation_id, name_of, text_of
from linedesk.store.errors import translated
from linedesk.store.limits import TOKEN_LIFE
from linedesk.store.records.answers import (
    ANSWERS,
    BY,
    KEPT_FOR,
    SEND,
    STATE,
    WITH_ANSWERS,
    AnswerState,
    can_be_offered,
    state_of,
    tapped_in,
    waiting_in,
)
from linedesk.store.records.effects import SEND as SEND_TYPE
from linedesk.store.records.effects import TOKEN_FROM
from linedesk.store.records.events import ACCEPT_TIME
from linedesk.store.records.letters import NOT_FETCHED

log = logging.getLogger(__name__)

# Above this size a conversation gets no further button: with its outbox and its data its document
# stays well below MongoDB's limit.
MOST_BYTES = 2 * 1024 * 1024
# A tap shortly before its token expires stays unanswered; the next one brings the answer.
TOKEN_RESERVE = timedelta(seconds=3)
# Conversations of one check; the next check follows at once if there are more.
MOST_AT_ONCE = 500

REPLY = SendMethod.REPLY.value
NOT_THERE = (
    "申し訳ありません。この回答はお届けできません。"
    "お届けできる期限（1日）が過ぎたか、回答を用意できませんでした。"
)


class ButtonShown(Enum):
    """The known state of the button of an event that is being decided."""

    NO = "no"
    """LINE was not asked to show it."""
    REFUSED = "refused"
    """LINE did not show it."""
    UNKNOWN = "unknown"
    """LINE may have shown it."""
    YES = "yes"


# Decisions. Pure.


def kept(
    decision: Decision, document: Mapping[str, Any], shown: ButtonShown, *, now: datetime
) -> Decision:
    """Return the decision about an event, depending on its button.

    | the button | the handler's reply | the entry in `answers` |
    | --- | --- | --- |
    | NO | in the outbox | - |
    | REFUSED | in the outbox | goes |
    | UNKNOWN | in the outbox, as a push | taken: a tap on a button that was shown does nothing |
    | YES | not in the outbox | waiting, with the reply |
    | any but NO, without a reply | - | goes |

    In the outbox it is a reply as long as its token is valid and unused, otherwise a push: LINE's
    refusal of a token that a button used is no proof that the reply arrived. All other decisions
    are unchanged.
    """
    name, entry, effects = name_of(document), None, decision.effects
    replies = (one for one in effects if one["type"] == SEND_TYPE and one["way"] == REPLY)
    reply = next(replies, None)
    if shown is ButtonShown.NO:
        return decision
    if reply is not None and shown is ButtonShown.UNKNOWN:
        # guard: token-that-a-button-used -> pushed = reply
        pushed = {**reply, "token": None}
        effects = [pushed if one is reply else one for one in effects]
        entry = {STATE: AnswerState.TAKEN.value, "at": now, BY: None}
    elif reply is not None and shown is ButtonShown.YES:
        effects = [one for one in effects if one is not reply]
        send = {**reply, "token": None, TOKEN_FROM: None}
        entry = {STATE: AnswerState.WAITING.value, "at": now, SEND: send}
    return _with_entry(replace(decision, effects=effects), name, entry)


def _with_entry(decision: Decision, name: str, entry: Document | None) -> Decision:
    if ANSWERS in decision.changes:
        # The handler has called `talk.forget`: other entries are removed.
        entries = {} if entry is None else {name: entry}
        return replace(decision, changes={**decision.changes, ANSWERS: entries})
    if entry is None:
        return replace(decision, gone=[*decision.gone, f"{ANSWERS}.{name}"])
    return replace(decision, changes={**decision.changes, f"{ANSWERS}.{name}": entry})


def fetched(
    document: Mapping[str, Any], load: Callable[[], StoredConversation], *, now: datetime
) -> Decision | None:
    """The decision about a tap on such a button, without a handler; None for any other event.

    | the entry | the tap's token is good | it is not |
    | --- | --- | --- |
    | waiting | the answer goes into the outbox, as a reply to the tap | nothing, it waits on |
    | taken | nothing | nothing |
    | none, or its event came to no answer | a sentence that says so | nothing |

    `load` reads the conversation.
    """
    name = tapped_in(document["event"])
    if name is None:
        return None
    conversation = load()
    nothing = Decision({}, [], conversation.n)
    entry = conversation.answers.get(name)
    state, token = state_of(entry), text_of(document, "event", "replyToken")
    good_until = document[ACCEPT_TIME] + TOKEN_LIFE
    if state is AnswerState.TAKEN or token is None or now >= good_until - TOKEN_RESERVE:
        return nothing
    answer = _answer_in(entry) if state is AnswerState.WAITING else None
    if answer is None:
        sentence = _sentence(document, token)
        return replace(nothing, effects=[sentence.as_document()])
    send = replace(
        answer, token=token, token_from=document[ACCEPT_TIME], answer_to=name, may_be_late=False
    )
    # guard: an-answer-is-taken-once -> taken = entry
    taken = {STATE: AnswerState.TAKEN.value, "at": now, BY: name_of(document)}
    changes = {f"{ANSWERS}.{name}": taken}
    return replace(nothing, changes=changes, effects=[send.as_document()])


def _answer_in(entry: Any) -> Send | None:
    try:
        return Send.from_document(entry[SEND])
    except (KeyError, TypeError, ValueError):
        # Made by hand, since linedesk writes them whole.
        log.error("broken answer left in the conversation")  # noqa: TRY400
        return None


def _sentence(document: Mapping[str, Any], token: str) -> Send:
    accepted = document[ACCEPT_TIME]
    return Send(
        id=f"{name_of(document)}/0",
        event_id=name_of(document),
        way=SendMethod.REPLY,
        to=document["key"],
        messages=[{"type": "text", "text": NOT_THERE}],
        retry_key=None,
        at=accepted,
        token=token,
        token_from=accepted,
        # It is not worth a push.
        until=accepted + TOKEN_LIFE,
    )


def waiting_again(send: Send) -> Document:
    """Return the entry of an answer that leaves the outbox and waits for another tap."""
    effect = replace(send, token=None, token_from=None, answer_to=None).as_document()
    return {STATE: AnswerState.WAITING.value, "at": send.at, SEND: effect}


# In MongoDB.


class WaitingAnswers:
    """Writes `answers`, beside the records of `Conversations`.

    Every method raises StoreUnavailable when MongoDB does not confirm in time.
    """

    def __init__(self, committer: Committer, conversations: ConversationStore) -> None:
        self._committer = committer
        self._collection = committer.database[CONVERSATIONS]
        self._conversations = conversations

    def offered(self, document: Mapping[str, Any], *, seconds: float = WAIT_SECONDS) -> bool:
        """Note that LINE is asked for the event's button. False if it must not be: the event is
        decided, its message was taken back, or the conversation already keeps too much.
        """
        id_, name = conversation_id(document), name_of(document)
        entry = {STATE: AnswerState.OFFERED.value, "at": datetime.now(UTC)}
        first = Change.insert(CONVERSATIONS, {"_id": id_, **unrecorded(document)})
        size = {"$bsonSize": {"$ifNull": [f"${ANSWERS}", {}]}}
        condition = {
            "_id": id_,
            "applied": {"$ne": name},
            "unsent": {"$ne": text_of(document, "event", "message", "id") or ""},
            "$expr": {"$lt": [size, MOST_BYTES]},
        }
        update = {"$set": {f"{ANSWERS}.{name}": entry}}
        return self._conversations.change(id_, condition, update, first, seconds=seconds)

    def shown(self, document: Mapping[str, Any]) -> None:
        """Note that LINE has shown the button; harmless once the event is decided."""
        id_, state = conversation_id(document), f"{ANSWERS}.{name_of(document)}.{STATE}"
        offered = {"_id": id_, state: AnswerState.OFFERED.value}
        update = {"$set": {state: AnswerState.SHOWN.value}}
        self._conversations.change(id_, offered, update)

    def with_old(self, before: datetime) -> list[str]:
        """Return the ids of conversations with an entry from before that moment, at most
        MOST_AT_ONCE.
        """
        is_date = {"$eq": [{"$type": "$$this.v.at"}, "date"]}
        old = {"$and": [is_date, {"$lt": ["$$this.v.at", before]}]}
        pairs = {"$objectToArray": f"${ANSWERS}"}
        stages: list[Mapping[str, Any]] = [
            # The partial index lists them, which the condition on `at` makes usable.
            {"$match": {"at": {"$exists": True}, **WITH_ANSWERS}},
            {"$match": {"$expr": {"$ne": [{"$filter": {"input": pairs, "cond": old}}, []]}}},
            {"$limit": MOST_AT_ONCE},
            {"$project": {"_id": 1}},
        ]
        with translated():
            return [row["_id"] for row in self._collection.aggregate(stages)]

    def end_old(self, id_: str, before: datetime) -> list[Document]:
        """Remove the entries from before that moment; returns the dead letters of the answers that
        still waited.
        """
        with self._committer.reading() as session:
            found = self._collection.find_one({"_id": id_}, {ANSWERS: 1}, session=session) or {}
        entries = found.get(ANSWERS) or {}
        old = {name: one for name, one in entries.items() if _is_old(name, one, before)}
        letters = [
            of_effect(one[SEND], id_, cause=NOT_FETCHED, attempts=0)
            for name, one in waiting_in({ANSWERS: old})
            if _answer_in(one) is not None
        ]
        condition = {"_id": id_}
        condition |= {f"{ANSWERS}.{name}.at": one["at"] for name, one in old.items()}
        condition |= {f"{ANSWERS}.{name}.{STATE}": one.get(STATE) for name, one in old.items()}
        update: Document = {"$unset": dict.fromkeys((f"{ANSWERS}.{name}" for name in old), "")}
        if letters:
            # A tap that is being decided on the old state is decided again.
            # guard: ended-answers-are-counted
            update["$inc"] = {"n": 1}
        changes = [change_of(one) for one in letters]
        if not old or not self._conversations.change(id_, condition, update, *changes):
            return []
        if letters:
            log.warning("answers not fetched conversation=%s answers=%d", id_, len(letters))
        return letters


def _is_old(name: str, entry: Any, before: datetime) -> bool:
    at = entry.get("at") if isinstance(entry, Mapping) else None
    return can_be_offered(name) and isinstance(at, datetime) and at < before


class AnswerAges(Look):
    """Ends entries that have waited for a tap longer than a day."""

    what = "ages of waiting answers"

    def __init__(self, answers: WaitingAnswers, letters: DeadLetters) -> None:
        super().__init__()
        self._answers = answers
        self._letters = letters

    def act(self) -> bool:
        before = datetime.now(UTC) - KEPT_FOR
        ids = self._answers.with_old(before)
        for id_ in ids:
            self._letters.written(*self._answers.end_old(id_, before))
        return len(ids) == MOST_AT_ONCE
