"""Notices processes of agentk that say that they are the same pod."""

from __future__ import annotations

from collections import deque

import attrs
from twisted.logger import Logger

from tunnel.api import ConnectedAgent
from tunnel.toolkit.recent import Recent

__all__ = ["Conflicts"]

#: Returns of replaced runs that are permitted, and the seconds in which they count: a
#: dead run never returns, and a run with a bad network is the only one.
MOST_RETURNS, WITHIN = 3, 60.0

#: Seconds between two warnings about one pod.
WARN_INTERVAL = 3600.0

#: Pods that are watched at once; beyond it the oldest is forgotten, which only ever
#: makes a warning come later.
MAX_PODS = 10_000

#: Replacements of one pod that are remembered; a few more than it takes.
MAX_REPLACED = 16

RUNS_AGAIN = "the pod runs again, or another one has its POD_NAME"

_Pod = tuple[str, str, str]


@attrs.define(eq=False)
class _Replaced:
    #: When, and which run.
    runs: deque[tuple[float, bytes]] = attrs.Factory(lambda: deque(maxlen=MAX_REPLACED))
    warned: float = -WARN_INTERVAL


class Conflicts:
    """
    Tells a pod that runs again from two that replace each other.

    The time is that at which the newer connections came.
    """

    _log = Logger()

    def __init__(self) -> None:
        self._pods: Recent[_Pod, _Replaced] = Recent(MAX_PODS)

    def replaced(self, older: ConnectedAgent, newer: ConnectedAgent) -> str:
        """Note that a run of a pod takes another's place; returns what to tell that."""
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
