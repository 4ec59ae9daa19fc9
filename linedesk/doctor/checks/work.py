"""The running system as `linedesk status` judges it, and what it does not look at."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from jobworker.record.dead_letters import NOTICE
from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import Finding, FindingLevel, bad, ok, warn
from linedesk.operate import health
from linedesk.operate.overview import read_overview
from linedesk.operate.text import known
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import ngettext
from linedesk.setup.collections import audit_age_days, told_of_audit
from linedesk.store.documents import DEADLETTERS, SCHEDULE, STATUS
from linedesk.store.errors import REFUSED_WORDS
from linedesk.store.records.letters import EXPIRES_AT, LAST_AT, REFUSED, REPLAYED_AT, WRITE_REFUSED
from linedesk.store.records.timers import RUN_AT, SET_ASIDE
from linedesk.store.records.waits import Why, code_of

MOST_COUNTED = 10_000
REPORT_SECONDS = 2.0
MOST_NAMED = 5
ASIDE = "db.schedule.find({setAside: {$exists: true}})"
# Younger rows of `status` show what waits now.
WAITING_SECONDS = 120.0


def running(box: DoctorContext) -> list[Finding]:
    """The problems of `linedesk status`, a finding each.

    A process that has just started reports after a second, so a bad finding is looked at again.
    """
    found = _problems(box)
    if any(one.state is FindingLevel.BAD for one in found):
        threading.Event().wait(REPORT_SECONDS)
        found = _problems(box)
    return found or [ok(_("no problems, as `linedesk status` judges them"))]


def _problems(box: DoctorContext) -> list[Finding]:
    seen = read_overview(box.database, channel=box.settings.line_channel)
    return [
        Finding(FindingLevel(one.level), f"{one.topic}: {one.saw}", one.do)
        for one in health.problems_of(seen)
    ]


def conversations(box: DoctorContext) -> Finding:
    """Conversations that MongoDB refuses to write, by dead letters and waiting rows."""
    lately = _lately(box)
    # Releases before stored a sentence.
    cause = {"$in": [WRITE_REFUSED, re.compile(REFUSED_WORDS)]}
    letters = box.database[DEADLETTERS].find({**lately, "cause": cause}, {"channel": 1, "key": 1})
    rows = list(letters.limit(MOST_COUNTED))
    fresh = {
        "at": {"$gte": box.now - timedelta(seconds=WAITING_SECONDS)},
        "waiting.why.code": Why.WRITE_REFUSED,
    }
    for process in box.database[STATUS].find(fresh, {"waiting": 1}):
        waiting = process["waiting"]
        rows += [one for one in waiting if code_of(one.get("why")) == Why.WRITE_REFUSED]
    return judge_conversations(rows)


def _lately(box: DoctorContext) -> Mapping[str, Any]:
    """The filter for dead letters of the last day that were not replayed."""
    return {LAST_AT: {"$gte": box.now - health.LETTERS_WITHIN}, REPLAYED_AT: None}


def refused(box: DoctorContext) -> Finding:
    """Documents that asked for an effect of no dead letter or timer."""
    wanted = {**_lately(box), "cause": {"$regex": f"^{REFUSED}"}}
    count = box.database[DEADLETTERS].count_documents(wanted, limit=MOST_COUNTED)
    if not count:
        return ok(_("none in the last 24 h"))
    return bad(
        _("{count} refused in the last 24 h: no dead letter or timer belongs to them").format(
            count=count
        ),
        _(
            "`{command}` lists them; if a stranger inserted them into recvq, run `linedesk "
            "init --users FOLDER --new-passwords`"
        ).format(command=f'linedesk dead list --cause "{REFUSED.strip()}"'),
    )


def timers(box: DoctorContext) -> Finding:
    """Timers that can never fire."""
    aside = {RUN_AT: None, SET_ASIDE: {"$exists": True}}
    count = box.database[SCHEDULE].count_documents(aside, limit=1_000)
    if not count:
        return ok(_("each can fire"))
    return warn(
        _("{count} can never fire").format(count=count),
        _("`{command}` in the mongo shell shows the reasons").format(command=ASIDE),
    )


def ages(box: DoctorContext) -> Finding:
    """How long dead letters and rows of `audit` are kept, and what is deleted within a week."""
    days = box.settings.audit_days
    letters = box.database[DEADLETTERS]
    going = letters.count_documents({EXPIRES_AT: {"$type": "date"}}, limit=MOST_COUNTED)
    audit = _("audit: {retention}").format(retention=known(told_of_audit(box.database, days=days)))
    saw, do = [], []
    if going:
        first = letters.find_one({EXPIRES_AT: {"$type": "date"}}, sort=[(EXPIRES_AT, 1)]) or {}
        which = ngettext(
            "{count} dead letter is deleted within a week, on {date}",
            "{count} dead letters are deleted within a week, the first on {date}",
            going,
        )
        saw.append(which.format(count=going, date=f"{first[EXPIRES_AT]:%Y-%m-%d}"))
        until = box.settings.dead_letter_days - NOTICE.days
        do.append(
            _("replay those that you need: `{command}`; or raise DEAD_LETTER_DAYS").format(
                command=f"linedesk dead list --until {until}d"
            )
        )
    if audit_age_days(box.database) != days:
        saw.append(_("{audit}, which is not set in MongoDB yet").format(audit=audit))
        do.append(_("`linedesk init` sets AUDIT_DAYS in MongoDB"))
    if saw:
        return warn("; ".join(saw), "; ".join(do))
    well = _("{audit}; dead letters are kept for {days} days, none is deleted within a week")
    return ok(well.format(audit=audit, days=box.settings.dead_letter_days))


def judge_conversations(rows: Sequence[Mapping[str, Any]]) -> Finding:
    """By `rows` with the channel and key of each conversation that MongoDB refuses to write."""
    names = list(dict.fromkeys(f"{row.get('channel')}/{row.get('key')}" for row in rows))
    if not names:
        return ok(_("MongoDB accepts all writes to them"))
    shown = ", ".join(names[:MOST_NAMED])
    if len(names) > MOST_NAMED:
        shown = _("{first} and {count} more").format(first=shown, count=len(names) - MOST_NAMED)
    return bad(
        _("MongoDB refuses writes to {conversations}").format(conversations=shown),
        _(
            "`{command}` shows the reason; correct or shrink the conversation in the mongo shell, "
            "then replay"
        ).format(command=f'linedesk dead list --cause "{REFUSED_WORDS}"'),
    )
