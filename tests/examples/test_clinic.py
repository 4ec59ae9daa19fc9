"""examples/clinic: its own tests pass, and it does the same on every real part."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from linedesk.store.recurrence import Recurrence
from linedesk.testing import Sent
from linedesk.testing.actions import action_of, picked
from linesim.model.deliveries import Event
from linesim.model.media import sample
from linesim.model.world import Group, User
from tests.real_stack import RealStack, real_stack
from tests.waiting import ran

FOLDER = Path(__file__).parents[2] / "examples" / "clinic"
# There is a Monday's noon before the evening before it.
VISIT = Recurrence.parse("水 10:30", "Asia/Tokyo")
REMINDED_BEFORE = timedelta(hours=16, minutes=30)


def test_its_own_tests_pass() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ended = ran(command, cwd=FOLDER)
    assert ended.returncode == 0, ended.stdout


class Visitor:
    """A user, who does things in the own chat or in a group, and sees what the bot says there."""

    def __init__(self, stack: RealStack, user: User, chat: User | Group) -> None:
        self.user = user
        self._stack, self._chat, self._seen = stack, chat, 0

    def says(self, text: str) -> list[Any]:
        chat = self._chat if isinstance(self._chat, Group) else None
        return self.does(self._stack.sim.drafts.text(self.user, text, chat=chat))

    def taps(self, label: str, *, moment: str | None = None) -> list[Any]:
        """Tap an action in the last messages, and pick a moment if one is given."""
        action = action_of(label, [one.message for one in self._stack.sim.answers(self._chat)])
        params = picked(action, moment) if moment is not None else None
        postback = self._stack.sim.drafts.postback
        return self.does(postback(self.user, action["data"], params=params))

    def does(self, event: Event) -> list[Any]:
        self._stack.deliver(event)
        self._stack.wait_until_quiet()
        return self.sees()

    def sees(self) -> list[Any]:
        """What the bot has said since the last time."""
        answers = self._stack.sim.answers(self._chat)[self._seen :]
        self._seen += len(answers)
        return Sent("", "", tuple(one.message for one in answers)).shown


def test_a_booking_a_photo_a_mention_and_a_failure_on_every_real_part(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    with real_stack() as stack:
        stack.play("clinic:bot", PYTHONPATH=str(FOLDER), BOT_SETTINGS=f"photos={photos}")
        users = [stack.sim.add_user(name) for name in ("花子", "太郎")]
        family = stack.sim.add_group("家族", members=users)
        hanako, taro = (Visitor(stack, user, user) for user in users)
        in_family = Visitor(stack, users[0], family)

        visit = VISIT.after(stack.now() + timedelta(days=2))
        assert visit is not None
        local = visit.astimezone(VISIT.zone)
        day = f"{local:%-m月%-d日}"
        assert hanako.says("予約") == ["下のボタンで日時を選んでください。"]
        (flex,) = hanako.taps("日時を選ぶ", moment=f"{local:%Y-%m-%dT%H:%M}")
        assert flex["contents"]["body"]["contents"][0]["text"] == f"{day}10:30でよろしいですか？"
        assert hanako.taps("予約する") == [f"{day}10:30に承りました。"]

        photo = stack.sim.drafts.medium("image", hanako.user)
        assert hanako.does(photo) == ["写真をお預かりしました。"]
        assert [one.read_bytes() for one in photos.iterdir()] == [sample("image").data]
        photos.rename(tmp_path / "full")
        photos.touch()
        (sorry,) = hanako.does(stack.sim.drafts.medium("image", hanako.user))
        assert sorry.startswith("申し訳ありません。")

        assert in_family.says("予約しようか") == []
        (answer,) = in_family.says("@linedesk 予約")
        assert answer.startswith(f"@{hanako.user.user_id} さん、診療時間は")

        (welcome,) = taro.does(stack.sim.drafts.follow(taro.user))
        assert welcome.startswith("みなと医院です。")
        assert taro.says("質問 薬は？") == [
            "「質問 薬は？」については、診察のときに医師にお尋ねください。"
        ]
        stack.move_to(visit - REMINDED_BEFORE - timedelta(minutes=10))
        assert hanako.sees() == []
        assert taro.sees() != []
        stack.move_to(visit - REMINDED_BEFORE)
        assert hanako.sees() == [f"ご予約の{day}10:30にお待ちしております。"]
