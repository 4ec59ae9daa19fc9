"""The options with which a simulator starts."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from linesim.model.calls import MOST_CALLS
from linesim.model.clock import Clock, ShiftedClock
from linesim.model.deliveries import MOST_DELIVERIES
from linesim.model.endpoints import Rate


@dataclass(frozen=True, kw_only=True)
class Options:
    """Durations in seconds except where the name says milliseconds; port 0 is any free port.

    `quota`: counted messages a month, None for a plan without limit. `rate_limits`: True for LINE's
    own, a mapping of endpoint names to replace some of them, False for none. `pushes_to_one`: how
    many pushes one chat may get before LINE's 429 for a flood, None for no limit, since LINE tells
    no number. `unknown_members`: whether a multicast to an id that LINE does not know is taken, or
    refused with its place, since LINE's reference says both. `latency_ms`: how long after doing
    what a call asks LINE answers it. `chat_mode`: "chat" is the switch "Chat" of LINE's console,
    with which users' messages are read only once the bot marks them. `webhook_timeout_seconds` is
    how long LINE waits for the bot server's answer. `token` is a long-lived channel access token.
    `state` is the file that keeps the state over restarts (linesim.people.saving). `bot`
    (module:name) is the bot that recorded tests import. `most_calls` and `most_deliveries`: how
    many records of each are kept, the newest. Of unruly webhooks: `redelivered_seconds` is how long
    after the answer one comes again, `overtaken_seconds` how long one is held back at most for
    another one to overtake it, and `most_extras` how many are sent on top at once, so that a bot
    server that hangs does not gather them. `console_url` is that of a linedesk's console, which the
    page asks why an event has no answer, and `console_login` the Authorization header.
    """

    webhook_url: str | None = None
    channel_id: str = field(default_factory=lambda: str(2_000_000_000 + secrets.randbelow(10**9)))
    secret: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    token: str = field(default_factory=lambda: secrets.token_urlsafe(48), repr=False)
    host: str = "127.0.0.1"
    port: int = 0
    reply_token_seconds: float = 60.0
    quota: int | None = None
    rate_limits: Mapping[str, Rate] | bool = True
    pushes_to_one: Rate | None = None
    unknown_members: Literal["taken", "refused"] = "taken"
    latency_ms: float = 0.0
    chat_mode: Literal["bot", "chat"] = "bot"
    webhook_timeout_seconds: float = 2.0
    bot_name: str = "linedesk"
    state: Path | None = None
    bot: str | None = None
    most_calls: int = MOST_CALLS
    most_deliveries: int = MOST_DELIVERIES
    most_extras: int = 64
    overtaken_seconds: float = 0.2
    redelivered_seconds: float = 0.2
    console_url: str | None = None
    console_login: str | None = field(default=None, repr=False)
    clock: Clock = field(default_factory=ShiftedClock)
