"""``kasctl prometheus``: how an agent searches for the Prometheus of its cluster."""

from __future__ import annotations

import click

from kas.ctl.calls import Callee, callee_options
from kas.ctl.common import Ctl, command, printable
from kas.ctl.completion import complete_agents

__all__ = ["declare"]

_METHOD = "txkas.prometheus.v1.PrometheusTrails/Find"

#: Timeout in seconds: a search probes several Services, and each may be silent.
TIMEOUT = 65.0


def declare(group: click.Group) -> None:
    """Add the command to *group*."""
    command(group, "prometheus")(_prometheus)


@click.argument("agent", shell_complete=complete_agents)
@click.option("--again", is_flag=True, help="Search now, and show no earlier result.")
@callee_options
def _prometheus(ctl: Ctl, callee: Callee, agent: str, again: bool) -> None:
    """
    Show how AGENT searches for the Prometheus of its cluster.

    Each line is one step: a strategy, a Service that it found, and why agentk takes
    this Service or does not.
    """
    trail = callee.call(_METHOD, {"agent": agent, "again": again}, TIMEOUT)
    rows = [
        (
            one.get("strategy", ""),
            printable(one.get("service", "") or "-"),
            one.get("outcome", ""),
            printable(one.get("reason", "")),
        )
        for one in trail.get("steps", [])
    ]
    ctl.table(trail, ("STRATEGY", "SERVICE", "RESULT", "REASON"), rows)
    if problem := trail.get("problem"):
        ctl.note(printable(problem))
