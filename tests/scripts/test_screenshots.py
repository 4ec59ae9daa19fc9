"""scripts/screenshots makes each screenshot of the docs, of the size that the docs show."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from linedesk.setup.private_mongod import MongodNotFound, find_mongod
from tests.conftest import missing

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
PAGES = [*ROOT.glob("README*.md"), *ROOT.glob("docs/**/*.md")]


def size_of(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG (its IHDR chunk, PNG specification 11.2.2)."""
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    return width, height


def test_it_makes_each_screenshot_of_the_docs(tmp_path: Path) -> None:
    if not shutil.which("chromium"):
        missing("no chromium on this machine (apt install chromium)")
    try:
        find_mongod()
    except MongodNotFound as error:
        missing(str(error))
    pytest.importorskip("playwright.sync_api")
    command = [sys.executable, str(ROOT / "scripts" / "screenshots.py"), str(tmp_path)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert made.returncode == 0, made.stderr
    fresh = {path.name: size_of(path) for path in tmp_path.glob("*.png")}
    kept = {path.name: size_of(path) for path in IMAGES.glob("*.png")}
    assert fresh == kept
