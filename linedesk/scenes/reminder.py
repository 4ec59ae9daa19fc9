"""The reminder bot: a daily time, a question asked back, and nagging until there is an answer."""

from __future__ import annotations

from collections.abc import Iterator

from linedesk.conversation import Conversation
from linedesk.rings import Rings
from linedesk.scenes.scene import Scene, act_out, let_ring, says

NOT_SET = "設定されてないですよ"


def scenes(talk: Conversation, rings: Rings) -> Iterator[Scene]:
    """Play the conversation; each scene is given out when all that it asked for has come.

    Raises DemoFailed, naming the scene, when something does not happen, or happens too early.
    """
    hanako = talk.meet("佐藤花子", friend=True)
    yield act_out(
        talk,
        "nothing is set yet",
        [
            [says(hanako, "設定教えて", NOT_SET)],
            [says(hanako, "こんにちは", "時間を設定してください")],
        ],
    )
    yield act_out(
        talk,
        "there is no 25 o'clock, so the bot asks back",
        [
            [says(hanako, "25時30分", "何時ですか？")],
            [says(hanako, "8時", "8時30分ですね。わかりました。")],
            [says(hanako, "設定教えて", "8時30分に設定されています")],
        ],
    )
    yield let_ring(rings, "half past eight in Tokyo", [(hanako, "飲んだ？")], waiting=1)
    # The next day's, and the next in ten minutes.
    yield let_ring(rings, "no answer for ten minutes", [(hanako, "飲んだ？？")], waiting=2)
    yield act_out(
        talk,
        "any answer will do; then good-bye",
        [
            [says(hanako, "飲みました", "よくできました")],
            [says(hanako, "ばいばい", "設定を削除しました。 ばいばい")],
            [says(hanako, "設定教えて", NOT_SET)],
        ],
    )
