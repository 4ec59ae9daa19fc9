"""Objects made directly equal those of the SDK's `from_dict`, for samples of LINE's OpenAPI and for
every sample with one part changed.
"""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from bson.int64 import Int64
from linebot.v3.webhooks import Event
from pydantic.v1 import BaseModel

from jobworker.bot.events import UNREADABLE, make_event
from tests.line_openapi import FILES, check_event

Json = Any

SCHEMAS = yaml.safe_load((FILES / "webhook.yml").read_text("utf-8"))["components"]["schemas"]
PLAIN = {"string": "https://line.example/1", "integer": 7, "number": 35.5, "boolean": True}


def samples(schema: Json) -> list[Json]:
    """Values of a schema with all their fields: all members of a family, all values of an enum."""
    named = SCHEMAS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if "mapping" in named.get("discriminator", {}):
        members = named["discriminator"]["mapping"].items()
        return [{**one, "type": kind} for kind, name in members for one in objects({"$ref": name})]
    if "enum" in named:
        return list(named["enum"])
    if named.get("type") == "array":
        return [samples(named["items"])]
    if "additionalProperties" in named:
        return [{"one": samples(named["additionalProperties"])[0]}]
    return [PLAIN[named["type"]]] if named.get("type") in PLAIN else [*objects(schema)]


def objects(schema: Json) -> Iterator[Json]:
    """One object with the first value of each field, and one more for each other value."""
    values = {name: samples(part) for name, part in properties(schema).items()}
    first = {name: some[0] for name, some in values.items()}
    yield first
    for name, some in values.items():
        yield from ({**first, name: other} for other in some[1:])


def properties(schema: Json) -> dict[str, Json]:
    named = SCHEMAS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    found = dict(named.get("properties", {}))
    for part in named.get("allOf", ()):
        found |= properties(part)
    return found


SAMPLES = samples({"$ref": "/Event"})
# In the reference, but not yet in the OpenAPI.
EDITED = [{**one, "type": "messageEdited"} for one in SAMPLES if one["type"] == "message"]
OTHERS: list[Json] = [
    *(None, True, 0, 7, Int64(7), 1_700_000_000_000, 7.5, "", "x", "user", "line"),
    *([], [None], ["x"], [{}], {}, {"x": "y"}, {"x": 7}, {"type": "x"}, {"type": ["x"]}),
    *({"type": "user"}, {"type": "text", "id": "1"}, {"isRedelivery": 1}, [{"type": "user"}]),
]


def kind_of(event: Json) -> str:
    """Its type, and that of its message."""
    return f"{event['type']} {event.get('message', {}).get('type', '')}"


ONE_OF_EACH = {kind_of(one): one for one in SAMPLES}


def assert_same(made: Any, read: Any) -> None:
    """The same class, values, order of fields and names of given fields, at every depth."""
    assert type(made) is type(read)
    if isinstance(read, BaseModel):
        assert list(made.__dict__) == list(read.__dict__)
        assert made.__fields_set__ == read.__fields_set__
        made, read = made.__dict__, read.__dict__
    if isinstance(read, dict):
        assert list(made) == list(read)
        made, read = list(made.values()), list(read.values())
    if isinstance(read, list):
        for one, other in zip(made, read, strict=True):
            assert_same(one, other)
    else:
        assert made == read


def assert_as_the_sdk(raw: Json) -> bool:
    """If it is made directly, it is what the SDK reads; returns whether it is."""
    before = copy.deepcopy(raw)
    try:
        made = make_event(raw)
    except UNREADABLE:
        return False
    read = Event.from_dict(raw)
    assert_same(made, read)
    assert made == read
    assert repr(made) == repr(read)
    assert list(made.to_dict().items()) == list(read.to_dict().items())
    assert made.to_json() == read.to_json()
    assert raw == before
    return True


def with_one_change(value: Json) -> Iterator[Json]:
    """The value with each part dropped, added, or replaced by something else."""
    if isinstance(value, dict):
        yield {**value, "surprise": 1}
        for name, part in value.items():
            yield {key: one for key, one in value.items() if key != name}
            for changed in (*OTHERS, *with_one_change(part)):
                yield {**value, name: changed}
    if isinstance(value, list):
        yield [*value, *value]
        for place, part in enumerate(value):
            for changed in (*OTHERS, *with_one_change(part)):
                yield [*value[:place], changed, *value[place + 1 :]]


def test_the_samples_are_events_of_line_with_every_type_and_field() -> None:
    for event in SAMPLES:
        check_event(event)
    assert len({one["type"] for one in SAMPLES}) == 19
    assert len({one["message"]["type"] for one in SAMPLES if one["type"] == "message"}) == 7
    assert len({one["source"]["type"] for one in SAMPLES}) == 3


def test_each_sample_is_made_directly_and_is_what_the_sdk_reads() -> None:
    for event in (*SAMPLES, *EDITED):
        assert assert_as_the_sdk(event)
        assert assert_as_the_sdk({**event, "timestamp": Int64(1_700_000_000_000)})


@pytest.mark.parametrize("event", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_with_one_change_it_is_what_the_sdk_reads_or_left_to_it(event: Json) -> None:
    directly = [assert_as_the_sdk(changed) for changed in with_one_change(event)]
    assert any(directly)
    assert not all(directly)
