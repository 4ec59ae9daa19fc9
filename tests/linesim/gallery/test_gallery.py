"""Each message of the gallery looks as its kept picture.

`PICTURES=new pytest tests/linesim/gallery` writes the pictures that have changed. A kept picture
proves only that nothing has changed: look at each, and judge it by LINE's reference.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.linesim.gallery.stage import HERE, Stage

MESSAGES: dict[str, dict[str, Any]] = {
    name: message
    for path in HERE.glob("*.json")
    for name, message in json.loads(path.read_text("utf-8")).items()
}
# The edges of shapes and letters differ a little from one Chromium to the next.
MOST_DIFFERING = 0.001
MOST_BYTES = 500_000


@pytest.mark.parametrize("name", MESSAGES)
def test_it_looks_as_before(stage: Stage, name: str, tmp_path: Path) -> None:
    kept, now = HERE / f"{name}.png", tmp_path / f"{name}.png"
    stage.draw(MESSAGES[name]).screenshot(path=now, animations="disabled", caret="hide")
    same = kept.exists() and stage.differing(kept.read_bytes(), now.read_bytes()) <= MOST_DIFFERING
    if not same and os.environ.get("PICTURES") == "new":
        kept.write_bytes(now.read_bytes())
    else:
        assert same, f"compare {now} with {kept}"


def test_each_picture_is_of_a_message_and_all_are_small() -> None:
    pictures = [*HERE.glob("*.png")]
    assert {picture.stem for picture in pictures} == {*MESSAGES}
    assert sum(picture.stat().st_size for picture in pictures) < MOST_BYTES
