"""Texts that other parts of linedesk write in English, in the language of the context.

The processes store the reasons of waits, their states and the causes of dead letters in English.
The page translates the known ones when it shows them; any other text is shown as it is. A test
compares the list with the code that writes the texts.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from linedesk.runtime.language import DEFAULT, language, mark
from linedesk.runtime.language import gettext as _
from linedesk.store.records.waits import Why, code_of

# Parts of a status line.
SEPARATOR = " · "
# Places are filled with any text; the text is translated in turn where it is known. The text of a
# place `quoted` is not ours and never translated; `first` and `second` have to be known.
TEXTS = (
    # Why a conversation waits, and what a thread does.
    mark("its handler runs"),
    mark("handler"),
    mark("step"),
    mark("job"),
    mark("held: {reason}"),
    mark("waits: {reason}"),
    mark("is on its way to LINE"),
    mark("a send {reason}"),
    mark("travels in one multicast to {count} people, which {reason}"),
    mark("LINE fails, and linedesk tries a single call now and then"),
    mark("LINE refuses the access token"),
    mark("{reason}, next try at {at}"),
    mark("MongoDB did not confirm in time"),
    mark(
        "LINE answered {status} for the month's limit, and LINE's count of this month has to be "
        "read"
    ),
    mark("LINE answered {status}"),
    mark("no connection to LINE"),
    mark("LINE did not answer"),
    mark("LINE takes no more such calls for now (its rate limit)"),
    mark("waits for its turn at the gate"),
    mark("waits for its turn at the gate: {others} goes first"),
    mark("waits for its turn at the gate: {others} go first"),
    mark("waits for its turn at the gate, beside {others}"),
    mark("{first} and {second}"),
    mark("{count} answer with a valid reply token"),
    mark("{count} answers with valid reply tokens"),
    mark("{count} push to its own chat"),
    mark("{count} pushes to their own chats"),
    mark("{count} late answer, multicast or push to another chat"),
    mark("{count} late answers, multicasts or pushes to other chats"),
    mark("{count} call that nothing waits for"),
    mark("{count} calls that nothing waits for"),
    # Worker processes and RabbitMQ.
    mark("no worker is free"),
    mark("no worker is connected"),
    mark("no worker can take jobs"),
    mark("waits for a worker of its own"),
    mark("the dispatcher stops"),
    mark("its worker has been replaced by one of another version"),
    mark("silent"),
    mark("asked for its rules"),
    mark("another version of the bot is in force"),
    mark("an operator has not accepted its version of the bot"),
    mark("rules refused: {reason}"),
    mark("speaks contract {contract}, needed is {needed}"),
    mark("connecting to RabbitMQ"),
    mark("no connection to RabbitMQ: {reason}"),
    mark("RabbitMQ takes nothing: {quoted}"),
    # Status lines.
    mark("waiting for MongoDB since {at}"),
    mark("scanning recvq since {at}"),
    mark("opening the feed since {at}"),
    mark("asking for the lease"),
    mark("standby, {holder} holds the lease"),
    mark("holds the lease since {at}"),
    mark("cannot renew the lease"),
    mark("{count} events/s"),
    mark("{count} in hand"),
    mark("{count} not read yet"),
    mark("{count} documents of {keys} keys in held"),
    mark("oldest {count} s"),
    mark("{count} crash suspects, one runs alone"),
    mark("{count} crash suspects, {running} of them run"),
    mark("{count} to send, {line}"),
    mark("LINE is called"),
    mark("bot time {seconds} s ahead"),
    mark("LINE fails"),
    mark("LINE refuses the token"),
    mark("1 worker, {jobs} jobs out"),
    mark("{count} workers, {jobs} jobs out"),
    mark("paused: {scopes}"),
    mark("{count} timers fired"),
    mark("{count} timers fired, next due {at}"),
    mark("{count} events accepted"),
    mark("{count} requests refused"),
    mark("spool {count} documents"),
    mark("spool empty"),
    mark("no spool"),
    mark("opening the stores"),
    # Causes of dead letters.
    mark("handler: {error}"),
    mark("did not return"),
    mark("{error}, after it had called LINE itself: another try would send twice"),
    mark("released by an operator"),
    mark("dropped by {name}"),
    mark("not sent within 3 days"),
    mark("outcome unknown for 23 hours"),
    mark("it cannot be written as JSON"),
    mark("LINE refused it with {status}: {quoted}"),
    mark("LINE refused it with {status}"),
    mark("no verdict of LINE's in {count} tries"),
    mark("poison: took the process down"),
    mark("took its worker down {count} times"),
    mark("a try of {at} UTC may have arrived"),
    # Outcomes of releases and acts.
    mark("the event {id} is a dead letter"),
    mark("the send {id} is a dead letter"),
    mark("nothing was stuck any more"),
    mark("another release has replaced it"),
    mark("refused: {reason}"),
    mark("nothing of it waits"),
    mark("both an event and a send of it wait: name one of them"),
    mark("it was dropped meanwhile"),
    mark("it was replayed at {at}"),
    mark("it holds neither an event nor a send"),
    mark("its message was taken back by its sender"),
    mark("its send is incomplete, or names no conversation"),
    mark("{reason}, so it may arrive twice"),
    mark("MongoDB does not answer"),
    mark("MongoDB does not answer yet"),
    mark("MongoDB does not answer ({error})"),
    # Events and sends.
    mark("{what} (unsent)"),
    mark("message text"),
    mark("message image"),
    mark("message video"),
    mark("message audio"),
    mark("message file"),
    mark("message location"),
    mark("message sticker"),
    mark("follow"),
    mark("unfollow"),
    mark("join"),
    mark("leave"),
    mark("memberJoined"),
    mark("memberLeft"),
    mark("postback"),
    mark("unsend"),
    mark("timer"),
    mark("replay"),
    mark("reply"),
    mark("push"),
    mark("multicast"),
    mark("send reply"),
    mark("send push"),
    mark("send multicast"),
    # The states and roles of processes.
    mark("starting"),
    mark("waiting"),
    mark("standby"),
    mark("working"),
    mark("stopping"),
    mark("ended"),
    mark("silent"),
    mark("frontdesk"),
    mark("dispatcher"),
    # Acts in the audit, their ways and outcome, and the kinds of conversations.
    mark("pause"),
    mark("resume"),
    mark("resume and drop"),
    mark("release"),
    mark("drop"),
    mark("login"),
    mark("page"),
    mark("command"),
    mark("done"),
    mark("user"),
    mark("group"),
    mark("room"),
)


# The reasons why an event waits, by their codes.
REASONS: Mapping[str, str] = {
    Why.BEHIND_SLOW_HANDLER: mark("waiting behind a slow handler"),
    Why.CONVERSATION_CHANGED: mark("its conversation changed while its handler ran"),
    Why.CRASH_SUSPECT: mark("waiting until another crash suspect ends"),
    Why.DECIDED_ELSEWHERE: mark("another process has decided a message gathered with it"),
    Why.DEFERRED: mark("set aside"),
    Why.FETCHING_PROFILE: mark("fetching the sender's profile"),
    Why.GATHERING: mark("gathering the messages of its sender"),
    Why.HANDLER_FAILED: mark("the handler failed {failures} times"),
    Why.LEASE_NOT_FRESH: mark("the dispatcher has not renewed its lease in time"),
    Why.LINE_NOT_CALLED: mark("LINE is not called for now"),
    Why.MESSAGE_TAKEN_BACK: mark("its sender took back a message gathered with it"),
    Why.MOVING_TO_HELD: mark("its documents are being moved to held"),
    Why.NO_SLOW_PLACE: mark("waiting until another slow handler ends"),
    Why.NO_TURN: mark("its handler got no turn at the gate"),
    Why.NO_WORKER: "{cause}",
    Why.NOT_READ: mark("MongoDB does not return its document"),
    Why.NOT_RECORDED: mark("MongoDB did not take the record"),
    Why.NOT_SAVED: mark("waiting until progress is saved"),
    Why.OUTBOX_FULL: mark("its outbox is full"),
    Why.PAUSED: mark("paused"),
    Why.STORE_SILENT: mark("MongoDB did not answer"),
    Why.SUSPECT_NOT_STORED: mark("MongoDB does not store the name of the suspect event"),
}


def known(text: object) -> str:
    """Return a stored reason as a sentence, and a known text in its translation; any other text as
    it is.
    """
    return _reason(text) if isinstance(text, Mapping) else _text("" if text is None else str(text))


def _reason(why: Mapping[str, Any]) -> str:
    code = code_of(why)
    words = _(REASONS[code]) if code in REASONS else code
    if (code, why.get("failures")) == (Why.HANDLER_FAILED, 1):
        words = _("the handler failed once")
    values = {"failures": why.get("failures"), "cause": _text(str(why.get("cause")))}
    words = words.format(**values) if code in REASONS else words
    if not isinstance(until := why.get("until"), datetime):
        return words
    at = f"{until.astimezone(UTC):%H:%M:%S} UTC"
    return _("{reason}, next try at {at}").format(reason=words, at=at)


def _text(text: str) -> str:
    if text in REASONS and "{" not in REASONS[text]:
        # Rows of `jobs` have the code alone.
        return _(REASONS[text])
    if language() == DEFAULT or not text:
        return text
    if SEPARATOR in text:
        return SEPARATOR.join(_text(part) for part in text.split(SEPARATOR))
    if text in _whole():
        return _(text)
    for message, pattern in _patterns():
        found = pattern.fullmatch(text)
        if found is not None:
            given = found.groupdict()
            values = {name: _text(one) if name != "quoted" else one for name, one in given.items()}
            if all(values[name] != given[name] for name in ("first", "second") if name in given):
                return _(message).format(**values)
    return text


@cache
def _whole() -> frozenset[str]:
    return frozenset(one for one in TEXTS if "{" not in one)


@cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    """The texts with places. The one with the longest fixed part is tried first."""
    found = [(message, _pattern(message)) for message in TEXTS if "{" in message]
    return sorted(found, key=lambda one: -len(re.sub(r"\{\w+\}", "", one[0])))


def _pattern(message: str) -> re.Pattern[str]:
    parts = [
        re.escape(fixed)
        + (f"(?P<{name}>{'[0-9.,]+' if name == 'count' else '.+?'})" if name else "")
        for fixed, name, _spec, _conversion in string.Formatter().parse(message)
    ]
    return re.compile("".join(parts))
