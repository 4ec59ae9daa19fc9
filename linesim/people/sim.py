"""The simulator's interface: users' actions, faults, its clock, and its records.

Some actions of users are methods: each is sent to the bot server at once, from the calling thread,
and returns the Delivery. `deliver` sends the drafts of all others.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from linesim.model import events, ids
from linesim.model.calls import Call
from linesim.model.deliveries import Delivery, Event
from linesim.model.faults import Close, Late, Rule, Status
from linesim.model.options import Options
from linesim.model.platform import Platform
from linesim.model.world import Bubble, Group, GroupKind, User
from linesim.people.drafts import Drafts, Where, Who
from linesim.people.stops import Stops
from linesim.people.webhooks import Unruly, Webhooks

T = TypeVar("T")


class Sim:
    """Safe to use from any number of threads. `drafts` makes events without sending them, for
    `deliver`.
    """

    def __init__(self, options: Options) -> None:
        self.platform = Platform(options)
        self.drafts = Drafts(self.platform)
        self.url = ""
        self.secret, self.token = options.secret, options.token
        self.channel_id = options.channel_id
        self.stops = Stops(self.platform)
        self._webhooks = Webhooks(self.platform)

    @property
    def bot_user_id(self) -> str:
        return self.platform.bot_user_id

    @property
    def webhook_url(self) -> str | None:
        return self.platform.webhook_url

    @webhook_url.setter
    def webhook_url(self, url: str | None) -> None:
        self.platform.webhook_url = url

    @property
    def webhook_active(self) -> bool:
        """The switch "Use webhook" of LINE's console; while it is off no event is sent."""
        return self.platform.webhook_active

    @webhook_active.setter
    def webhook_active(self, active: bool) -> None:
        self.platform.webhook_active = active

    # People.

    def add_user(self, name: str, *, friend: bool = True, user_id: str | None = None) -> User:
        """A new user, without an event for the bot; `follow` sends one."""
        with self.platform.watch.changing():
            user = self.platform.world.add_user(name, user_id=user_id, friend=friend)
            user.followed_at = self.platform.clock.time() if friend else None
            self.platform.show_people()
            return user

    def add_group(
        self,
        name: str,
        members: Iterable[User] = (),
        *,
        kind: GroupKind = "group",
        present: bool = True,
    ) -> Group:
        """A new group or room, by default with the bot, without an event; `join` sends one."""
        with self.platform.watch.changing():
            group = self.platform.world.add_group(name, members, kind=kind, present=present)
            self.platform.show_people()
            return group

    # Users' actions.

    def say(self, user: Who, text: str, *, chat: Where = None) -> Delivery:
        return self.deliver(self.drafts.text(user, text, chat=chat))

    def unsend(self, user: Who, message_id: str, *, chat: Where = None) -> Delivery:
        return self.deliver(self.drafts.unsend(message_id, user, chat=chat))

    def postback(
        self, user: Who, data: str, *, chat: Where = None, params: dict[str, str] | None = None
    ) -> Delivery:
        return self.deliver(self.drafts.postback(user, data, chat=chat, params=params))

    def follow(self, user: Who) -> Delivery:
        """Adds the bot as a friend; after a block, unblocks it."""
        return self.deliver(self.drafts.follow(user))

    def block(self, user: Who) -> Delivery:
        return self.deliver(self.drafts.unfollow(user))

    # Webhooks.

    def deliver(self, *made: Event) -> Delivery:
        """One POST with these events, in this order; without any it is LINE's connectivity check.

        The events may also be hand-made: whatever has a reply token and a source can be replied to.
        """
        return self._webhooks.deliver(made)

    def deliver_later(self, *made: Event) -> None:
        """Like `deliver`, from a thread of its own; `settle` waits for it."""
        self._webhooks.deliver_later(made)

    def test_webhook(self, url: str) -> Delivery:
        """LINE's connectivity check of a URL, whether webhooks are used or not."""
        return self._webhooks.test(url)

    def redeliver(self, delivery: Delivery) -> Delivery:
        """The same events once more, as LINE sends them when no answer came."""
        return self.deliver(*(events.redelivered(event) for event in delivery.events))

    def unruly(self, **how: Any) -> None:
        """From now on webhooks misbehave as linesim.people.webhooks.Unruly defines; without
        arguments they are normal again.
        """
        self._webhooks.be(Unruly(**how))

    def settle(self, timeout: float = 10.0) -> bool:
        """Waits for the webhooks of `unruly` and `deliver_later`; whether all are answered."""
        return self._webhooks.settle(timeout)

    # LINE's misbehaviour.

    def answer_next(
        self,
        endpoint: str,
        status: int,
        body: Any = None,
        *,
        times: int = 1,
        accept: bool = False,
        headers: dict[str, str] | None = None,
    ) -> None:
        """The next calls of the endpoint (a name of linesim.model.endpoints, or `*`) get this
        status and body.

        With `accept` LINE has carried them out nevertheless.
        """
        outcome = Status(status, body, headers or {})
        self._add(Rule(outcome=outcome, endpoint=endpoint, accept=accept, count=times))

    def close_next(self, endpoint: str, *, times: int = 1, accept: bool = False) -> None:
        """The next calls find their connection closed without an answer, before or (`accept`) after
        acceptance.
        """
        self._add(Rule(outcome=Close(), endpoint=endpoint, accept=accept, count=times))

    def delay_next(
        self, endpoint: str, seconds: float, *, times: int = 1, accept: bool = True
    ) -> None:
        """The next calls are answered late; with `accept` they are carried out before the wait,
        otherwise after it.
        """
        self._add(Rule(outcome=Late(seconds), endpoint=endpoint, accept=accept, count=times))

    def misbehave(self, *rules: Rule, seed: int = 0) -> None:
        """Adds faults by rule, and restarts the draws of all rules from this seed."""
        with self.platform.watch.changing():
            self.platform.rules.add(*rules)
            self.platform.rules.draw_anew(seed)

    def clear_faults(self) -> None:
        """Ends all faults."""
        with self.platform.watch.changing():
            self.platform.rules.clear()

    def behave(self) -> None:
        """Ends all misbehaviour: faults and unruly webhooks."""
        self.unruly()
        self.clear_faults()

    def _add(self, rule: Rule) -> None:
        with self.platform.watch.changing():
            self.platform.rules.add(rule)

    # LINE's console.

    def reserve_quota(self, people: int) -> None:
        """A delivery of LINE's console reserves messages of the month; 0 ends it.

        The consumption does not show them, and LINE refuses messages beyond the rest.
        """
        with self.platform.watch.changing():
            self.platform.quota.reserved = people

    def spend_quota(self, people: int) -> None:
        """LINE's console has sent a message to that many users, which the consumption shows."""
        with self.platform.watch.changing():
            self.platform.sent.count("console", people, ())

    def add_key(self, key: dict[str, str]) -> str:
        """Registers the `n` and `e` (JWK) of a key for assertions; returns its kid."""
        with self.platform.watch.changing():
            kid = ids.request_id()
            self.platform.channel_tokens.keys[kid] = key
            return kid

    # Its records.

    @property
    def calls(self) -> list[Call]:
        """Every call of the API so far, in order of arrival."""
        return self.platform.read(lambda platform: platform.calls.since())

    @property
    def deliveries(self) -> list[Delivery]:
        return self.platform.read(lambda platform: list(platform.deliveries))

    def calls_to(self, endpoint: str) -> list[Call]:
        return [call for call in self.calls if call.endpoint == endpoint]

    def replies_to(self, event_id: str) -> list[Call]:
        """The accepted replies that used this event's token."""
        return [
            call for call in self.calls_to("reply") if call.accepted and call.event_id == event_id
        ]

    def closest_starts(self, after: int = 0) -> float | None:
        """Seconds between the two calls to one host that started closest together, after that one;
        None with fewer than two.
        """
        return self.platform.read(lambda platform: platform.calls.closest_starts(after))

    def chat(self, chat: User | Group | str) -> list[Bubble]:
        """The transcript of a 1:1 chat (by its user), group or room, in order."""
        if not isinstance(chat, str):
            chat = chat.user_id if isinstance(chat, User) else chat.chat_id
        return self.platform.read(lambda platform: platform.chats.of(chat))

    def answers(self, chat: User | Group | str) -> list[Bubble]:
        """The bot's messages in this chat, in order."""
        return [bubble for bubble in self.chat(chat) if bubble.speaker == "bot"]

    def sees_loading(self, user: User | str) -> bool:
        """Whether a user's 1:1 chat shows the loading animation."""
        user_id = user if isinstance(user, str) else user.user_id
        return self.platform.read(
            lambda platform: platform.world.user(user_id).sees_loading(platform.clock.time())
        )

    def wait_for(self, predicate: Callable[[], T], timeout: float = 10.0) -> T:
        """The predicate's first true value, checked after every change; TimeoutError after
        `timeout` seconds.
        """
        return self.platform.watch.wait_for(predicate, timeout)

    # Time.

    def advance(self, seconds: float) -> None:
        """Moves the simulator's clock ahead at once; `stops.advance` stops at each timer.

        Raises ValueError like linesim.model.clock.
        """
        self.stops.move(seconds)

    def stop(self) -> None:
        """Ends the waits of `unruly` and of a move of the clock, and further webhooks."""
        self.stops.stop()
        self._webhooks.stop()

    def close(self) -> None:
        self._webhooks.close()
