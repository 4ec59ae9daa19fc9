"""The doctor's judgements: figures in, findings out."""

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


def a_set(*states: str) -> Finding:
    members = [{"stateStr": state} for state in states]
    return database.judge_set({"set": "rs0", "members": members, "writeMajorityCount": 2})


def a_disk(free: float, promised: float) -> Finding:
    return database.judge_disk(int(free * GIGABYTE), 100 * GIGABYTE, int(promised * GIGABYTE))


def a_certificate(days: float) -> Finding:
    until = f"{NOW + timedelta(days=days):%b %d %H:%M:%S %Y} GMT"
    names = (("DNS", "bot.example.com"),)
    return account.judge_certificate({"notAfter": until, "subjectAltName": names}, NOW)


def a_clock(told: int) -> Finding:
    """A date in whole seconds, at 100.1."""
    box = a_box()
    box.bot_info = Reply(200, {}, datetime.fromtimestamp(told, UTC), 100.1, 100.2)
    return account.clock(box)


DOWN = "(not reachable/healthy)"
# At the measured rate.
LASTS_AN_HOUR = Span(HOUR, GIGABYTE, GIGABYTE)


@pytest.mark.parametrize(
    ("state", "findings"),
    [
        (OK, [a_set("PRIMARY", "SECONDARY", "SECONDARY")]),
        (WARN, [a_set("PRIMARY", "SECONDARY", DOWN), a_set("PRIMARY", "SECONDARY", "ARBITER")]),
        # No majority can confirm a write, or there is no primary.
        (BAD, [a_set("PRIMARY", DOWN, "ARBITER"), a_set("SECONDARY", DOWN)]),
        (OK, [database.judge_version("6.0.5")]),
        (WARN, [database.judge_version(number) for number in ("7.0.2-ent", "8.2.0")]),
        (BAD, [database.judge_version("5.0.14")]),
        (OK, [database.judge_oplog(Span(48 * HOUR, GIGABYTE, GIGABYTE))]),
        (OK, [database.judge_reach(Span(0.5 * HOUR, GIGABYTE // 20, GIGABYTE))]),
        (WARN, [database.judge_oplog(Span(23 * HOUR, GIGABYTE, GIGABYTE))]),
        (BAD, [database.judge_oplog(LASTS_AN_HOUR), database.judge_reach(LASTS_AN_HOUR)]),
        # It has to hold what capped collections will still take.
        (OK, [a_disk(10, 1)]),
        (WARN, [a_disk(10, 6)]),
        (BAD, [a_disk(5, 4.5), a_disk(0.1, 0)]),
        (OK, [a_certificate(60)]),
        (WARN, [a_certificate(20.9)]),
        (BAD, [a_certificate(6.9), a_certificate(-0.1)]),
    ],
)
def test_what_is_found_is_judged(state: FindingLevel, findings: list[Finding]) -> None:
    assert [finding.state for finding in findings] == [state] * len(findings)


def test_a_date_in_whole_seconds_is_judged_within_its_precision() -> None:
    assert [a_clock(told).state for told in (99, 101, 102, 60)] == [OK, OK, WARN, BAD]


def status_of(user: str, privileges: list[dict[str, Any]]) -> dict[str, Any]:
    users = [{"user": user, "db": "line_bot"}]
    return {"authInfo": {"authenticatedUsers": users, "authenticatedUserPrivileges": privileges}}


def own_privileges(user: Any) -> list[dict[str, Any]]:
    return [one for of in user.privileges("line_bot").values() for one in of]


def test_a_right_that_is_missing_is_bad_and_one_too_many_is_told() -> None:
    for user in (FRONTDESK, DISPATCHER, OPERATOR):
        status = status_of(user.name, own_privileges(user))
        assert database.judge(user, status, "line_bot").state is OK
    own = own_privileges(FRONTDESK)
    fewer = database.judge(FRONTDESK, status_of("x", own[1:]), "line_bot")
    assert (fewer.state, "on line_bot.recvq" in fewer.saw) == (BAD, True)
    spare = {"resource": {"db": "line_bot", "collection": "recvq"}, "actions": ["remove"]}
    more = database.judge(FRONTDESK, status_of("x", [*own, spare]), "line_bot")
    assert (more.state, "remove on line_bot.recvq" in more.saw) == (WARN, True)


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


def test_only_bad_findings_fail_except_with_strict() -> None:
    def code(*findings: Finding, strict: bool = False) -> Exit:
        return verdict([Result("x", finding) for finding in findings], strict=strict)

    assert code(ok(""), skip(""), warn("", "")) is Exit.OK
    assert code(ok(""), skip(""), warn("", ""), strict=True) is Exit.FAILED
    assert code(ok(""), bad("", "")) is Exit.FAILED
