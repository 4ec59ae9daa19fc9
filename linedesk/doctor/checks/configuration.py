"""The settings as a whole, and the files with the secrets of an installed box."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from linedesk.doctor.context import (
    BOT_SECRETS,
    LINE_CREDENTIALS,
    NEEDED_BY,
    NOT_HERE,
    USERS,
    DoctorContext,
)
from linedesk.doctor.finding import Finding, bad, ok, skip, warn
from linedesk.settings.settings import Settings

LINE_HOSTS = ("https://api.line.me", "https://api-data.line.me")
BOT_SECONDS = 12.0
# In a process of its own: a bot's module may end it, hang or start threads.
IMPORTS_BOT = """
import sys
from linedesk.compose.bot import load_bot
from linedesk.settings.errors import SettingsError
try:
    load_bot(sys.argv[1])
except SettingsError as error:
    sys.exit(f"linedesk: {error}")
"""
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def settings(box: DoctorContext) -> Finding:
    """Whether all that the services need is set, and nothing that only a trial wants."""
    missing = list(_missing(box.settings))
    if missing and all(map(box.is_known_to_processes, missing)):
        those = " and ".join(NEEDED_BY[name] for name in missing)
        told = NOT_HERE.format(those, "have" if len(missing) > 1 else "has")
        return skip(f"{', '.join(missing)} {told}")
    if missing:
        return bad(f"not set: {', '.join(missing)}", "set them, or put them into the credentials")
    trial = list(_of_a_trial(box.settings))
    if trial:
        return warn(
            f"{', '.join(trial)} {'is' if len(trial) == 1 else 'are'} set, as for a trial",
            "leave them out in production: LINE itself would never be called",
        )
    return ok("complete")


def bot(box: DoctorContext) -> Finding:
    """Whether the module that BOT names can be imported and has the bot."""
    if box.credentials is not None:
        return skip("a bot is not imported as root; `journalctl -u linedesk-dispatcher` has errors")
    command = [sys.executable, "-P", "-c", IMPORTS_BOT, box.settings.bot]
    try:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=BOT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        saw = f"importing {box.settings.bot} takes over {BOT_SECONDS:.0f} s"
        return bad(saw, "the dispatcher starts as slowly: import less in the bot's module")
    if ran.returncode == 0:
        return ok(f"{box.settings.bot} can be imported")
    last = ran.stderr.strip().rpartition("\n")[2]
    # Another last line is an error of the bot's own code, which may quote a secret.
    known = last.startswith("linedesk: ")
    saw = last.removeprefix("linedesk: ") if known else f"importing {box.settings.bot} fails"
    return bad(saw, "the dispatcher does not start: fix the bot, or BOT")


def credentials(box: DoctorContext) -> Finding:
    """Whether each secret is there, and only root reads it."""
    folder = box.credentials
    if folder is None:
        return skip("not started as an installed box's `sudo linedesk doctor`")
    absent = [name for name in _names() if not _has_text(folder / name)]
    if absent:
        return bad(
            f"missing or empty in {folder}: {', '.join(absent)}",
            f"`sudo linedesk init --users {folder}` makes those of MongoDB; write LINE's by hand",
        )
    # The folder itself must be shut as well: a new file may be open for a moment.
    paths = (folder, *map(folder.joinpath, (*_names(), BOT_SECRETS)))
    open_ones = [str(path) for path in paths if path.exists() and _is_open(path)]
    if open_ones:
        return bad(
            f"others than root may read {', '.join(open_ones)}",
            f"chmod -R go= {folder}, and replace what somebody may have read",
        )
    return ok(f"{len(_names())} secrets, for root only")


def _missing(settings: Settings) -> Iterator[str]:
    for name in ("line_channel_secret", "line_channel_access_token"):
        if not getattr(settings, name):
            yield name.upper()


def _of_a_trial(settings: Settings) -> Iterator[str]:
    for name in ("line_api_base", "line_api_data_base"):
        if getattr(settings, name) not in LINE_HOSTS:
            yield name.upper()
    if settings.sim_clock:
        yield "SIM_CLOCK"


def _names() -> tuple[str, ...]:
    return (*LINE_CREDENTIALS, *(f"{user}/MONGODB_URI" for user in USERS))


def _has_text(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 1


def _is_open(path: Path) -> bool:
    return bool(stat.S_IMODE(path.stat().st_mode) & OTHERS)
