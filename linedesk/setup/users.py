"""The users of MongoDB that `linedesk init --users` makes, and the files with their URIs.

Each password is on the disk before the server knows it, and MongoDB is changed to match. The next
`init` therefore completes one that was killed.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pymongo.database import Database
from pymongo.errors import OperationFailure

from linedesk.settings import rules
from linedesk.settings.errors import SettingsError
from linedesk.store.client import DURABLE, Client, connect
from linedesk.store.documents import Document
from linedesk.store.errors import UNAUTHORIZED, AccessRefused, translated
from linedesk.store.replica_set import by_loopback
from linedesk.store.rights import ADMIN, CONSOLE, DISPATCHER, FRONTDESK, OPERATOR, User, as_set
from linedesk.store.uri import Uri

FILE = "MONGODB_URI"


@dataclass(frozen=True)
class UriFile:
    """`<folder>/<who>/MONGODB_URI`. Every method may raise OSError."""

    path: Path

    @classmethod
    def of(cls, folder: Path, who: str) -> UriFile:
        """The file of one process, or of the operator, in the common folder."""
        return cls(folder / who / FILE)

    @property
    def next(self) -> UriFile:
        """A file beside it, for its replacement."""
        return UriFile(self.path.with_name(f"{self.path.name}.next"))

    def read(self) -> Uri | None:
        """The URI in the file; None if it is missing. Raises SettingsError if it is not a URI."""
        try:
            text = self.path.read_text("utf-8").strip()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            raise self._useless() from None
        try:
            uri = Uri.parse(rules.mongodb_uri(text))
        except ValueError:
            raise self._useless() from None
        if not uri.user:
            raise self._useless()
        return uri

    def write(self, uri: Uri) -> None:
        """Write this URI, readable only for its owner: complete and synced, or not at all."""
        write_for_owner(self.path, f"{uri}\n")

    def become(self, other: UriFile) -> None:
        """Replace this file by the other one, and sync that."""
        _take_place(self.path, other.path)

    def _useless(self) -> SettingsError:
        words = (
            "holds no URI of MongoDB with a user: remove it, and `linedesk init` makes a new one"
        )
        return SettingsError([f"{self.path} {words}"])


def write_for_owner(path: Path, text: str) -> None:
    """Write a file that only its owner can read: complete and synced, or not at all.

    Raises OSError.
    """
    beside = path.with_name(f".{path.name}.part")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _sync(path.parent.parent)
    with suppress(FileNotFoundError):
        # A file left by a killed `init` would keep its owner and mode.
        beside.unlink()
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    _take_place(beside, path)


def _take_place(path: Path, other: Path) -> None:
    """Replace a file by another one, and sync that. Raises OSError."""
    path.replace(other)
    _sync(other.parent)


@contextmanager
def at_work_in(folder: Path) -> Iterator[None]:
    """Make the folder, and lock out any other `init`. Raises SettingsError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(handle)
    except BlockingIOError:
        raise SettingsError([f"another `linedesk init` is at work in {folder}"]) from None
    except OSError as error:
        where = error.filename or folder
        raise SettingsError([f"{where} cannot be read or written: {error.strerror}"]) from error


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


ADMIN_NAME = "linedesk-admin"
# A user that may make roles in the database admin can grant itself every right, so a smaller role
# would be no restriction. Administrators also need this role to repair the server.
ADMIN_ROLES = [{"role": "root", "db": ADMIN}]
WHO: Mapping[str, User] = {
    "frontdesk": FRONTDESK,
    "dispatcher": DISPATCHER,
    "operator": OPERATOR,
    "console": CONSOLE,
}
PASSWORD_BYTES = 32
WRITTEN = DURABLE.document

MADE, WAS_THERE = "made", "was there"
NEW_RIGHTS, NEW_PASSWORD = "new rights", "new password"
USER_EXISTS = 51003

LOCKED_OUT = (
    "MongoDB lets neither the user in {path} nor the one in MONGODB_URI make users: run `linedesk "
    "init --users` once with the MONGODB_URI of one who may, such as one with the role root; if "
    "MongoDB has no users yet, on its own machine with 127.0.0.1 in MONGODB_URI"
)
ANOTHERS = (
    "{path} is of the user {found}, and should be of {wanted}: remove it, and `linedesk init` "
    "makes a new one"
)
ELSEWHERE = (
    "{path} is for MongoDB at {found}, and MONGODB_URI for {wanted}: have both name the same "
    "servers, or remove the file, and `linedesk init` makes a new one"
)

Role = Mapping[str, str]
Roles = frozenset[tuple[str, str]]
"""Names of roles with the database of each, to be compared."""


@dataclass(frozen=True)
class UserChange:
    """The result for a user, and the path of its URI."""

    user: str
    state: str
    path: Path


def require_fitting(given: Uri, folder: Path, *, database: str) -> None:
    """Refuse, before any change, files of other users or servers than the ones to set up.

    Raises SettingsError, which lists all of them.
    """
    owners = {"admin": f"{ADMIN_NAME}@{ADMIN}"}
    owners |= {who: f"{user.name}@{database}" for who, user in WHO.items()}
    found = (_misfit(UriFile.of(folder, who), given, wanted) for who, wanted in owners.items())
    problems = [problem for problem in found if problem]
    if problems:
        raise SettingsError(problems)


def _misfit(file: UriFile, given: Uri, wanted: str) -> str | None:
    uri = file.read()
    if uri is None:
        return None
    if _full_name(uri) != wanted:
        return ANOTHERS.format(path=file.path, found=_full_name(uri), wanted=wanted)
    if uri.servers != given.servers:
        return ELSEWHERE.format(path=file.path, found=uri.hosts, wanted=given.hosts)
    return None


def open_admin(given: Uri, folder: Path) -> tuple[Uri, UserChange]:
    """The administrator's URI; the user is created if it does not exist.

    The user in `given` creates it, if there is one. Otherwise it is the first user of all, which a
    server lets a process of its machine create. Raises SettingsError, StoreUnavailable.
    """
    file = UriFile.of(folder, "admin")
    uri = _end_rotation(file) or file.read()
    if uri is None:
        uri = given.with_user(ADMIN_NAME, new_password(), source=ADMIN)
        file.write(uri)
    found = roles_of(uri)
    if found == _as_set(ADMIN_ROLES):
        return uri, UserChange(_full_name(uri), WAS_THERE, file.path)
    maker = given if given.user and roles_of(given) is not None else given.without_user()
    local = None if maker.user else by_loopback(given)
    try:
        with translated(), local or connect(str(maker), app_name="linedesk-init") as client:
            state = _make_user(client, uri, ADMIN_ROLES)
    except AccessRefused as error:
        raise SettingsError([LOCKED_OUT.format(path=file.path)]) from error
    if found is not None:
        state = NEW_RIGHTS
    return uri, UserChange(_full_name(uri), state, file.path)


def replace_admin_password(client: Client, uri: Uri, folder: Path) -> Uri:
    """Give the administrator a new password; returns the new URI.

    The old password is needed to set the new one. The file with the old one is therefore kept until
    MongoDB knows the new one, which is in a file beside it.
    """
    file, new = UriFile.of(folder, "admin"), replace(uri, password=new_password())
    file.next.write(new)
    with translated():
        _change(client, new, pwd=new.password)
    file.next.become(file)
    return new


def ensure_users(
    client: Client, admin: Uri, folder: Path, *, database: str, new_passwords: bool
) -> list[UserChange]:
    """Create or update roles and users as in `linedesk.store.rights` and the files; returns the
    changes.

    A user whose file opens MongoDB keeps its password unless all get new ones. A user without such
    a file gets a new password. Raises SettingsError, AccessRefused, StoreUnavailable.
    """
    outcomes = []
    for who, user in WHO.items():
        file = UriFile.of(folder, who)
        with translated():
            roles_changed = _ensure_roles(client, user, database)
        uri = file.read()
        if uri is None or new_passwords:
            uri = admin.with_user(user.name, new_password(), source=database)
            file.write(uri)
        state = _ensure_user(client, user, uri)
        if roles_changed and state == WAS_THERE:
            state = NEW_RIGHTS
        outcomes.append(UserChange(_full_name(uri), state, file.path))
    return outcomes


def roles_of(uri: Uri) -> Roles | None:
    """The roles of this user; None if MongoDB rejects user and password.

    Raises StoreUnavailable.
    """
    try:
        with translated(), connect(str(uri), app_name="linedesk-init") as client:
            told = client.admin.command("connectionStatus")["authInfo"]
    except AccessRefused:
        return None
    return _as_set(told["authenticatedUserRoles"])


def asks_for_users(uri: Uri) -> bool:
    """Whether the server has authorization on: then a client without a user has no rights."""
    with connect(str(uri.without_user()), app_name="linedesk-init") as client:
        try:
            client.admin.command("getCmdLineOpts")
        except OperationFailure as error:
            if error.code != UNAUTHORIZED:
                raise
            return True
    return False


def _end_rotation(file: UriFile) -> Uri | None:
    """Complete a `replace_admin_password` that was killed."""
    uri = file.next.read()
    if uri is None or roles_of(uri) is None:
        return None
    file.next.become(file)
    return uri


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
    """Create or change the user in MongoDB to match the URI."""
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
    """Create or update a role in each database in which the user has rights; returns whether any
    changed.
    """
    changed = False
    for place, privileges in user.privileges(database).items():
        asked = {"role": user.name, "db": place}
        found = client[place].command("rolesInfo", asked, showPrivileges=True)["roles"]
        if not found:
            _write_role(client[place], "createRole", user.name, privileges)
        elif found[0]["roles"] or as_set(found[0]["privileges"]) != as_set(privileges):
            # The role is of another version, or was changed by hand.
            _write_role(client[place], "updateRole", user.name, privileges)
        else:
            continue
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
