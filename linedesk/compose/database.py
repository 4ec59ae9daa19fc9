"""What a command of a person begins with: the database that the settings name, and who he is."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymongo.database import Database

from linedesk.compose.private_mongod import state_dir
from linedesk.compose.up import beside_up
from linedesk.settings.settings import Settings, require_server
from linedesk.store.client import connect
from linedesk.store.errors import StoreUnavailable
from linedesk.store.uri import Uri

LISTENS_SECONDS = 1.0


@contextmanager
def open_database(settings: Settings, *, app_name: str) -> Iterator[Database[Any]]:
    """The database, on a client that is closed afterwards.

    Raises SettingsError, StoreUnavailable as `with_server` does.
    """
    settings = with_server(settings)
    with connect(settings.mongodb_uri, app_name=app_name) as client:
        yield client[settings.mongodb_database]


def with_server(settings: Settings) -> Settings:
    """With the MONGODB_URI that a command of a person uses.

    Where it is not set, that of the `linedesk up` that keeps a mongod here, else the default
    address. Raises SettingsError, and StoreUnavailable at once where neither is.
    """
    settings = beside_up(settings)
    require_server(settings)
    if "mongodb_uri" not in settings.model_fields_set:
        _require_default(settings.mongodb_uri)
    return settings


def _require_default(uri: str) -> None:
    """Raises StoreUnavailable where nothing listens there, which the driver would wait for."""
    host, _, port = Uri.parse(uri).hosts.rpartition(":")
    try:
        socket.create_connection((host, int(port)), LISTENS_SECONDS).close()
    except OSError:
        raise StoreUnavailable(
            f"MONGODB_URI is not set, nothing listens at {host}:{port}, and no `linedesk up` runs "
            f"with the data in {state_dir()}"
        ) from None


def operator() -> str:
    """Who runs the command, as `audit` names him; behind sudo the person, not root."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        return str(os.getuid())
