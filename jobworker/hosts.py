"""LINE's hosts as the process reaches them: each with its own gate, and what it fails by itself.

A long download holds the data host's gate and no send; five downloads that fail stop no send
either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from jobworker.breaker import Breaker
from jobworker.gate import HANDLER_TURN_SECONDS, Gate
from jobworker.timed import sent_at


@dataclass(frozen=True)
class Host:
    """One base URL, with the gate and the breaker of its host."""

    base: str
    gate: Gate
    breaker: Breaker


@dataclass(frozen=True)
class Hosts:
    """Where LINE's API is, and where it serves and takes media."""

    api: Host
    data: Host

    @classmethod
    def of(
        cls,
        api_base: str,
        data_base: str,
        *,
        interval_seconds: float,
        handler_turn_seconds: float = HANDLER_TURN_SECONDS,
        step: Callable[[Callable[[], None]], None],
        later: Callable[[float, Callable[[], None]], None],
        lease_is_fresh: Callable[[], bool],
    ) -> Hosts:
        """The hosts of two bases; bases of one and the same host share its gate."""

        def host(base: str) -> Host:
            breaker = Breaker()
            gate = Gate(
                interval_seconds,
                step=step,
                later=later,
                lease_is_fresh=lease_is_fresh,
                held_seconds=breaker.held_seconds,
                sent_at=sent_at,
                handler_turn_seconds=handler_turn_seconds,
            )
            return Host(base.rstrip("/"), gate, breaker)

        api = host(api_base)
        if _host_and_port(api_base) == _host_and_port(data_base):
            return cls(api, replace(api, base=data_base.rstrip("/")))
        return cls(api, host(data_base))

    def close(self) -> None:
        """Begin no more calls."""
        for host in (self.api, self.data):
            host.gate.close()


def _host_and_port(base: str) -> tuple[str | None, int]:
    parts = urlsplit(base)
    return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
