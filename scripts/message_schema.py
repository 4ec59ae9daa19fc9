"""Write linemessages/schema.json from LINE's OpenAPI: messages and requests, flattened.

    .venv/bin/python scripts/message_schema.py

LINE's file lies in tests/line-openapi. YAML takes seconds to read, so the checks read JSON, which
holds the names of the objects behind each `type` (`unions`), and of each object its required
properties and what its properties are (`objects`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "tests" / "line-openapi" / "messaging-api.yml"
SCHEMA = ROOT / "linemessages" / "schema.json"
KEPT = (
    *("type", "enum", "pattern", "minLength", "maxLength"),
    *("minItems", "maxItems", "minimum", "maximum"),
)

Schema = dict[str, Any]


def main() -> None:
    SCHEMA.write_text(json.dumps(made(), indent=1, sort_keys=True) + "\n", "utf-8")


def made() -> dict[str, Any]:
    """What schema.json has to hold."""
    text = SOURCE.read_text("utf-8")
    document = yaml.load(text, Loader=yaml.CSafeLoader)
    unions, objects = _reachable(document["components"]["schemas"], sorted(_requests(document)))
    return {"unions": unions, "objects": objects}


def _requests(document: Schema) -> set[str]:
    """The names of all request bodies in JSON."""
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    bodies = [one["requestBody"]["content"] for one in operations if "requestBody" in one]
    return {
        _name(body["application/json"]["schema"]["$ref"])
        for body in bodies
        if "application/json" in body
    }


def _reachable(
    schemas: Mapping[str, Schema], first: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    unions: dict[str, Any] = {}
    objects: dict[str, Any] = {}
    waiting = ["Message", *first]
    while waiting:
        name = waiting.pop()
        if name in unions or name in objects:
            continue
        schema = schemas[name]
        if mapping := schema.get("discriminator", {}).get("mapping"):
            unions[name] = {tag: _name(ref) for tag, ref in mapping.items()}
            waiting += unions[name].values()
        else:
            objects[name] = _flat(schema, schemas)
            waiting += list(_refs(objects[name]))
    for kinds in unions.values():
        for tag, name in kinds.items():
            objects[name]["properties"]["type"] = {"type": "string", "enum": [tag]}
            objects[name]["required"] = sorted({*objects[name]["required"], "type"})
    return unions, objects


def _flat(schema: Schema, schemas: Mapping[str, Schema]) -> Schema:
    """An object with what it takes over by `allOf`."""
    required, properties = set(schema.get("required", ())), {}
    for part in schema.get("allOf", ()):
        inherited = _flat(schemas[_name(part["$ref"])] if "$ref" in part else part, schemas)
        required |= set(inherited["required"])
        properties |= inherited["properties"]
    for name, one in schema.get("properties", {}).items():
        properties[name] = _property(one, schemas)
    return {"required": sorted(required), "properties": properties}


def _property(schema: Schema, schemas: Mapping[str, Schema]) -> Any:
    """The name of an object or union, or what a plain value is."""
    if "$ref" in schema:
        target = schemas[_name(schema["$ref"])]
        return _name(schema["$ref"]) if target["type"] == "object" else _property(target, schemas)
    kept = {name: schema[name] for name in KEPT if name in schema}
    for name in ("items", "additionalProperties"):
        if isinstance(inner := schema.get(name), dict):
            kept[name] = _property(inner, schemas)
    return kept


def _refs(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for one in value.get("properties", value).values():
            if isinstance(one, str):
                yield one
            elif isinstance(one, Mapping):
                yield from (
                    inner
                    for key in ("items", "additionalProperties")
                    if isinstance(inner := one.get(key), str)
                )


def _name(ref: str) -> str:
    return ref.rpartition("/")[2]


if __name__ == "__main__":
    main()
