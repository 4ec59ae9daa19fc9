"""Bots written with line-bot-sdk's WebhookHandler: as they are, through the gate, nothing twice."""

import re
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from linebot.v3 import WebhookHandler
from linebot.v3.messaging import (
    Configuration,
    MessagingApi,
    MessagingApiBlob,
    PushMessageRequest,
    ReplyMessageRequest,
    ShowLoadingAnimationRequest,
    TextMessage,
)
from linebot.v3.webhooks import MessageEvent

from jobworker.handler_context import HandlerContext
from jobworker.sdk.gated_client import is_send
from jobworker.sdk.handler import SdkBot
from linedesk import ApiClient, Bot, GateClosed, NotRunning
from linedesk.bots.load import load_bot
from linedesk.operate.dead_letters import explained
from linedesk.settings.errors import SettingsError
from linesim import Sim
from linesim.model.world import Bubble
from tests.jobworker.test_handler_context import abandon
from tests.jobworker.worker_harness import Room, Rooms, texts
from tests.rows import rows_of
from tests.sdk_bots import echo, kitchensink
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]


def answer_to(desk: Room, sim: Sim, user: Any, text: str, **more: Any) -> Bubble:
    """The bot's last message once it has handled the text."""
    desk.says(user, text, **more)
    desk.until_decided()
    return sim.answers(more.get("chat") or user)[-1]


def test_an_echo_bot_answers_as_it_is(room: Rooms, sim: Sim) -> None:
    user = sim.add_user("花子")
    desk = room(SdkBot(echo.handler))
    documents = [desk.says(user, text) for text in ("一", "二", "三")]
    desk.until_decided()
    assert texts(sim, user) == ["一", "二", "三"]
    eventually(lambda: len(rows_of(desk.database.calls, key=user.user_id)) == 3, seconds=3)
    rows = rows_of(desk.database.calls, key=user.user_id)
    assert [row["eventId"] for row in rows] == [document["eventId"] for document in documents]
    assert {row["endpoint"] for row in rows} == {"/v2/bot/message/reply"}
    assert {row["status"] for row in rows} == {200}
    assert len({call.connection for call in sim.calls_to("reply")[-3:]}) == 1, "one pool for all"


def test_the_kitchen_sink_runs_as_it_is(
    room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = sim.add_user("花子")
    group = sim.add_group("旅行", [user])
    kitchensink.saved.clear()
    desk = room(SdkBot(kitchensink.handler))
    desk.says(user, "profile")
    desk.until_decided()
    assert texts(sim, user) == ["Display name: 花子", "Status message: None"]
    assert answer_to(desk, sim, user, "group", chat=group).text == "旅行の花子さん"
    assert answer_to(desk, sim, user, "profile", chat=group).text == "1対1でどうぞ"
    assert answer_to(desk, sim, user, "quota").text == f"none {sim.platform.quota.used}"
    # Insight's and audience's clients are the SDK's own: they call the Configuration's host.
    configuration = Configuration(host=sim.url, access_token=sim.token)
    monkeypatch.setattr(kitchensink, "configuration", configuration)
    assert answer_to(desk, sim, user, "insight").text == "insight: 404"
    assert answer_to(desk, sim, user, "audience").text == f"audience: {sim.url}"
    assert answer_to(desk, sim, user, "push").text == "push です"
    assert answer_to(desk, sim, user, "multicast").text == "multicast です"
    assert answer_to(desk, sim, user, "loading").text == "お待たせしました"
    assert answer_to(desk, sim, user, "async").text == "花子"
    for event in (sim.drafts.postback(user, "ping"), sim.drafts.medium("file", user)):
        desk.send(event)
        desk.until_decided()
    desk.send(sim.drafts.leave(group))
    desk.until_decided()
    assert texts(sim, user)[-2:] == ["pong: ping", f"{len(kitchensink.saved[0])} bytes"]
    assert kitchensink.left == ["leave"]
    sim.answer_next("profile", 404)
    assert answer_to(desk, sim, user, "profile").text == "profile: 404"
    assert desk.letters() == []


def handler_of(function: Callable[[Any], None]) -> SdkBot:
    made = WebhookHandler("?")
    made.add(MessageEvent)(function)
    return SdkBot(made)


def reply(event: Any, text: str) -> None:
    MessagingApi(ApiClient(Configuration())).reply_message(
        ReplyMessageRequest(reply_token=event.reply_token, messages=[TextMessage(text=text)])
    )


def push(user_id: str, text: str, **more: Any) -> None:
    MessagingApi(ApiClient()).push_message(
        PushMessageRequest(to=user_id, messages=[TextMessage(text=text)]), **more
    )


class Failing:
    """An SDK bot's handler that acts, and then raises an error in this many runs."""

    def __init__(self, first: Callable[[Any], None], times: int = 1) -> None:
        self.runs = 0
        self._first = first
        self._times = times

    def __call__(self, event: Any) -> None:
        self.runs += 1
        self._first(event)
        if self.runs <= self._times:
            raise RuntimeError("planted")
        reply(event, "はい")

    @property
    def bot(self) -> SdkBot:
        return handler_of(lambda event: self(event))


def ask(event: Any) -> None:
    api = MessagingApi(ApiClient())
    api.get_profile(event.source.user_id)
    api.show_loading_animation(
        ShowLoadingAnimationRequest(chat_id=event.source.user_id, loading_seconds=5)
    )


def test_a_handler_that_only_asked_line_is_tried_again(room: Rooms, sim: Sim) -> None:
    user, failing = sim.add_user("花子"), Failing(ask)
    desk = room(failing.bot)
    desk.says(user, "?")
    desk.until_decided()
    assert (failing.runs, texts(sim, user), desk.letters()) == (2, ["はい"], [])


def accepted(sim: Sim) -> None:
    """The push arrives, and is answered."""


def unheard(sim: Sim) -> None:
    sim.close_next("push", accept=True)


def failing_after_all(sim: Sim) -> None:
    sim.answer_next("push", 500, accept=True)


@pytest.mark.parametrize("what", [accepted, unheard, failing_after_all])
def test_a_handler_that_failed_after_a_send_becomes_a_dead_letter_at_once(
    room: Rooms, sim: Sim, what: Callable[[Sim], None]
) -> None:
    user = sim.add_user("花子")
    failing = Failing(lambda event: push(event.source.user_id, "送信"), 9)
    what(sim)
    desk = room(failing.bot)
    document = desk.says(user, "?")
    desk.until_quiet()
    assert (failing.runs, texts(sim, user)) == (1, ["送信"])
    (letter,) = eventually(desk.letters)
    assert letter["_id"] == document["eventId"]
    assert explained(letter).endswith(
        ", after it had called LINE itself: another try would send twice"
    )
    assert letter["attempts"] == 1


@pytest.mark.parametrize("arrived", [False, True])
@pytest.mark.parametrize("how", ["500", "close"])
def test_a_reply_of_unknown_outcome_is_made_again_since_its_token_works_once(
    room: Rooms, sim: Sim, how: str, arrived: bool
) -> None:
    user = sim.add_user("花子")
    if how == "500":
        sim.answer_next("reply", 500, accept=arrived)
    else:
        sim.close_next("reply", accept=arrived)
    desk = room(SdkBot(echo.handler))
    desk.says(user, "一")
    desk.until_quiet()
    assert texts(sim, user) == ["一"]
    causes = [explained(letter) for letter in desk.letters()]
    assert causes == (["handler: ApiException"] if arrived else [])


def test_a_send_that_line_definitely_did_not_have_does_not_count(room: Rooms, sim: Sim) -> None:
    user = sim.add_user("花子")
    failing = Failing(lambda event: push(event.source.user_id, "送信"), 0)
    sim.answer_next("push", 400, {"message": "no"})
    desk = room(failing.bot)
    desk.says(user, "?")
    desk.until_decided()
    assert (failing.runs, texts(sim, user), desk.letters()) == (2, ["送信", "はい"], [])


def test_a_handler_that_hangs_after_a_send_is_not_run_again(room: Rooms, sim: Sim) -> None:
    user, go_on, sent = sim.add_user("花子"), threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def handler(event: Any) -> None:
        push(event.source.user_id, "送信")
        sent.set()
        assert go_on.wait(30)
        try:
            push(event.source.user_id, "遅い")
        except GateClosed as error:
            raised.append(error)
            raise

    desk = room(handler_of(handler))
    desk.says(user, "?")
    assert sent.wait(10)
    assert abandon(desk) == 1
    desk.until_quiet()
    (letter,) = eventually(desk.letters)
    assert explained(letter).startswith("handler: did not return, after it had called LINE itself")
    go_on.set()
    eventually(lambda: raised)
    eventually(lambda: not desk.pool.threads.abandoned())
    assert texts(sim, user) == ["送信"]


def test_a_handler_that_is_abandoned_between_turn_and_send_sends_nothing() -> None:
    """Abandoning declares it first and then looks for the send; the send looks after its note."""

    class Handling:
        is_abandoned = False

        def end(self) -> bool:
            return not self.is_abandoned

    handling, call = Handling(), HandlerContext({"_id": 1, "key": "U1", "acceptTime": None})

    def run() -> Iterator[bool]:
        with call.under(handling):
            handling.is_abandoned = True
            yield call.has_sent
            with pytest.raises(GateClosed):
                call.begin_send()
            yield call.has_sent

    running = run()
    assert [next(running), next(running)] == [False, False]
    with pytest.raises(Exception, match="did not return in time"):
        next(running)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/v2/bot/message/push", True),
        ("POST", "/v2/bot/message/broadcast", True),
        ("POST", "/v2/bot/whatever/comes", True),
        ("POST", "/v2/bot/user/{userId}/richmenu/{richMenuId}", False),
        ("POST", "/v2/bot/message/validate/push", False),
        ("POST", "/v2/bot/chat/loading/start", False),
        ("GET", "/v2/bot/profile/{userId}", False),
        ("DELETE", "/v2/bot/user/all/richmenu", False),
    ],
)
def test_a_post_is_a_send_unless_it_does_no_more_when_made_twice(
    method: str, path: str, expected: bool
) -> None:
    assert is_send(method, path) is expected


def test_before_the_worker_begins_a_call_says_what_is_wrong() -> None:
    api = MessagingApi(ApiClient())
    with pytest.raises(NotRunning, match="not while the module is imported"):
        api.get_bot_info()


def test_blobs_go_to_the_data_host(room: Rooms, sim: Sim) -> None:
    """With the data base on a host of its own, only they do."""
    user = sim.add_user("花子")
    event = sim.drafts.medium("image", user)
    desk = room(SdkBot(echo.handler), data_base=sim.url.replace("127.0.0.1", "localhost"))
    came = MessagingApiBlob(ApiClient()).get_message_content(event["message"]["id"])
    assert len(came) > 1000
    assert desk.desk.line.sdk.data.last_response is None, "nothing of it stays in memory"
    assert MessagingApi(ApiClient()).get_bot_info().user_id == sim.bot_user_id
    with desk.desk.line.hosts.data.gate.turn():
        assert MessagingApi(ApiClient()).get_bot_info().user_id == sim.bot_user_id


# Named by BOT, and LINE's examples as docs/how-to/line-sdk-examples.md shows them.


def patched(text: str, diff: str) -> str:
    """Apply a unified diff; its lines must be where its numbers say."""
    lines, moved = text.splitlines(keepends=True), 0
    for number, hunk in re.findall(r"^@@ -(\d+).* @@\n((?:[ +-].*\n)+)", diff, re.MULTILINE):
        before = [line[1:] for line in hunk.splitlines(keepends=True) if line[0] in " -"]
        after = [line[1:] for line in hunk.splitlines(keepends=True) if line[0] in " +"]
        at = int(number) - 1 + moved
        assert lines[at : at + len(before)] == before
        lines[at : at + len(before)] = after
        moved += len(after) - len(before)
    return "".join(lines)


def diffs_of(page: str) -> list[str]:
    return re.findall(r"```diff\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)


DIFFS = diffs_of("docs/how-to/line-sdk-examples.md")
EXAMPLES = (
    "flask-echo_app_with_handler",
    "flask-echo_app",
    "fastapi-echo_main",
    "simple-server-echo_app",
)


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Bot]:
    """Loads the bot `handler` of a module with this text, as BOT would name it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    for name in ("LINE_CHANNEL_SECRET", "LINE_CHANNEL_ACCESS_TOKEN"):
        monkeypatch.setenv(name, "-")

    def load(text: str) -> Bot:
        module = f"bot_{uuid.uuid4().hex}"
        (tmp_path / f"{module}.py").write_text(text)
        return load_bot(f"{module}:handler")

    return load


@pytest.mark.parametrize(("name", "diff"), [*zip(EXAMPLES, DIFFS, strict=True)], ids=EXAMPLES)
def test_line_s_example_runs_after_the_page_s_diff(
    room: Rooms,
    sim: Sim,
    named: Callable[[str], Bot],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    diff: str,
) -> None:
    # Flask is not installed here, and none of its routes is called.
    monkeypatch.setitem(sys.modules, "flask", MagicMock())
    text = (ROOT / f"tests/sdk_bots/line_examples/{name}.py.txt").read_text("utf-8")
    user = sim.add_user("花子")
    desk = room(named(patched(text, diff)))
    assert answer_to(desk, sim, user, "やまびこ").text == "やまびこ"
    desk.send(sim.drafts.sticker(user))
    desk.until_decided()
    assert (texts(sim, user), desk.letters()) == (["やまびこ"], [])


def test_both_languages_show_the_same_diffs() -> None:
    assert diffs_of("docs/ja/how-to/line-sdk-examples.md") == DIFFS


HANDLER = "from linebot.v3 import WebhookHandler\nhandler = WebhookHandler('-')\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "from linebot.v3.messaging import ApiClient\n",
            "'ApiClient' is line-bot-sdk's own client",
        ),
        (
            "from linebot.v3 import messaging\n"
            "@handler.default()\ndef f(event): messaging.ApiClient()\n",
            "'messaging.ApiClient' is line-bot-sdk's own client",
        ),
        ("@handler.default()\nasync def later(event): ...\n", "'later' is a coroutine"),
        ("import sys\nsys.exit(1)\n", "SystemExit: 1 at "),
        (
            "from linedesk import ApiClient\nfrom linebot.v3.messaging import MessagingApi\n"
            "MessagingApi(ApiClient()).get_bot_info()\n",
            "NotRunning: LINE can be called only while linedesk runs the bot",
        ),
        ("handler = print\n", "must name a linedesk.Bot or a linebot.v3.WebhookHandler"),
    ],
)
def test_a_module_that_cannot_work_is_refused_at_the_start(
    named: Callable[[str], Bot], text: str, words: str
) -> None:
    with pytest.raises(SettingsError, match=re.escape(words)):
        named(HANDLER + text)


def test_a_bot_of_several_modules_is_looked_through(
    named: Callable[[str], Bot], tmp_path: Path
) -> None:
    (tmp_path / "beside.py").write_text("from linebot.v3.messaging import ApiClient\n")
    with pytest.raises(SettingsError, match="'beside': 'ApiClient' is line-bot-sdk's own client"):
        named(HANDLER + "import beside\n")
    del sys.modules["beside"]


def test_code_outside_the_bot_may_have_the_sdk_s_client(
    named: Callable[[str], Bot], tmp_path: Path
) -> None:
    library = tmp_path / "venv/lib/site-packages"
    library.mkdir(parents=True)
    (library / "lib_of_theirs.py").write_text("from linebot.v3.messaging import ApiClient\n")
    path = f"import sys\nsys.path.append({str(library)!r})\n"
    named(f"{HANDLER}{path}import lib_of_theirs, linedesk\nmade = linedesk.ApiClient()\n")
    del sys.modules["lib_of_theirs"]
