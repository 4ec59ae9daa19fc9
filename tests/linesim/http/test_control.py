"""The /sim interface, by which other processes act as users and read the records."""

import json
import queue
import threading

import pytest
import requests

import linesim
from linesim.model.errors import NotPossible
from tests.line_openapi import check_event


class Remote:
    """A client of /sim."""

    def __init__(self, sim):
        self.sim = sim

    def get(self, path):
        answer = requests.get(f"{self.sim.url}/sim{path}", timeout=10)
        answer.raise_for_status()
        return answer.json()

    def post(self, path, body=None):
        return requests.post(f"{self.sim.url}/sim{path}", json=body, timeout=10)

    def acts(self, *acts):
        return self.post("/deliveries", {"acts": list(acts)})

    def user(self, name):
        return self.post("/users", {"name": name}).json()["userId"]


@pytest.fixture
def remote(sim):
    return Remote(sim)


def test_a_user_made_here_can_write_and_is_answered(remote, bot, line):
    bot.handle = lambda event: line.reply(event["replyToken"])
    user = remote.user("太郎")
    delivery = remote.acts({"act": "text", "user": user, "text": "やあ"}).json()
    assert (delivery["status"], delivery["delivered"]) == (200, True)
    remote.sim.wait_for(lambda: remote.sim.answers(user))
    chat = remote.get(f"/chats/{user}")
    assert [bubble["message"]["text"] for bubble in chat] == ["やあ", "はい"]
    (call,) = remote.get("/calls")
    assert (call["endpoint"], call["eventId"]) == ("reply", delivery["eventIds"][0])
    assert call["started"] > delivery["started"]
    assert remote.get(f"/calls?after={call['number']}") == []


ACTS = [
    {"act": "text", "text": "やあ"},
    {"act": "sticker", "package": "446", "sticker": "1990", "keywords": ["love"]},
    {"act": "image"},
    {"act": "video"},
    {"act": "audio"},
    {"act": "file"},
    {"act": "location", "title": "大阪城", "latitude": 34.6873, "longitude": 135.5262},
    {"act": "postback", "data": "a=1"},
    {"act": "follow"},
    {"act": "unfollow"},
    {"act": "text", "text": "やあ", "standby": True},
]


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act["act"])
def test_every_act_of_a_user_is_an_event(remote, bot, act):
    delivery = remote.acts({**act, "user": remote.user("太郎")}).json()
    assert delivery["delivered"]
    check_event(bot.last.events[0])


def test_several_acts_are_one_post_and_none_is_the_connectivity_check(remote, bot):
    user = remote.user("太郎")
    remote.acts(*[{"act": "text", "user": user, "text": str(n)} for n in range(20)])
    assert [event["message"]["text"] for event in bot.last.events] == [str(n) for n in range(20)]
    assert remote.acts().json()["status"] == 200
    assert json.loads(bot.last.body)["events"] == []


@pytest.mark.parametrize(
    ("act", "status"),
    [
        ({"act": "text", "user": "U" + "0" * 32, "text": "x"}, 404),
        ({"act": "leave", "chat": "C1"}, 404),
        ({"act": "image", "user": "U1", "medium": "none"}, 404),
        ({"act": "sneeze"}, 422),
        ({"act": "text", "usr": "U1"}, 422),
    ],
)
def test_what_cannot_be_done_is_refused(remote, act, status):
    assert remote.acts(act).status_code == status
    assert remote.get("/deliveries") == []


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded"])
def test_another_sites_form_cannot_act(remote, content_type):
    headers = {"content-type": content_type}
    for path in ("users", "deliveries", "groups", "media"):
        url = f"{remote.sim.url}/sim/{path}"
        answer = requests.post(url, data=b'{"name": "x"}', headers=headers, timeout=10)
        assert answer.status_code in (415, 422)
    assert remote.get("/state")["users"] == []


def test_the_stream_sends_every_change_and_ends_with_the_simulator(bot):
    changes = queue.SimpleQueue()

    def read(url):
        with requests.get(f"{url}/sim/stream", stream=True, timeout=10) as answer:
            for row in answer.iter_lines():
                changes.put(row.decode())
        changes.put(None)

    with linesim.running(webhook_url=bot.url) as sim:
        reader = threading.Thread(target=read, args=(sim.url,))
        reader.start()
        assert changes.get(timeout=10).startswith(":")
        sim.say(sim.add_user("太郎"), "<b>やあ</b>")
        rows = []
        while len([row for row in rows if row == "event: bubble"]) < 2:
            rows.append(changes.get(timeout=10))
        data = json.loads(changes.get(timeout=10).removeprefix("data: "))
    assert (data["message"]["text"], data["fate"]) == ("<b>やあ</b>", "delivered")
    reader.join(5)
    assert not reader.is_alive()


def test_the_reasons_why_an_event_has_no_answer(remote, sim, taro, clock, line, bot):
    def reasons(delivery):
        told = remote.get(f"/events/{delivery.event_ids[0]}")
        assert told["console"] is None
        return told["reasons"]

    first = sim.say(taro, "一")
    assert reasons(first) == [{"kind": "silent"}]
    clock.advance(61)
    line.reply(bot.last.events[0]["replyToken"])
    assert reasons(first) == [{"kind": "lapsed"}]
    second = sim.say(taro, "二")
    line.push(taro.user_id, "")
    (refused,) = reasons(second)
    assert (refused["kind"], refused["status"]) == ("refused", 400)
    assert refused["details"] == [{"message": "May not be empty", "property": "messages[0].text"}]
    third = sim.say(taro, "三")
    token = bot.last.events[0]["replyToken"]
    sim.block(taro)
    line.reply(token)
    assert reasons(third) == [{"kind": "unreached", "reason": "blocked"}]
    assert reasons(first) == [{"kind": "lapsed"}]
    bot.status = 503
    fourth = sim.follow(taro)
    webhook = {"kind": "webhook", "status": 503, "error": None}
    assert reasons(fourth) == [webhook]
    assert remote.get("/events/unknown")["reasons"] == []
    bot.status = 200
    fifth = sim.follow(taro)
    assert reasons(fifth) == [{"kind": "silent"}]
    line.post("/v2/bot/message/broadcast", {"messages": [{"type": "text", "text": "皆さん"}]})
    assert reasons(fifth) == []
    with pytest.raises(NotPossible, match="groups only"):
        sim.drafts.edit(first.events[0]["message"]["id"], taro, "一。")
