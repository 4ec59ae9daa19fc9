"""The front desk's API description."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from openapi_schema_validator import OAS31Validator

from frontdesk.app import WebhookSettings, create_app
from tests.frontdesk.inprocess import FakeStore


def app(**options: Any) -> FastAPI:
    desk = WebhookSettings(secrets=(b"very-secret",), path="/line/callback")
    return create_app(desk, FakeStore(), **options)


@pytest.fixture
def callback() -> dict[str, Any]:
    operation: dict[str, Any] = app().openapi()["paths"]["/line/callback"]["post"]
    return operation


def test_the_callback_is_described_with_its_signature_and_every_answer(
    callback: dict[str, Any],
) -> None:
    [parameter] = callback["parameters"]
    assert (parameter["name"], parameter["in"]) == ("x-line-signature", "header")
    assert parameter["required"]
    assert set(callback["responses"]) == {"200", "400", "401", "408", "413", "503"}


def test_only_the_list_of_events_is_asked_for(callback: dict[str, Any]) -> None:
    schema = callback["requestBody"]["content"]["application/json"]["schema"]
    validator = OAS31Validator(schema)
    assert validator.is_valid({"events": []})
    assert validator.is_valid({"events": [{"type": "new"}], "more": 1})
    assert not validator.is_valid({"destination": "U0"})
    assert not validator.is_valid({"events": [1]})


def test_only_the_callback_is_described() -> None:
    assert list(app().openapi()["paths"]) == ["/line/callback"]


def test_the_description_is_served_only_where_asked_for() -> None:
    assert "/openapi.json" not in {getattr(route, "path", "") for route in app().routes}
    asked = app(openapi_url="/openapi.json")
    assert "/openapi.json" in {getattr(route, "path", "") for route in asked.routes}


def test_the_secrets_are_not_in_the_repr() -> None:
    assert "very-secret" not in repr(WebhookSettings(secrets=(b"very-secret",)))
