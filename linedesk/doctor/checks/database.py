"""The MongoDB server and the database: version, replica set, authorization, collections, space.

The rights of each user are compared with those in linedesk/setup/rights.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pymongo.errors import OperationFailure

from linedesk.doctor.context import DoctorContext, open_client
from linedesk.doctor.finding import Finding, FindingLevel, bad, ok, size, skip, warn
from linedesk.operate.format import for_long
from linedesk.operate.health import (
    DAY_SECONDS,
    DISK_BAD_BYTES,
    DISK_WARN_BYTES,
    HOUR_SECONDS,
    window_level,
)
from linedesk.operate.text import known
from linedesk.runtime.language import gettext as _
from linedesk.settings.rules import without_credentials
from linedesk.settings.settings import EMBEDDED
from linedesk.setup.neighbours import NEIGHBOURS, wrong_indexes, wrong_neighbours
from linedesk.setup.rights import User, as_set
from linedesk.setup.uri import Uri
from linedesk.setup.users import WHO
from linedesk.store.collections import MEGABYTE, check_recvq, read_shape, require_schema
from linedesk.store.documents import PROGRESS, RECVQ
from linedesk.store.errors import AUTHENTICATION_FAILED, UNAUTHORIZED, WrongCollection
from linedesk.store.queue.usage import Span, oplog_span, recvq_span
from linedesk.store.replica_set import require_replica_set

# The whole test suite runs on 6.0.5, and on no other version. Before 6.0 a capped collection cannot
# be resized, and linedesk was never tried.
PROVED = (6, 0)
DATA_STATES = ("PRIMARY", "SECONDARY")
# A rate that was measured for less than an hour is not reliable, unless a tenth is full already.
YOUNG_SHARE = 0.1
MOST_SECONDS = 90 * DAY_SECONDS
STATUS = {"connectionStatus": 1, "showPrivileges": True}

Pairs = frozenset[tuple[str, str]]


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
    """The version, against those that are tested."""
    return judge_version(str(box.client.server_info()["version"]))


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


def judge_version(number: str) -> Finding:
    """`number` is such as 6.0.5."""
    family = tuple(int(part) for part in number.split(".")[:2])
    if family < PROVED:
        return bad(number, _("install MongoDB 6.0 or newer"))
    if family > PROVED:
        do = _("linedesk is tested only with {versions}: try this version first")
        return warn(_("{version}, not tested").format(version=number), do.format(versions="6.0"))
    return ok(number)


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


def recvq(box: DoctorContext) -> Finding:
    """Whether recvq is capped and has its unique index."""
    try:
        check_recvq(box.database)
    except WrongCollection as error:
        return bad(_("not as linedesk needs it"), known(str(error)))
    shape = read_shape(box.database)
    assert shape is not None, "check_recvq refuses a missing one"
    saw = _("capped at {size}, {count:,} documents")
    return ok(saw.format(size=size(shape.capped_bytes), count=shape.documents))


def others(box: DoctorContext) -> Finding:
    """The documents' version, all other collections, and every index. Raises OtherSchema."""
    require_schema(box.database)
    wrong = [*wrong_indexes(box.database, RECVQ), *wrong_neighbours(box.database)]
    if wrong:
        saw = _("missing or different: {names}").format(names=", ".join(wrong))
        return bad(saw, _("`linedesk init` creates them"))
    return ok(_("{count} collections and their indexes").format(count=len(NEIGHBOURS)))


def rights(box: DoctorContext) -> Finding:
    """The rights of each user whose URI is on this machine, by a login as that user."""
    uris = {"MONGODB_URI": box.settings.mongodb_uri}
    if box.credentials is not None:
        files = {name: box.credentials / name / "MONGODB_URI" for name in WHO}
        uris = {name: path.read_text("utf-8").strip() for name, path in files.items()}
    found = [_of_user(name, uri, box.settings.mongodb_database) for name, uri in uris.items()]
    wrong = [finding for finding in found if finding.do]
    if wrong:
        worst = min(wrong, key=lambda finding: finding.state != "bad")
        return Finding(worst.state, "; ".join(finding.saw for finding in wrong), worst.do)
    return Finding(found[0].state, "; ".join(finding.saw for finding in found))


def _of_user(name: str, uri: str, database: str) -> Finding:
    with open_client(uri) as client:
        try:
            status = client.admin.command(STATUS)
        except OperationFailure as error:
            if error.code != AUTHENTICATION_FAILED:
                raise
            saw = _("{user} cannot log in: MongoDB refuses the password of its credential")
            do = _("`linedesk init --new-passwords` creates new passwords; then restart")
            return bad(saw.format(user=name), do)
    user = user_of(status)
    if user is None:
        return skip(_("no user in MONGODB_URI"))
    meant = next((one for one in WHO.values() if user.startswith(f"{one.name}@")), None)
    if meant is None:
        saw = _("{user} is not one of linedesk's users").format(user=user)
        return warn(saw, _("`linedesk init --users` creates them"))
    return judge(meant, status, database)


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


def _told(pairs: Pairs) -> str:
    shown = ", ".join(f"{action} on {where}" for where, action in sorted(pairs)[:3])
    return shown if len(pairs) <= 3 else f"{shown} ..."


def oplog(box: DoctorContext) -> Finding:
    """Whether a dispatcher that was down can resume."""
    span = oplog_span(box.client)
    if span is None:
        return bad(_("there is no oplog"), _("`linedesk init` makes the server a replica set"))
    return judge_oplog(span)


def reach(box: DoctorContext) -> Finding:
    """The time for which an event can be read again and a redelivery is recognised."""
    span = recvq_span(box.database, now=box.now)
    return ok(_("empty, not measured yet")) if span is None else judge_reach(span)


def disk(box: DoctorContext) -> Finding:
    """MongoDB's disk, without the space that recvq and the oplog will still use."""
    spans = [recvq_span(box.database, now=box.now), oplog_span(box.client)]
    promised = sum(max(0, span.most_bytes - span.bytes) for span in spans if span is not None)
    stats = box.database.command("dbStats")
    total, used = int(stats["fsTotalSize"]), int(stats["fsUsedSize"])
    return judge_disk(total - used, total, promised)


def judge_oplog(span: Span) -> Finding:
    """The oplog's retention, against the longest time that a dispatcher may be down."""
    # replSetResizeOplog accepts 990 MB or more.
    return _retention(
        span, f"db.adminCommand({{replSetResizeOplog: 1, size: {max(990, _larger(span))}}})"
    )


def judge_reach(span: Span) -> Finding:
    """recvq's retention, against the same time."""
    most = _larger(span) * MEGABYTE
    return _retention(span, f"db.runCommand({{collMod: '{RECVQ}', cappedSize: {most}}})")


def judge_disk(free_bytes: int, total_bytes: int, promised_bytes: int) -> Finding:
    """`promised_bytes`: the space by which capped collections may still grow."""
    left = free_bytes - promised_bytes
    saw = (_("{free} of {total} free, {promised} of it for recvq and oplog")).format(
        free=size(free_bytes), total=size(total_bytes), promised=size(promised_bytes)
    )
    do = _("free space on MongoDB's disk: when it is full, MongoDB stops and the spool fills")
    if left < DISK_BAD_BYTES:
        return bad(saw, do)
    return warn(saw, do) if left < DISK_WARN_BYTES else ok(saw)


def _retention(span: Span, command: str) -> Finding:
    if span.seconds < HOUR_SECONDS and span.bytes < YOUNG_SHARE * span.most_bytes:
        saw = _("measured only for {duration}, too short for a figure")
        return ok(f"{saw.format(duration=for_long(span.seconds))}, {size(span.most_bytes)}")
    saw = _("{duration} at {size}/h").format(
        duration=_("over 90 days")
        if span.keeps_seconds > MOST_SECONDS
        else for_long(span.keeps_seconds),
        size=size(span.bytes_per_second * HOUR_SECONDS),
    )
    level = window_level(span.keeps_seconds)
    do = _("enlarge it in the mongo shell: {command}").format(command=command)
    return Finding(
        FindingLevel(level or "ok"), f"{saw}, {size(span.most_bytes)}", do if level else ""
    )


def _larger(span: Span) -> int:
    """The megabytes for one and a half days at that rate."""
    return int(span.bytes_per_second * DAY_SECONDS * 1.5 / MEGABYTE) + 1
