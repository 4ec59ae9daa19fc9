"""Why an event has no answer: what the simulator knows, and what the console of a linedesk tells.

The console is asked for the event by its id, as JSON. Without a console the simulator's own
knowledge is all.
"""

import math
from collections.abc import Iterator
from typing import get_args
from urllib.parse import quote

import requests

from linesim.model.calls import Call
from linesim.model.deliveries import Delivery
from linesim.model.events import chat_id_of
from linesim.model.options import Options
from linesim.model.platform import Platform
from linesim.model.views import View
from linesim.model.world import Way

CONSOLE_SECONDS = 2.0
SENDING = get_args(Way)


def reasons(platform: Platform, event_id: str) -> View:
    """What failed in the webhook and in the bot's calls; `silent` if nothing was sent or failed.

    A call without a reply token belongs to the newest event of the chats that it names or reaches.
    An event from before the simulator's start has no reasons. The caller holds the simulator's
    lock.
    """
    posts = [each for each in platform.deliveries if event_id in each.event_ids]
    if not posts:
        return {"answered": False, "reasons": []}
    first, last = posts[0], posts[-1]
    event = next(one for one in first.events if one.get("webhookEventId") == event_id)
    chat_id = chat_id_of(event) or ""
    calls = list(_calls(platform, first, event_id, chat_id))
    found = [one for call in calls for one in _of_call(call, chat_id)]
    if (last.status or last.error) and not last.delivered:
        found.append({"kind": "webhook", "status": last.status, "error": last.error})
    is_sent = any(call.accepted and not dict(call.unreached).get(chat_id) for call in calls)
    if not (found or is_sent):
        found.append({"kind": "silent"})
    return {"answered": is_sent, "reasons": found}


def _calls(platform: Platform, first: Delivery, event_id: str, chat_id: str) -> Iterator[Call]:
    later = (
        each.started
        for each in platform.deliveries
        if each.started > first.started and chat_id in map(chat_id_of, each.events)
    )
    until = min(later, default=math.inf)
    shown = {each.request_id for each in platform.chats.of(chat_id) if each.speaker == "bot"}
    for call in platform.calls.since():
        is_here = call.request_id in shown or chat_id in call.to
        is_next = call.event_id is None and first.started <= call.started < until
        is_own = call.event_id == event_id or (is_next and is_here)
        if call.endpoint in SENDING and is_own:
            yield call


def _of_call(call: Call, chat_id: str) -> Iterator[View]:
    if call.token_lapsed:
        yield {"kind": "lapsed"}
    elif call.status is not None and call.status >= 400 and not call.accepted:
        told = {"endpoint": call.endpoint, "status": call.status, "message": call.message}
        yield {"kind": "refused", **told, "details": [dict(one) for one in call.details]}
    elif reason := dict(call.unreached).get(chat_id):
        yield {"kind": "unreached", "reason": reason}


def of_console(options: Options, event_id: str) -> View | None:
    """The console's result, its words, and the address of the story; None without an answer."""
    if options.console_url is None:
        return None
    url = f"{options.console_url.rstrip('/')}/event/{quote(event_id, safe='')}"
    headers = {"accept": "application/json", "accept-language": "ja"}
    if options.console_login:
        headers["authorization"] = options.console_login
    with requests.Session() as session:
        session.trust_env = False
        try:
            answer = session.get(
                url, headers=headers, timeout=CONSOLE_SECONDS, allow_redirects=False
            )
            told = answer.json() if answer.ok else None
        except (requests.RequestException, ValueError, RecursionError):
            return None
    if not isinstance(told, dict) or not {"result", "words"} <= told.keys():
        return None
    return {"result": told["result"], "words": told["words"], "url": url}
