"""Whether stored events are handled: dispatcher, timers, dead letters and retention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pymongo.database import Database

from jobworker.record.dead_letters import NOTICE
from linedesk.console import health
from linedesk.console.known import known
from linedesk.console.overview import MOST_ROWS, GateView, gates, pause_row
from linedesk.console.processes import combined, is_fresh, leading, process_of
from linedesk.console.reading import reported
from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import Finding, bad, lasting, of, ok, skip, warn
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import ngettext
from linedesk.runtime.status_row import SYSTEMD
from linedesk.setup.collections import audit_age_days, told_of_audit
from linedesk.store.collections import DISPATCHER
from linedesk.store.control import NO_PAUSES, Control, Pauses
from linedesk.store.documents import DEADLETTERS, HELD, LEASES, PROGRESS, RECVQ, SCHEDULE, STATUS
from linedesk.store.errors import REFUSED_WORDS
from linedesk.store.queue.usage import accepted_at
from linedesk.store.records.events import ACCEPT_TIME
from linedesk.store.records.leases import LeaseRecord
from linedesk.store.records.letters import EXPIRES_AT, LAST_AT, REFUSED, REPLAYED_AT
from linedesk.store.records.timers import RUN_AT, SET_ASIDE

MOST_COUNTED = 10_000
MOST_PAUSES = 5
MOST_NAMED = 5
ASIDE = "db.schedule.find({setAside: {$exists: true}})"
# Younger rows of `status` show what waits now.
WAITING_SECONDS = 120.0


def lease(box: DoctorContext) -> Finding:
    """Whether a dispatcher holds the lease, by the server's clock."""
    row = box.database[LEASES].find_one({"_id": DISPATCHER})
    return judge_lease(row, box.server_time, started_by=_started_by(box, DISPATCHER))


def progress(box: DoctorContext) -> Finding:
    """The age of the saved progress, and of the oldest event that waits."""
    row = box.database[PROGRESS].find_one({"_id": DISPATCHER}, {"after": 1, "finished": 1, "at": 1})
    oldest = _oldest_unfinished(box.database, row or {})
    waiting_since = None if oldest is None else accepted_at(oldest)
    return judge_progress(row, waiting_since, box.now, started_by=_started_by(box, DISPATCHER))


def _started_by(box: DoctorContext, role: str) -> str | None:
    """How the processes were started, by their rows of `status`."""
    rows = box.database[STATUS].find({}).limit(MOST_ROWS)
    return health.started_by([process_of(row, now=box.now) for row in rows], role)


def gate(box: DoctorContext) -> Finding:
    """Whether the gate delays sends, by the row of the dispatcher that holds the lease."""
    rows = reported(box.database, STATUS).find({"role": DISPATCHER}).limit(MOST_COUNTED)
    leader = leading(row for row in rows if is_fresh(row, now=box.now))
    return judge_gates([] if leader is None else gates(combined([leader])))


def pauses(box: DoctorContext) -> Finding:
    """The pauses of operators. Only an operator ends them."""
    return judge_pauses(Control(box.database).read())


def held(box: DoctorContext) -> Finding:
    """Conversations with held events: blocked or paused."""
    wanted = {"channel": 1, "key": 1, "since": 1, "why": 1}
    rows = list(box.database[HELD].find({}, wanted).limit(MOST_COUNTED))
    return judge_held(rows, box.now, paused=Control(box.database).read())


def conversations(box: DoctorContext) -> Finding:
    """Conversations that MongoDB refuses to write, by dead letters and waiting rows."""
    lately = _lately(box)
    why = {"$regex": REFUSED_WORDS}
    letters = box.database[DEADLETTERS].find({**lately, "cause": why}, {"channel": 1, "key": 1})
    rows = list(letters.limit(MOST_COUNTED))
    fresh = {"at": {"$gte": box.now - timedelta(seconds=WAITING_SECONDS)}, "waiting.why": why}
    for process in box.database[STATUS].find(fresh, {"waiting": 1}):
        rows += [one for one in process["waiting"] if REFUSED_WORDS in str(one.get("why"))]
    return judge_conversations(rows)


def _lately(box: DoctorContext) -> Mapping[str, Any]:
    """The filter for dead letters of the last day that were not replayed."""
    return {LAST_AT: {"$gte": box.now - health.LETTERS_WITHIN}, REPLAYED_AT: None}


def letters(box: DoctorContext) -> Finding:
    """Dead letters of the last day that were not replayed."""
    lately = _lately(box)
    refused = {**lately, "cause": {"$regex": f"^{REFUSED}"}}
    count = box.database[DEADLETTERS].count_documents(refused, limit=MOST_COUNTED)
    if count:
        return bad(
            _("{count} refused in the last 24 h: no dead letter or timer belongs to them").format(
                count=count
            ),
            _(
                "`{command}` lists them; if a stranger inserted them into recvq, run `linedesk "
                "init --users FOLDER --new-passwords`"
            ).format(command=f'linedesk dead list --cause "{REFUSED.strip()}"'),
        )
    count = box.database[DEADLETTERS].count_documents(lately, limit=MOST_COUNTED)
    return of(health.dead_letters(count), well=_("none in the last 24 h"))


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


def timers(box: DoctorContext) -> Finding:
    """Timers that are late, and timers that can never fire."""
    schedule = box.database[SCHEDULE]
    due = {RUN_AT: {"$lt": box.now}}
    oldest = schedule.find_one(due, {RUN_AT: 1}, sort=[(RUN_AT, 1)])
    aside = schedule.count_documents({RUN_AT: None, SET_ASIDE: {"$exists": True}}, limit=1_000)
    late = 0.0 if oldest is None else (box.now - oldest[RUN_AT]).total_seconds()
    return judge_timers(late, aside, started_by=_started_by(box, DISPATCHER))


def judge_lease(
    row: Mapping[str, Any] | None, now: datetime, *, started_by: str | None = SYSTEMD
) -> Finding:
    """`row` is the row of `leases`; its owner is machine, process and start."""
    if row is None:
        return bad(_("its lease is missing"), _("`linedesk init` creates it"))
    lease = LeaseRecord.from_document(row)
    if lease.owner and lease.until is not None and lease.until > now:
        machine, pid = lease.owner.split("/")[:2]
        held = _("lease held by process {pid} of {machine}, epoch {epoch}")
        return ok(held.format(pid=pid, machine=machine[:8], epoch=lease.epoch))
    if lease.until:
        saw = _("no dispatcher has run for {duration}, epoch {epoch}").format(
            duration=lasting((now - lease.until).total_seconds()), epoch=lease.epoch
        )
    else:
        saw = _("no dispatcher has run yet, epoch {epoch}").format(epoch=lease.epoch)
    return of(health.absent(DISPATCHER, saw, started_by=started_by))


def judge_progress(
    row: Mapping[str, Any] | None,
    waiting_since: datetime | None,
    now: datetime,
    *,
    started_by: str | None = SYSTEMD,
) -> Finding:
    """`waiting_since` is the arrival of the oldest unfinished document."""
    waited = 0.0 if waiting_since is None else max(0.0, (now - waiting_since).total_seconds())
    if row is None:
        if waiting_since is None:
            return ok(_("no event was received yet"))
        saw = _("no event was ever handled; the oldest waits for {duration}")
        saw = saw.format(duration=lasting(waited))
        return bad(saw, health.reason_at(DISPATCHER, started_by))
    quiet = max(0.0, (now - row["at"]).total_seconds())
    saw = _("saved {duration} ago").format(duration=lasting(quiet))
    if waited:
        saw = _("{saved}, the oldest event waits for {duration}").format(
            saved=saw, duration=lasting(waited)
        )
    problem = health.progress(quiet_seconds=quiet, oldest_seconds=waited, started_by=started_by)
    return of(problem, saw=saw)


def judge_gates(found: Sequence[GateView]) -> Finding:
    """`found`: the gate of each host of LINE; empty if no dispatcher leads."""
    if not found:
        return skip(_("no dispatcher reports it"))
    saw = ", ".join(f"{one.host} {one.use or 0.0:.0%}" for one in found)
    problems = (health.gate(one) for one in found)
    first = next((one for one in problems if one is not None), None)
    return of(first, well=_("used in the last 10 s: {shares}").format(shares=saw))


def judge_pauses(found: Pauses) -> Finding:
    """By the first pauses, each with its time, operator and reason."""
    if not found:
        return ok(_("nothing is paused"))
    named = [health.paused(pause_row(one)) for one in found.rows[:MOST_PAUSES]]
    more = len(found.rows) - len(named)
    rest = [_("{count} more").format(count=more)] if more else []
    saw = "; ".join([*(one.saw for one in named), *rest])
    return of(named[0], saw=_("paused: {scopes}").format(scopes=saw))


def judge_held(
    rows: Sequence[Mapping[str, Any]], now: datetime, *, paused: Pauses = NO_PAUSES
) -> Finding:
    """By `rows` of `held`, in any order. `judge_pauses` reports paused ones."""
    if not rows:
        return ok(_("no conversation is held"))
    first = min(rows, key=lambda row: row["since"])
    waited = (now - first["since"]).total_seconds()
    keys = len({row["key"] for row in rows})
    saw = _("events: {events}, conversations: {conversations}, the first held for {duration}")
    saw = saw.format(events=len(rows), conversations=keys, duration=lasting(waited))
    waiting = [row for row in rows if not paused.covers(row.get("channel"), row["key"])]
    problem = health.stuck_conversations(waiting, now)
    return ok(saw) if problem is None else of(problem, saw=f"{saw}; {problem.saw}")


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


def judge_timers(late_seconds: float, aside: int, *, started_by: str | None = SYSTEMD) -> Finding:
    """`aside` is the number of timers that can never fire."""
    problem = health.late_timer(late_seconds, started_by=started_by)
    if problem is None and aside:
        return warn(
            _("{count} can never fire").format(count=aside),
            _("`{command}` in the mongo shell shows the reasons").format(command=ASIDE),
        )
    return of(problem, well=_("none is late"))


def _oldest_unfinished(database: Database[Any], row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The oldest document by `_id`, which is made at arrival and has an index."""
    after, finished = row.get("after"), row.get("finished", ())
    beyond = {"_id": {"$gt": after}} if after is not None else {}
    found = database[RECVQ].find(beyond, {ACCEPT_TIME: 1}).sort("_id", 1).limit(MOST_COUNTED)
    return next((document for document in found if document["_id"] not in finished), None)
