"""The MongoDB server and the database: version, replica set, authorization and collections.

The rights of each user are compared with those in linedesk/setup/rights.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pymongo.errors import OperationFailure

from linedesk.doctor.context import DoctorContext, open_client
from linedesk.doctor.finding import Finding, bad, ok, size, skip, warn
from linedesk.operate.health import REPLICATION_WARN_SECONDS
from linedesk.operate.text import known
from linedesk.runtime.language import gettext as _
from linedesk.settings.rules import without_credentials
from linedesk.settings.settings import EMBEDDED
from linedesk.setup.collections import DEFAULT_CAPPED_BYTES
from linedesk.setup.neighbours import NEIGHBOURS, wrong_indexes, wrong_neighbours
from linedesk.setup.rights import User, as_set
from linedesk.setup.uri import Uri
from linedesk.setup.users import WHO
from linedesk.store.collections import check_recvq, read_shape, require_schema
from linedesk.store.documents import PROGRESS, RECVQ
from linedesk.store.errors import AUTHENTICATION_FAILED, UNAUTHORIZED, WrongCollection
from linedesk.store.replica_set import require_replica_set

# The whole test suite runs on 6.0.5, and on no other version. Before 6.0 a capped collection cannot
# be resized, and linedesk was never tried.
PROVED = ((6, 0),)
OLDEST = (6, 0)
ENGINE = "wiredTiger"
DATA_STATES = ("PRIMARY", "SECONDARY")


def reached(box: DoctorContext) -> Finding:
    """Whether a member of a replica set answers to the user of MONGODB_URI.

    Raises the driver's errors, and SetupError with the solution.
    """
    if box.settings.mongodb_uri == EMBEDDED:
        do = _("start `linedesk up`, which runs this mongod, or set MONGODB_URI to a server's URI")
        return bad(_("embedded, and no `linedesk up` runs here"), do)
    require_replica_set(box.client)
    user = user_of(box.client.admin.command("connectionStatus"))
    uri = without_credentials(box.settings.mongodb_uri)
    if user:
        return ok(_("{uri} as {user}").format(uri=uri, user=user))
    return ok(_("{uri} without a user and password").format(uri=uri))


def version(box: DoctorContext) -> Finding:
    """The version and the storage engine, against those that are tested."""
    return judge_version(str(box.client.server_info()["version"]), _engine(box))


def replica_set(box: DoctorContext) -> Finding:
    """Whether a majority can confirm writes, now and after the loss of a node."""
    return judge_set(box.client.admin.command("replSetGetStatus"))


def authorization(box: DoctorContext) -> Finding:
    """Whether a client without a password can read the data."""
    anonymous = Uri.parse(box.settings.mongodb_uri).without_user()
    with open_client(str(anonymous)) as client:
        try:
            client[box.settings.mongodb_database][PROGRESS].find_one({}, {"_id": 1})
        except OperationFailure as error:
            if error.code != UNAUTHORIZED:
                raise
            return ok(_("on: MongoDB refuses clients without a password"))
    return warn(
        _("off: every client that reaches the server can read and change everything"),
        _("set security.authorization as in deploy/mongod.conf, then run `linedesk init --users`"),
    )


def feed(box: DoctorContext) -> Finding:
    """Whether recvq can be watched by the method in DISPATCHER_FEED."""
    if box.settings.dispatcher_feed == "oplog":
        box.client.local["oplog.rs"].find_one({}, {"_id": 0, "ts": 1}, sort=[("$natural", -1)])
        return ok(_("the oplog can be read"))
    with box.database[RECVQ].watch([], max_await_time_ms=1):
        return ok(_("a change stream on recvq opens"))


def judge_version(number: str, engine: str | None) -> Finding:
    """`number` is such as 6.0.5; the engine is None if the user may not read it."""
    saw = f"{number}{f', {engine}' if engine else ''}"
    family = tuple(int(part) for part in number.split(".")[:2])
    if engine not in (None, ENGINE):
        do = _("set storage.engine to {engine}: no other engine keeps all confirmed writes")
        return bad(saw, do.format(engine=ENGINE))
    if family < OLDEST:
        return bad(saw, _("install MongoDB 6.0 or newer"))
    if family not in PROVED:
        proved = ", ".join(f"{major}.{minor}" for major, minor in PROVED)
        do = _("linedesk is tested only with {versions}: try this version first")
        return warn(_("{version}, not tested").format(version=saw), do.format(versions=proved))
    return ok(saw)


def judge_set(status: Mapping[str, Any]) -> Finding:
    """`status` is replSetGetStatus."""
    members: Sequence[Mapping[str, Any]] = status["members"]
    name, states = status["set"], [str(member["stateStr"]) for member in members]
    saw = f"{name}: {', '.join(sorted(states))}"
    if "PRIMARY" not in states:
        do = _("start the nodes that are down; `rs.status()` shows the reason")
        return bad(_("{members}; no primary").format(members=saw), do)
    if sum(state in DATA_STATES for state in states) < int(status.get("writeMajorityCount", 1)):
        do = _("start the nodes that are down: MongoDB confirms no writes")
        return bad(_("{members}; no majority with data").format(members=saw), do)
    lag = _lag(status)
    if lag > REPLICATION_WARN_SECONDS:
        told = _("{members}; a majority is {seconds:.0f} s behind")
        do = _("find out why the secondaries are slow")
        return warn(told.format(members=saw, seconds=lag), do)
    if "ARBITER" in states:
        return warn(
            saw,
            _("replace the arbiter with a data node: after the loss of one node nothing is stored"),
        )
    down = [state for state in states if state not in DATA_STATES]
    return warn(saw, _("`rs.status()` shows why the others are down")) if down else ok(saw)


def user_of(status: Mapping[str, Any]) -> str | None:
    """The user of a connection, by its connectionStatus; None without a password."""
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
    """Whether recvq is capped, has its unique index, and is as large as `init` makes it."""
    try:
        check_recvq(box.database)
    except WrongCollection as error:
        return bad(_("not as linedesk needs it"), known(str(error)))
    shape = read_shape(box.database)
    assert shape is not None, "check_recvq refuses a missing one"
    saw = _("capped at {size}, {count:,} documents")
    saw = saw.format(size=size(shape.capped_bytes), count=shape.documents)
    if shape.capped_bytes < DEFAULT_CAPPED_BYTES:
        do = _("`linedesk init` makes {size}; enlarge it in the mongo shell: {command}")
        command = f"db.runCommand({{collMod: '{RECVQ}', cappedSize: {DEFAULT_CAPPED_BYTES}}})"
        return warn(saw, do.format(size=size(DEFAULT_CAPPED_BYTES), command=command))
    return ok(saw)


def schema(box: DoctorContext) -> Finding:
    """Whether this release can read the documents. Raises OtherSchema."""
    found = require_schema(box.database)
    if found is None:
        return ok(_("no dispatcher has run yet"))
    return ok(_("{version}, known to this release").format(version=found))


def others(box: DoctorContext) -> Finding:
    """All other collections, and every index."""
    wrong = [*wrong_indexes(box.database, RECVQ), *wrong_neighbours(box.database)]
    if wrong:
        saw = _("missing or different: {names}").format(names=", ".join(wrong))
        return bad(saw, _("`linedesk init` creates them"))
    return ok(_("{count} collections and their indexes").format(count=len(NEIGHBOURS)))


STATUS = {"connectionStatus": 1, "showPrivileges": True}

Pairs = frozenset[tuple[str, str]]


def own(box: DoctorContext) -> Finding:
    """The rights of the user of MONGODB_URI, which should be one of linedesk's users."""
    status = box.client.admin.command(STATUS)
    name = user_of(status)
    if name is None:
        return skip(_("no user in MONGODB_URI"))
    meant = next((user for user in WHO.values() if name.startswith(f"{user.name}@")), None)
    if meant is None:
        saw = _("{user} is not one of linedesk's users").format(user=name)
        return warn(saw, _("`linedesk init --users` creates them"))
    return judge(meant, status, box.settings.mongodb_database)


def of_all(box: DoctorContext) -> Finding:
    """The rights of each user whose URI is in the credentials' folder, by a login."""
    if box.credentials is None:
        return skip(_("only `sudo linedesk doctor` of an installation checks this"))
    found = list(_found(box.settings.mongodb_database, box.credentials))
    wrong = [finding for finding in found if finding.do]
    if wrong:
        worst = min(wrong, key=lambda finding: finding.state != "bad")
        return Finding(worst.state, "; ".join(finding.saw for finding in wrong), worst.do)
    saw = _("{count} users can log in and have exactly the rights that they need")
    return ok(saw.format(count=len(found)))


def judge(user: User, status: Mapping[str, Any], database: str) -> Finding:
    """`status` is connectionStatus with privileges."""
    has = as_set(status["authInfo"]["authenticatedUserPrivileges"])
    needs = as_set([one for of in user.privileges(database).values() for one in of])
    lacks, spare = beyond(needs, has), beyond(has, needs)
    if lacks:
        saw = _("{user} lacks rights: {rights}").format(user=user.name, rights=_told(lacks))
        return bad(saw, _("`linedesk init --users` renews them"))
    if spare:
        return warn(
            _("{user} has more rights than it needs: {rights}").format(
                user=user.name, rights=_told(spare)
            ),
            _("remove the roles that `linedesk init --users` did not give"),
        )
    return ok(_("{user} has exactly the rights that it needs").format(user=user.name))


def beyond(wanted: Pairs, given: Pairs) -> Pairs:
    """The pairs of `wanted` that `given` does not cover. A database covers its collections."""
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
                saw = _("{user} cannot log in: MongoDB refuses the password in {folder}")
                yield bad(
                    saw.format(user=user.name, folder=folder / name),
                    _("`linedesk init --new-passwords` creates new passwords; then restart"),
                )


def _told(pairs: Pairs) -> str:
    shown = ", ".join(
        _("{action} on {where}").format(action=action, where=where)
        for where, action in sorted(pairs)[:3]
    )
    if len(pairs) <= 3:
        return shown
    return _("{first} and {count} more").format(first=shown, count=len(pairs) - 3)
