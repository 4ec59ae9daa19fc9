"""What each user of MongoDB may do: the whole of it as data, in the words of `createRole`.

`linedesk init` makes roles of it, `linedesk doctor` compares with it, and a test runs each user
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
"""Every collection of the database, and what concerns the database itself."""

Actions = Sequence[str]
READ = ("find", "listIndexes", "collStats", "changeStream")
MAKE = ("createCollection", "createIndex")
ADD = ("insert",)
WRITE = ("insert", "update")
ALL = ("insert", "update", "remove")
# A capped collection is made by this right, too, not only converted.
CAP = ("convertToCapped",)


@dataclass(frozen=True)
class User:
    """A user of MongoDB, who has the name of his role, and what that role allows."""

    name: str
    own: Mapping[str, Actions]
    """By collection of linedesk's own database."""
    oplog: Actions = ()
    """On local.oplog.rs."""
    server: Actions = ()

    def privileges(self, database: str) -> Mapping[str, list[Document]]:
        """The privileges of the roles that he has, by the database in which each role stands.

        MongoDB lets a role of another database than admin speak of its own database only.
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
        # It makes recvq again after a drop: caps it, removes doubles, makes its indexes anew.
        RECVQ: (*ALL, *CAP, "dropIndex"),
        PROGRESS: WRITE,
        LEASES: WRITE,
        # Nothing is deleted from conversations and schedule but by `linedesk import`, which runs as
        # this user, too.
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
        # That letters grow too old: it adds rows, and changes or removes none.
        AUDIT: ADD,
        # That a release is carried out, and the pause of a conversation that kills the process;
        # it resumes none.
        CONTROL: WRITE,
    },
    # Its size, since how long it lasts is a figure.
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
        # What was done is not undone in it: nothing is removed from there.
        AUDIT: WRITE,
        # Replays and drops; a letter is written by the dispatcher alone.
        DEADLETTERS: ("update", "remove"),
        RECVQ: ADD,
    },
)
USERS = (FRONTDESK, DISPATCHER, OPERATOR, CONSOLE)


def as_set(privileges: Sequence[Mapping[str, object]]) -> frozenset[tuple[str, str]]:
    """Privileges so that two lists of them can be compared: pairs of resource and action."""
    return frozenset(pair for privilege in privileges for pair in _pairs(privilege))


def _of(database: str, collection: str, actions: Actions) -> Document:
    return {"resource": {"db": database, "collection": collection}, "actions": list(actions)}


def _pairs(privilege: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    resource, actions = privilege["resource"], privilege["actions"]
    assert isinstance(resource, Mapping)
    assert isinstance(actions, Sequence)
    where = f"{resource['db']}.{resource['collection']}" if "db" in resource else "server"
    yield from ((where, str(action)) for action in actions)
