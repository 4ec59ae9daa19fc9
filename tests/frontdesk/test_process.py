"""A real front desk process on a real MongoDB: the stored documents, and the answers."""

import json
import signal
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.frontdesk.desk import (
    OLD_SECRET,
    SECRET,
    Answer,
    DeskProcess,
    signed_head,
    text_event,
    webhook,
)
from tests.rows import Db
from tests.waiting import eventually


@pytest.fixture
def event_id() -> str:
    return uuid.uuid4().hex


def refused_with(answer: Answer, status: int) -> str:
    """Check the one form of every refusal, and that it shows no secret."""
    assert answer.status == status
    assert json.loads(answer.body) == {"error": answer.error}
    assert SECRET not in answer.error
    return answer.error


def test_an_event_is_stored_as_it_came_before_the_answer(
    desk: DeskProcess, recvq: Any, event_id: str
) -> None:
    event = text_event(event_id, "🙂" * 5000, new={"$field": [1, None, 2.5], "": {"a.b": True}})
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    assert desk.post(event).status == 200
    stored = recvq.find_one({"eventId": event_id})
    assert stored["event"] == event
    assert (stored["channel"], stored["key"]) == ("main", "U" + "1" * 32)
    assert before <= stored["acceptTime"] <= datetime.now(UTC)


def test_a_redelivery_is_accepted_counted_and_not_stored_again(
    desk: DeskProcess, recvq: Any, event_id: str
) -> None:
    first, second = text_event(event_id), text_event(event_id + "-2")
    again = text_event(event_id, deliveryContext={"isRedelivery": True})
    assert desk.post(first).status == 200
    assert desk.post(again, second).status == 200
    assert [d["event"] for d in recvq.find({"eventId": event_id})] == [first]
    assert recvq.count_documents({"eventId": event_id + "-2"}) == 1
    desk.wait_for_line("accepted events=2 duplicates=1 ms=")


def test_both_secrets_are_accepted_while_one_is_being_replaced(
    desk: DeskProcess, recvq: Any, event_id: str
) -> None:
    assert desk.post(text_event(event_id + "-new"), secret=SECRET).status == 200
    assert desk.post(text_event(event_id + "-old"), secret=OLD_SECRET).status == 200
    assert recvq.count_documents({"eventId": {"$regex": f"^{event_id}"}}) == 2


@pytest.mark.parametrize(
    "header", [None, "Y2hhbm5lbA==", "é" * 44], ids=["missing", "another", "not ASCII"]
)
def test_a_missing_or_wrong_signature_is_401_and_stores_nothing(
    desk: DeskProcess, recvq: Any, event_id: str, header: str | None
) -> None:
    body = webhook(text_event(event_id))
    headers = {} if header is None else {"X-Line-Signature": header}
    refused_with(desk.ask("POST", "/callback", body, headers), 401)
    assert recvq.count_documents({"eventId": event_id}) == 0


def refused_until_logged(desk: DeskProcess, refuse: Callable[[], Any], text: str) -> None:
    """A line of the log names the most frequent reasons of its second, of all tests."""

    def is_logged() -> bool:
        refuse()
        return text in desk.log

    eventually(is_logged)


def test_neither_message_nor_signature_nor_secret_reaches_the_log(
    desk: DeskProcess, event_id: str
) -> None:
    body = webhook(text_event(event_id, "秘密の話"))
    desk.post_bytes(body)
    desk.post_bytes(body, secret="wrong-secret")
    desk.ask("POST", "/callback", body, {"X-Line-Signature": "wrong-signature"})
    refused_until_logged(desk, lambda: desk.post_bytes(b"\xffsecret-talk"), "not UTF-8")
    for hidden in ("秘密", "secret-talk", "wrong-", SECRET, OLD_SECRET, "U111"):
        assert hidden not in desk.log


def test_a_second_signal_ends_it_at_once(database: Db, mongo_uri: str) -> None:
    desk = DeskProcess(uri=mongo_uri, database=database.name).start()
    desk.wait_for_line("listening ")
    with desk.raw() as half:
        half.sendall(signed_head(b"{}", "Content-Length: 2"))
        assert desk.ask("GET", "/healthz").status == 200
        desk.process.send_signal(signal.SIGTERM)
        desk.wait_for_line("stopping ")
        assert desk.stop(signal.SIGTERM) == 128 + signal.SIGTERM


def test_a_second_process_on_the_port_says_which_setting_to_change(
    desk: DeskProcess, database: Db, mongo_uri: str
) -> None:
    second = DeskProcess(uri=mongo_uri, database=database.name, port=desk.port).start()
    assert second.wait() == 78
    assert "FRONTDESK_PORT" in second.log
    assert len(second.lines) == 1
    assert desk.ask("GET", "/readyz").status == 200


def test_the_same_post_twenty_times_at_once_is_stored_once(
    desk: DeskProcess, recvq: Any, event_id: str
) -> None:
    with ThreadPoolExecutor(20) as posts:
        answers = list(posts.map(lambda _: desk.post(text_event(event_id)), range(20)))
    assert [one.status for one in answers] == [200] * 20
    assert recvq.count_documents({"eventId": event_id}) == 1
