"""The settings as a whole, and the files with the secrets of an installed box."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from linedesk.doctor.context import BOT_SECRETS, LINE_CREDENTIALS, USERS, DoctorContext
from linedesk.doctor.finding import Finding, bad, ok, skip, warn
from linedesk.settings.settings import Settings

LINE_HOSTS = ("https://api.line.me", "https://api-data.line.me")
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def settings(box: DoctorContext) -> Finding:
    """Whether all that the services need is set, and nothing that only a trial wants."""
    missing = list(_missing(box.settings))
    if missing:
        return bad(f"not set: {', '.join(missing)}", "set them, or put them into the credentials")
    trial = list(_of_a_trial(box.settings))
    if trial:
        return warn(
            f"{', '.join(trial)} {'is' if len(trial) == 1 else 'are'} set, as for a trial",
            "leave them out in production: LINE itself would never be called",
        )
    return ok("complete")


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
