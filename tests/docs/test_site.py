"""The site of docs/, as scripts/docs builds it: whole, in both languages, and without dead ends."""

import re
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from tests.waiting import ran

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
HREF = re.compile(r'(?:href|src)="([^"]*)"')
ID = re.compile(r'\bid="([^"]+)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, str(ROOT / "scripts" / "site.py"), str(target)]
    built = ran(command)
    assert built.returncode == 0, built.stdout + built.stderr
    return target


def test_the_generated_pages_are_current() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "reference.py"), "--check"]
    checked = ran(command)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.long
def test_each_page_is_in_the_site_in_its_language(site: Path) -> None:
    pages = [path for path in DOCS.rglob("*.md") if "site" not in path.parts]
    for page in pages:
        bare = page.relative_to(DOCS).with_suffix("")
        html = (
            site / bare.parent / "index.html"
            if bare.name == "index"
            else site / bare / "index.html"
        )
        language = "ja" if page.is_relative_to(DOCS / "ja") else "en"
        assert f'<html lang="{language}"' in html.read_text("utf-8"), page


@pytest.mark.long
def test_each_link_leads_to_a_page_and_to_a_place_on_it(site: Path) -> None:
    pages = {path: path.read_text("utf-8") for path in site.rglob("*.html")}
    dead = []
    for path, text in pages.items():
        if path.name == "404.html":
            continue
        for target in {one for one in HREF.findall(text) if "://" not in one}:
            bare, anchor = urldefrag(unquote(target))
            there = (path.parent / bare).resolve() if bare else path
            there = there / "index.html" if there.is_dir() else there
            known = pages.get(there) if there.suffix == ".html" else None
            if not there.is_file() or (anchor and known and anchor not in ID.findall(known)):
                dead.append(f"{path.relative_to(site)}: {target}")
    assert dead == []


@pytest.mark.long
def test_llms_txt_names_each_page_that_it_can_read(site: Path) -> None:
    text = (site / "llms.txt").read_text("utf-8")
    named = re.findall(r"\]\(([^)]+\.md)\): (.+)$", text, re.MULTILINE)
    assert {name for name, _ in named} >= {"how-to/install.md", "ja/how-to/install.md"}
    for name, sentence in named:
        assert (site / name).is_file()
        assert len(sentence) > 10, name
