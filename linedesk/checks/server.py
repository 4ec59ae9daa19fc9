"""The MongoDB server: reached, its version, its replica set, whether it asks who one is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pymongo.errors import OperationFailure

from linedesk.checks.box import Box, open_client
from linedesk.checks.finding import Finding, bad, ok, warn
from linedesk.rules import without_credentials
from linedesk.settings import EMBEDDED
from recvq.documents import PROGRESS, RECVQ
from recvq.errors import UNAUTHORIZED
from recvq.replicaset import require_replica_set
from recvq.uri import Uri

# The whole suite runs on 6.0.5, and on no other; before 6.0 a capped collection cannot be resized,
# and nothing of linedesk was ever tried.
PROVED = ((6, 0),)
OLDEST = (6, 0)
ENGINE = "wiredTiger"
# A majority that confirms so late makes the front desk spool, which waits a second.
LAG_SECONDS = 1.0
DATA_STATES = ("PRIMARY", "SECONDARY")


def reached(box: Box) -> Finding:
    """Whether a server answers, as a member of a replica set, to the user of MONGODB_URI.

    Raises what the driver raises, and SetupError with the words that help.
    """
    if box.settings.mongodb_uri == EMBEDDED:
        do = "start `linedesk up`, whose mongod this is, or set MONGODB_URI to that of a server"
        return bad("embedded, and no `linedesk up` runs here", do)
    require_replica_set(box.client)
    user = user_of(box.client.admin.command("connectionStatus"))
    return ok(f"{without_credentials(box.settings.mongodb_uri)} as {user or 'nobody'}")


def version(box: Box) -> Finding:
    """Against the versions that the suite runs on, and the engine against the one that syncs."""
    return judge_version(str(box.client.server_info()["version"]), _engine(box))


def replica_set(box: Box) -> Finding:
    """Whether a majority can confirm, now and after the loss of a node."""
    return judge_set(box.client.admin.command("replSetGetStatus"))


def authorization(box: Box) -> Finding:
    """Whether somebody without a password may read what users wrote."""
    nobody = Uri.parse(box.settings.mongodb_uri).without_user()
    with open_client(str(nobody)) as client:
        try:
            client[box.settings.mongodb_database][PROGRESS].find_one({}, {"_id": 1})
        except OperationFailure as error:
            if error.code != UNAUTHORIZED:
                raise
            return ok("on: nobody reads without a password")
    return warn(
        "off: whoever reaches the server reads and changes everything",
        "security.authorization as in deploy/mongod.conf, then `linedesk init --users`",
    )


def feed(box: Box) -> Finding:
    """Whether recvq can be watched, in the way that DISPATCHER_FEED says."""
    if box.settings.dispatcher_feed == "oplog":
        box.client.local["oplog.rs"].find_one({}, {"_id": 0, "ts": 1}, sort=[("$natural", -1)])
        return ok("the oplog can be read")
    with box.database[RECVQ].watch([], max_await_time_ms=1):
        return ok("a change stream on recvq opens")


def judge_version(number: str, engine: str | None) -> Finding:
    """`number` such as 6.0.5; the engine is None where the user may not ask for it."""
    saw = f"{number}{f', {engine}' if engine else ''}"
    family = tuple(int(part) for part in number.split(".")[:2])
    if engine not in (None, ENGINE):
        return bad(saw, f"storage.engine must be {ENGINE}: no other one keeps what it confirmed")
    if family < OLDEST:
        return bad(saw, "MongoDB 6.0 or newer is needed")
    if family not in PROVED:
        proved = ", ".join(f"{major}.{minor}" for major, minor in PROVED)
        return warn(
            f"{saw}, not proved", f"linedesk is tested with {proved} only: try it out first"
        )
    return ok(saw)


def judge_set(status: Mapping[str, Any]) -> Finding:
    """`status` is replSetGetStatus."""
    members: Sequence[Mapping[str, Any]] = status["members"]
    name, states = status["set"], [str(member["stateStr"]) for member in members]
    saw = f"{name}: {', '.join(sorted(states))}"
    if "PRIMARY" not in states:
        return bad(f"{saw}; no primary", "start the nodes that are down; `rs.status()` says why")
    if sum(state in DATA_STATES for state in states) < int(status.get("writeMajorityCount", 1)):
        return bad(
            f"{saw}; no majority with data", "start the nodes that are down: nothing is confirmed"
        )
    lag = _lag(status)
    if lag > LAG_SECONDS:
        return warn(
            f"{saw}; a majority is {lag:.0f} s behind", "see what slows the secondaries down"
        )
    if "ARBITER" in states:
        return warn(
            f"{saw}",
            "replace the arbiter by a node with data: with one node lost, nothing is stored",
        )
    down = [state for state in states if state not in DATA_STATES]
    return warn(saw, "`rs.status()` says what ails the others") if down else ok(saw)


def user_of(status: Mapping[str, Any]) -> str | None:
    """Who a connection is, by its connectionStatus; None without a password."""
    users = status["authInfo"]["authenticatedUsers"]
    return f"{users[0]['user']}@{users[0]['db']}" if users else None


def _engine(box: Box) -> str | None:
    try:
        return str(box.client.admin.command("serverStatus")["storageEngine"]["name"])
    except OperationFailure as error:
        if error.code != UNAUTHORIZED:
            raise
        return None


def _lag(status: Mapping[str, Any]) -> float:
    times = status["optimes"]
    applied, committed = times["lastAppliedWallTime"], times["lastCommittedWallTime"]
    return float((applied - committed).total_seconds())
