"""`linedesk init`: prepares MongoDB, and prints what it created and what existed already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from pymongo.database import Database

from linedesk.settings.rules import without_credentials
from linedesk.settings.settings import Settings, require_server
from linedesk.setup.collections import create_collections, set_audit_age
from linedesk.setup.neighbours import NOT_MENDED, wrong_neighbours
from linedesk.setup.replica_set import add_members, ensure_replica_set
from linedesk.setup.uri import Uri
from linedesk.setup.users import (
    NEW_PASSWORD,
    UserChange,
    at_work_in,
    ensure_users,
    open_admin,
    require_fitting,
)
from linedesk.store.client import connect
from linedesk.store.collections import MEGABYTE, require_schema
from linedesk.store.documents import SCHEMA
from linedesk.store.errors import translated

# No process runs as the administrator or the operator.
PROCESSES = ("frontdesk", "dispatcher", "console")
RESTART = (
    "new password for {who}: restart them soon (`systemctl restart linedesk.target`). Until then "
    "they use their open connections, and nothing is lost"
)


def init_database(
    settings: Settings,
    *,
    capped_mb: int,
    users: Path | None = None,
    new_passwords: bool = False,
) -> None:
    """Create everything that is missing and print it. Existing parts are not changed.

    With a folder for the files of `users`, the users are created, too, with the rights that they
    need. Raises SettingsError, SetupError, StoreUnavailable.
    """
    if users is None:
        _init_server(settings)
        with connect(settings.mongodb_uri, app_name="linedesk-init") as client:
            _init_collections(client[settings.mongodb_database], settings, capped_mb)
        return
    # Users belong to an installation: a trial by the same user has another mongod.
    require_server(settings)
    with at_work_in(users):
        given = Uri.parse(settings.mongodb_uri)
        require_fitting(given, users, database=settings.mongodb_database)
        _init_server(settings)
        _init_with_users(settings, users, capped_mb, new_passwords=new_passwords)


def _init_server(settings: Settings) -> None:
    click.echo(f"server      {without_credentials(settings.mongodb_uri)}")
    click.echo(f"replicaset  {ensure_replica_set(settings.mongodb_uri)}")
    click.echo(f"database    {settings.mongodb_database}")


def _init_with_users(
    settings: Settings, folder: Path, capped_mb: int, *, new_passwords: bool
) -> None:
    admin, outcome = open_admin(Uri.parse(settings.mongodb_uri), folder)
    with connect(str(admin), app_name="linedesk-init") as client:
        for where in add_members(client, str(admin)):
            click.echo(f"replicaset  {where} added")
        _init_collections(client[settings.mongodb_database], settings, capped_mb)
        others = ensure_users(
            client, admin, folder, database=settings.mongodb_database, new_passwords=new_passwords
        )
    _show_users([outcome, *others])


def _init_collections(database: Database[Any], settings: Settings, capped_mb: int) -> None:
    schema = require_schema(database)
    made = create_collections(database, capped_bytes=capped_mb * MEGABYTE)
    with translated():
        _show(database, made)
        click.echo(f"schema      {schema or SCHEMA}, this release writes {SCHEMA}")
    click.echo(f"audit       rows are removed after {settings.audit_days} days")
    set_audit_age(database, days=settings.audit_days)


def _show(database: Database[Any], made: Mapping[str, str]) -> None:
    for name in sorted(database.list_collection_names(filter={"type": "collection"})):
        if name.startswith("system."):
            continue
        indexes = (index for index in database[name].index_information() if index != "_id_")
        click.echo(f"{name:<15}{made.get(name, 'was there'):<14}{', '.join(sorted(indexes))}")
    left = ", ".join(wrong_neighbours(database))
    if left:
        click.echo(f"{NOT_MENDED}: {left}", err=True)


def _show_users(outcomes: Sequence[UserChange]) -> None:
    for one in outcomes:
        click.echo(f"user        {one.user}: {one.state}, {one.path}")
    renewed = [one.path.parent.name for one in outcomes if one.state == NEW_PASSWORD]
    renewed = [who for who in renewed if who in PROCESSES]
    if renewed:
        click.echo(RESTART.format(who=", ".join(renewed)))
