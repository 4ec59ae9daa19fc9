"""Judges a run: compares linesim's records with the rules of LINE and the expectations of users.

Pure, in linear time except for sorting. Judge a run after it has ended: events and calls under way
count in their present state.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from linesim.judge import conduct
from linesim.judge.conduct import CLOSED_BY_USER, Repeats, Timer
from linesim.judge.history import Asked, Expect, asked_in, attribute, said_in, text_of
from linesim.judge.report import Disorder, Finding, Report
from linesim.model.calls import Call, by_host, closest_of
from linesim.model.deliveries import Delivery
from linesim.model.platform import Platform
from linesim.people.sim import Sim

__all__ = ["Timer", "check", "judge", "text_of"]

TOKEN_SECONDS = 60.0


def check(sim: Sim | Platform, **how: Any) -> Report:
    """Judges what the simulator has recorded; `how` are the options of `judge`."""
    platform = sim.platform if isinstance(sim, Sim) else sim
    with platform.watch.reading():
        deliveries, calls = list(platform.deliveries), platform.calls.since()
        forgotten = platform.calls.count - len(calls)
    if deliveries:
        forgotten += deliveries[-1].number - len(deliveries)
    life_seconds = platform.options.reply_token_seconds
    return judge(deliveries, calls, token_life_seconds=life_seconds, forgotten=forgotten, **how)


def judge(
    deliveries: Sequence[Delivery],
    calls: Sequence[Call],
    *,
    expect: Expect = text_of,
    since: int = 0,
    expect_timers: Sequence[Timer] = (),
    least_interval_seconds: float = 0.0,
    token_seconds: float = TOKEN_SECONDS,
    token_life_seconds: float = TOKEN_SECONDS,
    forgotten: int = 0,
) -> Report:
    """Judges the events first sent after the delivery of the number `since`, and the calls after
    it, from records in order of their numbers.

    `expect` returns the texts that the bot has to send for an event, in its chat and once each; two
    events of a chat should not expect the same. `least_interval_seconds`: calls of one host that
    started closer together are a problem. `token_seconds`: the life of a reply token by which the
    one exception is judged. `token_life_seconds`: how long LINE accepted each token; only counts
    depend on it.
    """
    asked, begin = _asked_since(deliveries, since, expect)
    calls = [call for call in calls if call.started >= begin]
    said = said_in(calls)
    attribute(asked, said)
    repeats = Repeats(calls)
    twice, excepted = _doubled(asked, repeats, token_seconds)
    once = [each for each in asked if each.texts and all(len(found) == 1 for found in each.said)]
    hosts = by_host(calls)
    missed = conduct.missed(calls)
    timing = conduct.timing(expect_timers, said)
    # The calls that repeated an answer by the one exception, with the timers that travelled in it.
    repeated = {max(each.calls) for each in excepted}
    return Report(
        events_sent=len(asked),
        accepted=sum(each.accepted is not None for each in asked),
        refused=sum(each.accepted is None for each in asked),
        answered_once=sum(each.accepted is not None for each in once),
        answered_unaccepted=sum(each.accepted is None for each in once),
        answered_twice=tuple(twice),
        unanswered=tuple(
            Finding(each.event_id, each.chat, each.missing)
            for each in asked
            if each.missing and each.accepted is not None
        ),
        excepted=tuple(excepted),
        order_violations=tuple(_disorders(asked)),
        closest_starts=closest_of(hosts),
        too_close=tuple(
            each
            for starts in hosts.values()
            for each in conduct.too_close(starts, least_interval_seconds)
        ),
        overlapping=tuple(pair for starts in hosts.values() for pair in conduct.overlaps(starts)),
        used_tokens=len(repeats.all),
        used_tokens_again=tuple(repeats.needless()),
        reused_keys=tuple(conduct.reused_keys(calls)),
        timers_early=tuple(timing["early"]),
        timers_late=tuple(timing["late"]),
        timers_missing=tuple(timing["missing"]),
        timers_double=tuple(
            each for each in timing["double"] if not repeated.intersection(each.calls)
        ),
        never_reached=tuple(each for each in missed if each.reason not in CLOSED_BY_USER),
        closed_chats=tuple(each for each in missed if each.reason in CLOSED_BY_USER),
        paid_messages=sum(call.paid for call in calls),
        replies_too_late=sum(call.token_lapsed for call in calls),
        lapsed_tokens=tuple(conduct.lapsed_tokens(asked, calls, token_life_seconds)),
        calls=conduct.by_status(calls),
        forgotten=forgotten,
        seconds=_seconds(asked, calls),
    )


def _asked_since(
    deliveries: Sequence[Delivery], since: int, expect: Expect
) -> tuple[list[Asked], float]:
    """The events that are new after that delivery, and when it was posted."""
    before = [each for each in deliveries if each.number <= since]
    old = {event_id for each in before for event_id in each.event_ids}
    found = asked_in(deliveries, expect)
    asked = [each for event_id, each in found.items() if event_id not in old]
    return asked, max((each.started for each in before), default=float("-inf"))


def _doubled(
    asked: Iterable[Asked], repeats: Repeats, token_seconds: float
) -> tuple[list[Finding], list[Finding]]:
    """The events answered twice, and those for which the one exception allows it."""
    twice, excepted = list[Finding](), list[Finding]()
    for each in asked:
        if doubled := each.doubled:
            allowed = all(repeats.excuse(calls, each, token_seconds) for _, calls in doubled)
            numbers = sorted({call.number for _, calls in doubled for call in calls})
            texts = tuple(text for text, _ in doubled)
            found = Finding(each.event_id, each.chat, texts, tuple(numbers))
            (excepted if allowed else twice).append(found)
    return twice, excepted


def _disorders(asked: Iterable[Asked]) -> Iterable[Disorder]:
    chats: defaultdict[str, list[Asked]] = defaultdict(list)
    for each in asked:
        if any(each.said):
            chats[each.chat].append(each)
    for chat, answered in chats.items():
        for earlier, later in _overtaken(answered):
            yield Disorder(chat, earlier.event_id, later.event_id)


def _overtaken(answered: Iterable[Asked]) -> Iterable[tuple[Asked, Asked]]:
    """For each event that overtook others, the overtaken one that was answered last.

    One sweep over the first POSTs: of the events accepted so far only the one that was answered
    last is needed.
    """
    events = sorted(answered, key=lambda each: each.posted)
    found = ((each.accepted, each) for each in events if each.accepted is not None)
    accepted = sorted(found, key=lambda pair: pair[0])
    place, last, done = 0, None, float("-inf")
    for each in events:
        while place < len(accepted) and accepted[place][0] < each.posted:
            candidate = accepted[place][1]
            if candidate.done > done:
                last, done = candidate, candidate.done
            place += 1
        if last is not None and each.begun < done:
            yield last, each


def _seconds(asked: Sequence[Asked], calls: Sequence[Call]) -> float:
    times = [each.posted for each in asked] + [call.started for call in calls]
    ends = [call.finished for call in calls if call.finished is not None]
    return max([*times, *ends]) - min(times) if times else 0.0
