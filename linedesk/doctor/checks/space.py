"""How long what is stored stays, at the rate at which it comes, and what the disks still take."""

from __future__ import annotations

import os

from linedesk.console import health
from linedesk.console.health import DAY_SECONDS, HOUR_SECONDS
from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import (
    Finding,
    FindingLevel,
    bad,
    hourly,
    lasting,
    of,
    ok,
    size,
    warn,
)
from linedesk.store.collections import MEGABYTE
from linedesk.store.queue.gauge import Gauge, Reach
from linedesk.store.queue.retention import Disk, Span, oplog_span, read_disk, recvq_span

# A rate that was measured for a shorter time says little, unless it has filled a tenth already.
MEASURED_SECONDS = HOUR_SECONDS
YOUNG_SHARE = 0.1


def oplog(box: DoctorContext) -> Finding:
    """Whether a dispatcher that was away finds its place again."""
    span = oplog_span(box.client)
    if span is None:
        return bad("there is none", "`linedesk init` makes the server a replica set")
    return judge_oplog(span)


def reach(box: DoctorContext) -> Finding:
    """How far back recvq reaches."""
    span = recvq_span(box.database, now=box.now)
    return ok("empty, so nothing is measured yet") if span is None else judge_reach(span)


def unread(box: DoctorContext) -> Finding:
    """How much of recvq is unread."""
    return judge_unread(Gauge(box.database).measure(patient=True))


def disk(box: DoctorContext) -> Finding:
    """MongoDB's, with what recvq and the oplog will still take of it."""
    spans = [recvq_span(box.database, now=box.now), oplog_span(box.client)]
    promised = sum(max(0, span.most_bytes - span.bytes) for span in spans if span is not None)
    return judge_disk(read_disk(box.database), promised)


def spool(box: DoctorContext) -> Finding:
    """The spool's disk; asks nothing of MongoDB, since it counts most while that is away."""
    folder = box.settings.spool_path.parent
    try:
        free = os.statvfs(folder)
    except FileNotFoundError:
        return bad(f"{folder} is missing", "make it, for the user linedesk: see SPOOL_PATH")
    return judge_spool(free.f_bavail * free.f_frsize, box.settings.spool_max_mb * MEGABYTE)


def bridge(box: DoctorContext) -> Finding:
    """How long an outage of MongoDB the spool bridges."""
    span = recvq_span(box.database, now=box.now)
    if span is None or not span.bytes_per_second:
        return ok("nothing is measured yet")
    return judge_bridge(box.settings.spool_max_mb * MEGABYTE / span.bytes_per_second)


def judge_oplog(span: Span) -> Finding:
    """Its window, against the longest time that a dispatcher may be away."""
    saw = f"{_window(span)}, {size(span.most_bytes)}"
    do = f"make it larger, in the mongo shell: {_resize(span)}"
    return _by_time(span, saw, do)


def judge_reach(span: Span) -> Finding:
    """How long an event stays, so that it can be read again and a redelivery be known."""
    saw = f"{_window(span)}, {size(span.most_bytes)}"
    do = f"make it larger, in the mongo shell: {_recap(span)}"
    return _by_time(span, saw, do)


def judge_unread(found: Reach) -> Finding:
    """Against the shares at which the guard warns and closes."""
    saw = f"{found.share:.0%} of recvq is unread, {size(found.unread_bytes)}"
    return of(health.unread(found.share), saw=saw)


def judge_disk(found: Disk, promised_bytes: int) -> Finding:
    """`promised_bytes`: what capped collections may still grow by."""
    left = found.free_bytes - promised_bytes
    saw = (
        f"{size(found.free_bytes)} of {size(found.total_bytes)} free, "
        f"{size(promised_bytes)} of it for recvq and oplog"
    )
    do = "make room on MongoDB's disk: without it MongoDB stops, and the spool has to take all"
    if left < health.DISK_BAD_BYTES:
        return bad(saw, do)
    return warn(saw, do) if left < health.DISK_WARN_BYTES else ok(saw)


def judge_spool(free_bytes: int, most_bytes: int) -> Finding:
    """`most_bytes` is SPOOL_MAX_MB."""
    saw = f"{size(free_bytes)} free for SPOOL_MAX_MB of {size(most_bytes)}"
    if free_bytes < health.SPOOL_SPARE_BYTES:
        return bad(saw, "make room: with MongoDB away, LINE would be answered 503")
    if free_bytes < most_bytes + health.SPOOL_SPARE_BYTES:
        return warn(saw, "make room, or lower SPOOL_MAX_MB to what there is")
    return ok(saw)


def judge_bridge(seconds: float) -> Finding:
    """For how long SPOOL_MAX_MB takes what comes at recvq's rate."""
    saw = f"lasts for {lasting(seconds)} without MongoDB"
    if seconds < health.WINDOW_BAD_SECONDS:
        return warn(saw, "raise SPOOL_MAX_MB: it has to last for an outage of MongoDB")
    return ok(saw)


def _by_time(span: Span, saw: str, do: str) -> Finding:
    level = health.window_level(span.keeps_seconds)
    if level is None or _is_young(span):
        return ok(saw)
    return Finding(FindingLevel(level), saw, do)


def _is_young(span: Span) -> bool:
    return span.seconds < MEASURED_SECONDS and span.bytes < YOUNG_SHARE * span.most_bytes


def _window(span: Span) -> str:
    if _is_young(span):
        return f"measured for {lasting(span.seconds)} only, which tells nothing yet"
    return f"{lasting(span.keeps_seconds)} at {hourly(span.bytes_per_second)}"


def _larger(span: Span) -> int:
    """Megabytes that reach for a day at that rate, with half as much to spare."""
    return int(span.bytes_per_second * DAY_SECONDS * 1.5 / MEGABYTE) + 1


def _resize(span: Span) -> str:
    # replSetResizeOplog takes no less than 990 MB.
    return f"db.adminCommand({{replSetResizeOplog: 1, size: {max(990, _larger(span))}}})"


def _recap(span: Span) -> str:
    return f"db.runCommand({{collMod: 'recvq', cappedSize: {_larger(span) * MEGABYTE}}})"
