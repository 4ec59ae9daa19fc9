"""The users of MongoDB that `linedesk init --users` makes, and the files with their URIs.

Each password is on the disk before MongoDB gets it: the next `init` completes one that was killed.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class UriFile:
    """`<folder>/<who>/MONGODB_URI`. Every method raises OSError as the system does."""

    path: Path

    @classmethod
    def of(cls, folder: Path, who: str) -> UriFile:
        """The file of one process, or of the operator, below the folder of all."""
        return cls(folder / who / FILE)

    @property
    def next(self) -> UriFile:
        """A file beside it, with the content that will replace it."""
        return UriFile(self.path.with_name(f"{self.path.name}.next"))

    def read(self) -> Uri | None:
        """The URI in the file; None if it is missing. Raises SettingsError for an invalid URI."""
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
        """Write the URI, readable by the owner only: synced and complete, or not at all."""
        write_for_owner(self.path, f"{uri}\n")

    def become(self, other: UriFile) -> None:
        """Replace the other file, and sync."""
        _take_place(self.path, other.path)

    def _useless(self) -> SettingsError:
        told = (
            "{file} contains no URI of MongoDB with a user: remove it, then `linedesk init` "
            "creates a new one"
        )
        return SettingsError([told.format(file=self.path)])


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
        _take_place(beside, path)
    finally:
        with suppress(FileNotFoundError):
            beside.unlink()


def _take_place(path: Path, other: Path) -> None:
    """Replace a file by another one, and sync. Raises OSError."""
    path.replace(other)
    _sync(other.parent)


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
    """Return the administrator's URI; create this user if it does not exist.

    It is created by the user in `given`, if there is one, else as the first user of all: MongoDB
    allows this to processes on its own machine. Raises SettingsError, StoreUnavailable.
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
    """Give the administrator a new password. Returns the new URI.

    The old password is needed to set the new one. Its file stays until MongoDB has the new one,
    which is in a file beside it.
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
    """Create or correct roles and users by `linedesk.setup.rights` and the files.

    A user whose file opens MongoDB keeps its password, unless all users get new ones. Returns the
    changes. Raises SettingsError, AccessRefused, StoreUnavailable.
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
    """The roles of this user; None if MongoDB refuses the user and the password.

    Raises StoreUnavailable.
    """
    try:
        with translated(), connect(str(uri), app_name="linedesk-init") as client:
            told = client.admin.command("connectionStatus")["authInfo"]
    except AccessRefused:
        return None
    return _as_set(told["authenticatedUserRoles"])


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
        if not found:
            _write_role(client[place], "createRole", user.name, privileges)
        elif found[0]["roles"] or as_set(found[0]["privileges"]) != as_set(privileges):
            # Of another version, or changed by hand.
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
