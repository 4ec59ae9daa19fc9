"""What the programs of a supervisor say of themselves, by the protocol that systemd has for it.

The kernel vouches for who speaks, so a program can say nothing in another one's name.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Container, Iterator
from dataclasses import dataclass

# Each says a word once a second; a busy machine may swallow some.
SILENT_SECONDS = 30.0

MESSAGE_BYTES = 4096
MOST_MESSAGES = 1000
# struct ucred of unix(7): pid, uid, gid.
CREDENTIALS = struct.Struct("3i")


@dataclass
class Voice:
    """What one process has said so far."""

    is_ready: bool = False
    status: str = "starting"
    alive_at: float = 0.0
    """Monotonic time of its last sign of life."""

    @property
    def is_well(self) -> bool:
        """Whether it has given a sign of life lately; until it is ready nobody waits for one."""
        return not self.is_ready or time.monotonic() - self.alive_at <= SILENT_SECONDS

    def say(self, line: str) -> None:
        """One line of a message; what does not matter here is passed over."""
        name, _, value = line.partition("=")
        if name == "STATUS":
            self.status = value
        elif name in {"READY", "WATCHDOG"}:
            self.is_ready = self.is_ready or name == "READY"
            self.alive_at = time.monotonic()


class Voices:
    """Of one thread. `address` is the NOTIFY_SOCKET of the programs."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        # An abstract name of the kernel's choice, which leaves no file behind.
        self._socket.bind("")
        self.address = "@" + self._socket.getsockname()[1:].decode("ascii")
        self._voices: dict[int, Voice] = {}

    def hear(self, pids: Container[int | None]) -> None:
        """Take in what these processes have said; all others are strangers, or have ended."""
        self._voices = {pid: voice for pid, voice in self._voices.items() if pid in pids}
        for pid, text in self._messages():
            if pid in pids:
                voice = self._voices.setdefault(pid, Voice())
                for line in text.splitlines():
                    voice.say(line)

    def of(self, pid: int) -> Voice:
        """That of a process, as far as it was heard."""
        return self._voices.get(pid, Voice())

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

    def _messages(self) -> Iterator[tuple[int, str]]:
        """Who sent what since the last time, as far as one look goes."""
        for _ in range(MOST_MESSAGES):
            try:
                data, credentials, _, _ = self._socket.recvmsg(
                    MESSAGE_BYTES, socket.CMSG_SPACE(CREDENTIALS.size)
                )
            except BlockingIOError:
                return
            yield CREDENTIALS.unpack(credentials[0][2])[0], data.decode("utf-8", "replace")
