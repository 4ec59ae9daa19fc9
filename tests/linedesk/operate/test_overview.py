"""The overview: its figures from the rows of `status`, its problems, and its reads."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.monitoring import CommandListener, CommandStartedEvent

from linedesk.operate.health import name_of_health, overview_as_json, problems_of
from linedesk.operate.history import POINTS, read_history
from linedesk.operate.overview import (
    Overview,
    QuotaView,
    Read,
    Sent,
    ends_on,
    put_together,
    read_overview,
)
from linedesk.store.client import Client, connect
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable
from linedesk.store.limits import TOKYO
from tests.dispatcher.faults import failing
from tests.linedesk.operate.hand import HANAKO, NOW, a_call, a_desk, a_dispatcher, ago
from tests.rows import Db


def overview(*rows: Document, **read: Any) -> Overview:
    found = {"pauses": [], "calls": [], **read}
    return put_together(Read(rows=list(rows), **found), now=NOW)


def wrong(seen: Overview) -> dict[str, str]:
    return {one.about: one.level for one in problems_of(seen)}


def test_several_front_desks_are_summed_but_for_what_they_share() -> None:
    one = a_desk(1, figures={"spoolDocuments": 4, "recvqUnreadShare": 0.2})
    other = a_desk(2, figures={"spoolDocuments": 4, "recvqUnreadShare": 0.3})
    seen = overview(one, other, a_dispatcher())
    assert seen.rates.accepted == 3.0
    desk = seen.figures["frontdesk"]
    assert (desk.number("acceptedEvents"), desk.number("connections")) == (20, 6)
    assert desk.number("refusedRequests", "signature") == 4
    assert (desk.number("spoolDocuments"), desk.number("recvqUnreadShare")) == (4, 0.3)
    store = next(one for one in seen.latencies if one.name == "store")
    assert (store.count, store.p99) == (8, 0.004)


def test_the_month_has_a_forecast_and_its_kinds() -> None:
    sent = {"_id": "sent", "one": {"day": 1, "today": 64, "replies": 9, "pushes": 4, "groups": 60}}
    told = {"quotaUsedMessages": 100, "quotaMessages": 101}
    seen = overview(a_dispatcher(figures=told), sent=sent)
    assert seen.month == Sent(9, 4, 60)
    assert seen.quota is not None
    assert seen.quota.ends_on == str(ends_on(100, 101, NOW))
    no_limit = overview(a_dispatcher(figures={"quotaUsedMessages": 100})).quota
    assert no_limit == QuotaView(None, 100)
    eleventh = datetime(2026, 11, 11, tzinfo=TOKYO)
    assert str(ends_on(100, 250, eleventh)) == "2026-11-26"
    assert ends_on(100, 300, eleventh) is ends_on(0, 250, eleventh) is None


def test_of_two_dispatchers_the_one_that_leads_is_told() -> None:
    standby = a_dispatcher(11, leading=0, state="standby")
    seen = overview(a_desk(), standby, a_dispatcher())
    assert seen.queue.documents == 7
    assert [one.state for one in seen.processes] == ["working", "working", "standby"]
    assert problems_of(seen) == []
    # Where two say that they lead, the later term counts.
    frozen = a_dispatcher(9, figures={"queueDocuments": 99}, epoch=6)
    assert overview(frozen, a_dispatcher()).queue.documents == 7


def test_a_row_typed_in_a_shell_breaks_nothing() -> None:
    odd = {"_id": "x", "role": 5, "at": "now", "figures": "many", "state": None}
    odd_dispatcher = {**a_dispatcher(), "threads": 5, "waiting": [1], "lately": {"waitSeconds": 3}}
    seen = overview(odd, {**a_desk(), "perSecond": None, "figures": "many"}, odd_dispatcher)
    assert seen.queue.documents == 7
    assert json.dumps(overview_as_json(seen))


def test_what_was_silent_for_too_long_counts_no_more() -> None:
    seen = overview(a_desk(), a_dispatcher(silent=11))
    assert seen.queue.documents is None
    assert "no dispatcher is running; 10 on box was last seen" in problems_of(seen)[0].saw


def test_a_kill_does_not_make_the_title_better_for_an_hour() -> None:
    # Before it, handlers that have not returned were a Warning. The successor counts from 0.
    hangs = a_dispatcher(silent=20)
    successor = a_dispatcher(11, startedAt=ago(15))
    seen = overview(a_desk(), hangs, successor)
    assert [one.pid for one in seen.processes] == [1, 11]
    assert wrong(seen) == {"dispatcher": "warn"}
    assert "process 10 on box was killed or crashed 20 s ago" in problems_of(seen)[0].saw
    assert wrong(overview(a_desk(), {**hangs, "state": "ended"}, successor)) == {}
    # One that crashes at each start is one problem.
    crashes = [a_dispatcher(pid, silent=pid) for pid in range(20, 60)]
    [one] = problems_of(overview(a_desk(), *crashes, successor))
    saw = "process 20 on box was killed or crashed 20 s ago; another one runs (and 39 more)"
    assert one.saw == saw
    assert wrong(overview(a_desk(), a_dispatcher(silent=3601), successor)) == {}


def test_a_process_that_crashed_a_thousand_times_hides_no_other(database: Db) -> None:
    now = datetime.now(UTC)
    ends = (now - timedelta(seconds=n) for n in range(20, 1_000))
    crashes = [a_desk(n, at=at, startedAt=at) for n, at in enumerate(ends)]
    database.status.insert_many(crashes)
    database.status.insert_one(a_dispatcher(now=now, version="2.0", startedAt=now))
    seen = read_overview(database)
    assert seen.queue.documents == 7


def test_one_that_ended_in_good_order_is_not_missed_while_others_run() -> None:
    seen = overview(a_desk(1), a_desk(2, state="ended"), a_dispatcher())
    assert [one.pid for one in seen.processes] == [1, 10]
    assert wrong(overview(a_desk(1, state="ended"), a_dispatcher())) == {"frontdesk": "bad"}


def test_nothing_and_only_standbys_are_wrong() -> None:
    assert wrong(overview(a_desk(), a_dispatcher(leading=0))) == {"dispatcher": "bad"}
    assert wrong(overview()) == {"frontdesk": "bad", "dispatcher": "bad"}


@pytest.mark.parametrize(
    ("figures", "found"),
    [
        ({"lagSeconds": 11}, {"lag": "warn"}),
        ({"lagSeconds": 61}, {"lag": "bad"}),
        ({"oldestUnfinishedSeconds": 61}, {"queue": "warn"}),
        ({"oldestUnfinishedSeconds": 601}, {"queue": "bad"}),
        ({"recvqUnreadShare": 0.8}, {"recvq": "warn"}),
        ({"recvqUnreadShare": 0.95}, {"recvq": "bad"}),
        ({"recvqLeftSeconds": 3600}, {"recvq": "warn"}),
        # A backlog that is handled quickly raises the rate; only what is behind is in danger.
        (
            {"recvqLeftSeconds": 3600, "behindSeconds": 61, "oldestUnfinishedSeconds": 61},
            {"recvq": "bad", "queue": "warn"},
        ),
        ({"oplogLeftSeconds": 20 * 3600}, {"oplog": "warn"}),
        ({"outboxEffects": 1, "oldestSendSeconds": 61.0}, {"answers": "warn"}),
        ({"busyThreads": 20}, {"threads": "warn"}),
        ({"abandonedThreads": 1}, {"threads": "warn"}),
        ({"breakerOpen": {"api": 1}}, {"LINE": "bad"}),
        ({"gateUse": {"api": 0.9}}, {"gate": "warn"}),
        ({"gateUse": {"api": 0.9}, "gateWaiting": {"api": 0}}, {}),
        # It is not its settings that hold up what waits.
        ({"gateUse": {"api": 0.9}, "tokenRefused": 1}, {"LINE": "bad"}),
        ({"quotaMessages": 100, "quotaUsedMessages": 90}, {"quota": "warn"}),
        ({"quotaMessages": 100, "quotaUsedMessages": 89}, {}),
        # LINE's count is approximate: a refused push closes the month, too.
        (
            {"quotaMessages": 100, "quotaUsedMessages": 9, "quotaClosedSinceSeconds": 1.8e9},
            {"quota": "bad"},
        ),
        ({"nextTimerSeconds": -61}, {"timers": "bad"}),
        # Those of the front desk.
        ({"recvqClosed": 1}, {"recvq": "bad"}),
        ({"spoolDocuments": 1, "spoolOldestSeconds": 3}, {"spool": "warn"}),
        ({"spoolAvailable": 0}, {"spool": "warn"}),
        ({"spoolDocuments": 1, "spoolBytes": 900}, {"spool": "bad"}),
        ({"certificateEndsSeconds": NOW.timestamp() + 20 * 86400}, {"certificate": "warn"}),
        ({"certificateEndsSeconds": NOW.timestamp() - 1}, {"certificate": "bad"}),
    ],
)
def test_a_figure_beyond_its_bound_is_wrong(figures: Document, found: dict[str, str]) -> None:
    seen = overview(a_desk(figures=figures), a_dispatcher(figures=figures))
    assert wrong(seen) == found


def test_webhooks_that_are_refused_are_a_problem_where_they_may_be_lost() -> None:
    for reasons, found in (
        ({"overload": 0.1}, {"frontdesk": "bad"}),
        ({"store": 3.0}, {"frontdesk": "bad"}),
        ({"slow": 0.2}, {"frontdesk": "bad"}),
        ({"slow": 0.1, "body": 9.0}, {}),
        ({"signature": 0.1}, {"frontdesk": "warn"}),
    ):
        desk = {**a_desk(), "perSecond": {"refusedRequests": reasons}}
        assert wrong(overview(desk, a_dispatcher())) == found, reasons


def test_a_pause_is_told_and_explains_what_waits() -> None:
    row = {"_id": "pause/main", "act": "pause", "channel": "main", "key": None, "by": "hanako"}
    late = a_dispatcher(figures={"oldestUnfinishedSeconds": 700, "unpausedOldestSeconds": 0})
    seen = overview(a_desk(), late, pauses=[{**row, "why": "too loud", "at": ago(90)}])
    (one,) = problems_of(seen)
    assert (one.level, one.about) == ("warn", "paused")
    assert "channel main since" in one.saw
    assert "by hanako: too loud" in one.saw
    assert one.do == "new events are held until you resume: `linedesk resume main`"
    # A conversation that hangs is late as usual, also in held.
    figures = {"oldestUnfinishedSeconds": 700, "behindSeconds": 2, "unpausedOldestSeconds": 61}
    late = a_dispatcher(figures=figures)
    assert wrong(overview(a_desk(), late, pauses=[row])) == {"queue": "warn", "paused": "warn"}


def test_a_key_that_waits_long_is_told_with_what_to_do() -> None:
    stuck = {"channel": "main", "key": HANAKO, "documents": 3, "why": "slow", "since": ago(601)}
    paused = {**stuck, "key": "U2", "why": "paused"}
    others = [{**stuck, "key": "U3", "since": ago(602)}, {**stuck, "key": "U4", "since": ago(599)}]
    seen = overview(a_desk(), a_dispatcher(waiting=[stuck, paused, *others]))
    assert problems_of(seen)[0].saw == "main/U3 waits for 10 min 2 s: slow (and 1 more)"


def test_dead_letters_are_counted_by_cause_until_they_are_replayed(database: Db) -> None:
    odd = [{"cause": None, "lastAt": ago(70)}, {"lastAt": ago(80)}]
    quota = [{"cause": "quota", "lastAt": at} for at in (ago(90_000), ago(60), ago(50))]
    again = {"cause": "late", "lastAt": ago(1), "replayedAt": ago(5)}
    rows = [{"_id": str(n), **row} for n, row in enumerate([*quota, *odd, again])]
    database.deadletters.insert_many(rows)
    seen = read_overview(database, now=NOW)
    assert (seen.letters_open, seen.letters_lately) == (5, 4)
    assert [(one["cause"], one["count"], one["lately"]) for one in seen.causes] == [
        ("quota", 3, 2),
        ("-", 2, 2),
    ]
    assert seen.causes[0]["explained"] == "quota: the month's messages are used up"
    assert wrong(seen)["dead letters"] == "warn"


def test_an_old_letter_is_counted_behind_many_that_were_replayed(full: Db) -> None:
    full.deadletters.insert_one({"_id": "old", "lastAt": ago(9 * 86400), "cause": "quota"})
    seen = read_overview(full)
    assert (seen.letters_open, seen.letters_lately) == (1, 0)


def test_a_database_that_is_not_initialised_is_critical_and_says_what_to_do(
    client: Client, database: Db
) -> None:
    assert "database" not in wrong(read_overview(database))
    problems = problems_of(read_overview(client[f"{database.name}_none"]))
    assert name_of_health(problems) == "Critical"
    assert problems[0].about == "database"
    assert "`linedesk init` makes the collections" in problems[0].do


# Far below what each collection holds in these tests.
MOST_EXAMINED = 200


class Commands(CommandListener):
    """Every command that a client sends."""

    def __init__(self) -> None:
        self.sent: list[Document] = []
        self.levels: dict[str, str] = {}

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name in ("find", "aggregate", "count", "distinct"):
            level = event.command["readConcern"]["level"]
            self.levels[event.command[event.command_name]] = level
            noise = ("lsid", "$db", "$clusterTime", "$readPreference", "readConcern", "txnNumber")
            self.sent.append({k: v for k, v in event.command.items() if k not in noise})

    def succeeded(self, event: object) -> None:
        """Of no concern."""

    def failed(self, event: object) -> None:
        """Of no concern."""


@pytest.fixture
def full(database: Db) -> Db:
    """More of everything than a look may read."""
    now = datetime.now(UTC)
    database.deadletters.insert_many(
        {"_id": str(n), "lastAt": ago(n, now=now), "replayedAt": ago(n, now=now)}
        for n in range(1_000)
    )
    database.calls.insert_many(a_call(str(n), at=now) for n in range(1_000))
    database.recvq.insert_many({"eventId": str(n), "acceptTime": now} for n in range(1_000))
    database.status.insert_many([a_desk(now=now), a_dispatcher(now=now)])
    return database


@pytest.fixture
def spied(full: Db, mongo_uri: str) -> Iterator[tuple[Db, Commands]]:
    commands = Commands()
    with connect(mongo_uri, app_name="spied", event_listeners=[commands]) as client:
        yield client[full.name], commands


def examined(database: Db, command: Document) -> int:
    told = database.command("explain", command, verbosity="executionStats")
    stats = told.get("executionStats") or told["stages"][0]["$cursor"]["executionStats"]
    return int(stats["totalDocsExamined"])


def test_an_overview_reads_little_and_nothing_of_recvq(
    spied: tuple[Db, Commands], full: Db
) -> None:
    database, commands = spied
    seen = read_overview(database)
    assert seen.queue.documents == 7
    assert len(commands.sent) == 7
    assert all(next(iter(one.values())) != "recvq" for one in commands.sent)
    assert all(examined(full, one) <= MOST_EXAMINED for one in commands.sent)
    # Without a majority, a majority read would not show new rows that were written without waiting.
    assert {name for name, level in commands.levels.items() if level == "local"} == {
        "status",
        "calls",
        "leases",
    }


def test_history_is_thinned_to_a_curve_and_keeps_its_peaks(database: Db) -> None:
    now = datetime.now(UTC)
    rows = ({"at": ago(10 * n, now=now), "queueDocuments": n % 500} for n in range(2_000))
    database.history.insert_many(rows)
    hour = read_history(database, hours=1)
    assert 350 <= len(hour) <= POINTS + 1
    assert [row["queueDocuments"] for row in hour[-2:]] == [1, 0]
    curve = read_history(database, hours=5)
    assert 350 <= len(curve) <= POINTS + 1
    assert curve == sorted(curve, key=lambda row: row["at"])
    assert max(row["queueDocuments"] for row in curve) == 499
    assert curve[0]["at"] > now - timedelta(hours=5)


def test_without_mongodb_or_with_one_that_hangs_a_look_ends_in_time(
    database: Db, mongo_uri: str, client: Client
) -> None:
    with connect("mongodb://127.0.0.1:1", app_name="t") as away, pytest.raises(StoreUnavailable):
        read_overview(away["nothing"], seconds=0.2)
    hangs = {"blockConnection": True, "blockTimeMS": 500, "appName": "hanging"}
    with (
        connect(mongo_uri, app_name="hanging") as own,
        failing(client, ["find"], times=1, **hangs),
        pytest.raises(StoreUnavailable),
    ):
        read_overview(own[database.name], seconds=0.2)
