"""Writes the operator's orders: pauses and their ends, and releases."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pymongo.errors import DuplicateKeyError
from pymongo.results import UpdateResult

from linedesk.store.control import (
    DONE_AT,
    DROP,
    PAUSE,
    RELEASE,
    Control,
    Head,
    Pause,
    Release,
    Scope,
    now_stored,
)
from linedesk.store.errors import translated


class OperatorControl(Control):
    """`control` for a command or the console; every method may raise StoreUnavailable."""

    def pause(self, scope: Scope, *, by: str, why: str = "") -> bool:
        """Stop processing the scope from now on; False if it was paused already."""
        with translated():
            found = self.rows.find_one({"_id": scope.id})
            if found is not None and Pause.from_row(found) is not None:
                return False
            row = {
                "act": PAUSE,
                "channel": scope.channel,
                "key": scope.key,
                "by": by,
                "why": why,
                "at": now_stored(),
            }
            # A drop of the same scope stays: it may not have reached all of its events.
            changes = {"$set": row, "$unset": {DONE_AT: ""}}
            _put(lambda: self.rows.update_one({"_id": scope.id}, changes, upsert=True))
        return True

    def resume(self, scope: Scope, *, drop_by: str | None = None) -> bool:
        """End the pause of exactly this scope; False if there was none.

        With `drop_by`, the name of an operator, no event that was stored until now is handled: each
        becomes a dead letter. The same write ends the pause and orders that.
        """
        paused, changes = {"_id": scope.id, "act": PAUSE}, {"act": DROP}
        with translated():
            if drop_by is not None:
                drop = {DROP: {"by": drop_by, "at": now_stored()}}
                return bool(self.rows.update_one(paused, {"$set": changes | drop}).matched_count)
            no_drop = {"_id": scope.id, DROP: None}
            return bool(
                self.rows.delete_one(no_drop).deleted_count
                or self.rows.update_one(paused, {"$set": changes}).matched_count
            )

    def release(self, channel: str, key: str, what: Mapping[Head, str], *, by: str) -> Release:
        """Order to give up the head of a conversation.

        `what` is `{"eventId": …}`, the first event in the queue, or `{"effectId": …}`, the first
        send of the outbox. It replaces an earlier release of the same conversation.
        """
        ((head, name),) = what.items()
        release = Release(channel, key, head, name, by, now_stored())
        row = {
            "_id": release.id,
            "act": RELEASE,
            "channel": channel,
            "key": key,
            "what": {head: name},
            "by": by,
            "at": release.at,
        }
        with translated():
            _put(lambda: self.rows.replace_one({"_id": release.id}, row, upsert=True))
        return release

    def outcome_of(self, release: Release) -> str | None:
        """The result of a release; None until a dispatcher has carried it out."""
        with translated():
            row = self.rows.find_one({"_id": release.id})
        if row is None or row.get("at") != release.at:
            return "another release has replaced it"
        return str(row.get("came")) if row.get(DONE_AT) is not None else None


def _put(put: Callable[[], UpdateResult]) -> UpdateResult:
    """Write a row that another order may create at the same time."""
    try:
        return put()
    except DuplicateKeyError:
        return put()
