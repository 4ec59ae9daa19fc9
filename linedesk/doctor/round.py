"""One round of checks: in order, each bounded, none ended by another's failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from pymongo.errors import PyMongoError

from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import Finding, FindingLevel, bad, skip
from linedesk.doctor.line_api import NoAnswer
from linedesk.store.errors import (
    AUTHENTICATION_FAILED,
    AccessRefused,
    SetupError,
    StoreUnavailable,
    translated,
)

CHECK_SECONDS = 5.0
SLOW_SECONDS = 2.0
# What a person waits for before he thinks that it hangs.
ROUND_SECONDS = 19.0

Look = Callable[[DoctorContext], Finding]


@dataclass(frozen=True)
class Check:
    """One thing to look at. It is skipped where one of those that it needs is not well."""

    name: str
    look: Look
    needs: tuple[str, ...] = ()
    seconds: float = CHECK_SECONDS


@dataclass(frozen=True)
class Result:
    """What a check came to."""

    name: str
    finding: Finding


def look_at(
    box: DoctorContext,
    checks: Sequence[Check],
    *,
    began: Callable[[str], None] = lambda name: None,
    round_seconds: float = ROUND_SECONDS,
    slow_seconds: float = SLOW_SECONDS,
) -> Iterator[Result]:
    """The results one by one, within `round_seconds` in all; `began` is told what comes next.

    What takes longer than `slow_seconds` to be bad makes what it needs count as bad, too.
    """
    until = time.monotonic() + round_seconds
    unwell: set[str] = set()
    for check in checks:
        began(check.name)
        began_at = time.monotonic()
        finding = _finding(check, box, unwell, until - began_at)
        if finding.state in (FindingLevel.BAD, FindingLevel.SKIP):
            unwell.add(check.name)
        if finding.state is FindingLevel.BAD and time.monotonic() - began_at > slow_seconds:
            # It was what it needs that hangs, on which all others would wait as long.
            unwell.update(check.needs)
        yield Result(check.name, finding)


def _finding(check: Check, box: DoctorContext, unwell: set[str], left_seconds: float) -> Finding:
    first = next((name for name in check.needs if name in unwell), None)
    if first is not None:
        return skip(f"needs: {first}")
    if left_seconds <= 0:
        return bad("no time left for it", "mend what is slow first, then run it again")
    return _within(min(check.seconds, left_seconds), check, box)


def _within(seconds: float, check: Check, box: DoctorContext) -> Finding:
    """On a thread of its own, since nothing ends a look-up of a name or a disk that hangs."""
    found: SimpleQueue[Finding] = SimpleQueue()

    def run() -> None:
        found.put(_looked(check, box))

    threading.Thread(target=run, name=f"check {check.name}", daemon=True).start()
    try:
        return found.get(timeout=seconds)
    except Empty:
        return bad(f"no answer within {seconds:.0f} s", "something hangs there: run it again")


def _looked(check: Check, box: DoctorContext) -> Finding:
    """Every error of a check ends here, as a finding."""
    try:
        with translated():
            return check.look(box)
    except AccessRefused as error:
        return _refused(error)
    except SetupError as error:
        return bad("not as it must be", str(error))
    except StoreUnavailable as error:
        return bad(
            f"MongoDB does not answer ({error})",
            "is mongod running, and MONGODB_URI right? `systemctl status mongod`",
        )
    except PyMongoError as error:
        code = getattr(error, "code", None)
        return bad(f"MongoDB refused ({type(error).__name__} {code})", "its log tells why")
    except NoAnswer as error:
        return bad(f"LINE does not answer ({error})", "may this machine reach the internet?")
    except OSError as error:
        return bad(f"{type(error).__name__}: {error.strerror}", f"see {error.filename or 'there'}")
    except Exception as error:  # noqa: BLE001 - one check is one job: the others go on
        return bad(f"the check itself failed: {type(error).__name__}", "please report it")


def _refused(error: AccessRefused) -> Finding:
    if error.code == AUTHENTICATION_FAILED:
        return bad(
            "MongoDB refuses the password in MONGODB_URI",
            "`linedesk init --new-passwords` makes new ones",
        )
    return skip(
        "the user of MONGODB_URI may not ask",
        "as the operator: `sudo linedesk doctor`; `linedesk init --users` renews his rights",
    )
