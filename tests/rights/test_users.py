"""`linedesk init --users`: users with the rights they need, and files that open MongoDB."""

import stat
from pathlib import Path
from typing import Any

import pytest

from linedesk.settings.errors import SettingsError
from linedesk.setup import init
from linedesk.setup.rights import USERS, as_set
from linedesk.setup.uri import Uri
from linedesk.setup.users import WHO, roles_of
from linedesk.store.client import Client
from linedesk.store.collections import check_recvq
from tests.rights.conftest import Guarded, Killed, die_after

EVERYBODY = ("admin", *WHO)


def logs_in(uri: str) -> bool:
    return roles_of(Uri.parse(uri)) is not None


def all_log_in(guarded: Guarded) -> bool:
    return all(logs_in(guarded.uri_of(who)) for who in EVERYBODY)


def all_roles(client: Client, database: str) -> dict[str, Any]:
    return {
        f"{role['role']}@{place}": as_set(role["privileges"])
        for place in (database, "admin")
        for role in client[place].command("rolesInfo", 1, showPrivileges=True)["roles"]
    }


def test_killed_after_any_step_it_is_completed_by_the_next_one(guarded: Guarded) -> None:
    """How the server of all these tests came about."""
    of_each = ["write_for_owner", "_make_user"]
    assert guarded.deaths == [*of_each, "_write_role", *of_each]
    assert all_log_in(guarded)
    admin = guarded.client_of("admin")
    check_recvq(admin["line_bot"])
    assert all_roles(admin, "line_bot") == {
        f"{user.name}@{place}": as_set(privileges)
        for user in USERS
        for place, privileges in user.privileges("line_bot").items()
    }


def test_files_and_folders_are_for_their_owner_only(guarded: Guarded) -> None:
    assert stat.S_IMODE(guarded.folder.stat().st_mode) == 0o700
    found = {path.relative_to(guarded.folder): path for path in guarded.folder.rglob("*")}
    assert set(found) == {Path(who) for who in EVERYBODY} | {
        Path(who, "MONGODB_URI") for who in EVERYBODY
    }
    for path in found.values():
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_a_user_without_its_file_gets_a_new_password_and_the_others_keep_theirs(
    guarded: Guarded, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {who: guarded.uri_of(who) for who in EVERYBODY}
    (guarded.folder / "frontdesk" / "MONGODB_URI").unlink()
    guarded.init()
    assert "linedesk-frontdesk@line_bot: new password" in capsys.readouterr().out
    assert all_log_in(guarded)
    assert [who for who in EVERYBODY if guarded.uri_of(who) != before[who]] == ["frontdesk"]


def test_rights_that_were_changed_are_set_right(
    guarded: Guarded, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = guarded.client_of("admin")
    before = all_roles(admin, "line_bot")
    everything = [{"resource": {"db": "line_bot", "collection": ""}, "actions": ["dropCollection"]}]
    admin["line_bot"].command("updateRole", "linedesk-frontdesk", privileges=everything)
    admin["admin"].command("updateRole", "linedesk-operator", roles=["backup"])
    admin["line_bot"].command("grantRolesToUser", "linedesk-dispatcher", roles=["dbOwner"])
    guarded.init()
    assert capsys.readouterr().out.count(": new rights, ") == 3
    assert all_roles(admin, "line_bot") == before
    [user] = admin["line_bot"].command("usersInfo", "linedesk-dispatcher")["users"]
    assert "dbOwner" not in str(user["roles"])


def test_new_passwords_killed_after_any_step_lock_no_user_out(guarded: Guarded) -> None:
    """The steps of the first user: the rest repeats them. The administrator keeps its password."""
    first = {who: guarded.uri_of(who) for who in EVERYBODY}
    deaths: list[str] = []
    for nth in (1, 2):
        with pytest.MonkeyPatch.context() as patch:
            die_after(patch, nth, deaths.append)
            with pytest.raises(Killed):
                guarded.init(new_passwords=True)
    assert deaths == ["write_for_owner", "_change"]
    guarded.init()
    assert all_log_in(guarded)
    guarded.init(new_passwords=True)
    assert all_log_in(guarded)
    assert [who for who in EVERYBODY if guarded.uri_of(who) == first[who]] == ["admin"]


def test_an_administrator_s_uri_does_for_a_server_that_has_users(
    guarded: Guarded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another folder, as on a new machine: access without a user fails, then all are renewed."""
    elsewhere = tmp_path / "credentials"
    with pytest.raises(SettingsError, match="may not create users"):
        guarded.init(users=elsewhere)
    guarded.init(users=elsewhere, uri=guarded.uri_of("admin"))
    told = capsys.readouterr().out
    assert told.count(": new password, ") == len(EVERYBODY)
    # Nothing runs as the others.
    assert "new password for frontdesk, dispatcher, console: " in told
    for who in EVERYBODY:
        uri = (elsewhere / who / "MONGODB_URI").read_text()
        assert logs_in(uri)
        (guarded.folder / who / "MONGODB_URI").write_text(uri)


def test_an_administrator_without_its_rights_gets_them_from_another_one(
    guarded: Guarded, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = guarded.client_of("admin")["admin"]
    before = guarded.uri_of("admin")
    admin.command("createUser", "keeper", pwd="of a person", roles=["root"])
    as_person = guarded.server.uri.replace("//", "//keeper:of+a+person@")
    try:
        admin.command("updateUser", "linedesk-admin", roles=[])
        with pytest.raises(SettingsError, match="may not create users"):
            guarded.init()
        guarded.init(uri=as_person)
        assert "linedesk-admin@admin: new rights" in capsys.readouterr().out
        assert guarded.uri_of("admin") == before
    finally:
        admin.command("dropUser", "keeper")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no URI of MongoDB with a user"),
        ("not a uri", "no URI of MongoDB with a user"),
        ("mongodb://127.0.0.1/", "no URI of MongoDB with a user"),
        (
            "mongodb://linedesk-admin:secret-words@127.0.0.1/?authSource=admin",
            "linedesk-admin@admin",
        ),
        (
            "mongodb://linedesk-operator:secret-words@127.0.0.1:1/?authSource=line_bot",
            "is for MongoDB at 127.0.0.1:1,",
        ),
    ],
)
def test_a_file_of_another_user_or_server_is_left_and_refused_before_anything_is_made(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    monkeypatch.setattr(init, "ensure_replica_set", pytest.fail)
    path = guarded.folder / "operator" / "MONGODB_URI"
    before = path.read_text()
    path.write_text(text)
    with pytest.raises(SettingsError, match=reason) as refusal:
        guarded.init()
    assert str(path) in str(refusal.value)
    assert "secret-words" not in str(refusal.value)
    assert path.read_text() == text
    path.write_text(before)
