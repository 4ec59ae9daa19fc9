"""deploy/prometheus and deploy/grafana: promtool takes each file and query, and each alert fires on
what it is for.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import yaml

from tests.conftest import missing

DEPLOY = Path(__file__).parents[2] / "deploy"


def promtool(*arguments: object) -> None:
    if shutil.which("promtool") is None:
        missing("promtool is not installed")
    command = ["promtool", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_promtool_takes_the_configuration_and_every_query_of_the_dashboard(tmp_path: Path) -> None:
    promtool("check", "config", DEPLOY / "prometheus" / "prometheus.yml")
    panels = json.loads((DEPLOY / "grafana" / "linedesk.json").read_text("utf-8"))["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    path = tmp_path / "dashboard.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", path)


def test_each_alert_fires_on_what_it_is_for_and_not_without_it() -> None:
    promtool("test", "rules", Path(__file__).with_name("alerts_test.yml"))
