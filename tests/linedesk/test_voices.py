"""What a supervisor's programs say, heard through the kernel, and what it makes of it."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from linedesk import voices as voices_module
from linedesk.supervisor import Program, Supervisor
from linedesk.systemd import Systemd
from linedesk.voices import Voices
from tests.listener import Listener
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]

# Says what it is told to say, one word a line.
PARROT = """
import os, sys
from linedesk.systemd import service_from
service = service_from(os.environ)
for line in open(sys.argv[1]):
    word, _, status = line.strip().partition(" ")
    getattr(service, word)(status)
"""


@pytest.fixture
def voices() -> Iterator[Voices]:
    voices = Voices()
    yield voices
    voices.close()


def test_a_process_is_heard_by_its_number_and_strangers_are_not(voices: Voices) -> None:
    own = Systemd(voices.address)
    own.ready("at work")
    own.close()
    script = f"from linedesk.systemd import Systemd; Systemd({voices.address!r}).ready('forged')"
    stranger = subprocess.Popen([sys.executable, "-W", "ignore", "-c", script], cwd=ROOT)
    assert stranger.wait(15) == 0
    voices.hear({os.getpid()})
    voice = voices.of(os.getpid())
    assert (voice.is_ready, voice.status, voice.is_well) == (True, "at work", True)
    assert not voices.of(stranger.pid).is_ready
    voices.hear(set())
    assert not voices.of(os.getpid()).is_ready, "its number may be another's by now"


def test_one_that_says_no_word_is_not_well(voices: Voices, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Systemd(voices.address)
    own.starting("imports", seconds=30)
    voices.hear({os.getpid()})
    monkeypatch.setattr(voices_module, "SILENT_SECONDS", -1.0)
    assert voices.of(os.getpid()).is_well, "nobody waits for it yet"
    own.ready("at work")
    voices.hear({os.getpid()})
    assert not voices.of(os.getpid()).is_well
    monkeypatch.setattr(voices_module, "SILENT_SECONDS", 30.0)
    assert voices.of(os.getpid()).is_well
    own.close()


def test_a_supervisor_is_ready_when_all_of_its_programs_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And well as long as they are; a mongod, which says nothing, counts as ready."""
    for name in ("first", "second"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "parrot.py").write_text(PARROT)
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    programs = [
        Program(name, [sys.executable, str(tmp_path / "parrot.py"), str(tmp_path / name)], 10.0)
        for name in ("first", "second")
    ]
    programs.append(Program("mongod", ["sleep", "60"], 10.0, quiet=True))
    service, signals = Listener(), queue.SimpleQueue[int]()
    endings: list[int] = []
    supervisor = Supervisor(programs, environ, signals, service)
    thread = threading.Thread(target=lambda: endings.append(supervisor.run()))
    thread.start()
    with (tmp_path / "first").open("w") as first, (tmp_path / "second").open("w") as second:

        def say(to: object, words: str) -> None:
            print(words, file=to, flush=True)  # type: ignore[call-overload]

        say(first, "ready all is well")
        waits = "first: all is well | second: starting | mongod: running"
        eventually(lambda: service.says("starting", waits))
        say(second, "ready 3 in hand")
        eventually(lambda: service.says("alive", "second: 3 in hand | mongod: running"))
        monkeypatch.setattr(voices_module, "SILENT_SECONDS", -1.0)
        eventually(lambda: service.says("unwell", "second: 3 in hand"))
        signals.put(signal.SIGTERM)
        # Here is no main thread that would hear of its children's ends.
        eventually(lambda: signals.put(signal.SIGCHLD) or not thread.is_alive())
    assert endings == [0]
    assert service.methods == ["starting", "ready", "alive", "unwell", "stopping"]
    assert [status for method, status in service.told if method == "stopping"] == [
        "stopping first",
        "stopping second",
        "stopping mongod",
    ]
