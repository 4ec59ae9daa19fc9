"""The webhook end point as a bot asks LINE for it, sets it and has it tested."""

import json

import pytest

from linesim.model.deliveries import sign
from tests.line_openapi import check_answer

ENDPOINT = "/v2/bot/channel/webhook/endpoint"
TEST = "/v2/bot/channel/webhook/test"


def test_it_is_returned_with_the_switch_of_the_console_and_can_be_set(sim, bot, line):
    assert line.get(ENDPOINT).json() == {"endpoint": bot.url, "active": True}
    sim.webhook_active, other = False, "https://bot.example/callback"
    line.put(ENDPOINT, {"endpoint": other})
    assert line.get(ENDPOINT).json() == {"endpoint": other, "active": False}


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (200, (True, 200, "OK", "200")),
        (500, (False, 500, "ERROR_STATUS_CODE", "500")),
        (302, (False, 302, "ERROR_STATUS_CODE", "302")),
        (None, (False, 0, "COULD_NOT_CONNECT", "Failure to connect")),
    ],
)
def test_a_test_is_a_signed_webhook_without_events_and_reports_the_answer(
    sim, bot, line, status, told
):
    bot.status = status
    answer = line.post(TEST, {})
    check_answer("POST", TEST, 200, answer.json())
    found = answer.json()
    assert tuple(found[name] for name in ("success", "statusCode", "reason", "detail")) == told
    assert json.loads(bot.last.body) == {"destination": sim.bot_user_id, "events": []}
    assert bot.last.headers["x-line-signature"] == sign(sim.secret, bot.last.body)


def test_no_url_and_a_wrong_one_are_refused_in_lines_words(sim, line):
    wrong = line.put(ENDPOINT, {"endpoint": "ftp://bot.example/"})
    assert (wrong.status_code, wrong.json()) == (400, {"message": "Invalid webhook endpoint URL"})
    sim.webhook_url = None
    for answer in (line.get(ENDPOINT), line.post(TEST, {})):
        assert answer.status_code == 404
        assert answer.json() == {"message": "Webhook endpoint not found"}


def test_more_than_sixty_tests_an_hour_are_refused(line):
    assert all(line.post(TEST, {}).ok for _ in range(60))
    assert line.post(TEST, {}).status_code == 429
