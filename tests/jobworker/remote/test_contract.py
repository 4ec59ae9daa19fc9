"""docs/reference/worker-contract.schema.json and the code have the same messages and fields."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jsonschema import Draft202012Validator

from jobworker.bot.bot import Bot, Rule
from jobworker.bot.messages import refuse_wrong
from jobworker.bot.talk import Talk, TalkContext
from jobworker.line.month import MonthlyQuota
from jobworker.record.conversations import StoredConversation
from jobworker.remote.actions import Replay
from jobworker.remote.job import Job, decide, job_of, talk_of
from jobworker.remote.rules import FIELDS, bot_of, rules_of
from jobworker.remote.values import from_line, to_line
from linedesk.store.documents import make_document

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
SCHEMA = json.loads((REFERENCE / "worker-contract.schema.json").read_text("utf-8"))
PARTS = SCHEMA["$defs"]
MESSAGE = {
    "type": "message",
    "mode": "active",
    "timestamp": 1,
    "source": {"type": "user", "userId": "U1"},
    "webhookEventId": "E1",
    "replyToken": "R1",
    "deliveryContext": {"isRedelivery": False},
    "message": {"type": "text", "id": "1", "text": "やあ", "quoteToken": "q"},
}


def check(message: object, part: str | None = None) -> None:
    """Fails for a message that the schema does not allow."""
    where = SCHEMA if part is None else {"$ref": f"#/$defs/{part}", "$defs": PARTS}
    Draft202012Validator(where, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(
        message
    )


def a_talk() -> Talk:
    now = datetime.now(UTC)
    stored = StoredConversation(id="main/U1", data={"at": now, "n": 2**53 + 1}, friend=True)
    refuse: Callable[..., Any] = lambda *_, **__: None  # noqa: E731
    around = TalkContext(
        load=lambda: stored,
        api=refuse,
        content=refuse,
        quota=lambda: MonthlyQuota(200, 1),
        now=lambda: now,
        settings=MappingProxyType({}),
        secrets=MappingProxyType({}),
    )
    return Talk(make_document(MESSAGE, channel="main", accept_time=now), around)


def a_job(talk: Talk) -> dict[str, Any]:
    message = job_of(talk, rule="any", is_list=False, limit_seconds=60.0, epoch=1)
    return from_line(to_line({**message, "attempt": "a1"}))


def everything(event: Any, talk: Talk) -> None:
    later = datetime(2030, 1, 1, tzinfo=UTC)
    talk.reply("一", {"type": "sticker", "packageId": "446", "stickerId": "1988"})
    talk.push("二")
    talk.push("三", to="U2", until=later)
    talk.multicast(["U3"], "四")
    talk.state = "asked"
    talk.state = None
    talk.expect("asked", within=30)
    talk.after(60, "ring", when=later)
    talk.at(later, "later", n=2**60)
    talk.every("07:30", "daily", tz="Asia/Tokyo", list=[1])
    talk.cancel("ring")
    talk.forget()
    talk.data["new"] = later


def test_a_job_has_the_fields_of_the_schema() -> None:
    message = a_job(a_talk())
    check(message, "job")
    assert set(message) == set(PARTS["job"]["required"])
    assert set(PARTS["job"]["properties"]) == {*message, "choose"}
    assert set(message["quota"]) == set(PARTS["job"]["properties"]["quota"]["properties"])


def test_rules_have_the_fields_of_the_schema() -> None:
    assert set(PARTS["rule"]["properties"]) == FIELDS
    bot = Bot(profiles="later")
    bot.add(type_of("MessageEvent"), message=type_of("TextMessageContent"), gather=2.0)(everything)
    bot.add(type_of("PostbackEvent"), state="asked", limit=120.0, profile=True)(everything)
    bot.add(type_of("PostbackEvent"), postback="a=1", tries=2, backoff=[1, 2.5])(everything)
    bot.add(type_of("MessageEvent"), mentioned=True, text="予約")(everything)
    bot.add(type_of("MessageEvent"), when=everything)(everything)
    bot.failed(everything)
    bot.default()(everything)
    bot.timer("ring")(everything)
    bot.timeout("asked")(everything)
    bot.start_timers("news")(everything)
    table = rules_of(bot)[0]
    check(table, "rules")
    assert {name for row in table["rules"] for name in row} == FIELDS
    assert rules_of(bot_of(table, "1"))[0] == table


def decided_by(handler: Any, talk: Talk) -> dict[str, Any]:
    job = Job.from_message(a_job(talk))
    rules = [("any", Rule(handler, profile=False))]
    return decide(job, rules, *talk_of(job, {}, {}, refuse_wrong, lambda: 0.0))


def type_of(name: str) -> Any:
    from linebot.v3 import webhooks

    return getattr(webhooks, name)


def test_decisions_have_the_actions_and_fields_of_the_schema() -> None:
    talk = a_talk()
    decision = decided_by(everything, talk)
    check(decision, "decided")
    assert {*decision, "rule"} == set(PARTS["decided"]["properties"])
    noted: dict[str, set[str]] = {}
    for one in decision["actions"]:
        noted.setdefault(one["do"], set()).update(one)
    described = {
        one["properties"]["do"]["const"]: set(one["properties"]) for one in PARTS["action"]["oneOf"]
    }
    assert noted == described
    carry_out(decision["actions"], decision["data"], talk=talk)


def carry_out(actions: Any, data: Any = None, *, talk: Talk | None = None) -> None:
    now = datetime.now(UTC)
    Replay(talk or a_talk(), began=now, now=lambda: now).carry_out(actions, data)
