"""Where settings come from: the environment, systemd's credentials and a TOML file, as texts."""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linedesk.settings.errors import SettingsError

CREDENTIALS = (
    *("line_channel_secret", "line_channel_access_token", "mongodb_uri", "amqp_url"),
    *("console_password", "console_token", "bot_secrets"),
)
"""What is secret, or may hold a password: each may come as a systemd credential of its name."""
TABLES = ("bot_settings",)
"""What is a table in the TOML file, and kept as one."""


def gather(
    environ: Mapping[str, str], *, config_path: Path | None, known: Sequence[str]
) -> dict[str, Any]:
    """Merge the three sources into texts by lower-case name; an empty text counts as not set.

    Raises SettingsError for a file that cannot be read and for a name in the TOML file that is
    not `known`.
    """
    given = _from_toml(config_path, known) if config_path else {}
    given |= _from_credentials(environ.get("CREDENTIALS_DIRECTORY"))
    given |= _from_environment(environ, known)
    return given


def _from_environment(environ: Mapping[str, str], known: Sequence[str]) -> dict[str, str]:
    return _set_values({name: environ.get(name.upper(), "") for name in known})


def _from_credentials(directory: str | None) -> dict[str, str]:
    files = {name: Path(directory, name.upper()) for name in CREDENTIALS} if directory else {}
    return _set_values({name: _read(path) for name, path in files.items() if path.is_file()})


def _from_toml(path: Path, known: Sequence[str]) -> dict[str, Any]:
    try:
        table = tomllib.loads(_read(path))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError([f"{path} is not a TOML file: {error}"]) from None
    unknown = [key for key in table if key.lower() not in known]
    if unknown:
        raise SettingsError(
            [f"{path} has an unknown setting: {key}{_suggestion(key, known)}" for key in unknown]
        )
    given = {key.lower(): value for key, value in table.items()}
    tables = {name: given.pop(name) for name in TABLES if isinstance(given.get(name), dict)}
    return _set_values({name: str(value) for name, value in given.items()}) | tables


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError([f"{path} cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise SettingsError([f"{path} is not UTF-8 text"]) from None


def _set_values(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text.strip() for name, text in texts.items() if text.strip()}


def _suggestion(key: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(key.lower(), known, n=1)
    return f" (did you mean {close[0].upper()}?)" if close else ""
