"""The alerts in deploy/ begin where `linedesk status` and the page do: at health's constants."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from linedesk.operate import health
from linedesk.operate.processes import FRESH_SECONDS

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "linedesk-alerts.yml"
# The compared expression of a query: the last metric before the operator, with labels and ranges.
COMPARED = re.compile(
    r"(linedesk_\w+)(?:\{([^}]*)\})?[^<>=]*?(>=|==|<|>)\s*(?:([\d.]+)(?:\s*\*\s*max\((\w+)\))?)"
)
THRESHOLDS = {
    ("LinedeskAnswersLate", "linedesk_unpaused_oldest_seconds", ">"): health.WAIT_WARN_SECONDS,
    ("LinedeskPauseForgotten", "linedesk_oldest_pause_seconds", ">"): health.DAY_SECONDS,
    ("LinedeskRecvqFilling", "linedesk_recvq_unread_share", ">="): health.UNREAD_WARN_SHARE,
    ("LinedeskRecvqFilling", "linedesk_recvq_left_seconds", "<"): health.WINDOW_BAD_SECONDS,
    ("LinedeskRecvqFilling", "linedesk_oplog_left_seconds", "<"): health.WINDOW_BAD_SECONDS,
    ("LinedeskRecvqFilling", "linedesk_behind_seconds", ">"): health.WAIT_WARN_SECONDS,
    ("LinedeskSpooling", "linedesk_spool_documents", ">"): health.SPOOL_WARN_DOCUMENTS,
    (
        "LinedeskRefusesWebhooks",
        "|".join(health.REFUSED_REASONS),
        ">",
    ): health.REFUSED_BAD_PER_SECOND,
    ("LinedeskRefusesWebhooks", "slow", ">"): health.SLOW_BAD_PER_SECOND,
    ("LinedeskDeadLetters", "linedesk_dead_letters_total", ">"): health.LETTERS_WARN_COUNT,
    ("LinedeskLineFails", "linedesk_quota_used_messages", ">="): health.QUOTA_WARN_SHARE,
}
# They hold or do not hold: there is no threshold in them.
CLAIMS = {
    "linedesk_workers",
    "linedesk_broker_up",
    "linedesk_leading",
    "linedesk_token_refused",
    "linedesk_breaker_open",
    "linedesk_failed_handlers_total",
    "linedesk_pauses",
    "linedesk_outbox_effects",
    "linedesk_calls_total",
}


def compared() -> dict[tuple[str, str, str], float]:
    """Every number that an alert compares a measurement with."""
    [group] = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    found: dict[tuple[str, str, str], float] = {}
    for rule in group["rules"]:
        for metric, labels, operator, value, _ in COMPARED.findall(rule["expr"]):
            if metric not in CLAIMS:
                reasons = re.search(r'reason=~?"([^"]+)"', labels)
                found[rule["alert"], reasons[1] if reasons else metric, operator] = float(value)
    return found


def test_every_threshold_of_the_alerts_is_one_of_health() -> None:
    assert compared() == pytest.approx(THRESHOLDS)


def test_the_mongo_shell_calls_the_same_rows_fresh() -> None:
    shell = (ROOT / "scripts" / "inspect.js").read_text("utf-8")
    named: Any = re.search(r"const FRESH_SECONDS = (\d+);", shell)
    assert float(named[1]) == FRESH_SECONDS
