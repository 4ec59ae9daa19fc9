"""Bodies that are made on the way out, break off or drip."""

import time
from collections.abc import Iterator

import pytest
import requests

import linesim
from linesim import Rule, Sim
from linesim.model.faults import Cut, Drip
from linesim.model.media import Medium


@pytest.fixture(scope="module")
def sim() -> Iterator[Sim]:
    with linesim.running() as sim:
        yield sim


def content(sim: Sim, medium: Medium) -> tuple[str, dict[str, str]]:
    event = sim.drafts.medium("file", sim.add_user("花子"), medium)
    assert event["message"]["fileSize"] == medium.size
    url = f"{sim.url}/v2/bot/message/{event['message']['id']}/content"
    return url, {"Authorization": f"Bearer {sim.token}"}


@pytest.mark.parametrize("after", [0, 1, 3000, 5000])
def test_a_body_breaks_off_at_the_planned_byte(sim: Sim, after: int) -> None:
    url, headers = content(sim, Medium(b"abc" * 1000, "text/plain", "a.txt", repeats=3))
    sim.misbehave(Rule(outcome=Cut(after), endpoint="content", count=1))
    with pytest.raises(requests.RequestException):
        requests.get(url, headers=headers, timeout=5)
    assert len(requests.get(url, headers=headers, timeout=5).content) == 9000


def test_a_body_drips_until_its_end_or_until_the_reader_is_gone(sim: Sim) -> None:
    url, headers = content(sim, Medium(b"abcdef", "text/plain", "a.txt"))
    sim.misbehave(Rule(outcome=Drip(2, 0.02), endpoint="content", count=1))
    began = time.monotonic()
    assert requests.get(url, headers=headers, timeout=5).content == b"abcdef"
    assert time.monotonic() - began >= 0.035, "a pause after each piece but the last"
    sim.misbehave(Rule(outcome=Drip(1, 60.0), endpoint="content", count=1))
    with pytest.raises(requests.RequestException):
        requests.get(url, headers=headers, timeout=0.1)
