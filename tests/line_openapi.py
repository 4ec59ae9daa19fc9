"""Validation against LINE's own OpenAPI files in tests/line-openapi.

LINE defines its families (events, messages, sources) as a base schema with a discriminator, which
validators do not follow. Here each such base becomes the choice among its members; an unknown type
is checked against the base alone.
"""

import copy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from openapi_schema_validator import OAS30Validator, oas30_format_checker

FILES = Path(__file__).parent / "line-openapi"
HERE = "#/components/schemas/"

Json = Any


def check_webhook(body: Json) -> None:
    """A whole webhook body, as LINE posts it."""
    _check("webhook", "CallbackRequest", body)


def check_event(event: Json) -> None:
    _check("webhook", "Event", event)


def check_messaging(schema: str, body: Json) -> None:
    """A body of the Messaging API by its schema's name, for instance PushMessageRequest."""
    _check("messaging-api", schema, body)


def check_request(method: str, path: str, body: Json) -> None:
    """A request body for an operation, by its path template."""
    operation = _document("messaging-api")["paths"][path][method.lower()]
    _check_schema("messaging-api", _json_schema(operation["requestBody"]), body)


def check_answer(
    method: str, path: str, status: int, body: Json, *, file: str = "messaging-api"
) -> None:
    """An answer's body; a refusal that the file does not describe is an ErrorResponse."""
    responses = _document(file)["paths"][path][method.lower()]["responses"]
    if status >= 400 and str(status) not in responses:
        _check(file, "ErrorResponse", body)
        return
    if "content" in responses[str(status)]:
        _check_schema(file, _json_schema(responses[str(status)]), body)


def _json_schema(described: Json) -> Json:
    return described["content"]["application/json"]["schema"]


def _check(file: str, schema: str, instance: Json) -> None:
    assert schema in _document(file)["components"]["schemas"], schema
    _check_schema(file, {"$ref": HERE + schema}, instance)


def _check_schema(file: str, schema: Json, instance: Json) -> None:
    problems = list(_problems(file, schema, instance))
    assert not problems, "\n".join(problems)


def _problems(file: str, schema: Json, instance: Json) -> Iterator[str]:
    whole = {"components": _document(file)["components"], "allOf": [schema]}
    validator = OAS30Validator(whole, format_checker=oas30_format_checker)
    for error in validator.iter_errors(instance):
        for leaf in _leaves(error):
            yield f"{leaf.json_path}: {leaf.message}"


def _leaves(error: Any) -> Iterator[Any]:
    """The errors by the member that the instance's type names (see _choice)."""
    chosen = [each for each in error.context or () if each.schema_path[0] == 1]
    if not chosen:
        yield error
    for each in chosen:
        yield from _leaves(each)


@cache
def _document(file: str) -> Json:
    document = yaml.safe_load((FILES / f"{file}.yml").read_text(encoding="utf-8"))
    schemas = document["components"]["schemas"]
    families = {
        name: schema
        for name, schema in schemas.items()
        if "mapping" in schema.get("discriminator", {})
    }
    for name, base in families.items():
        plain = copy.deepcopy(base)
        del plain["discriminator"]
        schemas[f"{name}Base"] = plain
        schemas[name] = _choice(name, base)
    for name, schema in schemas.items():
        if not name.endswith("Base"):
            _point_to_bases(schema, families)
    return document


def _choice(name: str, base: Json) -> Json:
    """The base, and for each member: of another type, or valid by it."""
    key = base["discriminator"]["propertyName"]
    members = [
        {"anyOf": [{"properties": {key: {"not": {"enum": [value]}}}}, {"$ref": reference}]}
        for value, reference in base["discriminator"]["mapping"].items()
    ]
    return {"allOf": [{"$ref": f"{HERE}{name}Base"}, *members]}


def _point_to_bases(schema: Json, families: Json) -> None:
    """A member is its base and more: in its allOf the base is meant, not the choice."""
    for part in schema.get("allOf", ()):
        name = part.get("$ref", "").removeprefix(HERE)
        if name in families:
            part["$ref"] = f"{HERE}{name}Base"


def operations(file: str) -> set[tuple[str, str]]:
    """All (method, path template) of a file."""
    paths = _document(file)["paths"]
    return {
        (method.upper(), path)
        for path, item in paths.items()
        for method in item
        if method != "parameters"
    }
