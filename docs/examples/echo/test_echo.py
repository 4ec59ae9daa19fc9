"""A bot in any language against linesim: BOT is its command, PORT the port that it listens on."""

import os
import shlex
import subprocess
import time

import pytest

import linesim

BOT = shlex.split(os.environ.get("BOT", "python echo.py"))
PORT = os.environ.get("PORT", "3000")


@pytest.fixture
def sim():
    with linesim.running(webhook_url=f"http://127.0.0.1:{PORT}/callback") as sim:
        environ = os.environ | {
            "LINE_CHANNEL_SECRET": sim.secret,
            "LINE_CHANNEL_ACCESS_TOKEN": sim.token,
            "LINE_API_BASE": sim.url,
            "LINE_API_DATA_BASE": sim.url,
        }
        bot = subprocess.Popen(BOT, env=environ)

        def answers():
            time.sleep(0.1)
            assert bot.poll() is None, "the bot has ended"
            return sim.test_webhook(sim.webhook_url).delivered

        try:
            sim.wait_for(answers, timeout=60)
            yield sim
        finally:
            bot.terminate()
            bot.wait()


def test_it_answers_texts_and_photos(sim):
    hana = sim.add_user("Hana")
    sim.say(hana, "やあ")
    sim.deliver(sim.drafts.medium("image", hana))
    sim.wait_for(lambda: len(sim.answers(hana)) == 2, timeout=30)
    photo, text = sorted(bubble.text for bubble in sim.answers(hana))
    assert photo.endswith(" bytes")
    assert text == "やあ"


def test_line_answers_500_once(sim):
    sim.answer_next("reply", 500)
    sim.say(sim.add_user("Hana"), "やあ")
    (call,) = sim.wait_for(lambda: [one for one in sim.calls if one.status], timeout=30)
    assert call.message == "Internal server error"
