"""`linedesk doctor`: checks everything from the settings to LINE, in the order of repair.

It changes nothing. It asks LINE to call the webhook once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from linedesk.commands.options import set_up_logging
from linedesk.doctor.checks import account, configuration, database, machine, rabbitmq
from linedesk.doctor.context import DoctorContext, credentials_folder, with_line_credentials
from linedesk.doctor.finding import Finding, FindingLevel, bad
from linedesk.doctor.report import conclude, show
from linedesk.doctor.round import Check, Result, look_at
from linedesk.operate.format import one_line
from linedesk.runtime.exit_codes import Exit
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.runtime.logging import masking
from linedesk.settings.errors import SettingsError
from linedesk.settings.settings import Settings, load_settings
from linedesk.setup.kept_mongod import beside_up

# Names of checks: JSON has them in English, people get them in their language.
SETTINGS, MONGODB, RECVQ = mark("settings"), mark("MongoDB"), mark("recvq")
LINE, WEBHOOK, FRONT_DESK = mark("LINE token"), mark("webhook"), mark("front desk")
# MongoDB is named first: while it is down, it has to be repaired first.
IN_MONGODB = (MONGODB,)
IN_RECVQ = (MONGODB, RECVQ)
AT_LINE = (LINE,)
CLOSE_SECONDS = 1.0

HERE = (
    Check(SETTINGS, configuration.settings),
    Check(mark("credentials"), configuration.credentials),
    Check(MONGODB, database.reached),
    Check(mark("MongoDB version"), database.version, IN_MONGODB),
    Check(mark("replica set"), database.replica_set, IN_MONGODB),
    Check(mark("authorization"), database.authorization, IN_MONGODB),
    Check(mark("rights"), database.rights, IN_MONGODB),
    Check(RECVQ, database.recvq, IN_MONGODB),
    Check(mark("collections"), database.others, IN_MONGODB),
    Check(mark("oplog retention"), database.oplog, IN_MONGODB),
    Check(mark("recvq retention"), database.reach, IN_RECVQ),
    Check(mark("MongoDB disk"), database.disk, IN_RECVQ),
    Check(mark("spool disk"), machine.spool),
    Check(FRONT_DESK, machine.front_desk),
    Check(mark("running system"), machine.running, IN_RECVQ),
    Check(mark("backup"), machine.exports),
)
OF_WORKERS = (Check(mark("RabbitMQ"), rabbitmq.reached),)
THERE = (
    Check(LINE, account.token, (SETTINGS,)),
    Check(mark("clock"), account.clock, AT_LINE),
    Check(WEBHOOK, account.endpoint, AT_LINE),
    Check(mark("public certificate"), account.certificate, AT_LINE),
    Check(mark("webhook test"), account.test, (*AT_LINE, WEBHOOK, FRONT_DESK), seconds=10.0),
)


def run_doctor(
    environ: Mapping[str, str],
    config_path: Path | None,
    *,
    line: bool,
    as_json: bool,
    strict: bool,
    verbose: bool,
) -> Exit:
    """Print a line for each check, in the language of the context. Returns the exit code.

    Settings that cannot be read are a finding, too; no other check runs then.
    """
    results: list[Result] = []
    for result in _results(environ, config_path, line=line, verbose=verbose):
        results.append(result)
        if not as_json:
            show(result)
    conclude(results, as_json=as_json)
    return verdict(results, strict=strict)


def verdict(results: Sequence[Result], *, strict: bool) -> Exit:
    """The exit code: FAILED if any check is bad; with `strict` also if any is a warning."""
    failing = (FindingLevel.BAD, FindingLevel.WARN) if strict else (FindingLevel.BAD,)
    return Exit.FAILED if any(one.finding.state in failing for one in results) else Exit.OK


def _results(
    environ: Mapping[str, str], config_path: Path | None, *, line: bool, verbose: bool
) -> Iterator[Result]:
    try:
        given = load_settings(with_line_credentials(environ), config_path=config_path)
    except SettingsError as error:
        for problem in error.problems:
            yield Result(SETTINGS, bad(problem, _("correct it, then run `linedesk doctor` again")))
        return
    settings = beside_up(given)
    set_up_logging(settings, verbose=verbose)
    box = DoctorContext(settings, credentials_folder(environ))
    has_workers = settings.dispatcher_workers == "amqp"
    here = (*HERE, *OF_WORKERS) if has_workers else HERE
    checks = (*here, *THERE) if line else here
    try:
        for result in look_at(box, checks):
            yield _masked(result, settings)
    finally:
        # Closing a connection that hangs would wait for an answer.
        closing = threading.Thread(target=box.close, name="closing", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)


def _masked(result: Result, settings: Settings) -> Result:
    """Mask secrets in everything that a check quotes."""
    masked, finding = masking(settings.secret_values), result.finding
    saw, do = (one_line(masked(text)) for text in (finding.saw, finding.do))
    return Result(result.name, Finding(finding.state, saw, do))
