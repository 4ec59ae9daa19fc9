"""Rich menus with their images and aliases, and which of them each user sees.

Callers hold the simulator's lock.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from linesim.model.clock import Clock
from linesim.model.ids import Lasting
from linesim.model.media import Medium
from linesim.model.views import Change, Stream
from linesim.model.world import World

BATCH_KEPT_SECONDS = 14 * 24 * 60 * 60

Switched = Literal["SUCCESS", "RICHMENU_ALIAS_ID_NOTFOUND", "RICHMENU_NOTFOUND", "FAILED"]
Links = Mapping[str, str | None]


@dataclass
class Menu:
    """`written` is LINE's rich menu object without its id."""

    written: dict[str, Any]
    image: Medium | None = None


@dataclass(frozen=True)
class Batch:
    """`at` is Unix time; `left` are the links that could not be made."""

    at: float
    left: Links


class Menus:
    """`aliases` and `links` (of users) lead to ids of menus; only an alias may lead to a deleted
    one.
    """

    def __init__(self, world: World, clock: Clock, stream: Stream) -> None:
        self._world = world
        self._clock = clock
        self._stream = stream
        self.menus: dict[str, Menu] = {}
        self.aliases: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.default: str | None = None
        # By request id, and by key.
        self.batches: Lasting[Batch] = Lasting(BATCH_KEPT_SECONDS, clock, limit=1_000)

    def add(self, written: dict[str, Any]) -> str:
        """Keeps a menu, which has no image yet, and returns its id."""
        menu_id = f"richmenu-{secrets.token_hex(16)}"
        self.menus[menu_id] = Menu(written)
        return menu_id

    def delete(self, menu_id: str) -> None:
        """LINE shows this when the user opens the chat again; the simulator does at once."""
        del self.menus[menu_id]
        self.links = {user: menu for user, menu in self.links.items() if menu != menu_id}
        self.show(None if self.default == menu_id else self.default)

    def show(self, menu_id: str | None) -> None:
        """Makes it the default menu."""
        self.default = menu_id
        self._stream.publish(Change("menu", {}))

    def of(self, user_id: str) -> str | None:
        """The menu that the user sees: the user's own, else the default."""
        return self.links.get(user_id, self.default)

    def view(self, menu_id: str) -> dict[str, Any]:
        """LINE's rich menu response object."""
        return {"richMenuId": menu_id, **self.menus[menu_id].written}

    def link(self, wanted: Links) -> Links:
        """Links users to menus, or to none, and returns what could not be done: a link changes for
        friends only (reference, "Conditions for linking rich menu").
        """
        left = {}
        for user_id, menu_id in wanted.items():
            user = self._world.users.get(user_id)
            is_there = menu_id is None or menu_id in self.menus
            if user is None or not user.takes_multicasts or not is_there:
                left[user_id] = menu_id
            elif menu_id is None:
                self.links.pop(user_id, None)
            else:
                self.links[user_id] = menu_id
        self._stream.publish(Change("menu", {}))
        return left

    def switch(self, user_id: str, alias: str) -> Switched:
        """The result of a tap on a rich menu switch action."""
        menu_id = self.aliases.get(alias)
        if menu_id is None:
            return "RICHMENU_ALIAS_ID_NOTFOUND"
        if menu_id not in self.menus:
            return "RICHMENU_NOTFOUND"
        return "FAILED" if self.link({user_id: menu_id}) else "SUCCESS"

    def replace(self, request_id: str, menus: Links, *, key: str | None) -> None:
        """Links the users of each of these menus to another one, or to none.

        With the key of an earlier batch it does only what that one left (reference, "How to avoid
        unintended operations when retrying").
        """
        wanted: Links = {user: menus[menu] for user, menu in self.links.items() if menu in menus}
        if key and (earlier := self.batches.get(f"key {key}")):
            wanted = earlier.left
        self.batches[request_id] = batch = Batch(self._clock.time(), self.link(wanted))
        if key:
            self.batches[f"key {key}"] = batch
