"""The alert rules and the dashboard in deploy/."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.integration import needs
from tests.prometheus import rules


def promtool(*arguments: object) -> None:
    program = needs.program("promtool", "apt-get install prometheus")
    done = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.integration
def test_promtool_takes_the_rules() -> None:
    promtool("check", "rules", rules.ALERTS)


@pytest.mark.integration
def test_alerts_fire_when_they_should() -> None:
    """... and not when they should not."""
    promtool("test", "rules", rules.EXAMPLES)


def test_every_alert_is_tried() -> None:
    """With an example that fires it, and one that does not."""
    fires: dict[str, set[bool]] = {}
    for example in yaml.safe_load(rules.EXAMPLES.read_text())["tests"]:
        for one in example["alert_rule_test"]:
            fires.setdefault(one["alertname"], set()).add("exp_alerts" in one)
    assert fires == {rule["alert"]: {True, False} for rule in rules.alerts()}


@pytest.mark.integration
def test_promtool_takes_the_queries(tmp_path: Path) -> None:
    """Those of the dashboard, with the interval that Grafana would put in."""
    group = [
        {"record": f"query:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(rules.dashboard_queries())
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": group}]}))
    promtool("check", "rules", file)


def test_panels() -> None:
    """Each has an id of its own and asks the Prometheus that is chosen."""
    panels = rules.panels()
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
            assert panel["targets"], panel["title"]


def test_every_alert_has_its_line_in_the_docs() -> None:
    """What to do about each, and about none that is gone."""
    text = (rules.ROOT / "docs" / "monitoring.rst").read_text()
    section = text.partition("\nAlerts\n")[2].partition("\nCapacity\n")[0]
    told = {line.split()[0] for line in section.splitlines() if line[:1].isupper()}
    names = {rule["alert"] for rule in rules.alerts()}
    assert names == {one for one in told if one.startswith(("Kas", "Agentk", "Txkas"))}
