"""The doctor on a server with authorization: the checks and the rights of each user."""

import json

from click.testing import CliRunner

from linedesk.launch import main
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
