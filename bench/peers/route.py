"""The server of one peer: `POST /callback` checks the signature, parses, and stores jobs.

The same route for all; only the function that stores differs. Run as
`python -m bench.peers.route MODULE PORT`, with the secret of the channel in PEER_SECRET.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse

from bench.peers.names import Enqueue, PeerModule, module_of


def app_of(peer: PeerModule, secret: bytes) -> FastAPI:
    """The application, with the peer's connections open as long as it runs."""
    opened: list[Enqueue] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with peer.enqueuer() as enqueue:
            opened.append(enqueue)
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/callback")
    async def callback(request: Request) -> JSONResponse:
        body = await request.body()
        expected = base64.b64encode(hmac.new(secret, body, hashlib.sha256).digest())
        given = request.headers.get("x-line-signature", "")
        if not hmac.compare_digest(expected, given.encode()):
            raise HTTPException(400)
        # JSON, so that a load detects the end of an answer.
        return JSONResponse({}, background=await opened[0](json.loads(body)["events"]))

    return app


def main(module: str, port: str) -> None:
    """Serve on loopback until SIGTERM, over an empty store."""
    peer = module_of(module)
    peer.reset()
    uvicorn.run(
        app_of(peer, os.environb[b"PEER_SECRET"]),
        host="127.0.0.1",
        port=int(port),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
