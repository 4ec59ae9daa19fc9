"""The webhooks that benches send, against the front desk's own judgement of them."""

from __future__ import annotations

import json

from bench.webhooks import SECRET, ids_of, request_of, text_event
from frontdesk.parsing import verify


def test_a_request_is_whole_and_signed() -> None:
    event = text_event(7)

    head, _, body = request_of(event).partition(b"\r\n\r\n")

    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    signature = next(line for line in lines if line.startswith("x-line-signature")).split(": ")[1]
    assert lines[0] == "POST /callback HTTP/1.1"
    assert headers["content-length"] == str(len(body))
    assert verify(body, signature.encode(), secrets=[SECRET.encode()])
    assert json.loads(body)["events"] == [event]


def test_each_event_has_ids_of_its_own() -> None:
    events = [text_event(0) for _ in range(3)]

    assert len(set(ids_of(events))) == 3
    assert len({event["replyToken"] for event in events}) == 3
    assert len({event["message"]["id"] for event in events}) == 3
