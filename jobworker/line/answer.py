"""LINE's answer to one call, and what its status and words say of every kind of call. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from linedesk.store.records.calls import LineReason

# LINE tells the meanings of a 429 apart by these words only.
MONTHLY_LIMIT = "monthly limit"
SAME_USER = "same user"
# How a 400 names what it is about: `messages[0].text`, `to[12]`.
PROPERTY = "The property, "
NAMED = re.compile(r"(messages|to)\[(\d{1,4})\]")
# What LINE's error body may quote of a request: ids, tokens, URLs, and what people wrote. LINE
# writes its own words in English, and names properties in single quotes.
# A quotation may lack its end where the text was cut. Each pattern needs linear time.
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
# So much of a message is masked, the rest is left out.
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
    """Whether all of its body came; else the words that decide may be missing."""
    began: float = math.inf
    """When its call began, monotonic; infinite where that is not known, as if just now."""


def is_no_verdict(status: int) -> bool:
    """Whether a status says nothing of what LINE did: its own failures, and what LINE's API never
    answers, so that it comes from something on the way (a redirect, a proxy's time-out).
    """
    return status >= 500 or status < 200 or 300 <= status < 400 or status == 408


def is_endpoint_limit(answer: LineAnswer) -> bool:
    """Whether the answer holds back its endpoint for everybody, not just one user or the month.

    LINE tells the meanings of a 429 apart by their words only; words unknown count as this one.
    """
    words = answer.text.lower()
    return answer.status == 429 and MONTHLY_LIMIT not in words and SAME_USER not in words


def named_in(answer: LineAnswer, part: str) -> list[int]:
    """Which of the `messages`, or of the recipients (`to`), a 400 names.

    LINE's reference, "Error responses": `details[].property`; for a recipient of a multicast its
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
    """Why LINE refused a call: `message` and `details` of its error body, bounded and masked.

    None for a body that is not LINE's, as that of a call which it took.
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
    """LINE's words without what they may quote of the request; cut where they are long."""
    words = words[:MOST_MASKED]
    for quotation in QUOTATIONS:
        words = quotation.sub(MASK, words)
    words = SINGLE_QUOTED.sub(_masked_words, words)
    words = " ".join(words.split())
    return words if len(words) <= MOST_REASON else f"{words[:MOST_REASON]}…"


def _masked_words(quotation: re.Match[str]) -> str:
    """A property's name has no blanks, and stays."""
    return MASK if re.search(r"\s", quotation[0]) else quotation[0]


def _error_body(answer: LineAnswer) -> Mapping[str, Any]:
    """LINE's JSON object; {} where the body is another, or did not come whole."""
    try:
        told = json.loads(answer.text) if answer.whole else {}
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, Mapping) else {}


def _details(told: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    details = told.get("details")
    listed = details if isinstance(details, list) else []
    return [one for one in listed if isinstance(one, Mapping)]
