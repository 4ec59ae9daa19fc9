"""The parrot: people of all kinds, a group, a burst, a redelivery."""

from __future__ import annotations

from collections.abc import Iterator

from linedesk.conversation import Conversation, Deed, Person
from linedesk.errors import DemoFailed
from linedesk.rings import Rings
from linedesk.scenes.scene import Scene, act_out, says, wait

BURST = 5


def scenes(talk: Conversation, rings: Rings) -> Iterator[Scene]:
    """Play the conversation; each scene is given out when all that it asked for was answered.

    Raises DemoFailed, naming the scene, when something does not happen or happens twice.
    """
    hanako, taro, emily = (talk.meet(name) for name in ("佐藤花子", "田中太郎", "Émile 🦜"))
    people = [hanako, taro, emily]
    yield act_out(talk, "three people add the bot as a friend", [[_follows(who)] for who in people])
    yield act_out(
        talk,
        "they say hello, each in their own way",
        [
            [says(hanako, "こんにちは！今日もいい天気ですね ☀️")],
            [says(taro, "改行も\n大丈夫？👨‍👩‍👧‍👦")],
            [_sticks(emily)],
            [_shows_photo(hanako)],
            [_is_at(taro)],
        ],
    )
    yield _in_a_group(talk, hanako, taro)
    yield _burst(talk, people)
    yield _redelivery(talk, hanako)
    yield act_out(talk, "one of them blocks the bot", [[_blocks(emily)]])


def _in_a_group(talk: Conversation, hanako: Person, taro: Person) -> Scene:
    name = "週末キャンプ"
    chat = talk.gather(name, [hanako, taro])
    nobody = Person(name, "")
    # The parrot has no handler for it, so nothing starts.
    joins = Deed(nobody, "(invites the bot)", {"act": "join", "chat": chat}, until="stored")
    webhooks = [[joins], [says(taro, "テントは誰が持ってくる？", chat=chat, where=name)]]
    return act_out(talk, "a group invites the bot", webhooks)


def _burst(talk: Conversation, people: list[Person]) -> Scene:
    title = f"all write at once, {BURST} messages each; everyone is answered in order"
    webhooks = [
        [says(who, f"{number}つ目です") for who in people] for number in range(1, BURST + 1)
    ]
    scene = act_out(talk, title, webhooks)
    for who in people:
        answered = [
            e.answers[0].milliseconds + e.sent_at * 1000 for e in scene.events if e.deed.who == who
        ]
        if answered != sorted(answered):
            raise DemoFailed(f"{title}: {who.name} was answered out of order")
    return scene


def _redelivery(talk: Conversation, who: Person) -> Scene:
    """A later message of the same conversation proves that nothing more comes of an earlier one."""
    title = "LINE delivers one webhook twice; it is answered once"
    number, first = talk.send(says(who, "これは二度届きます"))
    wait(talk, title, first)
    milliseconds = talk.send_again(number)
    _, last = talk.send(says(who, "これは一度だけ"))
    wait(talk, title, last)
    if len(first[0].answers) != 1:
        raise DemoFailed(f"{title}: {len(first[0].answers)} answers")
    remark = f"the redelivery was taken with 200 after {milliseconds:.1f} ms and not handled again"
    return Scene(title, [*first, *last], remark)


def _follows(who: Person) -> Deed:
    return Deed(who, "(adds the bot)", {"act": "follow"})


def _blocks(who: Person) -> Deed:
    return Deed(who, "(blocks the bot)", {"act": "unfollow"}, until="started")


def _sticks(who: Person) -> Deed:
    return Deed(who, "[sticker]", {"act": "sticker"})


def _shows_photo(who: Person) -> Deed:
    return Deed(who, "[photo]", {"act": "image"})


def _is_at(who: Person) -> Deed:
    return Deed(who, "[location] 東京タワー", {"act": "location"})
