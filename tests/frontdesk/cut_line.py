"""A TCP gate in front of a mongod: shut, it refuses and cuts; open, it lets everything pass."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType

from linedesk.setup.private_mongod import free_port


class Gate:
    """A context manager; the line is open at first. Shutting and opening take no time."""

    def __init__(self, target_port: int) -> None:
        self.port = free_port()
        # Asked for the set, the driver would go to the address that the set names, past the gate.
        self.uri = f"mongodb://127.0.0.1:{self.port}/?directConnection=true"
        self._target_port = target_port
        self._lines: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Gate:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shut()

    @property
    def stands_open(self) -> bool:
        """Whether connections pass."""
        return self._listener is not None

    def open(self) -> None:
        """Let connections through from now on."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._begin(self._accept, self._listener)

    def shut(self) -> None:
        """End all connections and refuse new ones."""
        listener, self._listener = self._listener, None
        if listener is not None:
            # Wakes the thread that waits for a connection; it finds the gate shut, and no line
            # comes after those that are cut here.
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
            self._threads[0].join(10)
        with self._lock:
            lines = list(self._lines)
        for line in lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._threads.clear()

    def _begin(self, work: object, *arguments: socket.socket) -> None:
        thread = threading.Thread(
            target=work,  # type: ignore[arg-type]
            args=arguments,
            name="gate",
            daemon=True,
        )
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        with listener, suppress(OSError):
            while True:
                near, _ = listener.accept()
                if listener is not self._listener:
                    near.close()
                    return
                try:
                    far = socket.create_connection(("127.0.0.1", self._target_port))
                except ConnectionRefusedError:
                    # The target is stopped. It may come back, and the gate is still open.
                    near.close()
                    continue
                with self._lock:
                    self._lines |= {near, far}
                self._begin(self._pass, near, far)
                self._begin(self._pass, far, near)

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._lines.discard(source)
        source.close()
