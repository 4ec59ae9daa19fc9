"""The other task queues of `bench record`, as far as that needs none of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.peers import drain, postgresql
from bench.report import BenchFailed


def test_each_peer_has_its_module() -> None:
    for peer in drain.PEERS.values():
        assert (Path(drain.__file__).parent / f"{peer.module}.py").exists()


def test_a_missing_server_is_an_error_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgresql, "find", lambda program: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    with pytest.raises(BenchFailed, match=r"apt-get install .* postgresql"):
        postgresql.install()
