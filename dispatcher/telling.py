"""What a dispatcher at work says of itself: systemd's line, and its row in `status`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from dispatcher.figures import Figures
from dispatcher.report import WAITING, WORKING
from dispatcher.view import MOST_WAITING, View
from linedesk.contract import Worker
from recvq.documents import Document
from recvq.pulse import Reason, moment
from recvq.thread import Component

SHORTEST_LAG_SECONDS = 1.0


class Telling:
    """Quick, from any thread; `reason` is why the feed brings nothing, `about` stands in the row
    as it is.
    """

    def __init__(
        self,
        figures: Figures,
        view: View,
        reason: Reason,
        worker: Worker,
        companions: Sequence[Component],
        *,
        about: Document,
    ) -> None:
        self._figures = figures
        self._view = view
        self._reason = reason
        self._worker = worker
        self._parts: list[Worker | Component] = [worker, *companions]
        self._about = about
        self._began_at = datetime.now(UTC)

    def state(self) -> str:
        """Whether it does its work, or waits for something that has a name."""
        return WORKING if self._figures.leads and self._reason.fresh() is None else WAITING

    def words(self) -> str:
        """What waits for whom first, then the figures that were looked at last."""
        told = [
            self._reason.fresh(),
            self._leading(),
            *_figures_in_words(self._figures.latest.figures, self._figures.latest.per_second),
            *(part.status() for part in self._parts),
        ]
        return " · ".join(word for word in told if word)

    def row(self) -> Document:
        """What stands in the row beside the figures."""
        waiting = [*self._view.waiting(), *map(dict, self._worker.waiting())]
        return {
            **self._about,
            "threads": self._view.doing(),
            "waiting": sorted(waiting, key=lambda row: row["since"])[:MOST_WAITING],
            "paused": self._view.paused(),
        }

    def _leading(self) -> str:
        if self._figures.leads:
            return f"holds the lease since {moment(self._began_at)}"
        return "cannot renew the lease"


def _figures_in_words(figures: Document, per_second: Document) -> list[str | None]:
    def number(name: str) -> float:
        return float(figures.get(name, 0))

    oldest, lag = figures.get("oldestUnfinishedSeconds"), number("lagSeconds")
    in_hand = f"{number('inHandDocuments'):.0f} in hand"
    held, keys = number("heldDocuments"), number("heldKeys")
    return [
        f"{per_second.get('finishedDocuments', 0.0):.1f} events/s",
        in_hand,
        f"{number('lagDocuments'):.0f} not read yet" if lag >= SHORTEST_LAG_SECONDS else None,
        f"{held:.0f} documents of {keys:.0f} keys in held" if held else None,
        f"oldest {oldest:.1f} s" if oldest else None,
    ]
