"""What a command of a person begins with: the database that the settings name, and who he is."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymongo.database import Database

from linedesk.settings import Settings, require_server
from recvq.connect import connect


@contextmanager
def open_database(settings: Settings, *, app_name: str) -> Iterator[Database[Any]]:
    """The database, on a client that is closed afterwards. Raises SettingsError."""
    require_server(settings)
    with connect(settings.mongodb_uri, app_name=app_name) as client:
        yield client[settings.mongodb_database]


def operator() -> str:
    """Who runs the command, as `audit` names him; behind sudo the person, not root."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        return str(os.getuid())
