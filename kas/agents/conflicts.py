"""Detects agentk processes that claim to be the same pod."""

from __future__ import annotations

from collections import deque

import attrs
from twisted.logger import Logger

from tunnel.api import ConnectedAgent
from tunnel.toolkit.recent import Recent

__all__ = ["Conflicts"]

#: Returns of replaced runs that are permitted in a period, and its seconds: a dead run
#: never returns, and a run with a bad network has no rival.
MOST_RETURNS, WITHIN = 3, 60.0

#: Seconds between two warnings about one pod.
WARN_INTERVAL = 3600.0

#: Pods that are watched at the same time; beyond that the oldest is forgotten, which
#: can only delay a warning.
MAX_PODS = 10_000

#: Replacements of one pod that are remembered: a few more than are needed.
MAX_REPLACED = 16

RUNS_AGAIN = "the pod runs again, or another one has its POD_NAME"

_Pod = tuple[str, str, str]


@attrs.define(eq=False)
class _Replaced:
    #: The time and the id of each run.
    runs: deque[tuple[float, bytes]] = attrs.Factory(lambda: deque(maxlen=MAX_REPLACED))
    warned: float = -WARN_INTERVAL


class Conflicts:
    """
    Distinguishes a restarted pod from two pods that replace each other.

    Times are those of the newer connections.
    """

    _log = Logger()

    def __init__(self) -> None:
        self._pods: Recent[_Pod, _Replaced] = Recent(MAX_PODS)

    def replaced(self, older: ConnectedAgent, newer: ConnectedAgent) -> str:
        """
        Record that *newer* replaced *older*, a run of the same pod, and return the
        message for *older*.
        """
        now = newer.connected_at
        key = (older.agent_id, older.pod_namespace, older.pod_name)
        pod = self._pods[key] = self._pods.get(key) or _Replaced()
        while pod.runs and pod.runs[0][0] <= now - WITHIN:
            pod.runs.popleft()
        pod.runs.append((now, older.instance_id))
        returns = len(pod.runs) - len({run for _, run in pod.runs})
        if returns <= MOST_RETURNS:
            return RUNS_AGAIN
        if now - pod.warned >= WARN_INTERVAL:
            pod.warned = now
            self._log.warn(
                "agent {agent_name} ({agent_id}): several agentk say that they are pod "
                "{pod}, and replace each other all the time; give each a POD_NAME of "
                "its own, or none",
                agent_name=older.agent_name,
                agent_id=older.agent_id,
                pod=older.pod_name,
            )
        return (
            f"another agentk says that it is pod {older.pod_name}, too: give each a "
            "POD_NAME of its own, or none"
        )
