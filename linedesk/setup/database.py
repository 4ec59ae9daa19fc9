"""The start of an operator's command: the settings' database and the login's name."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymongo
from pymongo.database import Database

from linedesk.runtime.language import gettext as _
from linedesk.settings.settings import EMBEDDED, Settings
from linedesk.setup.kept_mongod import beside_up
from linedesk.setup.private_mongod import state_dir
from linedesk.setup.uri import Uri
from linedesk.store.client import connect
from linedesk.store.errors import StoreUnavailable, translated

LISTENS_SECONDS = 1.0
# An acting command reports within 2 s that MongoDB is down, including Python's start.
ACTING_SECONDS = 1.0


@contextmanager
def open_database(
    settings: Settings, *, app_name: str, to_act: bool = False
) -> Iterator[Database[Any]]:
    """The database, on a client that is closed afterwards.

    For a command that changes something (`to_act`) MongoDB has to answer within ACTING_SECONDS.
    Raises StoreUnavailable then, and as `with_server` does.
    """
    settings = with_server(settings)
    limits = {"server_selection_seconds": ACTING_SECONDS} if to_act else {}
    with connect(settings.mongodb_uri, app_name=app_name, **limits) as client:
        if to_act:
            with translated(), pymongo.timeout(ACTING_SECONDS):
                client.admin.command("ping")
        yield client[settings.mongodb_database]


def with_server(settings: Settings) -> Settings:
    """The settings with the MONGODB_URI for an operator's command.

    If it is not set: that of a running `linedesk up` with a mongod here, else the default address.
    Raises StoreUnavailable at once if there is no server at either.
    """
    settings = beside_up(settings)
    if settings.mongodb_uri == EMBEDDED:
        told = _(
            "MONGODB_URI is embedded, and no `linedesk up` runs with the data in {folder}: start "
            "`linedesk up` with MONGODB_URI=embedded, then run this command beside it"
        )
        raise StoreUnavailable(told.format(folder=state_dir()))
    if "mongodb_uri" not in settings.model_fields_set:
        require_default(settings.mongodb_uri)
    return settings


def require_default(uri: str) -> None:
    """Raise StoreUnavailable if nothing listens there: the driver would wait."""
    host, port = Uri.parse(uri).hosts.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), LISTENS_SECONDS).close()
    except OSError:
        told = _(
            "MONGODB_URI is not set, nothing listens at {address}, and no `linedesk up` runs with "
            "the data in {folder}: set MONGODB_URI, or start `linedesk up` with "
            "MONGODB_URI=embedded"
        )
        told = told.format(address=f"{host}:{port}", folder=state_dir())
        raise StoreUnavailable(told) from None


def operator() -> str:
    """The login's name, for `audit`; behind sudo that of the person, not root."""
    try:
        # getpass reads LOGNAME and USER, then the table of users.
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        return str(os.getuid())
