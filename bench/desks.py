"""The servers of the acceptance benches, each a process: `python -m bench.desks NAME PORT URI`.

All are served by uvicorn with uvloop and httptools, and share a port where there are several. Those
that are not linedesk write no log lines; linedesk writes its line for each request.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from pymongo import AsyncMongoClient, WriteConcern
from pymongo.errors import DuplicateKeyError

from bench.processes import child
from bench.stack import DATABASE
from bench.webhooks import SECRET
from frontdesk.app import WebhookSettings
from frontdesk.parsing import HEADER, verify
from frontdesk.process import SpoolAt, serve
from frontdesk.server import Address
from linedesk.runtime.logging import configure_logging
from linedesk.setup.private_mongod import free_port
from linedesk.store.collections import MEGABYTE

KEY = SECRET.encode()
NAIVE = "naive"

STORED = "linedesk, stored durably"
CHECKING = "checking route"
INSERT = "naive insert"


@dataclass(frozen=True)
class Desk:
    """An HTTP server on loopback that takes the POSTs of `bench.load`, at /callback."""

    port: int
    pids: Sequence[int] = ()
    lacks: str = ""
    """The guarantees that its answer 200 does not include."""


LACKS = {
    STORED: "",
    CHECKING: "any storing",
    INSERT: "order by key, an outage of MongoDB",
}


def run_linedesk(port: int, uri: str, folder: Path) -> int:
    """The front desk as it is, until SIGTERM."""
    configure_logging(secrets=[SECRET])
    return serve(
        WebhookSettings(secrets=(KEY,)),
        Address(port=port, reuse_port=True),
        mongodb_uri=uri,
        database=DATABASE,
        spool=SpoolAt(folder / "spool.db", 256 * MEGABYTE),
    )


async def checked(request: Request) -> dict[str, Any]:
    """The webhook, once its signature was found right."""
    body = await request.body()
    signature = request.headers.get(HEADER, "")
    if not verify(body, signature.encode("latin-1"), secrets=(KEY,)):
        raise HTTPException(401)
    content: dict[str, Any] = json.loads(body)
    return content


def checking_app(uri: str) -> FastAPI:
    """Checks the signature and parses the JSON."""
    app = FastAPI(openapi_url=None)

    @app.post("/callback")
    async def callback(request: Request) -> dict[str, str]:
        await checked(request)
        return {}

    return app


def inserting_app(uri: str) -> FastAPI:
    """Checks, parses and inserts each event on a journalled majority, each by itself."""
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(uri, maxPoolSize=100)
    durable = WriteConcern("majority", j=True)
    events = client[DATABASE].get_collection(NAIVE, write_concern=durable)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await client.aconnect()
        yield
        await client.close()

    app = FastAPI(openapi_url=None, lifespan=lifespan)

    @app.post("/callback")
    async def callback(request: Request) -> dict[str, str]:
        for event in (await checked(request))["events"]:
            try:
                await events.insert_one({"_id": event["webhookEventId"], "event": event})
            except DuplicateKeyError:
                continue
        return {}

    return app


APPS: dict[str, Callable[[str], FastAPI]] = {
    CHECKING: checking_app,
    INSERT: inserting_app,
}


def run_app(app: FastAPI, port: int) -> int:
    """Serve it as linedesk is served, until SIGTERM; a line on stderr says when it listens."""

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            print("listening host=127.0.0.1", file=sys.stderr, flush=True)

    config = uvicorn.Config(
        app, loop="uvloop", http="httptools", ws="none", log_config=None, access_log=False
    )
    listener = socket.create_server(("127.0.0.1", port), backlog=4096, reuse_port=True)
    with listener:
        Server(config).run([listener])
    return 0


@contextmanager
def desk(name: str, uri: str, folder: Path, *, processes: int = 1) -> Iterator[Desk]:
    """One of them, as `processes` processes that share a port."""
    port, folder = free_port(), folder.resolve()
    with ExitStack() as stack:
        pids = [
            stack.enter_context(_process(name, port, uri, folder / f"{name}-{number}.log")).pid
            for number in range(processes)
        ]
        yield Desk(port, pids, LACKS[name])


def _process(
    name: str, port: int, uri: str, log: Path
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "bench.desks", name, str(port), uri, str(log.parent)]
    return child(name, command, ready=lambda: b"listening host=" in log.read_bytes(), log=log)


def main(arguments: Sequence[str]) -> int:
    """One process, until SIGTERM."""
    name, port, uri, folder = arguments
    if name in APPS:
        return run_app(APPS[name](uri), int(port))
    return run_linedesk(int(port), uri, Path(folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
