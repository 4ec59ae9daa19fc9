"""The state as one JSON document: loaded and saved whole, and kept in a file over restarts.

Not kept: what belongs to a run (the records of calls and webhooks, tokens of replies, pages and
account links, retry keys, the progress of narrowcasts and batches, faults), and what a file of
another machine must not change (the webhook URL, the long-lived token).
"""

import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Mapping
from functools import reduce
from operator import attrgetter
from pathlib import Path
from threading import Event, Thread
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError, create_model

from linemessages import check_request
from linesim.model.errors import StateError
from linesim.model.media import Content
from linesim.model.menus import Menu
from linesim.model.platform import Platform
from linesim.model.tokens import ChannelToken
from linesim.model.views import Change
from linesim.model.world import Bubble, Group, User

log = logging.getLogger(__name__)

VERSION = 1
MOST_BYTES = 512 * 1024 * 1024
MOST_AHEAD_SECONDS = 1_000 * 366 * 24 * 60 * 60
PAUSE_SECONDS = 1.0
# Writing takes a tenth of the time at most, however large the state is.
PAUSE_FACTOR = 10

KEPT: Mapping[str, tuple[str, Any]] = {
    "botUserId": ("bot_user_id", str),
    "ahead": ("clock.ahead", Annotated[float, Field(ge=0, le=MOST_AHEAD_SECONDS)]),
    "nextMessageId": ("message_ids.free", int),
    "users": ("world.users", dict[str, User]),
    "groups": ("world.groups", dict[str, Group]),
    "chats": ("chats.kept", dict[str, list[Bubble]]),
    "contents": ("contents.kept", dict[str, Content]),
    "menus": ("menus.menus", dict[str, Menu]),
    "menuAliases": ("menus.aliases", dict[str, str]),
    "menuLinks": ("menus.links", dict[str, str]),
    "defaultMenu": ("menus.default", str),
    "coupons": ("coupons", dict[str, dict[str, Any]]),
    "sentByDay": ("sent.days", dict[str, dict[str, int]]),
    "unitsByMonth": ("sent.units", dict[str, list[str]]),
    "tokens": ("channel_tokens.kept", dict[str, ChannelToken]),
    "tokenKeys": ("channel_tokens.keys", dict[str, dict[str, str]]),
}
"""Each part of the document: the attribute of the platform that it is, and its type. A part that a
document lacks is as in a new simulator. Raise the version when the form of a part changes.
"""
NEVER_BACK = {"ahead", "nextMessageId"}

_HOW = ConfigDict(
    extra="forbid",
    strict=True,
    ser_json_bytes="base64",
    val_json_bytes="base64",
    allow_inf_nan=False,
)
_PARTS: Any = {name: (kind | None, None) for name, (_, kind) in KEPT.items()}
_Saved = create_model("_Saved", __config__=_HOW, version=(Literal[1], ...), **_PARTS)


def dump(platform: Platform) -> bytes:
    with platform.watch.reading():
        parts = {name: attrgetter(path)(platform) for name, (path, _) in KEPT.items()}
        document: str = _Saved.model_construct(version=VERSION, **parts).model_dump_json()
    return document.encode()


def load(platform: Platform, data: bytes) -> None:
    """Replaces the state. The clock and the message ids never go back. Raises StateError for a
    document that is damaged or of another version; then nothing has changed.
    """
    saved, new = _parsed(data), Platform(platform.options)
    with platform.watch.changing():
        for name, (path, _) in KEPT.items():
            value = getattr(saved, name)
            *owner, attribute = path.split(".")
            found = attrgetter(path)(new) if value is None else value
            if name in NEVER_BACK:
                found = max(found, attrgetter(path)(platform))
            setattr(reduce(getattr, owner, platform), attribute, found)
        platform.reply_tokens, platform.pages = new.reply_tokens, new.pages
        platform.link_tokens = new.link_tokens
        platform.stream.publish(Change("people", {"loaded": True}))
        platform.stream.publish(Change("menu", {}))
        platform.show_clock()


def _parsed(data: bytes) -> Any:
    try:
        saved: Any = _Saved.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "literal_error" and first["loc"] == ("version",):
            why = f"is of version {first['input']!r}, and this linesim reads version {VERSION}"
        else:
            why = f"is damaged ({'.'.join(map(str, first['loc'])) or 'JSON'}: {first['msg']})"
        raise StateError(why) from error
    users, groups = saved.users or {}, saved.groups or {}
    members = {member for group in groups.values() for member in group.members}
    ids = [(key, one.user_id) for key, one in users.items()]
    ids += [(key, one.chat_id) for key, one in groups.items()]
    if not members <= users.keys() or any(key != id_ for key, id_ in ids):
        raise StateError("is damaged (users, groups and members do not match)")
    seen = {*(saved.menuLinks or {}).values(), *filter(None, [saved.defaultMenu])}
    menus = saved.menus or {}
    if not seen <= menus.keys() or any(
        check_request("RichMenuRequest", menu.written) for menu in menus.values()
    ):
        raise StateError("is damaged (rich menus)")
    return saved


class StateFile:
    """Keeps the state in a file from a thread of its own: it writes after changes, at most once a
    second, and at the stop. A write replaces the file in one step, so a kill leaves it whole.
    """

    def __init__(self, path: Path, platform: Platform) -> None:
        self._path = path.resolve()  # a link is followed, not replaced
        self._lock: int | None = None  # a file that one process may hold
        self._platform = platform
        self._written = b""  # the digest of what the file holds
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="linesim-state", daemon=True)

    def start(self) -> None:
        """Loads the file if there is one. Raises StateError for one that is unusable or cannot be
        written, and leaves it as it is.
        """
        try:
            self._lock = os.open(
                self._beside("lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600
            )
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._path.exists():
                load(self._platform, self._path.read_bytes())
            self._write()
        except (StateError, OSError) as error:
            self._unlock()
            why = str(error)
            if isinstance(error, BlockingIOError):
                why = "is in use by another simulator"
            elif isinstance(error, OSError):
                why = f"cannot be read and written ({error.strerror})"
            advice = "It was left as it is: repair or move it, or name another file"
            raise StateError(f"the state file {self._path} {why}. {advice}") from error
        self._thread.start()

    def stop(self) -> None:
        """Writes the last changes."""
        with self._platform.watch.changing():
            self._stopping.set()
        self._thread.join()
        self._try_to_write()
        self._unlock()

    def _run(self) -> None:
        seen = -1
        while not self._stopping.is_set():
            seen = self._platform.watch.wait_past(seen)
            began = time.monotonic()
            self._try_to_write()
            took = time.monotonic() - began
            self._stopping.wait(max(PAUSE_SECONDS, PAUSE_FACTOR * took))

    def _try_to_write(self) -> None:
        try:
            self._write()
        except (OSError, ValueError) as error:
            log.warning("the state cannot be saved file=%s reason=%s", self._path, error)

    def _write(self) -> None:
        data = dump(self._platform)
        digest = hashlib.sha256(data).digest()
        if digest == self._written:
            return
        new = self._beside("new")
        new.unlink(missing_ok=True)
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        finally:
            new.unlink(missing_ok=True)  # what a full disk has left
        self._written = digest

    def _beside(self, ending: str) -> Path:
        return self._path.with_name(f".{self._path.name}.{ending}")

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
