"""LINE's hosts as the process uses them: each with a gate of its own, and its breaker.

A long download holds the data host's gate and delays no send. Failing downloads stop no send
either.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from jobworker.line.breaker import BreakerState
from jobworker.line.gate import Gate
from jobworker.metrics import WorkerMetrics
from linedesk.store.records.calls import TurnClass


@dataclass(frozen=True)
class Host:
    """One base URL, with the gate of its host."""

    base: str
    gate: Gate
    name: str = "api"
    """The host's label in figures: api or data."""


@dataclass(frozen=True)
class Hosts:
    """The hosts of LINE's API and of media."""

    api: Host
    data: Host

    @classmethod
    def of(
        cls,
        api_base: str,
        data_base: str,
        *,
        interval_seconds: float,
        figures: WorkerMetrics | None = None,
        **gate_options: Any,
    ) -> Hosts:
        """Return the hosts of two bases; bases of the same host share its gate.

        `gate_options` are the other ones of each `Gate`.
        """
        counts = figures or WorkerMetrics()

        def host(base: str, name: str) -> Host:
            taken = partial(counts.turn_taken, name)
            gate = Gate(interval_seconds, turn_taken=taken, **gate_options)
            _watch(counts, name, gate)
            return Host(base.rstrip("/"), gate, name)

        api = host(api_base, "api")
        if _host_and_port(api_base) == _host_and_port(data_base):
            hosts = cls(api, replace(api, base=data_base.rstrip("/"), name="data"))
        else:
            hosts = cls(api, host(data_base, "data"))
        breakers = hosts.api.gate.breaker, hosts.data.gate.breaker
        refused = BreakerState.UNAUTHORIZED
        counts.set("token_refused", lambda: any(one.state is refused for one in breakers))
        return hosts

    def close(self) -> None:
        for host in (self.api, self.data):
            host.gate.close()


def _watch(figures: WorkerMetrics, name: str, gate: Gate) -> None:
    breaker = gate.breaker
    figures.set("gate_use", lambda: gate.use, name)
    figures.set("gate_waiting", lambda: gate.waiting, name)
    for one in TurnClass:
        figures.set("gate_class_waiting", partial(gate.waiting_in, one), name, one.word)
        figures.set(
            "gate_class_longest_seconds", partial(gate.longest_seconds, one), name, one.word
        )
    figures.set("breaker_open", lambda: breaker.state is BreakerState.OPEN, name)
    figures.set("breaker_pause_seconds", lambda: round(breaker.held_seconds(), 3), name)


def _host_and_port(base: str) -> tuple[str | None, int]:
    parts = urlsplit(base)
    return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
