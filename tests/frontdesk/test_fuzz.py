"""Whatever is sent, a front desk answers soon, never with 500, and stores all of it or nothing."""

import json
import socket
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.frontdesk.desk import Answer, DeskProcess, read_answer, signed_head, text_event
from tests.rows import Db
from tests.waiting import eventually

ANSWERS = {200, 400, 401, 408, 413}
EVERY_CHECK = list(HealthCheck)
# A hang shows as an error of the socket: the desk's own bounds are shorter.
HANG_SECONDS = 10.0


class Fuzzed:
    """A real front desk, and the expected contents of its recvq."""

    def __init__(self, desk: DeskProcess, database: Db) -> None:
        self.desk = desk
        self._recvq = database["recvq"]
        self._ids: set[str] = set()
        self._documents = self._recvq.estimated_document_count()

    def check(self, status: int, body: bytes) -> None:
        """After an answer: everything of an accepted request is stored, nothing of another."""
        if status == 503:
            self._begin_anew()
            return
        assert status in ANSWERS, status
        events = json.loads(body)["events"] if status == 200 else []
        for event in events:
            self._expect(event)
        # At once where all is well; a busy machine may have sent it through the spool.
        eventually(lambda: self._recvq.estimated_document_count() >= self._documents)
        assert self._recvq.estimated_document_count() == self._documents
        if events:
            self._check_newest(events[-1])

    def _begin_anew(self) -> None:
        """MongoDB was too slow for a busy machine, and refused events may be stored or not."""
        eventually(lambda: self.desk.post(text_event(uuid.uuid4().hex)).status == 200)
        self._documents = self._recvq.estimated_document_count()

    def send(self, request: bytes, body: bytes) -> Answer:
        """Send these bytes, whatever they are, and check the result."""
        with socket.create_connection(("127.0.0.1", self.desk.port), timeout=HANG_SECONDS) as line:
            line.sendall(request)
            answer = read_answer(line)
        self.check(answer.status, body)
        return answer

    def post(self, body: bytes) -> Answer:
        """The same, of a well-signed webhook."""
        return self.send(signed_head(body, f"Content-Length: {len(body)}") + body, body)

    def _expect(self, event: dict[str, Any]) -> None:
        event_id = event.get("webhookEventId")
        if isinstance(event_id, str) and event_id:
            # Half a surrogate pair is replaced, so two such ids may become one.
            event_id = event_id.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            if event_id in self._ids:
                return
            self._ids.add(event_id)
        self._documents += 1

    def _check_newest(self, event: dict[str, Any]) -> None:
        text = json.dumps(event)
        # A redelivery is not stored again, half a surrogate pair is replaced, and the driver
        # makes an object of its own of a $ref.
        if not any(part in text for part in ("webhookEventId", "\\ud", "$ref")):
            [newest] = self._recvq.find().sort("$natural", -1).limit(1)
            assert newest["event"] == event


@pytest.fixture(scope="module")
def fuzzed(shared: tuple[DeskProcess, Db]) -> Iterator[Fuzzed]:
    desk, database = shared
    yield Fuzzed(desk, database)
    assert "Traceback" not in desk.log


BROKEN = {
    "nothing": b"",
    "UTF-16": '{"events":[{"a":1}]}'.encode("utf-16"),
    "no UTF-8": b'{"events":[{"a":"\xff\xfe"}]}',
    "a lone surrogate": b'{"events":[{"a":"\\ud83d"}]}',
    "deep objects": b'{"events":[' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"]}",
    "an integer beyond 64 bits": b'{"events":[{"a":9223372036854775808}]}',
    "NaN": b'{"events":[{"a":NaN}]}',
    "NUL in a name": b'{"events":[{"a\\u0000":1}]}',
    "the same name twice": b'{"events":[{"a":1,"a":2}],"events":[{"b":1}]}',
    "a body over 1 MB": b'{"events":[{"a":"' + b"x" * 1_048_576 + b'"}]}',
    "a long event id": b'{"events":[{"webhookEventId":"' + b"x" * 100_000 + b'"}]}',
    "an operator as a name": b'{"events":[{"$set":{"a.b":1,"$where":"1"},"":0,"_id":{"$gt":""}}]}',
    "an event id with NUL": b'{"events":[{"webhookEventId":"a\\u0000b"}]}',
    "a source that is no object": b'{"events":[{"source":[1],"message":7,"type":null}]}',
    "unsend without anything": b'{"events":[{"type":"unsend"},{"type":"unsend","unsend":1}]}',
    "10,001 events": b'{"events":[' + b"{}," * 10_000 + b"{}]}",
    "large as a document": b'{"events":[{"a":[' + b"[]," * 100_000 + b"1]}]}",
    "date and id of MongoDB": b'{"events":[{"a":{"$date":1,"$oid":"x","$ref":"a","$id":1}}]}',
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN.keys())
def test_a_well_signed_body_of_any_kind_is_stored_whole_or_not_at_all(
    fuzzed: Fuzzed, body: bytes
) -> None:
    fuzzed.post(body)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=12)
    | st.sampled_from(["$set", "a.b", "\0", "\ud83d", "user", "U1", "webhookEventId"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "$a", "a.b", "", "_id", "\0", "\ud83d", "userId", "id"])
            | st.text(max_size=5),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
names_of_line = st.sampled_from(
    ["type", "source", "message", "unsend", "webhookEventId", "timestamp", "mode", "replyToken"]
)
events = st.dictionaries(names_of_line, json_values, max_size=5)
webhooks = st.fixed_dictionaries(
    {"events": st.lists(events, max_size=4) | json_values}, optional={"destination": json_values}
)


@settings(max_examples=40, deadline=None, suppress_health_check=EVERY_CHECK)
@given(webhook=webhooks | json_values, ascii_only=st.booleans())
def test_wrong_types_everywhere_do_no_harm(fuzzed: Fuzzed, webhook: Any, ascii_only: bool) -> None:
    text = json.dumps(webhook, ensure_ascii=ascii_only)
    fuzzed.post(text.encode("utf-8", "surrogatepass"))


GOOD = b'{"events":[{"type":"fuzz"}]}'


@settings(max_examples=30, deadline=None, suppress_health_check=EVERY_CHECK)
@given(
    name=st.sampled_from(
        [b"Content-Type", b"Content-Encoding", b"Expect", b"Upgrade", b"Host", b"Cookie", b"X"]
    ),
    value=st.sampled_from([b"", b"gzip", b"100-continue", b"websocket", b"h2c", b"a" * 9_000])
    | st.binary(max_size=30),
)
def test_no_header_does_harm(fuzzed: Fuzzed, name: bytes, value: bytes) -> None:
    """A head that is no HTTP is refused, any other does not matter."""
    head = signed_head(GOOD, f"Content-Length: {len(GOOD)}", "Connection: close")
    odd = head[:-2] + name + b": " + value + b"\r\n\r\n"
    with suppress(ConnectionResetError):
        fuzzed.send(odd + GOOD, GOOD)


CHUNKED = b"5\r\n" + GOOD[:5] + b"\r\n" + b"%x\r\n" % (len(GOOD) - 5) + GOOD[5:] + b"\r\n0\r\n\r\n"
FRAMES: dict[str, tuple[tuple[str, ...], bytes, set[int]]] = {
    "chunked": (("Transfer-Encoding: chunked",), CHUNKED, {200}),
    "chunked and with a length": (
        ("Transfer-Encoding: chunked", f"Content-Length: {len(GOOD)}"),
        CHUNKED,
        {200, 400},
    ),
    "chunks that are none": (("Transfer-Encoding: chunked",), b"zz\r\n" + GOOD, {400}),
    "a chunk without end": (("Transfer-Encoding: chunked",), b"5\r\n" + GOOD[:5], {408}),
    "chunks over 1 MB": (("Transfer-Encoding: chunked",), b"200000\r\n" + b"x" * 1_048_577, {413}),
    "a length too small": ((f"Content-Length: {len(GOOD) - 3}",), GOOD, {400, 401}),
    "a length too large": ((f"Content-Length: {len(GOOD) + 3}",), GOOD, {408}),
    "two lengths": (("Content-Length: 5", f"Content-Length: {len(GOOD)}"), GOOD, {400, 401}),
    "a length beyond all": ((f"Content-Length: {10**30}",), GOOD, {400, 413}),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
def test_a_body_in_any_frame_is_taken_whole_or_refused(
    fuzzed: Fuzzed, frame: tuple[tuple[str, ...], bytes, set[int]]
) -> None:
    lines, sent, statuses = frame
    assert fuzzed.send(signed_head(GOOD, *lines) + sent, GOOD).status in statuses | {503}


@settings(max_examples=30, deadline=None, suppress_health_check=EVERY_CHECK)
@given(noise=st.binary(min_size=1, max_size=200))
def test_noise_ends_without_an_answer_of_500(fuzzed: Fuzzed, noise: bytes) -> None:
    with socket.create_connection(("127.0.0.1", fuzzed.desk.port), timeout=HANG_SECONDS) as line:
        line.sendall(noise)
        line.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            answer = line.recv(65536)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
