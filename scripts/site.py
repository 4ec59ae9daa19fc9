"""Builds the site of docs/ into site/: English at its root, Japanese in ja/, with llms.txt.

The pages are written for a code host. For the site each language is a project of its own, so that
search and the page's language fit; links from one to the other become addresses. The order of pages
is that of docs/index.md, which has to link each of them.
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
CONFIG = DOCS / "site" / "zensical.toml"
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
# Pages beside docs/, and where the site has them.
BESIDE = {"README.md": "index.md", "README.ja.md": "ja/index.md", "CHANGELOG.md": "changelog.md"}
SECTIONS = {
    "en": {
        "tutorial": "Tutorial",
        "how-to": "How-to",
        "reference": "Reference",
        "explanation": "Explanation",
    },
    "ja": {"tutorial": "チュートリアル", "how-to": "手順", "reference": "リファレンス"},
}
TOGGLES = {"Light": "明るい表示にする", "Dark": "暗い表示にする", "System": "端末の設定に合わせる"}
SUMMARY = """# linedesk

> A LINE bot server. It stores each webhook event before it answers LINE, runs the bot's handlers in
> order for each conversation, and calls the LINE API within its limits.

"""


@dataclass(frozen=True)
class Language:
    """One language of the site: the pages below `docs/<folder>`."""

    name: str
    folder: str

    @property
    def root(self) -> Path:
        """The folder of its index page."""
        return DOCS / self.folder

    def owns(self, page: str) -> bool:
        """Whether a path below docs/ is one of this language's site."""
        return page.startswith("ja/") == (self.name == "ja")


LANGUAGES = (Language("en", "."), Language("ja", "ja"))


def title_of(page: Path) -> str:
    """The page's first heading."""
    found = re.search(r"^# (.+)$", page.read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{page.relative_to(ROOT)}: no title")
    return found[1].replace("`", "")


def first_sentence(page: Path) -> str:
    """The first sentence below the page's title."""
    for paragraph in page.read_text("utf-8").split("\n\n"):
        if not re.match(r"[#\[|!><-]|```", paragraph.strip()):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
            return re.split(r"(?<=[.。])(?:\s|$)", plain)[0]
    return ""


def pages_of(language: Language) -> Iterator[str]:
    """Its pages below its root, in the order of its index page.

    Raises SystemExit where the index does not have one of them.
    """
    linked = dict.fromkeys(
        posixpath.normpath(target.partition("#")[0])
        for _, target, _ in LINK.findall((language.root / "index.md").read_text("utf-8"))
    )
    there = {
        path.relative_to(language.root).as_posix()
        for section in SECTIONS[language.name]
        for path in (language.root / section).glob("*.md")
    }
    if missing := sorted(there - set(linked)):
        raise SystemExit(f"docs/{language.folder}/index.md does not link {', '.join(missing)}")
    yield from (page for page in linked if page in there)


def navigation(language: Language) -> list[dict[str, object]]:
    """The site's navigation, as Zensical has it."""
    pages = list(pages_of(language))
    nav: list[dict[str, object]] = [{"linedesk": "index.md"}]
    for folder, title in SECTIONS[language.name].items():
        if inside := [page for page in pages if page.startswith(f"{folder}/")]:
            nav.append({title: [{title_of(language.root / page): page} for page in inside]})
    return nav


def address(page: str) -> str:
    """Where the site has a path below docs/, from its root on."""
    if not page.endswith(".md"):
        return page
    bare = page.removesuffix(".md")
    return bare.removesuffix("index") if posixpath.basename(bare) == "index" else f"{bare}/"


def relinked(text: str, page: str, language: Language) -> str:
    """The page with its links to the other language, and to pages beside docs/, as the site's.

    `page` is its path below docs/.
    """

    def link(found: re.Match[str]) -> str:
        target, mark, anchor = found[2].partition("#")
        if "://" in target or not target:
            return found[0]
        below = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
        path = BESIDE.get(below) or below.removeprefix("docs/")
        if not language.owns(path):
            path = address(path)
        there = posixpath.relpath(f"/{path}", f"/{posixpath.dirname(page)}")
        end = "/" if path.endswith("/") or not path else ""
        return f"{found[1]}{there}{end}{mark}{anchor}{found[3]}"

    parts = FENCE.split(text)
    return "".join(part if FENCE.match(part) else LINK.sub(link, part) for part in parts)


def indented(text: str) -> str:
    """The page with blocks in items of lists four columns in, as Python-Markdown wants them.

    Code hosts also take a block that is as far in as the item's text.
    """
    lines = text.split("\n")
    for start, line in enumerate(lines):
        if not re.match(r"(?:\d+\.|[-*]) ", line):
            continue
        end = start + 1
        while end < len(lines) and (not lines[end] or lines[end].startswith("  ")):
            end += 1
        inside = lines[start + 1 : end]
        least = min((len(one) - len(one.lstrip()) for one in inside if one.strip()), default=4)
        shift = " " * max(0, 4 - least)
        lines[start + 1 : end] = [f"{shift}{one}" if one else one for one in inside]
    return "\n".join(lines)


def stage(language: Language, folder: Path) -> None:
    """Write the language's project into the folder: its pages, and its configuration."""
    files = [path for path in language.root.rglob("*") if path.is_file()]
    for path in files:
        page = path.relative_to(DOCS).as_posix()
        if not language.owns(page) or page.startswith("site/"):
            continue
        staged = folder / "docs" / path.relative_to(language.root)
        staged.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text = indented(relinked(path.read_text("utf-8"), page, language))
            staged.write_text(text, "utf-8")
        else:
            shutil.copyfile(path, staged)
    if language.name == "en":
        text = (ROOT / "CHANGELOG.md").read_text("utf-8")
        text = LINK.sub(lambda found: found[0].replace("(docs/", "("), text)
        (folder / "docs" / "changelog.md").write_text(relinked(text, "changelog.md", language))
    (folder / "zensical.toml").write_text(configuration(language), "utf-8")


def configuration(language: Language) -> str:
    """docs/site/zensical.toml with what depends on the language."""
    text = CONFIG.read_text("utf-8")
    up = "" if language.name == "en" else "../"
    alternate = [
        {"name": "English", "link": f"./{up}", "lang": "en"},
        {"name": "日本語", "link": f"./{up}ja/", "lang": "ja"},
    ]
    nav = [*navigation(language)]
    if language.name == "en":
        nav.append({"Changes": "changelog.md"})
    else:
        for english, japanese in TOGGLES.items():
            text = text.replace(f'"{english}"', f'"{japanese}"')
    text = text.replace("[project]\n", f"[project]\nnav = {_toml(nav)}\n", 1)
    text = text.replace("[project.theme]\n", f'[project.theme]\nlanguage = "{language.name}"\n', 1)
    return f"{text}\n[project.extra]\ngenerator = false\nalternate = {_toml(alternate)}\n"


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_toml(one) for one in value)}]"
    if isinstance(value, dict):
        pairs = (f"{_toml(key)} = {_toml(inner)}" for key, inner in value.items())
        return f"{{ {', '.join(pairs)} }}"
    return json.dumps(value, ensure_ascii=False)


def build(language: Language, target: Path) -> None:
    """Build one language. A link that goes nowhere is an error."""
    with TemporaryDirectory() as folder:
        stage(language, Path(folder))
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if built.returncode:
            told = f"{built.stdout}{built.stderr.partition('Traceback')[0]}"
            raise SystemExit(re.sub(r"\x1b\[[\d;]*m", "", told))
        shutil.copytree(Path(folder) / "site", target)
        # The sources beside the pages, for programs that read (llms.txt).
        for path in (Path(folder) / "docs").rglob("*.md"):
            shutil.copyfile(path, target / path.relative_to(Path(folder) / "docs"))


def llms_txt() -> str:
    """The list of pages with a sentence each, for language models (llmstxt.org)."""
    parts = [SUMMARY]
    for language in LANGUAGES:
        up = "" if language.name == "en" else "ja/"
        pages = list(pages_of(language))
        for folder, title in SECTIONS[language.name].items():
            parts.append(f"## {title}\n\n")
            for page in (one for one in pages if one.startswith(f"{folder}/")):
                path = language.root / page
                parts.append(f"- [{title_of(path)}]({up}{page}): {first_sentence(path)}\n")
            parts.append("\n")
    return "".join(parts)


def main(target: Path) -> None:
    """Build both languages and llms.txt into the folder, which is emptied first."""
    shutil.rmtree(target, ignore_errors=True)
    for language in LANGUAGES:
        build(language, target / language.folder)
    (target / "llms.txt").write_text(llms_txt(), "utf-8")
    print(f"{target.name}/: {sum(1 for _ in target.rglob('index.html'))} pages")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site")
