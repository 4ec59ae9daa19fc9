"""Worker processes as operators see them, by the row that the leader writes."""

from typing import Any

import pytest

from linedesk.commands.listing import WIDTH, page_lines
from linedesk.commands.screen import sections
from linedesk.operate.health import problems_of
from linedesk.operate.overview import Overview, Read, put_together
from linedesk.page import view_models
from linedesk.store.documents import Document
from tests.linedesk.operate.hand import HANAKO, NOW, a_desk, a_dispatcher, ago


def a_worker_row(name: str = "box/7", **more: Any) -> Document:
    row = {
        "name": name,
        "threads": 20,
        "out": 1,
        "bot": "3f2a",
        "release": "0.1.0",
        "contract": 1,
        "silentSeconds": 0.4,
        "state": "working",
        "jobs": [{"eventId": "01E", "key": f"main/{HANAKO}", "since": ago(95)}],
    }
    return {**row, **more}


def overview(*workers: Document, broker: str = "", lost: int = 0) -> Overview:
    dispatcher = a_dispatcher(
        broker=broker, workers=list(workers), figures={"workerJobsLost": lost}
    )
    rows = [a_desk(), dispatcher]
    return put_together(Read(rows=rows, pauses=[], calls=[]), now=NOW)


def told(seen: Overview) -> str:
    return "\n".join(line.plain for line in page_lines(sections(seen), WIDTH))


def test_a_worker_without_jobs_is_a_problem() -> None:
    other = a_worker_row(
        "far/8", out=0, jobs=[], bot="3f2b", state="another version of the bot is in force"
    )
    seen = overview(a_worker_row(), other, lost=3)
    text = told(seen)
    assert (
        "1 of 2 get jobs, 20 threads, 1 job out, 3 handed out again; RabbitMQ is connected" in text
    )
    [wrong] = problems_of(seen)
    assert (wrong.level, wrong.about) == ("warn", "workers")
    assert "far/8 gets no jobs: another version" in wrong.saw


@pytest.mark.parametrize(
    ("workers", "broker", "saw"),
    [
        ([], "", "no worker is connected: events wait"),
        ([a_worker_row()], "RabbitMQ takes nothing: low on memory", "RabbitMQ takes nothing"),
        (
            [a_worker_row(state="speaks contract 2, needed is 1")],
            "",
            "no worker gets jobs: events wait; box/7: speaks contract 2, needed is 1",
        ),
    ],
)
def test_it_is_critical_where_no_job_can_leave(
    workers: list[Document], broker: str, saw: str
) -> None:
    seen = overview(*workers, broker=broker)
    [wrong] = problems_of(seen)
    assert (wrong.level, wrong.about) == ("bad", "workers")
    assert wrong.saw.startswith(saw)
    assert wrong.do
    [(_problem, href)] = view_models.seen(seen)["problems"]
    assert href == "#workers"


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        ("another version of the bot is in force", "install the same release"),
        ("silent", "its process hangs"),
        ("asked for its rules", "normal for a moment"),
    ],
)
def test_each_state_of_a_worker_has_its_own_advice(state: str, advice: str) -> None:
    [wrong] = problems_of(overview(a_worker_row(state=state)))
    assert f": {state}" in wrong.saw
    assert wrong.do.startswith(advice)
