"""Sets up the replica set, which change streams and the oplog require."""

from __future__ import annotations

import socket
import threading
import time
from urllib.parse import quote_plus

from pymongo import MongoClient, uri_parser
from pymongo.errors import OperationFailure

from linedesk.setup.uri import Uri
from linedesk.store.client import Client, connect
from linedesk.store.errors import UNAUTHORIZED, NotReplicaSet, StoreUnavailable, translated
from linedesk.store.replica_set import HELP

ALREADY_INITIALIZED = 23
NO_REPLICATION_ENABLED = 76
INVALID_CONFIG = 93
# The set is still applying an earlier change of its members.
STILL_CHANGING = frozenset({103, 109, 308})
USUAL_NAME = "rs0"
LOOPBACK = "127.0.0.1"

ANOTHER_NAME = (
    "the MongoDB server at {where} does not take {name} as its replica set's name: set "
    "replication.replSetName in mongod.conf and replicaSet in MONGODB_URI to one name, then run "
    "`linedesk init`"
)


def ensure_replica_set(uri: str, *, wait_seconds: float = 30.0) -> str:
    """Initiate a single-node replica set if there is none; returns one line with the result.

    With several servers in the URI the first one becomes the node, once all of them answer and none
    is in a set; `add_members` adds the others. The URI's user is needed only to initiate a server
    with users: a server without any allows it to processes of its machine. Raises NotReplicaSet if
    the server was started without a name for one, AccessRefused, and StoreUnavailable if it cannot
    be reached or elects no primary within `wait_seconds`.
    """
    unreachable: StoreUnavailable | None = None
    servers = _servers(uri)
    for where in servers:
        try:
            with translated(), direct(Uri.parse(uri).without_user().at(where)) as client:
                hello = client.admin.command("hello")
                if "setName" in hello:
                    _wait_for_primary(client, wait_seconds)
                    return f"replica set {hello['setName']} exists"
        except StoreUnavailable as error:
            unreachable = unreachable or error
    if unreachable is not None:
        # It may be a member: a second set beside the first would replace its data.
        raise unreachable
    where = servers[0]
    with translated(), direct(Uri.parse(uri).without_user().at(where)) as client:
        name = _initiate(client, uri, where)
        _wait_for_primary(client, wait_seconds)
    return f"replica set {name} initiated with one node, {where}"


def add_members(client: Client, uri: str, *, wait_seconds: float = 60.0) -> list[str]:
    """Add the URI's other servers to the client's set, which then copies its data to them.

    Returns the servers added. The client's user must be an administrator. A set with a member that
    the URI does not name was made by the operator and is not changed.
    """
    added: list[str] = []
    deadline, pause = time.monotonic() + wait_seconds, threading.Event()
    with translated():
        while True:
            config = client.admin.command("replSetGetConfig")["config"]
            members = {member["host"] for member in config["members"]}
            missing = [w for w in _servers(uri) if w not in members and _waits_for_a_set(uri, w)]
            if not missing or not members <= set(_servers(uri)):
                return added
            number = 1 + max(member["_id"] for member in config["members"])
            config["members"].append({"_id": number, "host": missing[0]})
            config["version"] += 1
            try:
                client.admin.command("replSetReconfig", config)
                added.append(missing[0])
            except OperationFailure as error:
                # MongoDB accepts one at a time, each after the change before is applied.
                if error.code not in STILL_CHANGING or time.monotonic() > deadline:
                    raise
                pause.wait(0.2)


def _waits_for_a_set(uri: str, where: str) -> bool:
    """Whether this server answers, and is in no set yet.

    One that is away would count in every vote.
    """
    try:
        with translated(), direct(Uri.parse(uri).without_user().at(where)) as client:
            return "setName" not in client.admin.command("hello")
    except StoreUnavailable:
        return False


def direct(uri: Uri) -> Client:
    """A client for one node: before it is initiated, no replica set can be discovered."""
    return connect(str(uri), app_name="linedesk-init", directConnection=True)


def by_loopback(uri: Uri) -> Client | None:
    """A client without a user for the first server by the loopback interface.

    Only from there a server without users may be initiated, and its first user created. None if the
    server is on another machine.
    """
    host, port = uri_parser.parse_uri(str(uri))["nodelist"][0]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        # Only an address of this machine can be listened on.
        socket.create_server((host, 0), family=family).close()
    except OSError:
        return None
    return direct(uri.without_user().at(f"{LOOPBACK}:{port}"))


def _servers(uri: str) -> list[str]:
    """The servers in a URI; those of a mongodb+srv URI are only in the DNS."""
    found = []
    for host, port in uri_parser.parse_uri(uri)["nodelist"]:
        if port is None:  # the path of a socket
            found.append(quote_plus(host))
        else:
            found.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return found


def _initiate(client: Client, uri: str, where: str) -> str:
    try:
        return _initiate_as(client, uri, where)
    except OperationFailure as error:
        if error.code != UNAUTHORIZED:
            raise
    given = Uri.parse(uri)
    local = None if given.user else by_loopback(given)
    with local or direct(given.at(where)) as user:
        return _initiate_as(user, uri, where)


def _initiate_as(client: Client, uri: str, where: str) -> str:
    name = Uri.parse(uri).option("replicaSet") or USUAL_NAME
    try:
        member = {"_id": 0, "host": where}
        client.admin.command("replSetInitiate", {"_id": name, "members": [member]})
    except OperationFailure as error:
        if error.code == NO_REPLICATION_ENABLED:
            raise NotReplicaSet(HELP.format(where=where)) from error
        if error.code == INVALID_CONFIG:
            raise NotReplicaSet(ANOTHER_NAME.format(where=where, name=name)) from error
        # A restarted server reports its set's name only once it has read it, and another process
        # may have been first.
        if error.code != ALREADY_INITIALIZED:
            raise
    return name


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
