"""The simulation against queueing theory and simple arithmetic."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace

import pytest

from bench.model import (
    Box,
    Clock,
    Costs,
    Resource,
    Steps,
    carried,
    poisson,
    simulate,
    sustained,
    waits,
    zipf,
)

FREE = Costs(0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)


def test_a_resource_is_given_in_the_order_of_asking() -> None:
    clock, order = Clock(), list[int]()
    one = Resource(clock, 1)

    def steps(number: int) -> Steps:
        yield one
        order.append(number)
        yield 1.0
        one.release()

    for number in range(3):
        clock.at(number / 10, steps(number))
    clock.run()

    assert order == [0, 1, 2]
    assert clock.now == pytest.approx(3.0)
    assert one.free == 1


def test_the_mean_wait_is_that_of_a_queue_with_one_server_and_even_service() -> None:
    # M/D/1 at a load of 0.7: the mean wait is 0.7 / (2 * 0.3) times the service.
    chance, service = random.Random(2), 0.01
    arrivals = [(at, n) for n, at in enumerate(poisson(70, 50_000, chance))]
    box = Box(cores=1, threads=1, interval=0.0, concurrency=1_000)

    times = simulate(FREE, box, arrivals, handler=service)

    wait = statistics.fmean(b - a for a, b in zip(times.posted, times.handled, strict=True))
    assert wait == pytest.approx(service * 0.7 / 0.6, rel=0.1)


@pytest.mark.parametrize(
    ("box", "handler", "rate"),
    [
        (Box(interval=0.1), 0.0, 10),
        (Box(interval=0.0, line=0.05), 0.0, 20),
        (Box(interval=0.0, line=0.05, concurrency=10), 0.0, 200),
        (Box(interval=0.0, threads=20), 0.2, 100),
    ],
    ids=["interval", "LINE", "concurrency", "threads"],
)
def test_the_bottleneck_is_the_rate_that_is_carried(box: Box, handler: float, rate: float) -> None:
    assert sustained(FREE, box, handler=handler) == pytest.approx(rate, rel=0.05)


def test_the_dispatcher_uses_one_core_however_many_there_are() -> None:
    costs = replace(FREE, dispatcher=0.01)

    assert sustained(costs, Box(cores=8, interval=0.0), handler=0.0) == pytest.approx(100, rel=0.05)


def test_a_conversation_has_one_message_at_a_time() -> None:
    arrivals = [(0.0, 1)] * 40

    times = simulate(FREE, Box(interval=0.0), arrivals, handler=0.1)

    assert carried(times) == pytest.approx(10, rel=0.01)
    assert max(times.handled) == pytest.approx(3.9)


def test_waits_count_from_the_post() -> None:
    costs = replace(FREE, to_store=0.004, to_record=0.003)
    arrivals = [(float(number), number) for number in range(200)]

    figures = waits(simulate(costs, Box(interval=0.0), arrivals, handler=0.01))

    assert figures["to handler p50 ms"] == pytest.approx(4)
    assert figures["to LINE p99 ms"] == pytest.approx(17)


def test_the_first_key_by_zipf_comes_twice_as_often_as_the_second() -> None:
    draw = zipf(100, random.Random(1))

    drawn = [draw() for _ in range(20_000)]

    assert drawn.count(0) / drawn.count(1) == pytest.approx(2, rel=0.1)
