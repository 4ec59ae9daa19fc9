"""Page, command line, metrics, mongo shell and systemd's line show the same number."""

import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from linedesk.operate.acts import OperatorControl
from linedesk.setup.private_mongod import free_port
from linedesk.store.control import Scope
from tests.acceptance.conftest import House
from tests.fork_server import Written, nursery
from tests.listener import Manager
from tests.scripts.test_create_collection import mongosh as mongosh
from tests.scripts.test_inspect_js import SCRIPT, ask
from tests.waiting import eventually

COUNTS = {"acceptedEvents", "duplicateEvents", "readDocuments", "finishedDocuments"}
STANDING = {
    "frontdesk": ["acceptedEvents", "duplicateEvents", "spoolDocuments"],
    "dispatcher": [
        *("readDocuments", "finishedDocuments", "inHandDocuments", "heldDocuments", "heldKeys"),
        *("queueDocuments", "lagDocuments", "outboxEffects", "busyThreads", "threads", "leading"),
        "deadLettersOpen",
    ],
}
SAID = {
    "frontdesk": {"acceptedEvents": r"([\d,]+) events accepted"},
    "dispatcher": {
        "inHandDocuments": r"(\d+) in hand",
        "heldDocuments": r"(\d+) documents of \d+ keys in held",
    },
}

Numbers = dict[str, dict[str, float]]


class Views:
    """All sources of numbers of one installation; each is read again for every answer."""

    def __init__(
        self, house: House, mongosh: list[str], ports: dict[str, int], managers: dict[str, Manager]
    ) -> None:
        self._house = house
        self._mongosh = mongosh
        self._ports = ports
        self._managers = managers
        self._words: dict[str, str] = {}
        self.console = f"http://127.0.0.1:{free_port()}"

    def rows(self) -> Numbers:
        """`status` itself."""
        found = self._house.database["status"].find({"state": "working"})
        return {row["role"]: row["figures"] for row in found}

    def page(self) -> Numbers:
        """The operator's page."""
        headers = {"Accept": "application/json"}
        told = requests.get(f"{self.console}/", headers=headers, timeout=10).json()
        return {role: told["figures"][role]["figures"] for role in STANDING}

    def command(self) -> Numbers:
        """`linedesk status --json`."""
        environ = {**os.environ, **self._house.settings}
        ran = nursery.run("linedesk", "status", "--json", env=environ)
        told = json.loads(ran.stdout)
        return {role: told["figures"][role]["figures"] for role in STANDING}

    def metrics(self) -> Numbers:
        """The metrics that Prometheus would scrape."""
        return {role: self._scraped(port) for role, port in self._ports.items()}

    def mongo_shell(self) -> Numbers:
        """scripts/inspect.js in the mongo shell."""
        code = f"load({str(SCRIPT)!r}); print(EJSON.stringify(linedesk.status().processes));"
        uri = self._house.settings["MONGODB_URI"]
        rows = json.loads(ask(self._mongosh, uri, self._house.database, code))
        return {row["role"]: row["figures"] for row in rows}

    def said(self) -> dict[str, str]:
        """The last STATUS of each process."""
        for role, manager in self._managers.items():
            for lines in manager.heard():
                for line in lines:
                    if line.startswith("STATUS="):
                        self._words[role] = line.removeprefix("STATUS=")
        return self._words

    def _scraped(self, port: int) -> dict[str, float]:
        text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
        return {
            sample.name: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if not sample.labels
        }


def metric_name(figure: str) -> str:
    """The name of a figure's metric."""
    snake = re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", figure)
    return f"linedesk_{snake}{'_total' if figure in COUNTS else ''}"


def value(told: Numbers, role: str, figure: str) -> float:
    """One number of a view, whatever it calls it."""
    found = told[role]
    return float(found[figure] if figure in found else found[metric_name(figure)])


@pytest.fixture
def views(house: House, mongosh: list[str]) -> Iterator[Views]:
    managers = {role: Manager(f"@linedesk-{uuid.uuid4().hex}") for role in STANDING}
    ports = {role: free_port() for role in STANDING}
    told: dict[str, dict[str, str]] = {
        role: {
            "NOTIFY_SOCKET": managers[role].address,
            f"{role.upper()}_METRICS_PORT": str(ports[role]),
        }
        for role in STANDING
    }
    house.start_frontdesk(**told["frontdesk"])
    house.start_dispatcher(**told["dispatcher"])
    views = Views(house, mongosh, ports, managers)
    environ = {**os.environ, **house.settings, "CONSOLE_PORT": views.console.rpartition(":")[2]}
    with Written() as log:
        console = nursery.start("linedesk", "console", env=environ, stdout=log.fd, stderr=log.fd)
        try:
            eventually(lambda: "listening" in log.text)
            yield views
        finally:
            console.terminate()
            console.wait(20)
    for manager in managers.values():
        manager.close()


def test_every_view_shows_the_same_number(house: House, views: Views) -> None:
    user = house.sim.add_user("花子")
    for number in range(20):
        house.sim.say(user, f"{number}")
    # There are numbers at rest, too: paused events wait in `held`.
    OperatorControl(house.database).pause(Scope(None, None), by="花子", why="試験")
    user = house.sim.add_user("太郎")
    eventually(lambda: list(house.database["status"].find({"paused.0": {"$exists": True}})))
    for text in ("一", "二", "三"):
        house.sim.say(user, text)
    eventually(lambda: views.rows()["dispatcher"].get("heldDocuments", 0) >= 3)
    eventually(lambda: is_at_rest(views))
    rows = views.rows()
    for view in (views.page, views.command, views.metrics, views.mongo_shell):
        assert differing(view(), rows) == [], view
    # Reports that were not read from the socket were dropped; a new one arrives each second.
    eventually(lambda: says_the_same(views.said(), rows))


def differing(told: Numbers, rows: Numbers) -> list[str]:
    """The figures that differ from those of the rows."""
    return [
        f"{role} {figure}: {value(told, role, figure)}, {rows[role].get(figure)} in its row"
        for role, figures in STANDING.items()
        for figure in figures
        if value(told, role, figure) != rows[role].get(figure)
    ]


def says_the_same(said: Mapping[str, str], rows: Numbers) -> bool:
    """Whether systemd's lines show the numbers of the rows."""
    for role, patterns in SAID.items():
        for figure, pattern in patterns.items():
            found = re.search(pattern, said.get(role, ""))
            if found is None or int(found[1].replace(",", "")) != rows[role][figure]:
                return False
    return True


def is_at_rest(views: Views) -> bool:
    """Whether no figure that is compared changes any more, in `status` or in the process."""
    rows = views.rows()
    frontdesk, dispatcher = rows["frontdesk"], rows["dispatcher"]
    return (
        dispatcher["readDocuments"] == frontdesk["acceptedEvents"]
        and dispatcher["finishedDocuments"] + dispatcher["heldDocuments"]
        == dispatcher["readDocuments"]
        and dispatcher["inHandDocuments"] == dispatcher["outboxEffects"] == 0
        and not differing(views.metrics(), rows)
    )
