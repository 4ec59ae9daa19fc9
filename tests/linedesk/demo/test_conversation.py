"""The demo's recognition of answers, with a fake environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from linedesk.demo.conversation import Deed, DemoConversation, Person
from linedesk.settings.errors import DemoFailed

HANAKO = Person("佐藤花子", "U1")


class Stage:
    """One event, which was stored, handled and answered."""

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        return {"status": 200, "started": 0.0, "milliseconds": 1.0, "eventIds": ["E1"], "number": 1}

    def get(self, path: str) -> Any:
        messages = [{"type": "text", "text": "180秒後にお知らせします"}]
        call = {"accepted": True, "eventId": "E1", "started": 0.1, "body": {"messages": messages}}
        return [call]

    def documents(self, collection: str, query: Mapping[str, object]) -> list[Any]:
        return []

    def log_of(self, name: str) -> str:
        return "INFO started event_id=E1 since_accept_ms=2.0"

    def wait_for(self, look: Callable[[], object], concerned: str, *, seconds: float) -> None:
        assert look()


@pytest.fixture
def talk() -> DemoConversation:
    return DemoConversation(Stage())  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [None, "180秒後にお知らせします"])
def test_an_answer_is_taken_as_it_comes_or_word_by_word(
    talk: DemoConversation, answer: str | None
) -> None:
    _, events = talk.send(Deed(HANAKO, "180", {"act": "text"}, answer=answer))
    talk.wait_for(events)
    assert events[0].answers[0].milliseconds == pytest.approx(100)


def test_an_answer_in_other_words_is_a_failure(talk: DemoConversation) -> None:
    _, events = talk.send(Deed(HANAKO, "180", {"act": "text"}, answer="3分後にお知らせします"))
    with pytest.raises(DemoFailed, match="180秒後にお知らせします, not 3分後にお知らせします"):
        talk.wait_for(events)
