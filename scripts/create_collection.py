"""Writes the collections and indexes of linedesk.setup into scripts/create_collection.js.

.venv/bin/python scripts/create_collection.py            writes them between the script's marks
.venv/bin/python scripts/create_collection.py --check    fails if the script is out of date
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from linedesk.setup.neighbours import CAPPED_BYTES, INDEXES, PLAIN  # noqa: E402
from linedesk.store.documents import RECVQ  # noqa: E402

SCRIPT = ROOT / "scripts" / "create_collection.js"
BEGIN = "// Written by scripts/create_collection.py from here:\n"
END = "// To here.\n"
MOST_COLUMNS = 110


def described() -> dict[str, Any]:
    """The variables of the script."""
    capped = {name: {"capped": True, "size": size} for name, size in CAPPED_BYTES.items()}
    return {
        # The script has recvq's size.
        "collections": {RECVQ: {"capped": True}} | capped | {name: {} for name in PLAIN},
        "indexes": [
            {"collection": name, "keys": dict(index.keys), "options": index.options}
            for name, indexes in INDEXES.items()
            for index in indexes
        ],
    }


def as_text(value: Any, indent: str = "") -> str:
    """JSON. A value that does not fit into a line has a line for each of its parts."""
    line = json.dumps(value)
    if len(indent) + len(line) <= MOST_COLUMNS:
        return line
    inner = f"{indent}  "
    if isinstance(value, Mapping):
        parts = [f"{json.dumps(name)}: {as_text(one, inner)}" for name, one in value.items()]
        opened, closed = "{", "}"
    else:
        parts = [as_text(one, inner) for one in value]
        opened, closed = "[", "]"
    return f"{opened}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{closed}"


def main() -> str | None:
    before = SCRIPT.read_text("utf-8")
    head, _, rest = before.partition(BEGIN)
    _, _, tail = rest.partition(END)
    variables = "".join(f"var {name} = {as_text(one)};\n" for name, one in described().items())
    after = f"{head}{BEGIN}{variables}{END}{tail}"
    if "--check" not in sys.argv:
        SCRIPT.write_text(after, "utf-8")
    elif after != before:
        return f"{SCRIPT.name} is out of date: run scripts/create_collection.py"
    return None


if __name__ == "__main__":
    sys.exit(main())
