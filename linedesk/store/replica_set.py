"""Making sure that the server is a replica set, which a change stream and an oplog need."""

from __future__ import annotations

import threading
import time
from urllib.parse import quote_plus

from pymongo import MongoClient, uri_parser
from pymongo.errors import OperationFailure

from linedesk.store.client import Client, connect
from linedesk.store.errors import UNAUTHORIZED, NotReplicaSet, StoreUnavailable, translated
from linedesk.store.uri import Uri

ALREADY_INITIALIZED = 23
NO_REPLICATION_ENABLED = 76
INVALID_CONFIG = 93
USUAL_NAME = "rs0"

HELP = (
    "the MongoDB server at {where} was started without a replica set name, so it offers neither "
    "a change stream nor an oplog: set replication.replSetName in mongod.conf (see "
    "deploy/mongod.conf) or start mongod with --replSet rs0, restart it, then run `linedesk init`"
)

NOT_INITIATED = (
    "the replica set of the MongoDB server at {where} is not initiated yet: run `linedesk init`"
)

STRANGERS = (
    "no MongoDB server of the given addresses is a member of a replica set named {name}: set "
    "replication.replSetName in mongod.conf (see deploy/mongod.conf) or start mongod with "
    "--replSet {name}, restart it, then run `linedesk init`; or correct replicaSet in the URI"
)

ANOTHER_NAME = (
    "the MongoDB server at {where} does not take {name} as its replica set's name: set "
    "replication.replSetName in mongod.conf and replicaSet in MONGODB_URI to one name, then run "
    "`linedesk init`"
)


def ensure_replica_set(uri: str, *, wait_seconds: float = 30.0) -> str:
    """Initiate a single-node replica set where none is; returns one line saying what was found.

    The URI's user is asked for only where a server with users is to be initiated: one without any
    lets this machine's processes do it. Raises NotReplicaSet if the server was started without a
    name for one, AccessRefused, and StoreUnavailable if it cannot be reached or elects no primary
    within `wait_seconds`.
    """
    where = _first_server(uri)
    with translated(), direct(Uri.parse(uri).without_user().at(where)) as client:
        hello = client.admin.command("hello")
        if "setName" in hello:
            _wait_for_primary(client, wait_seconds)
            return f"replica set {hello['setName']} is there"
        name = _initiate(client, uri, where)
        _wait_for_primary(client, wait_seconds)
    return f"replica set {name} initiated with one node, {where}"


def require_replica_set(client: Client) -> None:
    """Raise NotReplicaSet, with the words that help, if the server is standalone."""
    try:
        with translated():
            hello = client.admin.command("hello")
    except StoreUnavailable:
        if is_not_initiated(client):
            where = ", ".join(
                f"{h}:{p}" for h, p in client.topology_description.server_descriptions()
            )
            raise NotReplicaSet(NOT_INITIATED.format(where=where)) from None
        # A client that was told the set's name drops each server that answers as no member of it.
        if client.topology_description.server_descriptions():
            raise
        name = client.topology_description.replica_set_name
        raise NotReplicaSet(STRANGERS.format(name=name)) from None
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        host, port = client.address or ("?", 0)
        # A server that waits to be initiated says so in its hello.
        words = NOT_INITIATED if hello.get("isreplicaset") else HELP
        raise NotReplicaSet(words.format(where=f"{host}:{port}"))


def is_not_initiated(client: Client) -> bool:
    """Whether the servers a client found wait for `linedesk init`: the driver calls them ghosts."""
    found = client.topology_description.server_descriptions().values()
    return any(server.server_type_name == "RSGhost" for server in found)


def direct(uri: Uri) -> Client:
    """A client of one node: before that is initiated, no replica set could be discovered."""
    return connect(str(uri), app_name="linedesk-init", directConnection=True)


def _first_server(uri: str) -> str:
    """As it stands in a URI: a mongodb+srv one names its servers only in the DNS."""
    host, port = uri_parser.parse_uri(uri)["nodelist"][0]
    if port is None:  # the path of a socket
        return quote_plus(host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _initiate(client: Client, uri: str, where: str) -> str:
    try:
        return _initiate_as(client, uri, where)
    except OperationFailure as error:
        if error.code != UNAUTHORIZED:
            raise
    with direct(Uri.parse(uri).at(where)) as user:
        return _initiate_as(user, uri, where)


def _initiate_as(client: Client, uri: str, where: str) -> str:
    name = _configured_name(client) or Uri.parse(uri).option("replicaSet") or USUAL_NAME
    try:
        member = {"_id": 0, "host": where}
        client.admin.command("replSetInitiate", {"_id": name, "members": [member]})
    except OperationFailure as error:
        if error.code == NO_REPLICATION_ENABLED:
            raise NotReplicaSet(HELP.format(where=where)) from error
        if error.code == INVALID_CONFIG:
            raise NotReplicaSet(ANOTHER_NAME.format(where=where, name=name)) from error
        # A server that was just restarted tells its set's name only once it has read it, and
        # somebody else may have been first.
        if error.code != ALREADY_INITIALIZED:
            raise
    return name


def _configured_name(client: Client) -> str | None:
    """The name in the server's own configuration; None where the user may not ask for it."""
    try:
        options = client.admin.command("getCmdLineOpts")["parsed"]
    except OperationFailure as error:
        if error.code != UNAUTHORIZED:
            raise
        return None
    replication = options.get("replication", {})
    name = replication.get("replSetName") or replication.get("replSet")
    return str(name) if name else None


def _wait_for_primary(client: MongoClient[dict[str, object]], wait_seconds: float) -> None:
    """Wait until the set has a primary: the node itself or, in a larger set, another one."""
    deadline = time.monotonic() + wait_seconds
    pause = threading.Event()
    while time.monotonic() < deadline:
        hello = client.admin.command("hello")
        if hello.get("isWritablePrimary") or hello.get("primary"):
            return
        pause.wait(0.05)
    raise StoreUnavailable(f"the replica set elected no primary within {wait_seconds:.0f} s")
