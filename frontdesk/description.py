"""What the API description tells of LINE's callback: the request, and the body of a refusal."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from frontdesk.signature import HEADER


class Problem(BaseModel):
    """The body of every answer that is not a success."""

    error: str


# What LINE sends, as loosely as it is taken: only the list of events is asked for.
WEBHOOK: dict[str, Any] = {
    "parameters": [
        {
            "name": HEADER,
            "in": "header",
            "required": True,
            "description": "base64 of HMAC-SHA256 over the raw body, keyed by the channel secret",
            "schema": {"type": "string"},
        }
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["events"],
                    "properties": {
                        "destination": {"type": "string"},
                        "events": {"type": "array", "items": {"type": "object"}},
                    },
                }
            }
        },
    },
}
