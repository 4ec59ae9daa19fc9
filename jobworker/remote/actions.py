"""A handler's actions with its talk, as JSON: noted where it runs, repeated at the leader.

The leader repeats them with a talk of its own. Every check, id, retry key and stored time is
therefore the leader's. A decision from outside cannot ask for more than a local handler's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from jobworker.bot.messages import to_messages
from jobworker.bot.talk import Talk, TalkContext
from jobworker.errors import BotError
from jobworker.remote.values import from_json, moment_from_json, moment_to_json, to_json
from linedesk.store.documents import Document

INVALID = "invalid decision"
MOST_ACTIONS = 10_000
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RecursionError, ArithmeticError)

Action = dict[str, Any]


class NotingTalk(Talk):
    """A talk that notes its calls in order; `friend` and `profile` are the job's."""

    def __init__(self, document: Document, around: TalkContext) -> None:
        super().__init__(document, around)
        self.actions: list[Action] = []

    def reply(self, *messages: Any, quote: bool = False) -> None:
        content = self._content(self._chat(), messages, quote=quote)
        super().reply(*content)
        self._note("reply", messages=content)

    def push(self, *messages: Any, to: str | None = None, until: datetime | None = None) -> None:
        content = to_messages(*messages)
        super().push(*content, to=to, until=until)
        last = None if until is None else moment_to_json(until)
        self._note("push", messages=content, to=to, until=last)

    def multicast(self, to: Sequence[str], *messages: Any) -> None:
        content = to_messages(*messages)
        # A generator yields its users once.
        users = [to] if isinstance(to, str) else list(to)
        super().multicast(users, *content)
        self._note("multicast", to=users, messages=content)

    @property
    def state(self) -> str | None:
        return super().state

    @state.setter
    def state(self, state: str | None) -> None:
        Talk.state.fset(self, state)  # type: ignore[attr-defined]
        self.actions.append({"do": "state", "state": state})

    def expect(self, state: str, *, within: float) -> None:
        super().expect(state, within=within)
        self._note("expect", state=state, within=within, now=self._moment())

    def after(self, seconds: float, name: str, /, **data: Any) -> None:
        super().after(seconds, name, **data)
        self._note("after", seconds=seconds, name=name, data=to_json(data), now=self._moment())

    def at(self, moment: datetime, name: str, /, **data: Any) -> None:
        super().at(moment, name, **data)
        self._note("at", time=moment_to_json(moment), name=name, data=to_json(data))

    def every(self, at: str, name: str, /, *, tz: str = "Asia/Tokyo", **data: Any) -> None:
        super().every(at, name, tz=tz, **data)
        self._note("every", at=at, name=name, tz=tz, data=to_json(data), now=self._moment())

    def cancel(self, name: str, /) -> None:
        super().cancel(name)
        self._note("cancel", name=name)

    def forget(self) -> None:
        # `forget` sets the state, which is part of it here.
        noted = len(self.actions)
        super().forget()
        self.actions[noted:] = [{"do": "forget"}]

    def _moment(self) -> str:
        return moment_to_json(self.now)

    def _note(self, do: str, **fields: Any) -> None:
        given = {name: value for name, value in fields.items() if value is not None}
        self.actions.append({"do": do, **given})


class Replay:
    """Repeats the actions of a decision with the leader's talk.

    The talk's time is meanwhile the handler's own. A worker's clock may be wrong, so it is never
    before `began`, when the job was sent, or after `now`.
    """

    def __init__(self, talk: Talk, *, began: datetime, now: Callable[[], datetime]) -> None:
        self._talk = talk
        self._began = began
        self._now = now
        self._moment: datetime | None = None
        talk.timed_by(self._time)
        self._do: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "reply": lambda one: talk.reply(_list(one, "messages")),
            "push": self._push,
            "multicast": lambda one: talk.multicast(_list(one, "to"), _list(one, "messages")),
            "state": self._state,
            "expect": lambda one: talk.expect(one["state"], within=one["within"]),
            "after": lambda one: talk.after(one["seconds"], one["name"], **_data(one)),
            "at": lambda one: talk.at(moment_from_json(one["time"]), one["name"], **_data(one)),
            "every": lambda one: talk.every(
                one["at"], one["name"], tz=one.get("tz", "Asia/Tokyo"), **_data(one)
            ),
            "cancel": lambda one: talk.cancel(one["name"]),
            "forget": lambda one: talk.forget(),
        }

    def carry_out(self, actions: object, data: object = None) -> None:
        """Carry out all of them in order; then `data` replaces the talk's. Raises BotError."""
        if not isinstance(actions, list) or len(actions) > MOST_ACTIONS:
            raise _invalid(f"actions: a list of at most {MOST_ACTIONS}")
        for number, one in enumerate(actions):
            if not isinstance(one, Mapping) or one.get("do") not in self._do:
                raise _invalid(f"action {number}: not known")
            try:
                moment = one.get("now")
                self._moment = None if moment is None else moment_from_json(moment)
                self._do[one["do"]](one)
            except BotError:
                raise
            except MALFORMED as error:
                raise _invalid(f"action {number}, {one['do']}: {type(error).__name__}") from error
        if data is not None:
            self._set_data(data)

    def _set_data(self, data: object) -> None:
        try:
            new = from_json(data)
        except (ValueError, RecursionError) as error:
            raise _invalid(f"data: {type(error).__name__}: {error}") from error
        if not isinstance(new, dict):
            raise _invalid("data: not an object")
        kept = self._talk.data
        kept.clear()
        kept.update(new)

    def _push(self, one: Mapping[str, Any]) -> None:
        until = one.get("until")
        moment = None if until is None else moment_from_json(until)
        self._talk.push(_list(one, "messages"), to=one.get("to"), until=moment)

    def _state(self, one: Mapping[str, Any]) -> None:
        self._talk.state = one["state"]

    def _time(self) -> datetime:
        """The time of the present action, in UTC; without one of its own, the present time."""
        now = self._now()
        # guard: times-within-the-job -> return self._moment or now
        return now if self._moment is None else min(max(self._moment, self._began), now)


def _list(one: Mapping[str, Any], name: str) -> list[Any]:
    found = one[name]
    if not isinstance(found, list):
        raise TypeError(name)
    return found


def _data(one: Mapping[str, Any]) -> dict[str, Any]:
    data = from_json(one.get("data") or {})
    if not isinstance(data, dict):
        raise TypeError("data")
    return data


def _invalid(told: str) -> BotError:
    return BotError(told, reason=INVALID)
