"""The drawings: curves with their gaps and axes, the picture's places and arrows. Pure."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from linedesk.operate.health import problems_of
from linedesk.operate.overview import Overview, Read, put_together
from linedesk.page.charts import charts
from linedesk.page.flow_chart import MapNode, nodes
from tests.linedesk.operate import a_day

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def row(seconds_ago: float, **figures: Any) -> dict[str, Any]:
    return {"at": NOW - timedelta(seconds=seconds_ago), **figures}


def overview(*rows: dict[str, Any], **read: Any) -> Overview:
    found = {"pauses": [], "calls": [], **read}
    return put_together(Read(rows=list(rows), **found), now=datetime.now(UTC))


def placed(seen: Overview) -> dict[str, MapNode]:
    return nodes(seen, problems_of(seen))


def test_a_curve_is_broken_where_data_is_missing() -> None:
    rows = [row(ago, queueDocuments=5) for ago in (600, 590, 580, 100, 90)]
    depth = charts(rows, hours=1, now=NOW)[0]
    assert depth.drawn[0].path.count("M") == 2
    # A missing value is a gap as well, not a zero.
    assert depth.drawn[1].path == ""
    assert depth.drawn[0].newest == "5"
    assert charts([], hours=6, now=NOW)[0].is_empty


def test_outages_of_line_are_as_long_as_the_rows_show() -> None:
    def outages(*rows: dict[str, Any]) -> list[tuple[int, str]]:
        marks = charts(rows, hours=1, now=NOW)[0].marks
        told = [(one.moment, one.label) for one in marks if "LINE" in one.label]
        return [((NOW - at).seconds, words) for at, words in told if at is not None]

    fails = [row(ago, lineFails=1) for ago in (600, 590, 580)]
    assert outages(*fails, row(570, lineFails=0), row(10)) == [(600, "LINE failed for 30 s")]
    # No dispatcher led after it, so no end is known but the last row.
    assert outages(*fails, row(10, lineFails=0)) == [(600, "LINE failed for 20 s")]
    refused = outages(row(20, lineFails=2), row(10, lineFails=2))
    assert refused == [(20, "LINE refused the access token for 20 s")]
    assert outages(row(10, lineFails=0), row(5)) == []


def test_the_picture_has_states_in_words_and_signs() -> None:
    well = placed(overview(a_day.desk_row(), a_day.dispatcher_row()))
    assert (well["frontdesk"].state.name, well["threads"].state.name) == ("good", "good")
    nothing = placed(overview())
    assert (nothing["frontdesk"].state.name, nothing["dispatcher"].state.name) == ("bad", "bad")
    assert "good" not in {one.state.name for one in nothing.values()}
    assert nothing["dispatcher"].state[1:] == ("✕", "Critical")


@pytest.mark.parametrize(
    ("node", "figures", "state"),
    [
        ("api", {"breakerOpen": {"api": 1}}, "bad"),
        ("api", {"tokenRefused": 1}, "bad"),
        ("outbox", {"tokenRefused": 1}, "bad"),
        ("outbox", {"breakerOpen": {"api": 1}}, "bad"),
        ("outbox", {"oldestSendSeconds": 61.0}, "look"),
        ("outbox", {"oldestSendSeconds": 59.0}, "good"),
        ("recvq", {"lagSeconds": 11.0}, "look"),
        ("recvq", {"lagSeconds": 61.0}, "bad"),
        ("threads", {"busyThreads": 20}, "look"),
        ("threads", {"busyThreads": 19}, "good"),
        ("timers", {"nextTimerSeconds": -61.0}, "bad"),
    ],
)
def test_what_needs_a_look_shows_in_its_place(
    node: str, figures: dict[str, Any], state: str
) -> None:
    dispatcher = a_day.dispatcher_row()
    dispatcher["figures"] |= figures
    assert placed(overview(a_day.desk_row(), dispatcher))[node].state.name == state
