"""Dead letters are one number: on the page, in lists, commands and the metrics."""

from __future__ import annotations

import json
from html import unescape
from typing import Any

import pytest
import requests
from click.testing import CliRunner
from prometheus_client import CollectorRegistry
from pymongo.database import Database

from jobworker.metrics import WorkerMetrics
from jobworker.record.dead_letters import KeptLetters
from linedesk.launch.main import linedesk
from linedesk.runtime.metrics import MetricsSnapshots
from tests.linedesk.operate import a_day
from tests.linedesk.operate.serving import served

Rows = Database[dict[str, Any]]


@pytest.fixture
def full(database: Rows) -> Rows:
    """Letters of today and older ones, some of them replayed; the newest of all are replayed."""
    registry = CollectorRegistry()
    letters = [
        {**a_day.letters()[0], "_id": f"L{n}", "lastAt": a_day.moment(age), **more}
        for n, (age, more) in enumerate(
            [
                *((60.0 * n, {}) for n in range(7)),
                *((90_000.0 + n, {"cause": "quota"}) for n in range(5)),
                *((1.0, {"replayedAt": a_day.moment(0.5)}) for _ in range(3)),
            ]
        )
    ]
    a_day.fill(database, hours=0.1)
    database.deadletters.delete_many({})
    database.deadletters.insert_many(letters)
    # The dispatcher's own figures of them.
    KeptLetters(database.deadletters, WorkerMetrics(registry)).look()
    measured = MetricsSnapshots(registry).take().figures
    named = {f"figures.{name}": measured[name] for name in ("deadLettersKept", "deadLettersOpen")}
    row = {**named, "at": a_day.moment(-300)}
    database.status.update_many({}, {"$set": {"at": a_day.moment(-300)}})
    database.status.update_one({"role": "dispatcher"}, {"$set": row})
    return database


def command(uri: str, database: Rows, *words: str) -> Any:
    environ = {"MONGODB_URI": uri, "MONGODB_DATABASE": database.name}
    result = CliRunner().invoke(linedesk, [*words, "--json"], env=environ, catch_exceptions=False)
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_dead_letters_are_one_number_everywhere(full: Rows, mongo_uri: str) -> None:
    with served(full) as url:
        page = unescape(requests.get(f"{url}/", timeout=10).text)
        listed = requests.get(f"{url}/letters", timeout=10).text
    assert "<b>12</b> not replayed, 7 in the last 24 h" in page
    assert 'aria-label="dead letters: 12 (Warning)"' in page
    assert listed.count('aria-label="choose L') == 12
    [told] = command(mongo_uri, full, "status")
    assert (told["lettersOpen"], told["lettersLately"]) == (12, 7)
    assert sum(one["count"] for one in told["causes"]) == 12
    assert told["figures"]["dispatcher"]["figures"]["deadLettersOpen"] == 12
    problem = next(one for one in told["wrong"] if one["about"] == "dead letters")
    assert problem["saw"].startswith("7 ")
    assert len(command(mongo_uri, full, "dead", "list")) == 12
