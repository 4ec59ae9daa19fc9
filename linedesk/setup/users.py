"""The users of MongoDB that `linedesk init --users` makes, and the files with their URIs.

Each password is on the disk before MongoDB gets it: the next `init` completes one that was killed.
The administrator's is never replaced: one that is not in MongoDB yet could not be set by itself.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pymongo.database import Database
from pymongo.errors import OperationFailure

from linedesk.settings import rules
from linedesk.settings.errors import SettingsError
from linedesk.setup.replica_set import by_loopback
from linedesk.setup.rights import ADMIN, CONSOLE, DISPATCHER, FRONTDESK, OPERATOR, User, as_set
from linedesk.setup.uri import Uri
from linedesk.store.client import DURABLE, Client, connect
from linedesk.store.documents import Document
from linedesk.store.errors import AccessRefused, translated

FILE = "MONGODB_URI"


def uri_file(folder: Path, who: str) -> Path:
    """The file of one process, or of the operator, below the folder of all."""
    return folder / who / FILE


def read_uri(path: Path) -> Uri | None:
    """The URI in a file; None if it is missing. Raises SettingsError for an invalid URI."""
    try:
        uri = Uri.parse(rules.mongodb_uri(path.read_text("utf-8").strip()))
    except FileNotFoundError:
        return None
    # Bytes that are no UTF-8, too.
    except ValueError:
        uri = None
    if uri is None or not uri.user:
        raise SettingsError([USELESS.format(file=path)])
    return uri


def write_for_owner(path: Path, text: str) -> None:
    """Write a file and its folder as `for_owner` does. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _sync(path.parent.parent)
    with for_owner(path) as file:
        file.write(text.encode())


@contextmanager
def for_owner(path: Path) -> Iterator[IO[bytes]]:
    """Write a file that only its owner can read: synced and complete, or not at all.

    Raises OSError.
    """
    beside = path.with_name(f".{path.name}.part")
    with suppress(FileNotFoundError):
        # A file that a killed process left would keep its owner and mode.
        beside.unlink()
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        _sync(path.parent)
    finally:
        with suppress(FileNotFoundError):
            beside.unlink()


@contextmanager
def at_work_in(folder: Path) -> Iterator[None]:
    """Create the folder and lock it against every other `init`. Raises SettingsError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(handle)
    except BlockingIOError:
        told = f"another `linedesk init` runs in {folder}"
        raise SettingsError([told]) from None
    except OSError as error:
        told = "{file} cannot be read or written: {error}"
        told = told.format(file=error.filename or folder, error=error.strerror)
        raise SettingsError([told]) from error


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


ADMIN_NAME = "linedesk-admin"
# A user that may create roles in the database admin can give itself every right: a smaller role
# would be no real restriction. The operator also needs these rights to repair the server.
ADMIN_ROLES = [{"role": "root", "db": ADMIN}]
WHO: Mapping[str, User] = {
    "frontdesk": FRONTDESK,
    "dispatcher": DISPATCHER,
    "operator": OPERATOR,
    "console": CONSOLE,
}
PASSWORD_BYTES = 32
WRITTEN = DURABLE.document

USELESS = (
    "{file} contains no URI of MongoDB with a user: remove it, then `linedesk init` creates a new "
    "one"
)
MADE, WAS_THERE = "made", "was there"
NEW_RIGHTS, NEW_PASSWORD = "new rights", "new password"
USER_EXISTS = 51003

LOCKED_OUT = (
    "the user in {path} and the user in MONGODB_URI may not create users: run `linedesk init "
    "--users` once with the MONGODB_URI of a user that may, such as one with the role root. If "
    "MongoDB has no users yet, run it on MongoDB's machine with 127.0.0.1 in MONGODB_URI"
)
ANOTHERS = (
    "{path} belongs to the user {found}, not to {wanted}: remove it, then `linedesk init` creates "
    "a new one"
)
ELSEWHERE = (
    "{path} is for MongoDB at {found}, but MONGODB_URI for {wanted}: set both to the same servers, "
    "or remove the file; `linedesk init` creates a new one"
)

Role = Mapping[str, str]
Roles = frozenset[tuple[str, str]]
"""Names of roles with their databases, for comparison."""


@dataclass(frozen=True)
class UserChange:
    """The change of a user, and the file with its URI."""

    user: str
    state: str
    path: Path


def require_fitting(given: Uri, folder: Path, *, database: str) -> None:
    """Refuse files of other users or servers, before anything is created.

    Raises SettingsError, which names all of them.
    """
    owners = {"admin": f"{ADMIN_NAME}@{ADMIN}"}
    owners |= {who: f"{user.name}@{database}" for who, user in WHO.items()}
    problems = []
    for who, wanted in owners.items():
        path = uri_file(folder, who)
        uri = read_uri(path)
        if uri is None:
            continue
        if _full_name(uri) != wanted:
            problems.append(ANOTHERS.format(path=path, found=_full_name(uri), wanted=wanted))
        elif uri.servers != given.servers:
            problems.append(ELSEWHERE.format(path=path, found=uri.hosts, wanted=given.hosts))
    if problems:
        raise SettingsError(problems)


def open_admin(given: Uri, folder: Path) -> tuple[Uri, UserChange]:
    """Return the administrator's URI; create this user if it does not exist.

    It is created by the user in `given`, if there is one, else as the first user of all: MongoDB
    allows this to processes on its own machine. Raises SettingsError, StoreUnavailable.
    """
    path = uri_file(folder, "admin")
    uri = read_uri(path)
    if uri is None:
        uri = given.with_user(ADMIN_NAME, new_password(), source=ADMIN)
        write_for_owner(path, f"{uri}\n")
    found = roles_of(uri)
    if found == _as_set(ADMIN_ROLES):
        return uri, UserChange(_full_name(uri), WAS_THERE, path)
    maker = given if given.user and roles_of(given) is not None else given.without_user()
    local = None if maker.user else by_loopback(given)
    try:
        with translated(), local or connect(str(maker), app_name="linedesk-init") as client:
            state = _make_user(client, uri, ADMIN_ROLES)
    except AccessRefused as error:
        raise SettingsError([LOCKED_OUT.format(path=path)]) from error
    if found is not None:
        state = NEW_RIGHTS
    return uri, UserChange(_full_name(uri), state, path)


def ensure_users(
    client: Client, admin: Uri, folder: Path, *, database: str, new_passwords: bool
) -> list[UserChange]:
    """Create or correct roles and users by `linedesk.setup.rights` and the files.

    A user whose file opens MongoDB keeps its password, unless `new_passwords`. Returns the changes.
    Raises SettingsError, AccessRefused, StoreUnavailable.
    """
    outcomes = []
    for who, user in WHO.items():
        path = uri_file(folder, who)
        with translated():
            roles_changed = _ensure_roles(client, user, database)
        uri = read_uri(path)
        if uri is None or new_passwords:
            uri = admin.with_user(user.name, new_password(), source=database)
            write_for_owner(path, f"{uri}\n")
        state = _ensure_user(client, user, uri)
        if roles_changed and state == WAS_THERE:
            state = NEW_RIGHTS
        outcomes.append(UserChange(_full_name(uri), state, path))
    return outcomes


def roles_of(uri: Uri) -> Roles | None:
    """The roles of this user; None if MongoDB refuses the user and the password.

    Raises StoreUnavailable.
    """
    try:
        with translated(), connect(str(uri), app_name="linedesk-init") as client:
            told = client.admin.command("connectionStatus")["authInfo"]
    except AccessRefused:
        return None
    return _as_set(told["authenticatedUserRoles"])


def _ensure_user(client: Client, user: User, uri: Uri) -> str:
    wanted = [{"role": user.name, "db": place} for place in user.privileges(uri.source)]
    found = roles_of(uri)
    if found == _as_set(wanted):
        return WAS_THERE
    with translated():
        if found is None:
            return _make_user(client, uri, wanted)
        _change(client, uri, roles=wanted)
    return NEW_RIGHTS


def _make_user(client: Client, uri: Uri, roles: Sequence[Role]) -> str:
    """Create the user of the URI in MongoDB, or correct its password and roles."""
    fields = {"pwd": uri.password, "roles": list(roles), "writeConcern": WRITTEN}
    try:
        client[uri.source].command({"createUser": uri.user, **fields})
    except OperationFailure as error:
        if error.code != USER_EXISTS:
            raise
        _change(client, uri, **fields)
        return NEW_PASSWORD
    return MADE


def _change(client: Client, uri: Uri, **fields: Any) -> None:
    client[uri.source].command({"updateUser": uri.user, "writeConcern": WRITTEN, **fields})


def _ensure_roles(client: Client, user: User, database: str) -> bool:
    """Create or correct the role of a user in each database. Returns whether it was changed."""
    changed = False
    for place, privileges in user.privileges(database).items():
        asked = {"role": user.name, "db": place}
        found = client[place].command("rolesInfo", asked, showPrivileges=True)["roles"]
        # Of another version, or changed by hand.
        if found and not found[0]["roles"] and as_set(found[0]["privileges"]) == as_set(privileges):
            continue
        _write_role(client[place], "updateRole" if found else "createRole", user.name, privileges)
        changed = True
    return changed


def _write_role(
    place: Database[Any], command: str, name: str, privileges: Sequence[Document]
) -> None:
    place.command(command, name, privileges=privileges, roles=[], writeConcern=WRITTEN)


def _as_set(roles: Sequence[Role]) -> Roles:
    return frozenset((role["role"], role["db"]) for role in roles)


def _full_name(uri: Uri) -> str:
    return f"{uri.user}@{uri.source}"


def new_password() -> str:
    """A password that needs no encoding in a URL."""
    return secrets.token_urlsafe(PASSWORD_BYTES)
