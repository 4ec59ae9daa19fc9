"""The part of /sim that tells the simulator's clock and moves it ahead."""

import asyncio
import contextlib
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query
from pydantic import BaseModel, ConfigDict

from linesim.sim import Sim
from linesim.stream import Subscriber
from linesim.views import View, clock_view

MOST_WAIT_SECONDS = 25.0


class Advance(BaseModel):
    """By how many seconds the clock goes ahead."""

    model_config = ConfigDict(extra="forbid")

    advance: float


def clock_routes(sim: Sim) -> APIRouter:
    timekeeping = Timekeeping(sim)
    router = APIRouter(prefix="/sim")
    router.add_api_route("/clock", timekeeping.clock, methods=["GET"])
    router.add_api_route("/clock", timekeeping.advance, methods=["POST"])
    return router


class Timekeeping:
    def __init__(self, sim: Sim) -> None:
        self._sim = sim

    async def clock(
        self,
        after: float | None = None,
        wait: Annotated[float, Query(ge=0, le=MOST_WAIT_SECONDS)] = MOST_WAIT_SECONDS,
    ) -> View:
        """The clock; to who knows it to be `after` seconds ahead, once that is no longer so, or
        after `wait` seconds.
        """
        if after is not None:
            await self._differs(after, wait)
        return clock_view(self._sim.platform.clock)

    async def advance(self, new: Advance) -> View:
        try:
            self._sim.advance(new.advance)
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        return clock_view(self._sim.platform.clock)

    async def _differs(self, after: float, wait: float) -> None:
        platform = self._sim.platform
        with platform.watch.reading():
            same = platform.clock.ahead == after
            subscriber = platform.stream.subscribe()
        try:
            if same:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(_moved(subscriber), wait)
        finally:
            with platform.watch.reading():
                platform.stream.unsubscribe(subscriber)


async def _moved(subscriber: Subscriber) -> None:
    """Returns when the clock was moved, or the simulator stops."""
    async for change in subscriber.changes():
        if change.kind == "clock":
            return
