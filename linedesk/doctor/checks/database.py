"""The MongoDB server and the database: version, replica set and authorization; collections as
`linedesk init` makes them; and what each user may do,
beside what linedesk/store/rights.py gives it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pymongo.errors import OperationFailure

from linedesk.console.health import REPLICATION_WARN_SECONDS
from linedesk.doctor.context import DoctorContext, open_client
from linedesk.doctor.finding import Finding, bad, ok, size, skip, warn
from linedesk.settings.rules import without_credentials
from linedesk.settings.settings import EMBEDDED
from linedesk.setup.users import WHO
from linedesk.store.collections import (
    NEIGHBOURS,
    check_recvq,
    read_shape,
    require_schema,
    wrong_indexes,
    wrong_neighbours,
)
from linedesk.store.documents import PROGRESS, RECVQ
from linedesk.store.errors import AUTHENTICATION_FAILED, UNAUTHORIZED, WrongCollection
from linedesk.store.replica_set import require_replica_set
from linedesk.store.rights import User, as_set
from linedesk.store.uri import Uri

# The whole suite runs on 6.0.5, and on no other; before 6.0 a capped collection cannot be resized,
# and nothing of linedesk was ever tried.
PROVED = ((6, 0),)
OLDEST = (6, 0)
ENGINE = "wiredTiger"
DATA_STATES = ("PRIMARY", "SECONDARY")


def reached(box: DoctorContext) -> Finding:
    """Whether a server answers, as a member of a replica set, to the user of MONGODB_URI.

    Raises what the driver raises, and SetupError with the words that help.
    """
    if box.settings.mongodb_uri == EMBEDDED:
        do = "start `linedesk up`, whose mongod this is, or set MONGODB_URI to that of a server"
        return bad("embedded, and no `linedesk up` runs here", do)
    require_replica_set(box.client)
    user = user_of(box.client.admin.command("connectionStatus"))
    who = f"as {user}" if user else "without a user and password"
    return ok(f"{without_credentials(box.settings.mongodb_uri)} {who}")


def version(box: DoctorContext) -> Finding:
    """Against the versions that the suite runs on, and the engine against the one that syncs."""
    return judge_version(str(box.client.server_info()["version"]), _engine(box))


def replica_set(box: DoctorContext) -> Finding:
    """Whether a majority can confirm, now and after the loss of a node."""
    return judge_set(box.client.admin.command("replSetGetStatus"))


def authorization(box: DoctorContext) -> Finding:
    """Whether somebody without a password may read what users wrote."""
    nobody = Uri.parse(box.settings.mongodb_uri).without_user()
    with open_client(str(nobody)) as client:
        try:
            client[box.settings.mongodb_database][PROGRESS].find_one({}, {"_id": 1})
        except OperationFailure as error:
            if error.code != UNAUTHORIZED:
                raise
            return ok("on: MongoDB refuses clients without a password")
    return warn(
        "off: every client that reaches the server reads and changes everything",
        "security.authorization as in deploy/mongod.conf, then `linedesk init --users`",
    )


def feed(box: DoctorContext) -> Finding:
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
    if lag > REPLICATION_WARN_SECONDS:
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


def _engine(box: DoctorContext) -> str | None:
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


def recvq(box: DoctorContext) -> Finding:
    """Capped, with its unique index: what every writer demands before it inserts."""
    try:
        check_recvq(box.database)
    except WrongCollection as error:
        return bad("not as it must be", str(error))
    shape = read_shape(box.database)
    assert shape is not None, "check_recvq refuses one that is not there"
    return ok(f"capped at {size(shape.capped_bytes)}, {shape.documents:,} documents")


def schema(box: DoctorContext) -> Finding:
    """Whether this release knows how the documents are written. Raises NewerSchema."""
    found = require_schema(box.database)
    return ok("no dispatcher has run yet" if found is None else f"{found}, known to this release")


def others(box: DoctorContext) -> Finding:
    """All other collections, and every index."""
    wrong = [*wrong_indexes(box.database, RECVQ), *wrong_neighbours(box.database)]
    if wrong:
        return bad(f"missing or otherwise: {', '.join(wrong)}", "`linedesk init` makes them")
    return ok(f"{len(NEIGHBOURS)} collections and their indexes")


STATUS = {"connectionStatus": 1, "showPrivileges": True}

Pairs = frozenset[tuple[str, str]]


def own(box: DoctorContext) -> Finding:
    """Of the user of MONGODB_URI, who is meant to be one of linedesk's."""
    status = box.client.admin.command(STATUS)
    name = user_of(status)
    if name is None:
        return skip("no user in MONGODB_URI, so none has rights")
    meant = next((user for user in WHO.values() if name.startswith(f"{user.name}@")), None)
    if meant is None:
        return warn(f"{name} is none of linedesk's users", "`linedesk init --users` makes them")
    return judge(meant, status, box.settings.mongodb_database)


def of_all(box: DoctorContext) -> Finding:
    """Of each user whose URI lies in the credentials' folder: logs in as every one of them."""
    if box.credentials is None:
        return skip("not started as an installed box's `sudo linedesk doctor`")
    found = list(_found(box.settings.mongodb_database, box.credentials))
    wrong = [finding for finding in found if finding.do]
    if wrong:
        worst = min(wrong, key=lambda finding: finding.state != "bad")
        return Finding(worst.state, "; ".join(finding.saw for finding in wrong), worst.do)
    return ok(f"{len(found)} users log in and may do what they need, and no more")


def judge(user: User, status: Mapping[str, Any], database: str) -> Finding:
    """`status` is connectionStatus with privileges."""
    has = as_set(status["authInfo"]["authenticatedUserPrivileges"])
    needs = as_set([one for of in user.privileges(database).values() for one in of])
    lacks, spare = beyond(needs, has), beyond(has, needs)
    if lacks:
        return bad(f"{user.name} may not {_told(lacks)}", "`linedesk init --users` renews them")
    if spare:
        return warn(
            f"{user.name} may also {_told(spare)}",
            "take the roles away that `linedesk init --users` did not give",
        )
    return ok(f"{user.name} may do what it needs, and no more")


def beyond(wanted: Pairs, given: Pairs) -> Pairs:
    """What of `wanted` is not covered by `given`: a whole database covers its collections."""
    return frozenset(pair for pair in wanted if not given.intersection(_covering(*pair)))


def _covering(where: str, action: str) -> Iterator[tuple[str, str]]:
    yield where, action
    yield f"{where.partition('.')[0]}.", action
    yield ".", action


def _found(database: str, folder: Path) -> Iterator[Finding]:
    for name, user in WHO.items():
        uri = (folder / name / "MONGODB_URI").read_text(encoding="utf-8").strip()
        with open_client(uri) as client:
            try:
                yield judge(user, client.admin.command(STATUS), database)
            except OperationFailure as error:
                if error.code != AUTHENTICATION_FAILED:
                    raise
                yield bad(
                    f"{user.name} cannot log in: the password in {folder / name} is not MongoDB's",
                    "`linedesk init --new-passwords` makes new ones; restart then",
                )


def _told(pairs: Pairs) -> str:
    shown = [f"{action} on {where}" for where, action in sorted(pairs)[:3]]
    return ", ".join(shown) + (f" and {len(pairs) - 3} more" if len(pairs) > 3 else "")
