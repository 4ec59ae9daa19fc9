"""The settings of the callback."""

from __future__ import annotations

from frontdesk.app import WebhookSettings


def test_the_secrets_are_not_in_the_repr() -> None:
    assert "very-secret" not in repr(WebhookSettings(secrets=(b"very-secret",)))
