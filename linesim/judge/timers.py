"""Judges timers: each message is sent once and not before its time. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from linesim.judge.history import Place
from linesim.judge.report import TimerFinding
from linesim.model.calls import Call


@dataclass(frozen=True)
class Timer:
    """A text that the chat gets once, at `due` (Unix seconds) or at most `within_seconds` later."""

    chat: str
    text: str
    due: float
    within_seconds: float


Timing = defaultdict[Literal["early", "late", "missing", "double"], list[TimerFinding]]


def judge(expected: Sequence[Timer], said: Mapping[Place, Sequence[Call]]) -> Timing:
    """Timers with the same chat and text are met in the order in which they are due."""
    timing: Timing = defaultdict(list)
    places: defaultdict[Place, list[Timer]] = defaultdict(list)
    for timer in sorted(expected, key=lambda timer: timer.due):
        places[timer.chat, timer.text].append(timer)
    for place, due in places.items():
        _judge_place(due, said.get(place, ()), timing)
    return timing


def _judge_place(due: Sequence[Timer], calls: Sequence[Call], timing: Timing) -> None:
    for number, timer in enumerate(due):
        if number >= len(calls):
            timing["missing"].append(TimerFinding(timer.chat, timer.text, timer.due, None))
            continue
        found = _found(timer, calls[number])
        if calls[number].at < timer.due:
            timing["early"].append(found)
        elif calls[number].at > timer.due + timer.within_seconds:
            timing["late"].append(found)
    timing["double"].extend(_found(due[-1], call) for call in calls[len(due) :])


def _found(timer: Timer, call: Call) -> TimerFinding:
    return TimerFinding(timer.chat, timer.text, timer.due, call.at, (call.number,))
