"""The way of the events as a picture: where each place is drawn, and the arrows. Pure.

It is drawn twice, for a wide screen and for a phone, from the same places.
"""

from __future__ import annotations

from dataclasses import dataclass

from console.overview import Overview
from console.web.places import Place, Way, places, ways


@dataclass(frozen=True)
class Box:
    """Where a place is drawn."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> tuple[float, float]:
        """Its centre."""
        return self.x + self.width / 2, self.y + self.height / 2


@dataclass(frozen=True)
class Arrow:
    """A way as a path, and where its label stands."""

    way: Way
    path: str
    x: float
    y: float
    anchor: str


@dataclass(frozen=True)
class Drawing:
    """One picture, ready for its template."""

    name: str
    width: float
    height: float
    places: list[tuple[Place, Box]]
    arrows: list[Arrow]


def _wide() -> dict[str, Box]:
    row = ("line", "frontdesk", "recvq", "dispatcher", "threads", "gate", "api")
    boxes = {name: Box(8 + 168 * n, 16, 124, 66) for n, name in enumerate(row)}
    below = {"spool": 1, "scheduler": 2, "held": 3, "letters": 4, "outbox": 5}
    return boxes | {name: Box(8 + 168 * n, 132, 124, 66) for name, n in below.items()}


def _tall() -> dict[str, Box]:
    column = ("line", "frontdesk", "recvq", "dispatcher", "threads", "gate", "api")
    boxes = {name: Box(8, 6 + 98 * n, 146, 62) for n, name in enumerate(column)}
    beside = {"spool": 1, "scheduler": 2, "held": 3, "letters": 4, "outbox": 5}
    return boxes | {name: Box(206, 6 + 98 * n, 126, 62) for name, n in beside.items()}


LAYOUTS = {"wide": (1148.0, 208.0, _wide()), "tall": (340.0, 660.0, _tall())}


def draw(seen: Overview) -> list[Drawing]:
    """The picture in both layouts."""
    here, between = list(places(seen)), list(ways(seen))
    return [
        Drawing(
            name,
            width,
            height,
            [(place, boxes[place.id]) for place in here],
            [_arrow(way, boxes[way.start], boxes[way.end]) for way in between],
        )
        for name, (width, height, boxes) in LAYOUTS.items()
    ]


def _arrow(way: Way, start: Box, end: Box) -> Arrow:
    (x1, y1), (x2, y2) = start.middle, end.middle
    if abs(y1 - y2) < 1:
        there = x2 > x1
        a, b = (start.x + start.width, end.x) if there else (start.x, end.x + end.width)
        return Arrow(
            way, f"M{a:g} {y1:g}H{b - 6 if there else b + 6:g}", (a + b) / 2, y1 - 9, "mid"
        )
    if abs(x1 - x2) < 1:
        down = y2 > y1
        a, b = (start.y + start.height, end.y) if down else (start.y, end.y + end.height)
        path = f"M{x1:g} {a:g}V{b - 6 if down else b + 6:g}"
        return Arrow(way, path, x1 + 9, (a + b) / 2 + 4, "start")
    # From a place below or beside to the next one of the row.
    return _elbow(way, start, end)


def _elbow(way: Way, start: Box, end: Box) -> Arrow:
    """Through the gap between two columns, into the side of the next place."""
    rightwards = end.x > start.x
    x, y = (start.x + start.width if rightwards else start.x), start.y + start.height - 14
    to_x = end.x - 6 if rightwards else end.x + end.width + 6
    to_y = end.y + end.height - 11 if end.y < start.y else end.y + 12
    gap = x + (16 if rightwards else -16)
    return Arrow(way, f"M{x:g} {y:g}H{gap:g}V{to_y:g}H{to_x:g}", gap, (y + to_y) / 2, "start")
