"""schema.json is what scripts/message_schema.py makes of LINE's OpenAPI."""

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_schema_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "message_schema.py"))["made"]()
    assert made == json.loads((ROOT / "linemessages" / "schema.json").read_text("utf-8"))
