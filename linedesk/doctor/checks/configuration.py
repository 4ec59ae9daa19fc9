"""The settings as a whole, and the files with the secrets of an installation."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from linedesk.doctor.context import (
    BOT_SECRETS,
    LINE_CREDENTIALS,
    USERS,
    DoctorContext,
)
from linedesk.doctor.finding import Finding, bad, ok, skip, warn
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import ngettext
from linedesk.settings.settings import Settings

LINE_HOSTS = ("https://api.line.me", "https://api-data.line.me")
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def settings(box: DoctorContext) -> Finding:
    """Whether all required settings are set, none for a trial, and none without effect."""
    missing = [name for name in LINE_CREDENTIALS if not getattr(box.settings, name.lower())]
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
