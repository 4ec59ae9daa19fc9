"""The subject of the checks: one machine with its settings, its MongoDB and its LINE account."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from pymongo.database import Database

from linedesk.doctor.line_api import LineApi, Reply
from linedesk.settings import rules
from linedesk.settings.settings import Settings
from linedesk.store.client import Client, connect

# Folders below the credentials' folder, each with the URI of one user of MongoDB.
USERS = ("frontdesk", "dispatcher", "operator", "console", "admin")
LINE_CREDENTIALS = SECRET, TOKEN = ("LINE_CHANNEL_SECRET", "LINE_CHANNEL_ACCESS_TOKEN")
BOT_SECRETS = "BOT_SECRETS"
SELECTION_SECONDS = 3.0
SOCKET_SECONDS = 8.0


@dataclass
class DoctorContext:
    """Belongs to one check at a time. Facts that several checks need are read once."""

    settings: Settings
    credentials: Path | None = None
    """The folder with the secrets of an installation; None if this machine has none."""

    @property
    def now(self) -> datetime:
        """The time by this machine's clock."""
        return datetime.now(UTC)

    @cached_property
    def client(self) -> Client:
        """A client that logs in as the user of MONGODB_URI."""
        return open_client(self.settings.mongodb_uri)

    @property
    def database(self) -> Database[Any]:
        """The database of the settings."""
        return self.client[self.settings.mongodb_database]

    @cached_property
    def line(self) -> LineApi:
        """The API of LINE, or of the simulator that the settings name."""
        return LineApi(
            self.settings.line_api_base,
            self.settings.access_token,
            interval_seconds=self.settings.line_access_interval_ms / 1000,
        )

    @cached_property
    def bot_info(self) -> Reply:
        """LINE's answer about this bot. Raises NoAnswer."""
        return self.line.call("GET", "/v2/bot/info")

    @cached_property
    def webhook(self) -> Reply:
        """LINE's answer about the webhook URL. Raises NoAnswer."""
        return self.line.call("GET", "/v2/bot/channel/webhook/endpoint")

    def amqp_urls(self, who: str) -> tuple[str, ...]:
        """The URLs of RabbitMQ for the dispatcher or the worker, if this machine has them."""
        path = None if self.credentials is None else self.credentials / who / "AMQP_URL"
        lying = () if path is None else rules.between_commas(_text(path))
        return lying or (self.settings.amqp_urls if who == "dispatcher" else ())

    def close(self) -> None:
        """Close the connections."""
        for name in ("client", "line"):
            if name in self.__dict__:
                self.__dict__[name].close()


def open_client(uri: str) -> Client:
    """A client with shorter time-outs than a service's, since an operator waits.

    It does not use `pymongo.timeout`, which would also prolong the search for a server.
    """
    return connect(
        uri,
        app_name="linedesk-doctor",
        server_selection_seconds=SELECTION_SECONDS,
        socket_seconds=SOCKET_SECONDS,
    )


def credentials_folder(environ: Mapping[str, str]) -> Path | None:
    """The folder with the secrets of an installation; None outside of one."""
    given = environ.get("CREDENTIALS_DIRECTORY")
    folder = Path(given) if given else None
    return folder.parent if folder is not None and folder.name in USERS else None


def with_line_credentials(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, completed with LINE's and the bot's secrets of the credentials' folder.

    An operator's command gets the folder of one user of MongoDB; the secrets are in its parent.
    """
    folder, given = credentials_folder(environ), dict(environ)
    if folder is None:
        return given
    names = (*LINE_CREDENTIALS, BOT_SECRETS)
    lying = {name: _text(folder / name) for name in names if not given.get(name)}
    return given | {name: text for name, text in lying.items() if text}


def _text(path: Path) -> str:
    """The text of a file; empty if it cannot be read, which a check of its own reports."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
