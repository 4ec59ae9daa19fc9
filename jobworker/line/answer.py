"""LINE's answer to one call, and the meaning of its status and words for all calls. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from linedesk.store.records.calls import LineReason

# LINE distinguishes the meanings of a 429 by these words only.
MONTHLY_LIMIT = "monthly limit"
SAME_USER = "same user"
# How a 400 names the property at fault: `messages[0].text`, `to[12]`.
PROPERTY = "The property, "
NAMED = re.compile(r"(messages|to)\[(\d{1,4})\]")
# LINE's error body may quote parts of a request: ids, tokens, URLs, and users' texts. LINE writes
# its own words in English, and names properties in single quotes. A truncated text may lack the end
# of a quotation. Each pattern needs linear time.
QUOTATIONS = (
    re.compile(r"https?://[^\s'\"]+"),
    re.compile(r"\b(?=\w*\d)[\w-]{20,}"),
    re.compile(r'"[^"]*(?:"|$)'),
    re.compile(r"[^\s!-~]+"),
)
# An apostrophe within a word ends no quotation: 'it's mine'.
SINGLE_QUOTED = re.compile(r"(?<!\w)'(?:[^']|(?<=\w)'(?=\w))*(?:'|$)")
MASK = "***"
MOST_REASON = 200
# This much of a message is masked, the rest is dropped.
MOST_MASKED = 2_000
MOST_DETAILS = 10


@dataclass(frozen=True)
class LineAnswer:
    """LINE's answer to one call."""

    status: int
    text: str = ""
    request_id: str | None = None
    retry_after: float | None = None
    whole: bool = True
    """Whether the whole body arrived; otherwise decisive words may be missing."""
    began: float = math.inf
    """When its call began, monotonic; infinite if unknown, which counts as now."""


def is_no_verdict(status: int) -> bool:
    """Whether a status does not tell what LINE did: LINE's own failures, and statuses that LINE's
    API never returns and that come from a server in between (a redirect, a proxy's time-out).
    """
    return status >= 500 or status < 200 or 300 <= status < 400 or status == 408


def is_endpoint_limit(answer: LineAnswer) -> bool:
    """Whether the answer limits the endpoint for all calls, not just one user or the month.

    LINE distinguishes the meanings of a 429 by their words only; unknown words count as this one.
    """
    words = answer.text.lower()
    return answer.status == 429 and MONTHLY_LIMIT not in words and SAME_USER not in words


def named_in(answer: LineAnswer, part: str) -> list[int]:
    """Return which of the `messages`, or of the recipients (`to`), a 400 names.

    LINE's reference, "Error responses": `details[].property`. For a recipient of a multicast its
    example has it in the message, "The property, to[1], in the request body is invalid".
    """
    if answer.status != 400:
        return []
    told = _error_body(answer)
    names = [one.get("property") for one in _details(told)]
    message = told.get("message")
    if isinstance(message, str) and message.startswith(PROPERTY):
        names.append(message.removeprefix(PROPERTY))
    found = (NAMED.match(name) for name in names if isinstance(name, str))
    return sorted({int(one[2]) for one in found if one is not None and one[1] == part})


def reason_of(answer: LineAnswer) -> LineReason | None:
    """Return why LINE refused a call: `message` and `details` of its error body, bounded and
    masked.

    None for a body that is not LINE's error, such as that of a successful call.
    """
    told = {} if answer.status < 300 else _error_body(answer)
    message = told.get("message")
    if not isinstance(message, str):
        return None
    details = [
        {
            name: masked(one[name])
            for name in ("property", "message")
            if isinstance(one.get(name), str)
        }
        for one in _details(told)[:MOST_DETAILS]
    ]
    return LineReason(masked(message), [one for one in details if one])


def masked(words: str) -> str:
    """LINE's text without quotations of the request; long texts are cut."""
    words = words[:MOST_MASKED]
    for quotation in QUOTATIONS:
        words = quotation.sub(MASK, words)
    words = SINGLE_QUOTED.sub(_masked_words, words)
    words = " ".join(words.split())
    return words if len(words) <= MOST_REASON else f"{words[:MOST_REASON]}…"


def _masked_words(quotation: re.Match[str]) -> str:
    """A property's name has no blanks and remains."""
    return MASK if re.search(r"\s", quotation[0]) else quotation[0]


def _error_body(answer: LineAnswer) -> Mapping[str, Any]:
    """LINE's JSON object; {} if the body is something else or incomplete."""
    try:
        told = json.loads(answer.text) if answer.whole else {}
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, Mapping) else {}


def _details(told: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    details = told.get("details")
    listed = details if isinstance(details, list) else []
    return [one for one in listed if isinstance(one, Mapping)]
