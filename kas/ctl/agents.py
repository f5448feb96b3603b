"""Query for every agent of every kas, for ``agent list``, ``status`` and ``doctor``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import attrs

from kas.ctl.common import Ctl, printable, shown_time
from kas.ctl.control_client import Hung, ask
from kas.observability.overview import joined
from kas.state.process_socket import path_of, worker_at
from kas.state.running import Running
from tunnel.errors import ConfigurationError

__all__ = ["HEAD", "Known", "look", "row"]

#: Maximum number of kas processes that are queried at the same time; one machine runs
#: fewer.
MAX_AT_ONCE = 32

HEAD = ("STATE", "SINCE", "INSTANCES", "VERSION", "KUBERNETES", "KAS")


@attrs.frozen
class Known:
    """Information about agents that the running kas returned."""

    #: Agents by id, as in `kas.observability.overview`.
    agents: dict[str, dict[str, Any]]
    #: Reasons why some agents may be missing.
    problems: tuple[str, ...] = ()
    #: Descriptions of kas processes that run but do not respond, by process id.
    hung: Mapping[int, str] = attrs.Factory(dict)
    #: Whether at least one kas responded.
    answered: bool = True

    @property
    def clusters(self) -> list[str]:
        """Descriptions of the agents that cannot reach their cluster."""
        found = (
            f"agent {printable(one['agent_name'])}: "
            f"{printable(connection['cluster_problem'])}"
            for one in self.agents.values()
            for connection in one["connections"]
            if connection.get("cluster_problem")
        )
        return list(dict.fromkeys(found))

    @property
    def connected(self) -> list[str]:
        """Names of agents with a connection."""
        return [one["agent_name"] for one in self.agents.values() if one["connected"]]


def look(ctl: Ctl, running: Sequence[Running]) -> Known | None:
    """
    Query the kas that run with this state directory; return None if no kas runs.

    Several kas without a Redis know only their own agents, so all of them are queried.
    They are queried at the same time, so that kas that do not respond cost their
    timeout only once.
    """
    if not running:
        return None
    state = ctl.existing()

    def ask_one(one: Running) -> dict[str, Any] | ConfigurationError:
        try:
            return ask(path_of(state, one.pid), "GET", "/agents")
        except ConfigurationError as error:
            return error

    with ThreadPoolExecutor(min(len(running), MAX_AT_ONCE)) as pool:
        answers = list(pool.map(ask_one, running))
    overviews: list[dict[str, Any]] = []
    problems: list[str] = []
    hung: dict[int, str] = {}
    for one, answer in zip(running, answers, strict=True):
        if isinstance(answer, ConfigurationError):
            problems += answer.problems
            if isinstance(answer, Hung):
                hung[one.pid] = str(answer)
            continue
        overviews.append(answer)
        if answer.get("problem"):
            problems.append(printable(answer["problem"]))
    found = {one["agent_id"]: one for one in joined(overviews, problems)["agents"]}
    return Known(found, tuple(problems), hung, bool(overviews))


def row(agent: dict[str, Any] | None) -> tuple[str, ...]:
    """
    Return the cells of an agent's row below `HEAD`.

    :param agent: None if kas does not know the agent.
    """
    if agent is None:
        return ("unknown", "-", "-", "-", "-", "-")
    connections = agent["connections"]
    if not connections:
        seen = agent["last_seen"]
        last = "never seen" if seen is None else f"last seen {_since(seen)}"
        if agent["connected"] is None:
            return ("unknown", "-" if seen is None else last, "-", "-", "-", "-")
        return ("away", last, "0", "-", "-", "-")
    return (
        "connected",
        _since(min(one["connected_at"] for one in connections)),
        str(len(connections)),
        _each(connections, "version"),
        _each(connections, "kubernetes_version"),
        # A kas that runs alone has no address for other kas.
        ", ".join(map(worker_at, _different(connections, "kas_url"))) or "this one",
    )


def _each(connections: Sequence[dict[str, Any]], key: str) -> str:
    return ", ".join(_different(connections, key)) or "-"


def _different(connections: Sequence[dict[str, Any]], key: str) -> list[str]:
    return list(dict.fromkeys(printable(one[key]) for one in connections if one[key]))


def _since(seconds: float) -> str:
    return shown_time(datetime.fromtimestamp(seconds, UTC))
