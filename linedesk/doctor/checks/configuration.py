"""The settings as a whole, and the files with the secrets of an installation."""

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
    USERS,
    DoctorContext,
)
from linedesk.doctor.finding import Finding, bad, ok, skip, warn
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import ngettext
from linedesk.settings.settings import Settings

LINE_HOSTS = ("https://api.line.me", "https://api-data.line.me")
BOT_SECONDS = 12.0
# Runs in a process of its own: a bot's module may end the process, hang or start threads.
IMPORTS_BOT = """
import sys
from linedesk.bots.load import load_bot
from linedesk.settings.errors import SettingsError
try:
    load_bot(sys.argv[1])
except SettingsError as error:
    sys.exit(f"linedesk: {error}")
"""
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def settings(box: DoctorContext) -> Finding:
    """Whether all required settings are set, none for a trial, and none without effect."""
    missing = list(_missing(box.settings))
    if missing and all(map(box.is_known_to_processes, missing)):
        those = ", ".join(NEEDED_BY[name] for name in missing)
        saw = _("{names} not set in this shell, but in the running process: {processes}")
        return skip(saw.format(names=", ".join(missing), processes=those))
    if missing:
        saw = _("not set: {names}").format(names=", ".join(missing))
        return bad(saw, _("set them, or put them into the credentials"))
    trial = list(_of_a_trial(box.settings))
    if trial:
        saw = ngettext(
            "{names} is set: for trials only", "{names} are set: for trials only", len(trial)
        )
        do = _("remove the settings in production: with them LINE itself is never called")
        return warn(saw.format(names=", ".join(trial)), do)
    if removed := box.settings.removed:
        saw = _("no effect in this release: {names}").format(names=", ".join(removed))
        return warn(saw, "; ".join(f"{name}: {_(do)}" for name, do in removed.items()))
    return ok(_("complete"))


def bot(box: DoctorContext) -> Finding:
    """Whether the module in BOT can be imported and contains the bot."""
    if box.credentials is not None:
        return skip(
            _("root does not import a bot; `journalctl -u linedesk-dispatcher` shows its errors")
        )
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
        saw = _("importing {bot} takes longer than {seconds:.0f} s")
        saw = saw.format(bot=box.settings.bot, seconds=BOT_SECONDS)
        return bad(saw, _("import less in the bot's module: the dispatcher starts as slowly"))
    if ran.returncode == 0:
        return ok(_("{bot} can be imported").format(bot=box.settings.bot))
    last = ran.stderr.strip().rpartition("\n")[2]
    # Any other last line is an error of the bot's code, which may quote a secret.
    known = last.startswith("linedesk: ")
    fails = _("importing {bot} fails").format(bot=box.settings.bot)
    saw = last.removeprefix("linedesk: ") if known else fails
    return bad(saw, _("the dispatcher does not start: correct the bot, or BOT"))


def credentials(box: DoctorContext) -> Finding:
    """Whether each secret exists, and only root can read it."""
    folder = box.credentials
    if folder is None:
        return skip(_("only `sudo linedesk doctor` of an installation checks this"))
    absent = [name for name in _names() if not _has_text(folder / name)]
    if absent:
        return bad(
            _("missing or empty in {folder}: {names}").format(
                folder=folder, names=", ".join(absent)
            ),
            _(
                "`sudo linedesk init --users {folder}` creates those of MongoDB; write those of "
                "LINE by hand"
            ).format(folder=folder),
        )
    # The folder itself must be closed, too: a new file may be readable for a moment.
    paths = (folder, *map(folder.joinpath, (*_names(), BOT_SECRETS)))
    open_ones = [str(path) for path in paths if path.exists() and _is_open(path)]
    if open_ones:
        return bad(
            _("users other than root may read {files}").format(files=", ".join(open_ones)),
            _("run `chmod -R go= {folder}`, and replace the secrets").format(folder=folder),
        )
    return ok(_("{count} secrets, for root only").format(count=len(_names())))


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
