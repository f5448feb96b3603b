"""``kasctl webhooks``: deliveries of webhooks to Services in clusters."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import click

from kas.ctl.calls import Callee, callee_options
from kas.ctl.common import Ctl, command, counted, printable
from kas.ctl.completion import complete_agents

__all__ = ["declare"]

_SERVICE = "txkas.webhooks.v1.WebhooksControl"

#: Timeout in seconds: kas reads its store.
TIMEOUT = 20.0

agent_argument = click.argument("agent", shell_complete=complete_agents)


def declare(group: click.Group) -> None:
    """Add the commands to *group*."""
    group.add_command(webhooks)


@click.group()
def webhooks() -> None:
    """Webhooks that agents post in their clusters."""


@command(webhooks, "list")
@agent_argument
@click.option("--body", is_flag=True, help="Print the body of each last response.")
@callee_options
def _list(ctl: Ctl, callee: Callee, agent: str, body: bool) -> None:
    """
    Show the newest delivery for each target and ref of an agent.

    AGENT is its name or its id.  The agent need not be connected.
    """
    answer = callee.call(f"{_SERVICE}/ListDeliveries", {"agent": agent}, TIMEOUT)
    deliveries = answer.get("deliveries", [])
    lines = [line for one in deliveries for line in _lines(one, body)]
    ctl.result(answer, "\n".join(lines))


@command(webhooks, "resend")
@agent_argument
@click.argument("target")
@click.argument("ref", default="")
@callee_options
def _resend(ctl: Ctl, callee: Callee, agent: str, target: str, ref: str) -> None:
    """
    Post the newest commit again, now, and enable a disabled target.

    TARGET is its name in the agent's configuration, and REF is a ref as written there;
    without REF, all refs of the target are posted.
    """
    request = {"agent": agent, "target": target, "ref": ref}
    answer = callee.call(f"{_SERVICE}/Resend", request, TIMEOUT)
    count = counted(len(answer.get("deliveries", [])), "ref")
    text = f"agentk notifies {target} of {count} now, or once it connects"
    ctl.result(answer, text)


def _lines(delivery: dict[str, Any], body: bool) -> Iterator[str]:
    state = str(delivery.get("state", "")).lower() or "unknown"
    ref = delivery.get("fullRef") or delivery.get("ref", "")
    parts = [delivery.get("target", ""), ref, state]
    if commit := delivery.get("after"):
        parts.append(commit[:12])
    yield printable("  ".join(parts))
    yield f"  to {printable(delivery.get('address', ''))}"
    attempts = delivery.get("attempts", 0)
    if attempts:
        said = f"  {counted(attempts, 'attempt')}"
        if last := delivery.get("lastAttempt"):
            said += f", the last at {_second(last)}"
        if following := delivery.get("nextAttempt"):
            said += f", the next at {_second(following)}"
        yield printable(said)
    elif following := delivery.get("nextAttempt"):
        yield printable(f"  first attempt at {_second(following)}")
    if status := delivery.get("lastStatus"):
        yield f"  last response: {status}"
    if error := delivery.get("lastError"):
        yield f"  last error: {printable(error)}"
    if problem := delivery.get("problem"):
        yield f"  {printable(problem)}"
    if body and (text := delivery.get("lastBody")):
        for line in base64.b64decode(text).decode("utf-8", "replace").splitlines():
            yield f"    {printable(line)}"


def _second(time: str) -> str:
    """Return a time without fractions of a second."""
    return f"{time.partition('.')[0].rstrip('Z')}Z"
