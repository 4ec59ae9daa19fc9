"""The timer bot: seconds that pass, several of them at once, and a change of mind."""

from __future__ import annotations

from collections.abc import Iterator

from linedesk.conversation import Conversation
from linedesk.rings import Rings
from linedesk.scenes.scene import Scene, act_out, let_ring, says


def scenes(talk: Conversation, rings: Rings) -> Iterator[Scene]:
    """Play the conversation; each scene is given out when all that it asked for has come.

    Raises DemoFailed, naming the scene, when something does not happen, or happens too early.
    """
    hanako, taro = (talk.meet(name, friend=True) for name in ("佐藤花子", "田中太郎"))
    yield act_out(
        talk,
        "a number sets a timer; anything else is explained",
        [
            [says(hanako, "180", "180秒後にお知らせします")],
            [says(hanako, "１８０", "180秒後にお知らせします")],
            [says(taro, "その他の言葉")],
            [says(taro, "0")],
        ],
    )
    yield let_ring(rings, "three minutes later", [(hanako, "180秒経ちました")] * 2, waiting=2)
    yield act_out(
        talk,
        "one of them changes her mind",
        [
            [says(hanako, "60", "60秒後にお知らせします")],
            [says(hanako, "90", "90秒後にお知らせします")],
            [says(taro, "120", "120秒後にお知らせします")],
            [says(hanako, "キャンセル")],
        ],
    )
    scene = let_ring(rings, "two minutes later", [(taro, "120秒経ちました")], waiting=1)
    scene.remark = "what was cancelled was due before it, and did not come"
    yield scene
