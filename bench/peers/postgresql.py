"""Functions for both peers on PostgreSQL."""

from __future__ import annotations

from functools import cache
from typing import Any

import psycopg


def new_database(url: str) -> None:
    """The database of this URL, empty."""
    server, _, name = url.rpartition("/")
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        connection.execute(f'CREATE DATABASE "{name}"')


def number_in(url: str, rows: str) -> int:
    """How many rows there are, by a connection that stays open."""
    return int(_connection(url).execute(f"SELECT count(*) FROM {rows}").fetchone()[0])


def server(url: str) -> int:
    """The process whose children serve the connections."""
    [lines] = _connection(url).execute("SELECT pg_read_file('postmaster.pid')").fetchone()
    return int(lines.split()[0])


@cache
def _connection(url: str) -> Any:
    return psycopg.connect(url, autocommit=True)
