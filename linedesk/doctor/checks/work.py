"""Whether what is stored gets handled: dispatcher, scheduler, and what they leave behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pymongo.database import Database

from jobworker.record.dead_letters import NOTICE
from linedesk.console import health
from linedesk.console.overview import MOST_ROWS, GateView, gates, pause_row
from linedesk.console.processes import SCHEDULER, combined, is_fresh, leading, process_of
from linedesk.console.reading import reported
from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import Finding, bad, lasting, of, ok, skip, warn
from linedesk.runtime.status_row import SYSTEMD
from linedesk.store.collections import DISPATCHER, audit_age_days, told_of_audit
from linedesk.store.control import NO_PAUSES, Control, Pauses
from linedesk.store.documents import DEADLETTERS, HELD, LEASES, PROGRESS, RECVQ, SCHEDULE, STATUS
from linedesk.store.errors import REFUSED_WORDS
from linedesk.store.queue.replays import REFUSED
from linedesk.store.queue.retention import accepted_at
from linedesk.store.records.events import ACCEPT_TIME
from linedesk.store.records.leases import LeaseRecord
from linedesk.store.records.letters import EXPIRES_AT, LAST_AT, REPLAYED_AT
from linedesk.store.records.timers import RUN_AT, SET_ASIDE

MOST_COUNTED = 10_000
MOST_PAUSES = 5
MOST_NAMED = 5
# Status rows younger than this tell what waits now.
WAITING_SECONDS = 120.0


def lease(box: DoctorContext) -> Finding:
    """Whether a dispatcher holds it, by the server's clock."""
    row = box.database[LEASES].find_one({"_id": DISPATCHER})
    return judge_lease(row, box.server_time, started_by=_started_by(box, DISPATCHER))


def progress(box: DoctorContext) -> Finding:
    """Whether it was saved lately, and the age of the oldest document that waits."""
    row = box.database[PROGRESS].find_one({"_id": DISPATCHER}, {"after": 1, "finished": 1, "at": 1})
    oldest = _oldest_unfinished(box.database, row or {})
    waiting_since = None if oldest is None else accepted_at(oldest)
    return judge_progress(row, waiting_since, box.now, started_by=_started_by(box, DISPATCHER))


def _started_by(box: DoctorContext, role: str) -> str | None:
    """What started the processes here, by their rows of `status`."""
    rows = box.database[STATUS].find({}).limit(MOST_ROWS)
    return health.started_by([process_of(row, now=box.now) for row in rows], role)


def gate(box: DoctorContext) -> Finding:
    """Whether the gate holds up what waits, by the row of the dispatcher that holds the lease."""
    rows = reported(box.database, STATUS).find({"role": DISPATCHER}).limit(MOST_COUNTED)
    leader = leading(row for row in rows if is_fresh(row, now=box.now))
    return judge_gates([] if leader is None else gates(combined([leader])))


def pauses(box: DoctorContext) -> Finding:
    """What an operator has paused: only an operator ends it."""
    return judge_pauses(Control(box.database).read())


def held(box: DoctorContext) -> Finding:
    """Conversations that wait because of themselves, or are paused."""
    wanted = {"channel": 1, "key": 1, "since": 1, "why": 1}
    rows = list(box.database[HELD].find({}, wanted).limit(MOST_COUNTED))
    return judge_held(rows, box.now, paused=Control(box.database).read())


def conversations(box: DoctorContext) -> Finding:
    """Those that MongoDB refuses to write: what was given up for it, or waits for it."""
    lately = _lately(box)
    why = {"$regex": REFUSED_WORDS}
    letters = box.database[DEADLETTERS].find({**lately, "cause": why}, {"channel": 1, "key": 1})
    rows = list(letters.limit(MOST_COUNTED))
    fresh = {"at": {"$gte": box.now - timedelta(seconds=WAITING_SECONDS)}, "waiting.why": why}
    for process in box.database[STATUS].find(fresh, {"waiting": 1}):
        rows += [one for one in process["waiting"] if REFUSED_WORDS in str(one.get("why"))]
    return judge_conversations(rows)


def _lately(box: DoctorContext) -> Mapping[str, Any]:
    """Dead letters within a day that were not replayed."""
    return {LAST_AT: {"$gte": box.now - health.LETTERS_WITHIN}, REPLAYED_AT: None}


def letters(box: DoctorContext) -> Finding:
    """What was given up within a day and not replayed."""
    lately = _lately(box)
    refused = {**lately, "cause": {"$regex": f"^{REFUSED}"}}
    count = box.database[DEADLETTERS].count_documents(refused, limit=MOST_COUNTED)
    if count:
        return bad(
            f"{count} refused within a day: no letter or timer stands behind them",
            f'`linedesk dead list --cause "{REFUSED.strip()}"` tells which; where a stranger '
            "inserted them into recvq: `linedesk init --users FOLDER --new-passwords`",
        )
    count = box.database[DEADLETTERS].count_documents(lately, limit=MOST_COUNTED)
    return of(health.dead_letters(count), well="none within a day")


def ages(box: DoctorContext) -> Finding:
    """How long dead letters and rows of `audit` are kept, and what goes within a week."""
    days = box.settings.audit_days
    letters = box.database[DEADLETTERS]
    going = letters.count_documents({EXPIRES_AT: {"$type": "date"}}, limit=MOST_COUNTED)
    audit = f"audit: {told_of_audit(box.database, days=days)}"
    saw, do = [], []
    if going:
        first = letters.find_one({EXPIRES_AT: {"$type": "date"}}, sort=[(EXPIRES_AT, 1)]) or {}
        which = "1 dead letter goes" if going == 1 else f"{going} dead letters go"
        saw.append(f"{which} within a week, the first on {first[EXPIRES_AT]:%Y-%m-%d}")
        until = box.settings.dead_letter_days - NOTICE.days
        do.append(
            f"replay what is wanted: `linedesk dead list --until {until}d`; "
            "or a longer DEAD_LETTER_DAYS"
        )
    if audit_age_days(box.database) != days:
        saw.append(f"{audit}, once MongoDB knows of it")
        do.append("`linedesk init` tells it AUDIT_DAYS")
    if saw:
        return warn("; ".join(saw), "; ".join(do))
    return ok(f"{audit}; dead letters after {box.settings.dead_letter_days} days, none in a week")


def timers(box: DoctorContext) -> Finding:
    """Those that are due and did not ring, and those that never can."""
    schedule = box.database[SCHEDULE]
    due = {RUN_AT: {"$lt": box.now}}
    oldest = schedule.find_one(due, {RUN_AT: 1}, sort=[(RUN_AT, 1)])
    aside = schedule.count_documents({RUN_AT: None, SET_ASIDE: {"$exists": True}}, limit=1_000)
    late = 0.0 if oldest is None else (box.now - oldest[RUN_AT]).total_seconds()
    process = box.settings.scheduler == "process"
    role = SCHEDULER if process else DISPATCHER
    return judge_timers(late, aside, process=process, started_by=_started_by(box, role))


def judge_lease(
    row: Mapping[str, Any] | None, now: datetime, *, started_by: str | None = SYSTEMD
) -> Finding:
    """`row` is that of `leases`; its owner is machine, process and start."""
    if row is None:
        return bad("its row is missing", "`linedesk init` makes it")
    lease = LeaseRecord.from_document(row)
    if lease.owner and lease.until is not None and lease.until > now:
        machine, pid = lease.owner.split("/")[:2]
        return ok(f"held by process {pid} of {machine[:8]}, epoch {lease.epoch}")
    since = f" for {lasting((now - lease.until).total_seconds())}" if lease.until else ""
    saw = f"no dispatcher has run{since}, epoch {lease.epoch}"
    return of(health.absent(DISPATCHER, saw, started_by=started_by))


def judge_progress(
    row: Mapping[str, Any] | None,
    waiting_since: datetime | None,
    now: datetime,
    *,
    started_by: str | None = SYSTEMD,
) -> Finding:
    """`waiting_since` is when the oldest document arrived that is not finished."""
    waited = 0.0 if waiting_since is None else max(0.0, (now - waiting_since).total_seconds())
    if row is None:
        if waiting_since is None:
            return ok("nothing was received yet")
        saw = f"nothing was ever handled, waiting for {lasting(waited)}"
        return bad(saw, health.reason_at(DISPATCHER, started_by))
    quiet = max(0.0, (now - row["at"]).total_seconds())
    saw = f"saved {lasting(quiet)} ago"
    if waited:
        saw += f", the oldest event waits for {lasting(waited)}"
    problem = health.progress(quiet_seconds=quiet, oldest_seconds=waited, started_by=started_by)
    return of(problem, saw=saw)


def judge_gates(found: Sequence[GateView]) -> Finding:
    """`found`: that of each host of LINE; none where no dispatcher leads."""
    if not found:
        return skip("no dispatcher tells of it")
    saw = ", ".join(f"{one.host} {one.use or 0.0:.0%}" for one in found)
    problems = (health.gate(one) for one in found)
    first = next((one for one in problems if one is not None), None)
    return of(first, well=f"used in the last 10 s: {saw}")


def judge_pauses(found: Pauses) -> Finding:
    """The first ones are named: since when, by whom and why."""
    if not found:
        return ok("nothing is paused")
    named = [health.paused(pause_row(one)) for one in found.rows[:MOST_PAUSES]]
    more = len(found.rows) - len(named)
    saw = "; ".join([*(one.saw for one in named), *([f"{more} more"] if more else [])])
    return of(named[0], saw=f"paused: {saw}")


def judge_held(
    rows: Sequence[Mapping[str, Any]], now: datetime, *, paused: Pauses = NO_PAUSES
) -> Finding:
    """`rows` of `held`, in any order; of what is paused `judge_pauses` speaks."""
    if not rows:
        return ok("no conversation is held")
    first = min(rows, key=lambda row: row["since"])
    waited = (now - first["since"]).total_seconds()
    keys = len({row["key"] for row in rows})
    saw = f"{len(rows)} events of {keys} conversations, the first for {lasting(waited)}"
    waiting = [row for row in rows if not paused.covers(row.get("channel"), row["key"])]
    problem = health.stuck_conversations(waiting, now)
    return ok(saw) if problem is None else of(problem, saw=f"{saw}; {problem.saw}")


def judge_conversations(rows: Sequence[Mapping[str, Any]]) -> Finding:
    """`rows` name by channel and key what MongoDB refuses to write, each any number of times."""
    names = list(dict.fromkeys(f"{row.get('channel')}/{row.get('key')}" for row in rows))
    if not names:
        return ok("MongoDB takes what is written to them")
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return bad(
        f"MongoDB refuses writes to {', '.join(names[:MOST_NAMED])}{more}",
        f'`linedesk dead list --cause "{REFUSED_WORDS}"` tells why; make the conversation smaller '
        "or right in the mongo shell, then replay",
    )


def judge_timers(
    late_seconds: float, aside: int, *, process: bool, started_by: str | None = SYSTEMD
) -> Finding:
    """`process` says whether a scheduler of its own is to run."""
    problem = health.late_timer(late_seconds, own_process=process, started_by=started_by)
    if problem is None and aside:
        return warn(
            f"{aside} can never ring", "db.schedule.find({setAside: {$exists: true}}) tells why"
        )
    return of(problem, well="none is late")


def _oldest_unfinished(database: Database[Any], row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """By `_id`, which is made at arrival: near enough for an age, and an index has it."""
    after, finished = row.get("after"), row.get("finished", ())
    beyond = {"_id": {"$gt": after}} if after is not None else {}
    found = database[RECVQ].find(beyond, {ACCEPT_TIME: 1}).sort("_id", 1).limit(MOST_COUNTED)
    return next((document for document in found if document["_id"] not in finished), None)
