"""The scenes of the demo.

The parrot: people of all kinds, a group, a burst, a redelivery.

The reminder bot: a daily time, a question asked back, and nagging until there is an answer.

The timer bot: seconds that pass, several of them at once, and a change of mind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from linedesk.demo.conversation import Deed, DemoConversation, Event, Person
from linedesk.demo.timed_events import DemoTimer, DemoTimers
from linedesk.settings.errors import DemoFailed


@dataclass
class Scene:
    """A part of the conversation with its events handled, and a closing `remark`.

    In a scene by the clock the users are idle: the clock was moved ahead by `advanced` seconds, and
    `rings` arrived.
    """

    title: str
    events: list[Event] = field(default_factory=list)
    remark: str = ""
    advanced: float = 0.0
    timers: list[DemoTimer] = field(default_factory=list)


def act_out(talk: DemoConversation, title: str, webhooks: Sequence[Sequence[Deed]]) -> Scene:
    """Carry out each webhook's deeds and wait for their answers. Raises DemoFailed."""
    events = [event for deeds in webhooks for event in talk.send(*deeds)[1]]
    wait(talk, title, events)
    return Scene(title, events)


def wait(talk: DemoConversation, title: str, events: Sequence[Event]) -> None:
    """Wait until all are handled; raises DemoFailed, naming the scene."""
    try:
        talk.wait_for(events)
    except DemoFailed as error:
        raise DemoFailed(f"{title}: {error}") from error


def fire_timers(
    timers: DemoTimers, title: str, expected: Sequence[tuple[Person, str]], *, waiting: int
) -> Scene:
    """Move the clock to the next of `waiting` timers and wait for these messages. Raises
    DemoFailed.
    """
    try:
        advanced = timers.advance_to_next(waiting=waiting)
        return Scene(title, advanced=advanced, timers=timers.wait_for(expected))
    except DemoFailed as error:
        raise DemoFailed(f"{title}: {error}") from error


def says(
    who: Person, text: str, answer: str | None = None, *, chat: str | None = None, where: str = ""
) -> Deed:
    """A text message, and the bot's expected answer if the script has it."""
    act = {"act": "text", "text": text, "chat": chat}
    return Deed(who, text, act, where=where, answer=answer)


BURST = 5


def parrot_scenes(talk: DemoConversation, timers: DemoTimers) -> Iterator[Scene]:
    """Play the conversation; yields each scene once all of it was answered.

    Raises DemoFailed with the scene's name if an expected event is missing or occurs twice.
    """
    hanako, taro, emily = (talk.meet(name) for name in ("佐藤花子", "田中太郎", "Émile 🦜"))
    people = [hanako, taro, emily]
    yield act_out(talk, "three people add the bot as a friend", [[_follows(who)] for who in people])
    yield act_out(
        talk,
        "each of them says hello",
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


def _in_a_group(talk: DemoConversation, hanako: Person, taro: Person) -> Scene:
    name = "週末キャンプ"
    chat = talk.gather(name, [hanako, taro])
    nobody = Person(name, "")
    # The parrot has no handler for it, so no handler starts.
    joins = Deed(nobody, "(invites the bot)", {"act": "join", "chat": chat}, until="stored")
    webhooks = [[joins], [says(taro, "テントは誰が持ってくる？", chat=chat, where=name)]]
    return act_out(talk, "a group invites the bot", webhooks)


def _burst(talk: DemoConversation, people: list[Person]) -> Scene:
    title = f"all write at once, {BURST} messages each; everyone is answered in order"
    webhooks = [
        [says(who, f"{number}つ目です") for who in people] for number in range(1, BURST + 1)
    ]
    scene = act_out(talk, title, webhooks)
    for who in people:
        # Answers that waited together arrive in one call, at the same time.
        called = [e.answers[0].called_at for e in scene.events if e.deed.who == who]
        if called != sorted(called):
            raise DemoFailed(f"{title}: {who.name} was answered out of order: {called}")
    return scene


def _redelivery(talk: DemoConversation, who: Person) -> Scene:
    """A later message of the conversation proves that the earlier one has no further answers."""
    title = "LINE delivers one webhook twice; it is answered once"
    number, first = talk.send(says(who, "これは二度届きます"))
    wait(talk, title, first)
    milliseconds = talk.send_again(number)
    _, last = talk.send(says(who, "これは一度だけ"))
    wait(talk, title, last)
    if len(first[0].answers) != 1:
        raise DemoFailed(f"{title}: {len(first[0].answers)} answers")
    remark = (
        f"the redelivery was answered with 200 after {milliseconds:.1f} ms and not handled again"
    )
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


NOT_SET = "設定されてないですよ"


def reminder_scenes(talk: DemoConversation, timers: DemoTimers) -> Iterator[Scene]:
    """Play the conversation; yields each scene once all of its messages have arrived.

    Raises DemoFailed with the scene's name if a message is missing or too early.
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
        "25 is not an hour, so the bot asks again",
        [
            [says(hanako, "25時30分", "何時ですか？")],
            [says(hanako, "8時", "8時30分ですね。わかりました。")],
            [says(hanako, "設定教えて", "8時30分に設定されています")],
        ],
    )
    yield fire_timers(timers, "half past eight in Tokyo", [(hanako, "飲んだ？")], waiting=1)
    # The next day's, and the next in ten minutes.
    yield fire_timers(timers, "no answer for ten minutes", [(hanako, "飲んだ？？")], waiting=2)
    yield act_out(
        talk,
        "any answer ends the questions; then good-bye",
        [
            [says(hanako, "飲みました", "よくできました")],
            [says(hanako, "ばいばい", "設定を削除しました。 ばいばい")],
            [says(hanako, "設定教えて", NOT_SET)],
        ],
    )


def timer_scenes(talk: DemoConversation, timers: DemoTimers) -> Iterator[Scene]:
    """Play the conversation; yields each scene once all of its messages have arrived.

    Raises DemoFailed with the scene's name if a message is missing or too early.
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
    yield fire_timers(timers, "three minutes later", [(hanako, "180秒経ちました")] * 2, waiting=2)
    yield act_out(
        talk,
        "one user cancels her timer",
        [
            [says(hanako, "60", "60秒後にお知らせします")],
            [says(hanako, "90", "90秒後にお知らせします")],
            [says(taro, "120", "120秒後にお知らせします")],
            [says(hanako, "キャンセル")],
        ],
    )
    scene = fire_timers(timers, "two minutes later", [(taro, "120秒経ちました")], waiting=1)
    scene.remark = "the cancelled timer was due before it, and did not fire"
    yield scene
