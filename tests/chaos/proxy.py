"""TCP lines that can be cut: `python -m tests.chaos.proxy 4001:5001 4002:5002` forwards each port.

Commands come as lines on stdin, `<place> open|refuse|hang`; each is answered by a line once it is
so. A refused line resets open and new connections. A hanging one accepts connections and passes no
byte on, like a network that drops packets.
"""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

from linedesk.setup import children

Mode = Literal["open", "refuse", "hang"]
PIECE = 64 * 1024


class Line:
    """One port and where it leads; belongs to one event loop."""

    def __init__(self, listen: int, target: int) -> None:
        self._listen = listen
        self._target = target
        self._refuses = False
        self._flows = asyncio.Event()
        self._flows.set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()

    async def serve(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", self._listen)

    def switch(self, mode: Mode) -> None:
        self._refuses = mode == "refuse"
        if mode == "hang":
            self._flows.clear()
        else:
            self._flows.set()
        if self._refuses:
            for end in self._ends:
                end.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ends.add(writer)
        await self._flows.wait()
        if self._refuses:
            self._drop(writer)
            return
        try:
            there, far = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            self._drop(writer)
            return
        self._ends.add(far)
        for source, sink in ((reader, far), (there, writer)):
            pump = asyncio.create_task(self._pump(source, sink))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while piece := await source.read(PIECE):
                await self._flows.wait()
                sink.write(piece)
                await sink.drain()
        except OSError:
            pass  # one of the two ends is gone, which ends the other
        finally:
            self._drop(sink)

    def _drop(self, end: asyncio.StreamWriter) -> None:
        self._ends.discard(end)
        end.transport.abort()


class Proxy:
    """The proxy as a separate process: its work does not slow down the checker."""

    def __init__(self, lines: Sequence[tuple[int, int]]) -> None:
        command = [sys.executable, "-m", "tests.chaos.proxy", *(f"{a}:{b}" for a, b in lines)]
        self._process = children.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._await_answer()

    def switch(self, place: int, mode: Mode) -> None:
        """Returns once the line is so."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{place} {mode}\n".encode())
        self._process.stdin.flush()
        self._await_answer()

    def stop(self) -> None:
        children.stop(self._process, timeout_seconds=10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _await_answer(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError("the proxy has ended")


async def main(pairs: Sequence[str]) -> None:
    lines = [Line(*map(int, pair.split(":"))) for pair in pairs]
    servers = [await line.serve() for line in lines]
    loop, stdin = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    print("ready", flush=True)
    while command := await stdin.readline():
        place, mode = command.decode().split()
        lines[int(place)].switch(mode)  # type: ignore[arg-type]
        print("done", flush=True)
    for server in servers:
        server.close()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1:]))
