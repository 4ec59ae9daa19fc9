"""The other task queues of the benches, as far as that needs none of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.peers import servers
from bench.peers.measure import measured_for
from bench.peers.names import LACKS, PEERS
from bench.report import BenchFailed


def test_each_peer_says_what_it_does_not_promise() -> None:
    assert all(LACKS[name] for name in PEERS)


def test_every_measurement_has_peers_and_their_modules_are_there() -> None:
    for what in ("enqueue", "complete", "latency"):
        for _, peer in measured_for(what):
            assert (Path(servers.__file__).parent / f"{peer.module}.py").exists()


def test_a_missing_server_is_an_error_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servers, "find", lambda program: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    with pytest.raises(BenchFailed, match=r"apt-get install .* postgresql redis-server"):
        servers.install_servers({"redis", "postgresql"})
