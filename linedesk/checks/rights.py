"""What each user of MongoDB may do, beside what it needs by recvq/rights.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pymongo.errors import OperationFailure

from linedesk.checks.box import Box, open_client
from linedesk.checks.finding import Finding, bad, ok, skip, warn
from linedesk.checks.server import user_of
from linedesk.users import WHO
from recvq.errors import AUTHENTICATION_FAILED
from recvq.rights import User, as_set

STATUS = {"connectionStatus": 1, "showPrivileges": True}

Pairs = frozenset[tuple[str, str]]


def own(box: Box) -> Finding:
    """Of the user of MONGODB_URI, who is meant to be one of linedesk's."""
    status = box.client.admin.command(STATUS)
    name = user_of(status)
    if name is None:
        return skip("no user in MONGODB_URI, so none has rights")
    meant = next((user for user in WHO.values() if name.startswith(f"{user.name}@")), None)
    if meant is None:
        return warn(f"{name} is none of linedesk's users", "`linedesk init --users` makes them")
    return judge(meant, status, box.settings.mongodb_database)


def of_all(box: Box) -> Finding:
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
