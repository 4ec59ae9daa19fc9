"""`linedesk init`: makes MongoDB ready, and says what it made and what was there."""

from __future__ import annotations

from typing import Any

import click
from pymongo.database import Database
from rich.console import Console
from rich.table import Table

from linedesk.rules import without_credentials
from linedesk.settings import Settings, require_server
from recvq.collections import MEGABYTE, create_collections
from recvq.connect import connect
from recvq.documents import RECVQ
from recvq.replicaset import ensure_replica_set
from recvq.shape import uncapped


def init_database(settings: Settings, *, capped_mb: int) -> None:
    """Make what is missing and report on stdout; what is there is left as it is."""
    require_server(settings)
    click.echo(f"server      {without_credentials(settings.mongodb_uri)}")
    click.echo(f"replicaset  {ensure_replica_set(settings.mongodb_uri)}")
    click.echo(f"database    {settings.mongodb_database}")
    with connect(settings.mongodb_uri, app_name="linedesk-init") as client:
        database = client[settings.mongodb_database]
        made = create_collections(database, capped_bytes=capped_mb * MEGABYTE)
        Console().print(_overview(database, made))
        options = database[RECVQ].options()
    if not options.get("capped"):
        click.echo(uncapped(settings.mongodb_database))
        return
    size = int(options["size"])
    if size != capped_mb * MEGABYTE:
        click.echo(
            f"{RECVQ} keeps its size of {size // MEGABYTE} MB; to change it, in the mongo shell: "
            f"db.runCommand({{collMod: '{RECVQ}', cappedSize: {capped_mb * MEGABYTE}}})"
        )


def _overview(database: Database[Any], made: list[str]) -> Table:
    table = Table("collection", "", "indexes", box=None, pad_edge=False)
    for name in sorted(database.list_collection_names()):
        indexes = (index for index in database[name].index_information() if index != "_id_")
        state = "made" if name in made else "was there"
        table.add_row(name, state, ", ".join(sorted(indexes)))
    return table
