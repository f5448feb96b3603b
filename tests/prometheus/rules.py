"""The alert rules and the dashboard in deploy/, as tests read them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "kas.json"
EXAMPLES = Path(__file__).with_name("alerts.test.yaml")

#: Names of metrics of ours, and of those that every program has; `up` is Prometheus'.
_METRIC = re.compile(r"\b(?:kas|agentk|process)_[a-z_]+\b")


def alerts() -> list[dict[str, Any]]:
    """The rules."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    """What the dashboard shows."""
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def dashboard_queries() -> list[str]:
    """Those of all panels."""
    return [one["expr"] for panel in panels() for one in panel.get("targets", ())]


def named_metrics() -> set[str]:
    """Every metric that a rule or a panel asks for."""
    queries = [rule["expr"] for rule in alerts()] + dashboard_queries()
    return {name for query in queries for name in _METRIC.findall(query)}


def exposed_metrics(exposition: str) -> set[str]:
    """What ``/metrics`` offers; a metric that has no value yet, too."""
    found = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", exposition, re.MULTILINE):
        found.add(name)
        if kind == "histogram":
            found |= {f"{name}_{part}" for part in ("bucket", "sum", "count")}
    return found
