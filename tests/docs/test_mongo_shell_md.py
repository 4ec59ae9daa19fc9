"""Each function, collection, file and fixed word of docs/how-to/mongo-shell.md exists.

tests/scripts/test_inspect_js.py runs the script itself.
"""

from __future__ import annotations

import re
from pathlib import Path

from linedesk.setup.neighbours import CAPPED_BYTES, PLAIN
from linedesk.store.documents import RECVQ

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "mongo-shell.md").read_text("utf-8")
SCRIPT = (ROOT / "scripts" / "inspect.js").read_text("utf-8")


def test_each_function_exists_and_has_a_section() -> None:
    returned = re.findall(r"return \{ ([\w, ]+) \};\n\}\)\(\);", SCRIPT)
    assert len(returned) == 1
    functions = set(returned[0].split(", "))
    assert set(re.findall(r"linedesk\.(\w+)\(", PAGE)) == functions
    titled = set(re.findall(r"linedesk\.(\w+)\(", " ".join(re.findall(r"^## .*$", PAGE, re.M))))
    assert titled == functions - {"help"}


def test_each_collection_is_one() -> None:
    named = set(re.findall(r"\bdb\.(\w+)", PAGE))
    assert named <= {RECVQ, *CAPPED_BYTES, *PLAIN}


def test_each_file_exists_at_its_path() -> None:
    paths = set(re.findall(r"(?<![\w/.-])scripts/[\w.]+", PAGE))
    assert paths
    assert all((ROOT / path).is_file() for path in paths)
    components = (ROOT / "deploy" / "install.d" / "release.bash").read_text("utf-8")
    assert '"$SOURCE/scripts/inspect.js"' in components
    assert "/opt/linedesk/current/share/linedesk/inspect.js" in PAGE
    assert (ROOT / "docs" / "reference" / "collections.md").is_file()
