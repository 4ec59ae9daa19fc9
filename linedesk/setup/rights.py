"""The rights of each MongoDB user, as data for `createRole`.

`linedesk init` makes roles of it, `linedesk doctor` compares with it, and a test checks each user
against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from linedesk.store.documents import (
    AUDIT,
    BATCHES,
    CALLS,
    CONTROL,
    CONVERSATIONS,
    DEADLETTERS,
    HELD,
    HISTORY,
    JOBS,
    LEASES,
    PROGRESS,
    RECVQ,
    SCHEDULE,
    STATUS,
    Document,
)

ADMIN = "admin"
EVERY = ""
"""Every collection of the database, and actions on the database itself."""

Actions = Sequence[str]
READ = ("find", "listIndexes", "collStats", "changeStream")
MAKE = ("createCollection", "createIndex")
ADD = ("insert",)
WRITE = ("insert", "update")
ALL = ("insert", "update", "remove")
# This right is needed to create a capped collection, not only to convert one.
CAP = ("convertToCapped",)


@dataclass(frozen=True)
class User:
    """A MongoDB user, whose role has the same name, and the rights of that role."""

    name: str
    own: Mapping[str, Actions]
    """Rights by collection of linedesk's database."""
    oplog: Actions = ()
    """Rights on local.oplog.rs."""
    server: Actions = ()

    def privileges(self, database: str) -> Mapping[str, list[Document]]:
        """The privileges of its roles, by the database of each role.

        Only roles of the database admin may have privileges in other databases.
        """
        own = [_of(database, name, actions) for name, actions in self.own.items()]
        beyond = [_of("local", "oplog.rs", self.oplog)] if self.oplog else []
        if self.server:
            beyond.append({"resource": {"cluster": True}, "actions": list(self.server)})
        return {database: own, ADMIN: beyond} if beyond else {database: own}


FRONTDESK = User(
    "linedesk-frontdesk",
    {
        RECVQ: ("insert", "find", "collStats"),
        PROGRESS: ("find",),
        STATUS: WRITE,
    },
)
DISPATCHER = User(
    "linedesk-dispatcher",
    {
        EVERY: (*READ, *MAKE, "listCollections"),
        RECVQ: WRITE,
        PROGRESS: WRITE,
        LEASES: WRITE,
        # Only `linedesk import`, which also runs as this user, deletes from conversations and
        # schedule.
        CONVERSATIONS: ALL,
        SCHEDULE: ALL,
        # It deletes a multicast whose members have left.
        BATCHES: ALL,
        HELD: ALL,
        DEADLETTERS: WRITE,
        CALLS: (*ADD, *CAP),
        JOBS: (*ADD, *CAP),
        HISTORY: (*ADD, *CAP),
        STATUS: WRITE,
        # It adds rows for letters that grow too old, and changes or removes none.
        AUDIT: ADD,
        # It marks releases and drops as carried out; it pauses and resumes none.
        CONTROL: WRITE,
    },
    # Its size, for the figure of how long it lasts.
    oplog=("find", "collStats"),
)
OPERATOR = User(
    "linedesk-operator",
    {EVERY: (*READ, "listCollections", "dbStats")},
    oplog=("find", "collStats"),
    server=("replSetGetStatus", "replSetGetConfig", "serverStatus"),
)
CONSOLE = replace(
    OPERATOR,
    name="linedesk-console",
    own={
        **OPERATOR.own,
        CONTROL: ALL,
        # The log of actions is permanent: nothing is removed from it.
        AUDIT: WRITE,
        # Replays and drops; only the dispatcher writes letters.
        DEADLETTERS: ("update", "remove"),
        RECVQ: ADD,
    },
)
USERS = (FRONTDESK, DISPATCHER, OPERATOR, CONSOLE)


def as_set(privileges: Sequence[Mapping[str, object]]) -> frozenset[tuple[str, str]]:
    """Privileges in a comparable form: pairs of resource and action."""
    return frozenset(pair for privilege in privileges for pair in _pairs(privilege))


def _of(database: str, collection: str, actions: Actions) -> Document:
    return {"resource": {"db": database, "collection": collection}, "actions": list(actions)}


def _pairs(privilege: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    resource, actions = privilege["resource"], privilege["actions"]
    assert isinstance(resource, Mapping)
    assert isinstance(actions, Sequence)
    where = f"{resource['db']}.{resource['collection']}" if "db" in resource else "server"
    yield from ((where, str(action)) for action in actions)
