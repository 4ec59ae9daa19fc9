"""One round of checks: in order, each with a time-out; a failed check does not end the round."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from pymongo.errors import PyMongoError

from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import Finding, FindingLevel, bad, skip
from linedesk.doctor.line_api import NoAnswer
from linedesk.operate.text import known
from linedesk.runtime.language import gettext as _
from linedesk.store.errors import (
    AUTHENTICATION_FAILED,
    AccessRefused,
    SetupError,
    StoreUnavailable,
    translated,
)

CHECK_SECONDS = 5.0
# The longest that an operator waits before the command seems to hang.
ROUND_SECONDS = 19.0

Look = Callable[[DoctorContext], Finding | Sequence[Finding]]


@dataclass(frozen=True)
class Check:
    """One check. It is skipped if a check in `needs` is bad or was skipped."""

    name: str
    look: Look
    needs: tuple[str, ...] = ()
    seconds: float = CHECK_SECONDS


@dataclass(frozen=True)
class Result:
    """The finding of a check."""

    name: str
    finding: Finding


def look_at(
    box: DoctorContext,
    checks: Sequence[Check],
    *,
    round_seconds: float = ROUND_SECONDS,
) -> Iterator[Result]:
    """Yield the results one by one, within `round_seconds` in all."""
    until = time.monotonic() + round_seconds
    unwell: set[str] = set()
    for check in checks:
        found = _finding(check, box, unwell, until - time.monotonic())
        findings = [found] if isinstance(found, Finding) else found
        if {one.state for one in findings} & {FindingLevel.BAD, FindingLevel.SKIP}:
            unwell.add(check.name)
        yield from (Result(check.name, one) for one in findings)


def _finding(
    check: Check, box: DoctorContext, unwell: set[str], left_seconds: float
) -> Finding | Sequence[Finding]:
    first = next((name for name in check.needs if name in unwell), None)
    if first is not None:
        return skip(_("needs: {name}").format(name=_(first)))
    if left_seconds <= 0:
        return bad(
            _("not checked: the time is over"),
            _("fix the slow checks first, then run `linedesk doctor` again"),
        )
    return _within(min(check.seconds, left_seconds), check, box)


def _within(seconds: float, check: Check, box: DoctorContext) -> Finding | Sequence[Finding]:
    """Run the check on a thread of its own: a name look-up or a disk that hangs cannot be ended."""
    found: SimpleQueue[Finding | Sequence[Finding]] = SimpleQueue()

    def run() -> None:
        found.put(_looked(check, box))

    # A new thread does not inherit the language.
    run_here = contextvars.copy_context().run
    threading.Thread(target=run_here, args=(run,), name=f"check {check.name}", daemon=True).start()
    try:
        return found.get(timeout=seconds)
    except Empty:
        saw = _("no answer within {seconds:.0f} s").format(seconds=seconds)
        return bad(saw, _("it hangs: run `linedesk doctor` again"))


def _looked(check: Check, box: DoctorContext) -> Finding | Sequence[Finding]:
    """Run the check. Every error becomes a finding."""
    try:
        with translated():
            return check.look(box)
    except AccessRefused as error:
        return _refused(error)
    except SetupError as error:
        return bad(_("not as linedesk needs it"), known(str(error)))
    except StoreUnavailable as error:
        return bad(
            _("MongoDB does not answer ({error})").format(error=error),
            _("check that mongod runs (`systemctl status mongod`) and that MONGODB_URI is right"),
        )
    except PyMongoError as error:
        code = getattr(error, "code", None)
        saw = _("MongoDB refuses the request ({error})")
        return bad(
            saw.format(error=f"{type(error).__name__} {code}"), _("mongod's log shows the reason")
        )
    except NoAnswer as error:
        saw = _("LINE does not answer ({error})").format(error=error)
        return bad(saw, _("check that this machine can reach the internet"))
    except OSError as error:
        return bad(
            f"{type(error).__name__}: {error.strerror}",
            _("check {file}").format(file=error.filename) if error.filename else "",
        )
    except Exception as error:  # noqa: BLE001 - one check is one job: the others continue
        saw = _("the check itself failed: {error}").format(error=type(error).__name__)
        return bad(saw, _("please report it"))


def _refused(error: AccessRefused) -> Finding:
    if error.code == AUTHENTICATION_FAILED:
        return bad(
            _("MongoDB refuses the password in MONGODB_URI"),
            _("`linedesk init --new-passwords` creates new passwords"),
        )
    return skip(
        _("the user of MONGODB_URI may not read this"),
        _("run `sudo linedesk doctor`; `linedesk init --users` renews the operator's rights"),
    )
