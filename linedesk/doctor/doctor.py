"""`linedesk doctor`: checks everything from the settings to LINE, in the order of repair.

It changes nothing, apart from the one call of the webhook that it asks LINE to make.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from linedesk.compose.options import set_up_logging
from linedesk.compose.up import beside_up
from linedesk.console.format import one_line
from linedesk.doctor.checks import (
    account,
    certificate,
    clock,
    configuration,
    database,
    rabbitmq,
    services,
    space,
    work,
)
from linedesk.doctor.context import DoctorContext, credentials_folder, with_line_credentials
from linedesk.doctor.finding import Finding, FindingLevel, bad
from linedesk.doctor.report import conclude, showing
from linedesk.doctor.round import Check, Result, look_at
from linedesk.runtime.exit_codes import Exit
from linedesk.runtime.logging import masking
from linedesk.settings.errors import SettingsError
from linedesk.settings.settings import Settings, load_settings

SETTINGS, MONGODB, RECVQ, LINE = "settings", "MongoDB", "recvq", "LINE token"
FRONT_DESK, RABBITMQ = "front desk", "RabbitMQ"
# MongoDB is named first: where it is away, that is what has to be mended.
IN_MONGODB = (MONGODB,)
IN_RECVQ = (MONGODB, RECVQ)
AT_LINE = (LINE,)
CLOSE_SECONDS = 1.0

HERE = (
    Check(SETTINGS, configuration.settings),
    Check("credentials", configuration.credentials),
    Check("bot", configuration.bot, seconds=configuration.BOT_SECONDS + 1.0),
    Check(MONGODB, database.reached),
    Check("MongoDB version", database.version, IN_MONGODB),
    Check("replica set", database.replica_set, IN_MONGODB),
    Check("authorization", database.authorization, IN_MONGODB),
    Check("rights", database.own, IN_MONGODB),
    Check("rights of all users", database.of_all, IN_MONGODB),
    Check("clock, MongoDB's", clock.beside_mongodb, IN_MONGODB),
    Check(RECVQ, database.recvq, IN_MONGODB),
    Check("collections", database.others, IN_MONGODB),
    Check("schema", database.schema, IN_MONGODB),
    Check("feed", database.feed, IN_RECVQ),
    Check("oplog window", space.oplog, IN_MONGODB),
    Check("recvq's reach", space.reach, IN_RECVQ),
    Check("recvq unread", space.unread, IN_RECVQ, seconds=8.0),
    Check("MongoDB's disk", space.disk, IN_RECVQ),
    Check("spool's disk", space.spool),
    Check("spool's reach", space.bridge, (*IN_RECVQ, "spool's disk")),
    Check("services", services.units),
    Check(FRONT_DESK, services.front_desk),
    Check("spool", services.spooled),
    Check("dispatcher", work.lease, IN_RECVQ),
    Check("progress", work.progress, IN_RECVQ),
    Check("gate", work.gate, IN_MONGODB),
    Check("pauses", work.pauses, IN_MONGODB),
    Check("held", work.held, IN_MONGODB),
    Check("conversations", work.conversations, IN_MONGODB),
    Check("timers", work.timers, IN_MONGODB),
    Check("dead letters", work.letters, IN_MONGODB),
    Check("ages", work.ages, IN_MONGODB),
    Check("backup", services.exports),
    Check("certificate", certificate.files),
    Check("certificate served", certificate.served, ("certificate",)),
)
OF_WORKERS = (
    Check(RABBITMQ, rabbitmq.reached),
    Check("RabbitMQ rights", rabbitmq.rights, (RABBITMQ,)),
    Check("workers", rabbitmq.workers, IN_MONGODB),
)
THERE = (
    Check(LINE, account.token),
    Check("clock, LINE's", clock.beside_line, AT_LINE),
    Check("quota", account.quota, AT_LINE),
    Check("webhook", account.endpoint, AT_LINE),
    Check("certificate, public", certificate.public, AT_LINE),
    Check("webhook test", account.test, (*AT_LINE, FRONT_DESK), seconds=10.0),
    Check("redelivery", account.redelivery),
)


@dataclass(frozen=True)
class DoctorOptions:
    """How a person wants it."""

    line: bool = True
    as_json: bool = False
    strict: bool = False
    verbose: bool = False


def run_doctor(
    environ: Mapping[str, str], config_path: Path | None, options: DoctorOptions
) -> Exit:
    """Print a line for each check; OK unless something is bad (strict: or to be warned of).

    Settings that cannot be read are a finding like any other, and the only one then.
    """
    results: list[Result] = []
    with showing(as_json=options.as_json) as (began, show):
        for result in _results(environ, config_path, options, began):
            results.append(result)
            show(result)
    conclude(results, as_json=options.as_json)
    return verdict(results, strict=options.strict)


def verdict(results: Sequence[Result], *, strict: bool) -> Exit:
    """The exit code: FAILED where something is bad; with `strict` also where anything is warned."""
    failing = (FindingLevel.BAD, FindingLevel.WARN) if strict else (FindingLevel.BAD,)
    return Exit.FAILED if any(one.finding.state in failing for one in results) else Exit.OK


def _results(
    environ: Mapping[str, str],
    config_path: Path | None,
    options: DoctorOptions,
    began: Callable[[str], None],
) -> Iterator[Result]:
    try:
        given = load_settings(with_line_credentials(environ), config_path=config_path)
    except SettingsError as error:
        for problem in error.problems:
            yield Result(SETTINGS, bad(problem, "set it right, then run doctor again"))
        return
    settings = beside_up(given)
    set_up_logging(settings, verbose=options.verbose)
    box = DoctorContext(settings, credentials_folder(environ))
    has_workers = settings.dispatcher_workers == "amqp"
    here = (*HERE, *OF_WORKERS) if has_workers else HERE
    checks = (*here, *THERE) if options.line else here
    try:
        for result in look_at(box, checks, began=began):
            yield _masked(result, settings)
    finally:
        # Of what hangs it would wait for an answer.
        closing = threading.Thread(target=box.close, name="closing", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)


def _masked(result: Result, settings: Settings) -> Result:
    """Nothing that a check quotes shows a secret, whoever put it there."""

    masked, finding = masking(settings.secret_values), result.finding
    saw, do = (one_line(masked(text)) for text in (finding.saw, finding.do))
    return Result(result.name, Finding(finding.state, saw, do))
