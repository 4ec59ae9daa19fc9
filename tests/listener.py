"""Service managers for tests: one that records reports, and systemd's end of the socket."""

import socket


class Listener:
    """A service manager that records reports as `(method, status)`, and requires them often."""

    watchdog_seconds: float | None = 0.04

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def starting(self, status: str, *, seconds: float) -> None:
        self.told.append(("starting", status))

    def ready(self, status: str) -> None:
        self.told.append(("ready", status))

    def alive(self, status: str) -> None:
        self.told.append(("alive", status))

    def unwell(self, status: str) -> None:
        self.told.append(("unwell", status))

    def stopping(self, status: str, *, seconds: float) -> None:
        self.told.append(("stopping", status))

    @property
    def methods(self) -> list[str]:
        """The reports without repetitions."""
        told = [method for method, _ in self.told]
        return [one for n, one in enumerate(told) if n == 0 or told[n - 1] != one]

    def says(self, method: str, words: str) -> bool:
        """Whether this was the last report."""
        said, status = self.told[-1] if self.told else ("", "")
        return said == method and words in status


class Manager:
    """The other end of the notify socket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.setblocking(False)

    def heard(self) -> list[list[str]]:
        """The lines of each message since the last time."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(4096).decode().split("\n"))
            except BlockingIOError:
                return found

    def close(self) -> None:
        self._socket.close()
