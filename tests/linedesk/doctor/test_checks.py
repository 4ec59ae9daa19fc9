"""The doctor's judgements: figures in, findings out."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from linedesk.doctor.checks import account, configuration, database
from linedesk.doctor.context import USERS, DoctorContext, with_line_credentials
from linedesk.doctor.doctor import verdict
from linedesk.doctor.finding import Finding, FindingLevel, bad, ok, skip, warn
from linedesk.doctor.line_api import Reply
from linedesk.doctor.round import Check, Result, look_at
from linedesk.runtime.exit_codes import Exit
from linedesk.settings.settings import load_settings
from linedesk.setup.rights import DISPATCHER, FRONTDESK, OPERATOR
from linedesk.store.collections import MEGABYTE
from linedesk.store.queue.usage import Span

WITH_URI = tuple(f"{who}/MONGODB_URI" for who in USERS)
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HOUR, DAY, GIGABYTE = 3600.0, 86_400.0, 1024 * MEGABYTE
OK, WARN, BAD, SKIP = FindingLevel.OK, FindingLevel.WARN, FindingLevel.BAD, FindingLevel.SKIP


# The clock.


@pytest.mark.parametrize(
    ("told", "state"),
    [(99, OK), (101, OK), (102, WARN), (60, BAD)],
)
def test_a_date_in_whole_seconds_is_judged_within_its_precision(
    told: int, state: FindingLevel
) -> None:
    box = a_box()
    box.bot_info = Reply(200, {}, datetime.fromtimestamp(told, UTC), 100.1, 100.2)
    assert account.clock(box).state is state


# MongoDB.


@pytest.mark.parametrize(
    ("number", "state"), [("6.0.5", OK), ("7.0.2-ent", WARN), ("8.2.0", WARN), ("5.0.14", BAD)]
)
def test_a_version_that_is_not_proved_is_told(number: str, state: FindingLevel) -> None:
    assert database.judge_version(number).state is state


def a_set(*states: str, majority: int = 1) -> dict[str, Any]:
    members = [{"stateStr": state} for state in states]
    return {"set": "rs0", "members": members, "writeMajorityCount": majority}


THREE = ("PRIMARY", "SECONDARY", "SECONDARY")


@pytest.mark.parametrize(
    ("status", "state", "words"),
    [
        (a_set(*THREE, majority=2), OK, ""),
        (
            a_set("PRIMARY", "SECONDARY", "(not reachable/healthy)", majority=2),
            WARN,
            "shows why the others are down",
        ),
        (a_set("PRIMARY", "SECONDARY", "ARBITER", majority=2), WARN, "arbiter"),
        (a_set("PRIMARY", "(not reachable/healthy)", "ARBITER", majority=2), BAD, "no majority"),
        (a_set("SECONDARY", "(not reachable/healthy)", majority=2), BAD, "no primary"),
    ],
)
def test_a_replica_set_is_judged_by_what_a_majority_can_confirm(
    status: dict[str, Any], state: FindingLevel, words: str
) -> None:
    found = database.judge_set(status)
    assert found.state is state
    assert words in f"{found.saw} {found.do}"


def status_of(user: str, privileges: list[dict[str, Any]]) -> dict[str, Any]:
    users = [{"user": user, "db": "line_bot"}]
    return {"authInfo": {"authenticatedUsers": users, "authenticatedUserPrivileges": privileges}}


def own_privileges(user: Any) -> list[dict[str, Any]]:
    return [one for of in user.privileges("line_bot").values() for one in of]


@pytest.mark.parametrize("user", [FRONTDESK, DISPATCHER, OPERATOR])
def test_the_rights_that_init_gives_are_right(user: Any) -> None:
    status = status_of(user.name, own_privileges(user))
    assert database.judge(user, status, "line_bot").state is OK


def test_a_right_that_is_missing_is_bad_and_one_too_many_is_told() -> None:
    own = own_privileges(FRONTDESK)
    fewer = database.judge(FRONTDESK, status_of("x", own[1:]), "line_bot")
    assert (fewer.state, "on line_bot.recvq" in fewer.saw) == (BAD, True)
    spare = {"resource": {"db": "line_bot", "collection": "recvq"}, "actions": ["remove"]}
    more = database.judge(FRONTDESK, status_of("x", [*own, spare]), "line_bot")
    assert (more.state, "remove on line_bot.recvq" in more.saw) == (WARN, True)


# Space.


@pytest.mark.parametrize(
    ("span", "state"),
    [
        (Span(48 * HOUR, GIGABYTE, GIGABYTE), OK),
        (Span(23 * HOUR, GIGABYTE, GIGABYTE), WARN),
        (Span(HOUR, GIGABYTE, GIGABYTE), BAD),
        (Span(0.5 * HOUR, GIGABYTE // 20, GIGABYTE), OK),
        (Span(0.0, 300, GIGABYTE), OK),
    ],
    ids=str,
)
def test_retention_is_judged_by_the_measured_rate(span: Span, state: FindingLevel) -> None:
    assert database.judge_oplog(span).state is state
    assert database.judge_reach(span).state is state


@pytest.mark.parametrize(
    ("free", "promised", "state"),
    [(10, 1, OK), (10, 6, WARN), (5, 4.5, BAD), (0.1, 0, BAD)],
)
def test_a_disk_has_to_hold_what_capped_collections_will_still_take(
    free: float, promised: float, state: FindingLevel
) -> None:
    assert (
        database.judge_disk(int(free * GIGABYTE), 100 * GIGABYTE, int(promised * GIGABYTE)).state
        is state
    )


# The certificate.


@pytest.mark.parametrize(("days", "state"), [(60, OK), (20.9, WARN), (6.9, BAD), (-0.1, BAD)])
def test_a_certificate_is_judged_by_its_days(days: float, state: FindingLevel) -> None:
    until = f"{NOW + timedelta(days=days):%b %d %H:%M:%S %Y} GMT"
    names = (("DNS", "bot.example.com"),)
    found = account.judge_certificate({"notAfter": until, "subjectAltName": names}, NOW)
    assert (found.state, found.saw.endswith(", bot.example.com")) == (state, True)


# LINE.


# The installed box.


def test_a_persons_command_finds_lines_secrets_above_its_users_folder(tmp_path: Path) -> None:
    (tmp_path / "operator").mkdir()
    (tmp_path / "LINE_CHANNEL_SECRET").write_text("of the folder\n")
    (tmp_path / "LINE_CHANNEL_ACCESS_TOKEN").write_text("")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path / "operator")}
    found = with_line_credentials(environ)
    assert found["LINE_CHANNEL_SECRET"] == "of the folder"
    assert "LINE_CHANNEL_ACCESS_TOKEN" not in found
    (tmp_path / "BOT_SECRETS").write_text("KEY=abcdef\n")
    assert with_line_credentials(environ)["BOT_SECRETS"] == "KEY=abcdef"
    given = with_line_credentials({**environ, "LINE_CHANNEL_SECRET": "given"})
    assert given["LINE_CHANNEL_SECRET"] == "given"


def test_every_secret_has_to_be_there_and_for_root_only(tmp_path: Path) -> None:
    for name in ("LINE_CHANNEL_SECRET", "LINE_CHANNEL_ACCESS_TOKEN", *WITH_URI):
        path = tmp_path / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.touch(0o600)
        path.write_text("a secret\n")
    tmp_path.chmod(0o700)
    box = DoctorContext(load_settings({}), tmp_path)
    assert configuration.credentials(box).state is OK
    (tmp_path / "BOT_SECRETS").touch(0o644)
    assert "BOT_SECRETS" in configuration.credentials(box).saw
    (tmp_path / "BOT_SECRETS").chmod(0o600)
    assert configuration.credentials(box).state is OK
    (tmp_path / "frontdesk/MONGODB_URI").chmod(0o640)
    shown = configuration.credentials(box)
    assert (shown.state, "frontdesk/MONGODB_URI" in shown.saw) == (BAD, True)
    (tmp_path / "LINE_CHANNEL_SECRET").write_text("\n")
    (tmp_path / "dispatcher/MONGODB_URI").unlink()
    absent = configuration.credentials(box)
    assert absent.state is BAD
    assert "LINE_CHANNEL_SECRET, dispatcher/MONGODB_URI" in absent.saw


# The round.


def a_box(**settings: str) -> DoctorContext:
    return DoctorContext(load_settings(settings))


def states(results: list[Result]) -> dict[str, FindingLevel]:
    return {one.name: one.finding.state for one in results}


def test_a_check_that_fails_ends_no_other() -> None:
    def fails(box: DoctorContext) -> Finding:
        raise ZeroDivisionError("with a secret in it")

    def lacks(box: DoctorContext) -> Finding:
        raise FileNotFoundError(2, "No such file", "/nowhere")

    checks = [Check("a", fails), Check("b", lacks), Check("c", lambda box: ok("fine"))]
    found = list(look_at(a_box(), checks))
    assert states(found) == {"a": BAD, "b": BAD, "c": OK}
    assert "secret" not in found[0].finding.saw
    assert "/nowhere" in found[1].finding.do


def test_a_check_whose_need_is_bad_is_skipped() -> None:
    asked: list[str] = []

    def look(name: str, finding: Finding) -> Check:
        return Check(name, lambda box: asked.append(name) or finding)  # type: ignore[func-returns-value]

    checks = [
        look("bad", bad("", "x")),
        look("warned", warn("", "x")),
        Check("a", lambda box: ok(""), ("warned", "bad")),
        Check("b", lambda box: ok(""), ("a",)),
        Check("c", lambda box: ok(""), ("warned",)),
    ]
    found = list(look_at(a_box(), checks))
    assert states(found) == {"bad": BAD, "warned": WARN, "a": SKIP, "b": SKIP, "c": OK}
    assert found[2].finding.saw == "needs: bad"
    assert asked == ["bad", "warned"]


def test_a_check_that_hangs_does_not_hold_up_the_round() -> None:
    go_on, began = threading.Event(), time.monotonic()

    def hangs(box: DoctorContext) -> Finding:
        go_on.wait(10)
        return ok("at last")

    checks = [
        Check("a", hangs, seconds=0.05),
        Check("b", lambda box: ok("")),
        Check("c", hangs),
        Check("d", lambda box: ok("")),
    ]
    try:
        found = list(look_at(a_box(), checks, round_seconds=0.3))
        assert time.monotonic() - began < 4
    finally:
        go_on.set()
    assert states(found) == {"a": BAD, "b": OK, "c": BAD, "d": BAD}
    assert "the time is over" in found[3].finding.saw


# The page.


def test_only_bad_findings_fail_except_with_strict() -> None:
    def code(*findings: Finding, strict: bool = False) -> Exit:
        return verdict([Result("x", finding) for finding in findings], strict=strict)

    assert code(ok(""), skip(""), warn("", "")) is Exit.OK
    assert code(ok(""), skip(""), warn("", ""), strict=True) is Exit.FAILED
    assert code(ok(""), bad("", "")) is Exit.FAILED
