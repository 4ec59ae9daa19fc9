"""A TCP gate in front of a mongod: shut, it cuts and resets; open, it lets everything pass."""

from __future__ import annotations

from linedesk.setup.private_mongod import free_port
from tests.chaos.proxy import Proxy


class Gate:
    """A context manager; the line is open at first. Shutting and opening take no time."""

    def __init__(self, target_port: int) -> None:
        self.port = free_port()
        # Asked for the set, the driver would go to the address that the set names, past the gate.
        self.uri = f"mongodb://127.0.0.1:{self.port}/?directConnection=true"
        self._target_port = target_port

    def __enter__(self) -> Gate:
        self._proxy = Proxy([(self.port, self._target_port)])
        return self

    def __exit__(self, *_: object) -> None:
        self._proxy.stop()

    def open(self) -> None:
        """Let connections through from now on."""
        self._proxy.switch(0, "open")

    def shut(self) -> None:
        """End all connections, and every new one at once."""
        self._proxy.switch(0, "refuse")
