"""The doctor on a server with authorization: the checks and the rights of each user."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from linedesk.doctor.checks import database as rights
from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import FindingLevel
from linedesk.launch import main
from linedesk.settings.settings import load_settings
from tests.rights.conftest import Guarded

# The checks of MongoDB, without the checks of processes that do not run here.
OF_MONGODB = (
    "MongoDB",
    "MongoDB version",
    "replica set",
    "authorization",
    "rights",
    "recvq",
    "collections",
)


def doctor(guarded: Guarded, who: str, **settings: str) -> dict[str, dict[str, str]]:
    environ = {"CREDENTIALS_DIRECTORY": str(guarded.folder / who), **settings}
    arguments = ["doctor", "--json", "--no-line"]
    answer = CliRunner().invoke(main.linedesk, arguments, env=environ)
    return {one["name"]: one for one in json.loads(answer.stdout)["checks"]}


def test_the_operator_may_ask_all_that_it_asks(guarded: Guarded) -> None:
    found = doctor(guarded, "operator", DISPATCHER_FEED="oplog")
    assert {found[name]["state"] for name in OF_MONGODB} == {"ok"}
    # The amount of data is checked by other tests, and no process runs here.
    for name in ("running system", "oplog retention", "recvq retention", "MongoDB disk"):
        assert found[name]["state"] != "skip"


def test_checks_without_the_right_are_skipped_and_name_a_user_with_it(guarded: Guarded) -> None:
    found = doctor(guarded, "frontdesk")
    assert found["rights"]["state"] == "ok"
    assert found["oplog retention"]["state"] == "skip"
    assert "run `sudo linedesk doctor`" in found["oplog retention"]["do"]


@pytest.fixture
def box(guarded: Guarded) -> Iterator[DoctorContext]:
    box = DoctorContext(load_settings({"MONGODB_URI": guarded.uri_of("operator")}), guarded.folder)
    yield box
    box.close()


def test_changed_rights_are_reported(guarded: Guarded, box: DoctorContext) -> None:
    database = guarded.client_of("admin")["line_bot"]
    name = "linedesk-frontdesk"
    told = database.command("rolesInfo", name, showPrivileges=True)["roles"][0]["privileges"]
    spare = {"resource": {"db": "line_bot", "collection": "recvq"}, "actions": ["remove"]}
    try:
        database.command("updateRole", name, privileges=[*told, spare])
        more = rights.rights(box)
        database.command("updateRole", name, privileges=told[1:])
        fewer = rights.rights(box)
    finally:
        database.command("updateRole", name, privileges=told)
    assert (
        more.state,
        f"{name} has more rights than it needs: remove on line_bot.recvq" in more.saw,
    ) == (
        FindingLevel.WARN,
        True,
    )
    assert (fewer.state, f"{name} lacks rights: " in fewer.saw) == (FindingLevel.BAD, True)
    assert rights.rights(box).state is FindingLevel.OK
