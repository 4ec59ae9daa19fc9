"""Where settings come from: the environment, systemd's credentials and a TOML file, as texts."""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.settings.errors import SettingsError

CREDENTIALS = (
    *("line_channel_secret", "line_channel_access_token", "mongodb_uri", "amqp_url"),
    *("console_password", "console_token", "bot_secrets"),
)
"""Settings that are secret or may contain a password. Each may be a systemd credential."""
REMOVED: Mapping[str, str] = {
    "scheduler": mark("the dispatcher fires timers; delete the setting"),
    "scheduler_metrics_port": mark(
        "DISPATCHER_METRICS_PORT has the metrics of timers; delete the setting, and the port in "
        "prometheus.yml"
    ),
}
"""Settings of earlier releases, each with what to do instead. They have no effect."""


def gather(
    environ: Mapping[str, str], *, config_path: Path | None, known: Sequence[str]
) -> dict[str, Any]:
    """Merge the three sources into texts by lower-case name; an empty text counts as not set.

    Removed settings are included.

    Raises SettingsError for an unreadable file, and for unknown names in the TOML file.
    """
    known = (*known, *REMOVED)
    given = _from_toml(config_path, known) if config_path else {}
    given |= _from_credentials(environ.get("CREDENTIALS_DIRECTORY"))
    return given | _set_values({name: environ.get(name.upper(), "") for name in known})


def _from_credentials(directory: str | None) -> dict[str, str]:
    names = (*CREDENTIALS, *REMOVED)
    files = {name: Path(directory, name.upper()) for name in names} if directory else {}
    return _set_values({name: _read(path) for name, path in files.items() if path.is_file()})


def _from_toml(path: Path, known: Sequence[str]) -> dict[str, Any]:
    try:
        table = tomllib.loads(_read(path))
    except tomllib.TOMLDecodeError as error:
        told = _("{file} is not a TOML file: {error}").format(file=path, error=error)
        raise SettingsError([told]) from None
    unknown = [key for key in table if key.lower() not in known]
    if unknown:
        told = _("{file} has an unknown setting: {name}")
        raise SettingsError(
            [told.format(file=path, name=key) + _suggestion(key, known) for key in unknown]
        )
    given = {key.lower(): value for key, value in table.items()}
    # The one setting that may be a table.
    is_table = isinstance(given.get("bot_settings"), dict)
    tables = {"bot_settings": given.pop("bot_settings")} if is_table else {}
    return _set_values({name: str(value) for name, value in given.items()}) | tables


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        told = _("{file} cannot be read: {error}").format(file=path, error=error.strerror)
        raise SettingsError([told]) from None
    except UnicodeDecodeError:
        raise SettingsError([_("{file} is not UTF-8 text").format(file=path)]) from None


def _set_values(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text.strip() for name, text in texts.items() if text.strip()}


def _suggestion(key: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(key.lower(), known, n=1)
    if not close:
        return ""
    return " " + _("(did you mean {name}?)").format(name=close[0].upper())
