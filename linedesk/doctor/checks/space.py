"""How long recvq and the oplog keep documents at the present rate, and the free disk space."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from pymongo.database import Database

from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import (
    Finding,
    FindingLevel,
    bad,
    hourly,
    lasting,
    ok,
    size,
    warn,
)
from linedesk.operate import health
from linedesk.operate.health import DAY_SECONDS, HOUR_SECONDS
from linedesk.runtime.language import gettext as _
from linedesk.store.collections import MEGABYTE
from linedesk.store.queue.usage import Span, oplog_span, recvq_span

# A rate that was measured for less is not reliable, unless a tenth is full already.
MEASURED_SECONDS = HOUR_SECONDS
YOUNG_SHARE = 0.1


@dataclass(frozen=True)
class Disk:
    """The file system of MongoDB's data, in bytes."""

    free_bytes: int
    total_bytes: int


def oplog(box: DoctorContext) -> Finding:
    """Whether a dispatcher that was down can resume."""
    span = oplog_span(box.client)
    if span is None:
        return bad(_("there is no oplog"), _("`linedesk init` makes the server a replica set"))
    return judge_oplog(span)


def reach(box: DoctorContext) -> Finding:
    """How long recvq keeps events."""
    span = recvq_span(box.database, now=box.now)
    return ok(_("empty, not measured yet")) if span is None else judge_reach(span)


def disk(box: DoctorContext) -> Finding:
    """MongoDB's disk, without the space that recvq and the oplog will still use."""
    spans = [recvq_span(box.database, now=box.now), oplog_span(box.client)]
    promised = sum(max(0, span.most_bytes - span.bytes) for span in spans if span is not None)
    return judge_disk(read_disk(box.database), promised)


def read_disk(database: Database[Any]) -> Disk:
    """The disk of the database, as reported by the server."""
    stats = database.command("dbStats")
    total, used = int(stats["fsTotalSize"]), int(stats["fsUsedSize"])
    return Disk(free_bytes=total - used, total_bytes=total)


def spool(box: DoctorContext) -> Finding:
    """The spool's disk; needs no MongoDB, since the spool matters most while it is down."""
    folder = box.settings.spool_path.parent
    try:
        free = os.statvfs(folder)
    except FileNotFoundError:
        do = _("create it for the user linedesk: see SPOOL_PATH")
        return bad(_("{file} is missing").format(file=folder), do)
    return judge_spool(free.f_bavail * free.f_frsize, box.settings.spool_max_mb * MEGABYTE)


def bridge(box: DoctorContext) -> Finding:
    """The longest outage of MongoDB for which the spool has room."""
    span = recvq_span(box.database, now=box.now)
    if span is None or not span.bytes_per_second:
        return ok(_("not measured yet"))
    return judge_bridge(box.settings.spool_max_mb * MEGABYTE / span.bytes_per_second)


def judge_oplog(span: Span) -> Finding:
    """The oplog's retention, against the longest time that a dispatcher may be down."""
    saw = f"{_window(span)}, {size(span.most_bytes)}"
    do = _("enlarge it in the mongo shell: {command}").format(command=_resize(span))
    return _by_time(span, saw, do)


def judge_reach(span: Span) -> Finding:
    """The time for which an event can be read again and a redelivery is recognised."""
    saw = f"{_window(span)}, {size(span.most_bytes)}"
    do = _("enlarge it in the mongo shell: {command}").format(command=_recap(span))
    return _by_time(span, saw, do)


def judge_disk(found: Disk, promised_bytes: int) -> Finding:
    """`promised_bytes`: the space by which capped collections may still grow."""
    left = found.free_bytes - promised_bytes
    saw = (_("{free} of {total} free, {promised} of it for recvq and oplog")).format(
        free=size(found.free_bytes), total=size(found.total_bytes), promised=size(promised_bytes)
    )
    do = _("free space on MongoDB's disk: when it is full, MongoDB stops and the spool fills")
    if left < health.DISK_BAD_BYTES:
        return bad(saw, do)
    return warn(saw, do) if left < health.DISK_WARN_BYTES else ok(saw)


def judge_spool(free_bytes: int, most_bytes: int) -> Finding:
    """`most_bytes` is SPOOL_MAX_MB."""
    saw = _("{free} free, SPOOL_MAX_MB is {most}")
    saw = saw.format(free=size(free_bytes), most=size(most_bytes))
    if free_bytes < health.SPOOL_SPARE_BYTES:
        return bad(saw, _("free space: without it LINE gets 503 while MongoDB is down"))
    if free_bytes < most_bytes + health.SPOOL_SPARE_BYTES:
        return warn(saw, _("free space, or lower SPOOL_MAX_MB to the free space"))
    return ok(saw)


def judge_bridge(seconds: float) -> Finding:
    """The time in which events at recvq's rate fill SPOOL_MAX_MB."""
    saw = _("lasts for {duration} without MongoDB").format(duration=lasting(seconds))
    if seconds < health.WINDOW_BAD_SECONDS:
        return warn(saw, _("raise SPOOL_MAX_MB: the spool must last for an outage of MongoDB"))
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
        told = _("measured only for {duration}, too short for a figure")
        return told.format(duration=lasting(span.seconds))
    told = _("{duration} at {rate}")
    return told.format(duration=lasting(span.keeps_seconds), rate=hourly(span.bytes_per_second))


def _larger(span: Span) -> int:
    """The megabytes for one and a half days at that rate."""
    return int(span.bytes_per_second * DAY_SECONDS * 1.5 / MEGABYTE) + 1


def _resize(span: Span) -> str:
    # replSetResizeOplog accepts 990 MB or more.
    return f"db.adminCommand({{replSetResizeOplog: 1, size: {max(990, _larger(span))}}})"


def _recap(span: Span) -> str:
    return f"db.runCommand({{collMod: 'recvq', cappedSize: {_larger(span) * MEGABYTE}}})"
