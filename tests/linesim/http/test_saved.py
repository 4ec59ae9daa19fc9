"""The state in a file over restarts of the real process, and its download and upload."""

import json
import os
from types import SimpleNamespace

import pytest
import requests

import linesim
from linedesk.setup.private_mongod import free_port
from linesim.model.media import sample
from tests.fork_server import nursery
from tests.linesim.http.test_control import Remote
from tests.linesim.http.test_process import SECRETS, ends, serving
from tests.waiting import eventually

DAY = 86_400.0


def sim_of(file):
    return ("linedesk", "sim", "--port", str(free_port()), "--state", str(file))


def remote(url):
    return Remote(SimpleNamespace(url=url))


def people(url):
    """What a user of the page finds again."""
    state = remote(url).get("/state")
    chats = [remote(url).get(f"/chats/{bubble['chatId']}") for bubble in state["last"]]
    return [state[name] for name in ("bot", "users", "groups", "quota")], chats


def test_after_a_kill_the_same_people_chats_and_media_are_there(tmp_path):
    file = tmp_path / "state.json"
    with serving(command=(*sim_of(file), "--webhook")) as (process, url):
        user = remote(url).user("太郎")
        members = {"name": "皆", "members": [user]}
        group = remote(url).post("/groups", members).json()["chatId"]
        remote(url).acts(
            {"act": "image", "user": user},
            {"act": "unfollow", "user": user},
            {"act": "text", "user": user, "chat": group, "text": "皆さん"},
        )
        remote(url).post("/clock", {"advance": DAY})
        before = people(url)
        eventually(lambda: "皆さん" in file.read_text() and json.loads(file.read_text())["ahead"])
        process.kill()
        process.wait(10)
    with serving(command=(*sim_of(file), "--webhook")) as (process, url):
        assert people(url) == before
        assert remote(url).get("/clock")["ahead"] == DAY
        photo = remote(url).get(f"/chats/{user}")[0]["messageId"]
        shown = requests.get(f"{url}/sim/contents/{photo}", timeout=10)
        assert shown.content == sample("image").data
        remote(url).acts({"act": "text", "user": user, "chat": group, "text": "ただいま"})
        first, last = remote(url).get(f"/chats/{group}")
        assert last["number"] > first["number"]
        assert ends(process)
    assert "ただいま" in file.read_text()


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ('{"version":1,"users":{"U1"', "is damaged (JSON: "),
        ('{"version":1,"users":{"U1":{"user_id":"U2","name":"太郎"}}}', "do not match"),
        ('{"version":7}', "is of version 7, and this linesim reads version 1"),
        (None, "cannot be read and written (No such file or directory)"),
    ],
)
def test_a_file_that_is_unusable_ends_the_start_and_stays(tmp_path, content, cause):
    file = tmp_path / "state.json" if content else tmp_path / "missing" / "state.json"
    if content:
        file.write_text(content)
    ran = nursery.run(*sim_of(file), env=os.environ | SECRETS)
    assert ran.returncode == 2
    assert f"the state file {file} " in ran.stderr
    assert cause in ran.stderr
    assert "name another file" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert [one.read_text() for one in tmp_path.glob("*.json")] == ([content] if content else [])


def test_a_write_that_fails_leaves_the_file_whole(tmp_path, caplog):
    file = tmp_path / "state.json"
    with linesim.running(state=file) as sim:
        before = file.read_text()
        (tmp_path / ".state.json.new").mkdir()
        sim.add_user("太郎")
        eventually(lambda: "the state cannot be saved" in caplog.text)
    assert file.read_text() == before


def load(url, data, media_type="application/json"):
    headers = {"content-type": media_type}
    return requests.post(f"{url}/sim/saved", data=data, headers=headers, timeout=10)


def test_a_state_is_loaded_elsewhere_whole_or_not_at_all(sim, taro):
    sim.add_group("皆", [taro])
    sim.deliver(sim.drafts.medium("file", taro))
    sim.drafts.text(taro, "送信中")
    saved = requests.get(f"{sim.url}/sim/saved", timeout=10)
    (under_way,) = (each for each in sim.chat(taro) if each.fate == "sending")
    under_way.fate, under_way.error = "failed", "unclassified"
    assert saved.headers["content-disposition"].startswith('attachment; filename="linesim-2027-01-')
    with linesim.running() as other:
        kept = other.add_user("花子")
        other.advance(DAY)
        old = requests.get(f"{other.url}/sim/saved", timeout=10).content
        back = saved.content.replace(b'"ahead":0.0', b'"ahead":-1')
        for bad in (b"{}", saved.content[:-1], back):
            answer = load(other.url, bad)
            assert (answer.status_code, answer.json()["error"][:8]) == (422, "the file")
        assert load(other.url, saved.content, "text/plain").status_code == 415
        assert list(other.platform.world.users) == [kept.user_id]
        with requests.get(f"{other.url}/sim/stream", stream=True, timeout=10) as stream:
            lines = stream.iter_lines()
            next(lines)
            assert load(other.url, saved.content).status_code == 200
            assert b"event: people" in lines
            assert json.loads(next(lines).removeprefix(b"data:")) == {"loaded": True}
        assert people(other.url) == people(sim.url)
        assert other.platform.clock.ahead == DAY
        other.say(taro, "やあ")
        assert load(other.url, old).status_code == 200
        other.say(kept, "やあ")
        assert int(other.chat(kept)[0].message_id) > int(under_way.message_id) + 1
