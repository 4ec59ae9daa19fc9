"""A model of the protocol by which sends of several conversations share one multicast.

Two leaders, two conversations with one send each, one multicast of the first leader. The steps have
the names of those in `jobworker.sending.batching.Batching` and `jobworker.record.batches.Batches`.
A step does one write of MongoDB, one call of LINE or one change under the outbox's lock. Every
order of the steps is tried. The second leader begins at any time, and the first one freezes at any
step, for a while or permanently. There is no lease: a replaced leader continues until a write
refuses it.

Trouble is the effect of MongoDB and LINE on a step. A write that is not confirmed, or a call that
is not answered, arrives at once, at any later time, or never. A call may be refused. LINE takes a
retry key once.

The model makes a multicast of one conversation, too, where the code requires two. Two conversations
are therefore enough to have one that stays outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

A, B = 0, 1
CHATS = frozenset((A, B))
# The values of a conversation's `call`.
CLAIM, OWN = "claimed for the multicast", "a call of its own"


class Chat(NamedTuple):
    """A conversation in MongoDB."""

    epoch: int = 1
    call: str | None = None
    waits: bool = True
    """Whether its send is in the outbox."""


class Row(NamedTuple):
    """The multicast's document in `batches`."""

    epoch: int
    members: frozenset[int] | None = None
    """None while it is open."""


class Task(NamedTuple):
    """The next action of a leader's thread, or a write that is still on its way."""

    step: str
    epoch: int
    chat: int = -1
    members: frozenset[int] = frozenset()
    was_tried: bool = False
    seen: Chat | None = None


class Memory(NamedTuple):
    """The second leader's knowledge, under its outbox's lock."""

    asked: frozenset[int] | None = None
    """`_unknown`: the conversations that wait for word of the batch; None if it is not asked."""
    joined: frozenset[int] | None = None
    """`_batches`: the conversations in the batch on its way; None if there is none."""
    members: frozenset[int] = frozenset()
    """The members of that batch."""
    gone: frozenset[int] = frozenset()


class World(NamedTuple):
    """Everything at one moment."""

    tasks: frozenset[Task]
    chats: tuple[Chat, Chat] = (Chat(), Chat())
    row: Row | None = None
    keys: frozenset[int | str] = frozenset()
    """The retry keys that LINE has taken: a conversation's own, or that of the multicast."""
    got: tuple[int, int] = (0, 0)
    """How many messages each user has."""
    memory: Memory = Memory()
    trouble: tuple[int, ...] = ()
    """The leaders whose steps still meet trouble, each once."""
    broken: str = ""
    """The rule that is taken out."""

    def set_chat(self, chat: int, **fields: object) -> World:
        chats = list(self.chats)
        chats[chat] = chats[chat]._replace(**fields)  # type: ignore[arg-type]
        return self._replace(chats=(chats[0], chats[1]))

    def spends(self, task: Task) -> World:
        """Its leader's trouble is over with this."""
        return self._replace(trouble=tuple(one for one in self.trouble if one != task.epoch))

    def then(self, *tasks: Task) -> World:
        return self._replace(tasks=self.tasks.union(tasks))

    def know(self, **fields: object) -> World:
        return self._replace(memory=self.memory._replace(**fields))  # type: ignore[arg-type]


# Writes of MongoDB: the world after it, and whether it matched.

Written = tuple[World, bool]


def open_(world: World, task: Task) -> Written:
    return world._replace(row=Row(task.epoch)), True


def claim(world: World, task: Task) -> Written:
    chat = world.chats[task.chat]
    if chat.epoch != task.epoch or chat.call is not None or not chat.waits:
        return world, False
    return world.set_chat(task.chat, call=CLAIM), True


def ready(world: World, task: Task) -> Written:
    is_open = world.row == Row(task.epoch)
    if is_open:
        world = world._replace(row=Row(task.epoch, task.members))
    return world, is_open or world.broken == "only an open batch becomes ready"


def remove(world: World, task: Task) -> Written:
    if world.row is None or world.row.epoch != task.epoch:
        return world, False
    return world._replace(row=None), True


def let_go(world: World, task: Task, *, done: bool = False) -> Written:
    chat = world.chats[task.chat]
    if chat.epoch != task.epoch or chat.call != CLAIM:
        return world, False
    return world.set_chat(task.chat, call=None, waits=chat.waits and not done), True


def let_go_done(world: World, task: Task) -> Written:
    return let_go(world, task, done=True)


def adopt(world: World, task: Task) -> Written:
    if world.chats[task.chat].epoch > task.epoch:
        return world, False
    return world.set_chat(task.chat, epoch=task.epoch), True


def delete_open(world: World, task: Task) -> Written:
    row = world.row
    if row is None or row.members is not None or row.epoch >= task.epoch:
        return world, False
    return world._replace(row=None), True


def take(world: World, task: Task) -> Written:
    row = world.row
    if row is None or row.members is None:
        return world, False
    return world._replace(row=row._replace(epoch=max(row.epoch, task.epoch))), True


def note_call(world: World, task: Task) -> Written:
    """A claim that memory does not know of gives way."""
    chat = world.chats[task.chat]
    if chat.epoch != task.epoch or not chat.waits:
        return world, False
    return world.set_chat(task.chat, call=OWN), True


def note_call_late(world: World, task: Task) -> Written:
    """The same, written before there was any call."""
    return note_call(world, task) if world.chats[task.chat].call is None else (world, False)


def end_call(world: World, task: Task) -> Written:
    chat = world.chats[task.chat]
    if chat.epoch != task.epoch or chat.call != OWN:
        return world, False
    return world.set_chat(task.chat, call=None, waits=False), True


WRITES: dict[str, Callable[[World, Task], Written]] = {
    one.__name__: one
    for one in (
        *(open_, claim, ready, remove, let_go, let_go_done, adopt, delete_open, take),
        *(note_call, note_call_late, end_call),
    )
}
LATE = "late: "


def written(
    world: World, task: Task, write: str, *, late: str | None = None
) -> Iterator[tuple[World, bool | None]]:
    """How a write may end: confirmed, or not, of which None is said.

    One that is not confirmed is still on its way: it lands at once, at any later time or never.
    """
    yield WRITES[write](world, task)
    if task.epoch in world.trouble:
        less = world.spends(task)
        yield less.then(task._replace(step=LATE + (late or write))), None


# Calls of LINE.


def call(world: World, task: Task) -> Written:
    """LINE takes each key once."""
    key, to = ("multicast", task.members) if task.members else (task.chat, {task.chat})
    if key in world.keys:
        return world, False
    got = [n + (chat in to) for chat, n in enumerate(world.got)]
    return world._replace(keys=world.keys | {key}, got=(got[0], got[1])), True


WRITES["call"] = call


# `Batching.go`, of the first leader.


def go(world: World, task: Task) -> Iterator[World]:
    for after, is_done in written(world, task, "open_"):
        yield after.then(Task("claim_first" if is_done else "call_off", 1, members=CHATS))


def claim_first(world: World, task: Task) -> Iterator[World]:
    first, second = task._replace(chat=A), task._replace(chat=B)
    yield claim(world, first)[0].then(task._replace(step="claim_second"))
    if task.epoch in world.trouble:
        # Both are in one message; one that the driver repeats may land once more, later.
        late = [one._replace(step=LATE + "claim") for one in (first, second)]
        after = world.spends(task).then(*late)
        yield after.then(task._replace(step="call_off"))
        yield after.then(task._replace(step="claim_second"))


def claim_second(world: World, task: Task) -> Iterator[World]:
    yield claim(world, task._replace(chat=B))[0].then(task._replace(step="claimed"))


def claimed(world: World, task: Task) -> Iterator[World]:
    """`claim` reads the claimed ones; `go` sets the others free."""
    members = {one for one in CHATS if world.chats[one][:2] == (task.epoch, CLAIM)}
    if not members:
        yield world.then(task._replace(step="call_off"))
        return
    yield world.then(Task("make_ready", 1, members=frozenset(members)))


def make_ready(world: World, task: Task) -> Iterator[World]:
    strangers = [Task("note", 1, chat=one) for one in CHATS - task.members]
    for after, matched in written(world, task, "ready"):
        if matched:
            yield after.then(task._replace(step="make_call"), *strangers)
        else:
            yield after.then(Task("call_off", 1, members=CHATS))


# A batch on its way, of either leader.


def make_call(world: World, task: Task) -> Iterator[World]:
    """`_make_call` and `_judge`: sent, refused, or of unknown outcome and so repeated."""
    yield call(world, task)[0].then(task._replace(step="end_first"))
    if task.epoch in world.trouble:
        less = world.spends(task)
        again = task._replace(was_tried=True)
        yield less.then(again, Task(LATE + "call", task.epoch, members=task.members))
        if not task.was_tried:
            yield less.then(task._replace(step="call_off"))


def end_first(world: World, task: Task) -> Iterator[World]:
    """`Batches.end`: the members leave one after the other."""
    if world.broken == "members leave first":
        world = remove(world, task)[0]
    yield from _for_each(world, task, A, "let_go_done", then="end_second")


def end_second(world: World, task: Task) -> Iterator[World]:
    yield from _for_each(world, task, B, "let_go_done", then="end_row")


def end_row(world: World, task: Task) -> Iterator[World]:
    """`messages` says whether a successor has one of them: then this process ends."""
    is_left = not any(world.chats[one].call == CLAIM for one in task.members)
    if is_left or world.broken == "the row of a successor stays":
        yield world.then(task._replace(step="end_remove"))
    else:
        yield world


def end_remove(world: World, task: Task) -> Iterator[World]:
    for after, matched in written(world, task, "remove"):
        yield after.then(task._replace(step="end_remove" if matched is None else "sent"))


def sent(world: World, task: Task) -> Iterator[World]:
    """`_sent`, under the lock."""
    if task.epoch == 1:
        yield world
        return
    memory = world.memory
    others = task.members - (memory.joined or frozenset())
    yield world.know(joined=None, gone=memory.gone | others)


def call_off(world: World, task: Task) -> Iterator[World]:
    """`Batches.call_off`: the row is removed, then its conversations are free.

    A row of a successor ends the process.
    """
    is_replaced = world.row is not None and world.row.epoch > task.epoch
    if is_replaced and world.broken != "a successor's batch is not called off":
        yield world
        return
    for after, matched in written(world, task, "remove"):
        step = "call_off" if matched is None else "free_first"
        yield after.then(task._replace(step=step))


def free_first(world: World, task: Task) -> Iterator[World]:
    yield from _for_each(world, task, A, "let_go", then="free_second")


def free_second(world: World, task: Task) -> Iterator[World]:
    yield from _for_each(world, task, B, "let_go", then="release")


def _for_each(world: World, task: Task, chat: int, write: str, *, then: str) -> Iterator[World]:
    if chat not in task.members:
        yield world.then(task._replace(step=then))
        return
    for after, matched in written(world, task._replace(chat=chat), write):
        yield after.then(task._replace(step=task.step if matched is None else then))


def release(world: World, task: Task) -> Iterator[World]:
    yield world.then(*(Task("note", task.epoch, chat=one) for one in task.members))


# A conversation by itself (`jobworker.sending.outbox.Outbox._go`).


def note(world: World, task: Task) -> Iterator[World]:
    """A leader whose write does not match was replaced, or the send has left."""
    for after, matched in written(world, task, "note_call", late="note_call_late"):
        if matched is None:
            yield after.then(task)
        else:
            yield after.then(task._replace(step="push")) if matched else after


def push(world: World, task: Task) -> Iterator[World]:
    """The call with its end: the time between them is not part of this protocol."""
    yield end_call(call(world, task)[0], task)[0]


# The second leader (`Outbox.take_over`, `Outbox.add`, `Batching.claimed`).


def take_over(world: World, task: Task) -> Iterator[World]:
    memory = world.memory
    is_known = memory.asked is not None or memory.joined is not None
    if world.row is None or world.row.epoch > 1 or is_known:
        yield world
    else:
        yield world.know(asked=frozenset()).then(Task("ask", 2))


def adopt_one(world: World, task: Task) -> Iterator[World]:
    """By its first event, or by `adopt_all`; then its outbox is read."""
    if world.broken == "adopted before it is read" and task.seen is None:
        yield world.then(task._replace(seen=world.chats[task.chat]))
        return
    then = "read" if task.seen is None else "add"
    for after, matched in written(world, task, "adopt"):
        yield after.then(task if matched is None else task._replace(step=then))


def read(world: World, task: Task) -> Iterator[World]:
    yield world.then(task._replace(step="add", seen=world.chats[task.chat]))


def add(world: World, task: Task) -> Iterator[World]:
    chat, memory, seen = task.chat, world.memory, task.seen
    assert seen is not None
    if not seen.waits or chat in memory.gone:
        yield world
    elif seen.call == OWN:
        yield world.then(Task("push", 2, chat=chat))
    elif seen.call is None:
        yield world.then(Task("note", 2, chat=chat))
    elif memory.joined is not None:
        if chat in memory.members:
            yield world.know(joined=memory.joined | {chat})
        else:
            yield world.then(Task("note", 2, chat=chat))
    elif memory.asked is not None:
        yield world.know(asked=memory.asked | {chat})
    else:
        yield world.know(asked=frozenset((chat,))).then(Task("ask", 2))


def ask(world: World, task: Task) -> Iterator[World]:
    """`Batches.take` begins."""
    for after, matched in written(world, task, "delete_open"):
        yield after.then(task if matched is None else task._replace(step="ask_ready"))


def ask_ready(world: World, task: Task) -> Iterator[World]:
    for after, matched in written(world, task, "take"):
        if matched is None:
            yield after.then(Task("ask", 2))
        elif matched and after.row is not None and after.row.members is not None:
            yield after.then(task._replace(step="adopt_first", members=after.row.members))
        else:
            yield after.then(task._replace(step="not_ready"))


def adopt_first(world: World, task: Task) -> Iterator[World]:
    yield from _for_each(world, task, A, "adopt", then="adopt_second")


def adopt_second(world: World, task: Task) -> Iterator[World]:
    yield from _for_each(world, task, B, "adopt", then="messages")


def messages(world: World, task: Task) -> Iterator[World]:
    is_left = not any(world.chats[one].call == CLAIM for one in task.members)
    yield world.then(task._replace(step="not_ready" if is_left else "repeat"))


def repeat(world: World, task: Task) -> Iterator[World]:
    """`_repeat`, under the lock."""
    asked = world.memory.asked or frozenset()
    members = CHATS if world.broken == "a claim counts for members only" else task.members
    late = [Task("note", 2, chat=one) for one in asked - members]
    after = world.know(asked=None, joined=asked & members, members=members)
    yield after.then(task._replace(step="make_call", was_tried=True), *late)


def not_ready(world: World, task: Task) -> Iterator[World]:
    """`_not_ready`, under the lock: the claims count for nothing."""
    asked = world.memory.asked or frozenset()
    yield world.know(asked=None).then(Task("call_off", 2, members=asked))


STEPS: dict[str, Callable[[World, Task], Iterator[World]]] = {
    one.__name__: one
    for one in (
        *(go, claim_first, claim_second, claimed, make_ready),
        *(make_call, end_first, end_second, end_row, end_remove, sent),
        *(call_off, free_first, free_second, release, note, push),
        *(take_over, adopt_one, read, add),
        *(ask, ask_ready, adopt_first, adopt_second, messages, repeat, not_ready),
    )
}


def is_in_vain(world: World, task: Task) -> bool:
    """Whether a late write changes nothing, now and ever."""
    if task.step == LATE + "call":
        return "multicast" in world.keys
    if task.chat < 0 or not task.step.startswith(LATE):
        return False
    chat = world.chats[task.chat]
    return chat.epoch >= task.epoch + (task.step != LATE + "adopt") or not chat.waits


def is_local(task: Task) -> bool:
    """Whether it looks at nothing that others see, so that its moment does not matter."""
    skips = {"first": A, "second": B}.get(task.step.partition("_")[2])
    passes = skips is not None and task.step != "claim_second" and skips not in task.members
    return task.step == "release" or passes


def after_a_step(world: World) -> Iterator[tuple[Task, World]]:
    """The possible next worlds."""
    local = [task for task in world.tasks if is_local(task)]
    in_vain = [task for task in world.tasks if is_in_vain(world, task)]
    for task in in_vain[:1] or local[:1] or world.tasks:
        without = world._replace(tasks=world.tasks - {task})
        if task.step.startswith(LATE):
            yield task, WRITES[task.step.removeprefix(LATE)](without, task)[0]
        else:
            for after in STEPS[task.step](without, task):
                yield task, after


def problem_of(world: World) -> str | None:
    """The violated rule; a run has ended once the second leader has nothing more to do."""
    if max(world.got) > 1:
        return "a message arrived twice"
    if any(task.epoch == 2 and not task.step.startswith(LATE) for task in world.tasks):
        return None
    if min(world.got) < 1:
        return "a message never arrived"
    if any(chat.waits for chat in world.chats):
        return "a send that arrived is still in its outbox"
    return None


def search(broken: str = "", *, trouble: tuple[int, ...]) -> tuple[str | None, int]:
    """The first problem with the steps that lead to it, and how many worlds were examined."""
    tasks = (Task("go", 1), Task("take_over", 2), *(Task("adopt_one", 2, chat=n) for n in (A, B)))
    start = World(frozenset(tasks), trouble=trouble, broken=broken)
    came_from: dict[World, tuple[World, Task] | None] = {start: None}
    left = [start]
    while left:
        world = left.pop()
        if problem := problem_of(world):
            return f"{problem}: {' > '.join(_way_to(world, came_from))}", len(came_from)
        for task, after in after_a_step(world):
            if after not in came_from:
                came_from[after] = world, task
                left.append(after)
    return None, len(came_from)


def _way_to(world: World, came_from: dict[World, tuple[World, Task] | None]) -> list[str]:
    names: list[str] = []
    while (step := came_from[world]) is not None:
        world, task = step
        names.append(f"{task.epoch} {task.step}")
    return names[::-1]


TROUBLE = {
    "no trouble": (),
    "trouble of the first leader": (1,),
    "trouble of the second leader": (2,),
}
# Each is a line of the code that carries the rule's name as a guard, or an order of two lines.
RULES = (
    "only an open batch becomes ready",
    "adopted before it is read",
    "members leave first",
    "the row of a successor stays",
    "a claim counts for members only",
    "a successor's batch is not called off",
)


@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE.keys())
def test_in_whatever_order_each_message_arrives_once(trouble: tuple[int, ...]) -> None:
    problem, worlds = search(trouble=trouble)
    assert problem is None
    # Otherwise it has examined too little.
    assert worlds > 20_000


@pytest.mark.parametrize("rule", RULES)
def test_without_any_of_its_rules_a_promise_is_broken(rule: str) -> None:
    problem, _ = search(rule, trouble=(1,))
    assert problem is not None
    # Which of the broken orders is found first is left to chance.
    broken = ("a message arrived twice", "a message never arrived", "a send that arrived is still")
    assert problem.startswith(broken)
