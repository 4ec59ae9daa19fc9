"""The chaos suite's short form: about a minute and a half of everything, with fixed seeds."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.chaos.damages import DAMAGES, FORCED, OF_WORKERS
from tests.chaos.plan import LONG_SECONDS, plan
from tests.chaos.run import WORKERS, Order, run
from tests.conftest import missing
from tests.rabbitmq import is_installed

SECONDS = 60.0
# The damage is the same at any rate; the backlog at its end has to be processed.
RATE = 12.0


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("mongod")
def test_every_promise_is_kept_whatever_is_killed(tmp_path: Path) -> None:
    verdict = run(Order(seed=20260419, seconds=SECONDS, rate=RATE), tmp_path)

    assert not verdict.problems, f"logs in {tmp_path}: {verdict.problems[:20]}"
    assert verdict.report.answered_once > 300
    assert sum(verdict.damages.values()) > 10
    assert verdict.report.calls_by_endpoint["multicast"] > 5


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("mongod")
def test_no_process_ends_by_a_forced_step_down(tmp_path: Path) -> None:
    """The long form: `scripts/chaos --minutes 2 --rate 20 --step-downs 40`."""
    verdict = run(Order(seed=1, seconds=21.0, rate=20.0, step_downs=7), tmp_path)

    assert not verdict.problems, f"logs in {tmp_path}: {verdict.problems[:20]}"
    assert verdict.report.answered_once > 200
    assert verdict.damages[FORCED.name] == 7


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("mongod")
def test_every_promise_is_kept_whatever_befalls_worker_processes(tmp_path: Path) -> None:
    if not is_installed():
        missing("no RabbitMQ on this machine (apt install rabbitmq-server)")
    order = Order(seed=20261386, seconds=16.0, nodes=1, rate=RATE, workers=WORKERS)

    verdict = run(order, tmp_path)

    assert not verdict.problems, f"logs in {tmp_path}: {verdict.problems[:20]}"
    assert verdict.report.answered_once > 100
    assert sum(verdict.damages[one.name] for one in OF_WORKERS) > 3


def test_the_same_seed_makes_the_same_plan() -> None:
    assert plan(7, 1800) == plan(7, 1800)
    assert plan(7, 1800) != plan(8, 1800)


def test_a_plan_of_a_long_run_does_every_damage_and_several_at_once() -> None:
    blows = plan(7, 1800)

    assert {one for blow in blows for one in blow.damages} == set(DAMAGES) - set(OF_WORKERS)
    with_workers = plan(7, 1800, workers=True)
    assert {one for blow in with_workers for one in blow.damages} == set(DAMAGES)
    assert max(len(blow.damages) for blow in blows) == 3
    assert all(a.until < b.at for a, b in pairwise(blows))
    assert LONG_SECONDS < 1800
