"""The part of /sim by which other processes make LINE misbehave, and ask for the verdict."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query
from pydantic import BaseModel, ConfigDict, Field

from linesim import rules
from linesim.checker import check
from linesim.faults import Close, Late, Outcome, Status
from linesim.rules import Rule
from linesim.sim import Sim
from linesim.stopping import Stopping
from linesim.views import View

Probability = Annotated[float, Field(ge=0, le=1)]


class NewRule(BaseModel):
    """A rule of linesim.rules. `seconds` is a late answer's, `retryAfter` a 429's, `status` that of
    an HTML page or of garbage.
    """

    model_config = ConfigDict(extra="forbid")

    outcome: Literal[
        "server_error",
        "html_error",
        "garbage",
        "too_many",
        "unauthorized",
        "bad_request",
        "close",
        "late",
    ]
    endpoint: str = "*"
    user: str | None = None
    probability: Probability = 1.0
    count: int | None = Field(default=None, ge=1)
    accept: bool = False
    seconds: float = Field(default=1.0, ge=0, le=3_600)
    retryAfter: int | None = Field(default=None, ge=0)  # noqa: N815 (as LINE writes its JSON)
    status: int | None = Field(default=None, ge=200, le=599)


class Misbehaviour(BaseModel):
    model_config = ConfigDict(extra="forbid")

    rules: list[NewRule] = Field(min_length=1, max_length=100)
    seed: int = 0


class NewUnruly(BaseModel):
    """As linesim.webhooks.Unruly; `delay` is a probability and seconds."""

    model_config = ConfigDict(extra="forbid")

    redeliver: Probability = 0.0
    double: Probability = 0.0
    shuffle: Probability = 0.0
    delay: tuple[Probability, Annotated[float, Field(ge=0, le=60)]] = (0.0, 0.0)
    seed: int = 0


def trouble_routes(sim: Sim, stopping: Stopping) -> APIRouter:
    trouble = Trouble(sim, stopping)
    router = APIRouter(prefix="/sim")
    router.add_api_route("/misbehave", trouble.misbehave, methods=["POST"])
    router.add_api_route("/misbehave", trouble.behave, methods=["DELETE"])
    router.add_api_route("/unruly", trouble.unruly, methods=["POST"])
    router.add_api_route("/verdict", trouble.verdict, methods=["GET"])
    return router


class Trouble:
    def __init__(self, sim: Sim, stopping: Stopping) -> None:
        self._sim = sim
        self._stopping = stopping

    async def misbehave(self, new: Misbehaviour) -> View:
        try:
            made = [_rule(each) for each in new.rules]
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        self._sim.misbehave(*made, seed=new.seed)
        return {"added": len(made)}

    async def behave(self) -> View:
        self._sim.behave()
        return {}

    async def unruly(self, new: NewUnruly) -> View:
        self._sim.unruly(**new.model_dump())
        return {}

    async def verdict(
        self,
        since: Annotated[int, Query(ge=0)] = 0,
        least_interval_ms: Annotated[float, Query(ge=0)] = 0.0,
    ) -> dict[str, Any]:
        """The checker's report on an echo bot, from a thread: a long run takes a moment."""
        seconds = least_interval_ms / 1000
        report = await self._stopping.in_thread(
            lambda: check(self._sim, since=since, least_interval_seconds=seconds)
        )
        return report.as_document()


_OUTCOMES: dict[str, Callable[[NewRule], Outcome]] = {
    "server_error": lambda new: rules.server_error(),
    "html_error": lambda new: _status(rules.html_error, new),
    "garbage": lambda new: _status(rules.garbage, new),
    "too_many": lambda new: rules.too_many(new.retryAfter),
    "unauthorized": lambda new: rules.unauthorized(),
    "bad_request": lambda new: rules.bad_request(),
    "close": lambda new: Close(),
    "late": lambda new: Late(new.seconds),
}


def _status(make: Callable[..., Status], new: NewRule) -> Status:
    return make() if new.status is None else make(new.status)


def _rule(new: NewRule) -> Rule:
    return Rule(
        outcome=_OUTCOMES[new.outcome](new),
        endpoint=new.endpoint,
        user=new.user,
        probability=new.probability,
        count=new.count,
        accept=new.accept,
    )
