"""Whether MongoDB is the replica set that change streams and the oplog require."""

from __future__ import annotations

from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.store.client import Client
from linedesk.store.errors import NotReplicaSet, StoreUnavailable, translated

HELP = mark(
    "the MongoDB server at {where} was started without a replica set name, so it offers neither "
    "a change stream nor an oplog: set replication.replSetName in mongod.conf (see "
    "deploy/mongod.conf) or start mongod with --replSet rs0, restart it, then run `linedesk init`"
)

NOT_INITIATED = mark(
    "the replica set of the MongoDB server at {where} is not initiated yet: run `linedesk init`"
)

STRANGERS = mark(
    "no MongoDB server of the given addresses is a member of a replica set named {name}: set "
    "replication.replSetName in mongod.conf (see deploy/mongod.conf) or start mongod with "
    "--replSet {name}, restart it, then run `linedesk init`; or correct replicaSet in the URI"
)


def require_replica_set(client: Client) -> None:
    """Raise NotReplicaSet, with instructions, if the server is standalone."""
    try:
        with translated():
            hello = client.admin.command("hello")
    except StoreUnavailable:
        if is_not_initiated(client):
            where = ", ".join(
                f"{h}:{p}" for h, p in client.topology_description.server_descriptions()
            )
            raise NotReplicaSet(_(NOT_INITIATED).format(where=where)) from None
        # A client with a set name drops each server that is not a member of that set.
        if client.topology_description.server_descriptions():
            raise
        name = client.topology_description.replica_set_name
        raise NotReplicaSet(_(STRANGERS).format(name=name)) from None
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        host, port = client.address or ("?", 0)
        # A server that is not initiated reports it in its hello.
        words = NOT_INITIATED if hello.get("isreplicaset") else HELP
        raise NotReplicaSet(_(words).format(where=f"{host}:{port}"))


def is_not_initiated(client: Client) -> bool:
    """Whether the servers of a client wait for `linedesk init`; the driver calls them ghosts."""
    found = client.topology_description.server_descriptions().values()
    return any(server.server_type_name == "RSGhost" for server in found)
