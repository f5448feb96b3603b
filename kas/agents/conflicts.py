"""Detector of agentk processes that claim to be the same pod."""

from __future__ import annotations

from collections import deque

import attrs
from twisted.logger import Logger

from tunnel.api import ConnectedAgent
from tunnel.toolkit.recent import Recent

__all__ = ["Conflicts"]

#: Number of returns of replaced runs in a period that indicate a conflict, and the
#: seconds of that period: a dead run never returns, and a run with a bad network has no
#: rival.
MOST_RETURNS, WITHIN = 3, 60.0

#: Seconds between two warnings about one pod.
WARN_INTERVAL = 3600.0

#: Maximum number of pods that are watched at the same time; if there are more, kas
#: forgets the oldest pod, which can only delay a warning.
MAX_PODS = 10_000

#: Maximum number of remembered replacements of one pod: a few more than are needed.
MAX_REPLACED = 16

RUNS_AGAIN = "the pod was restarted, or another one has its POD_NAME"

_Pod = tuple[str, str, str]


@attrs.define(eq=False)
class _Replaced:
    #: Time and id of each run that was replaced.
    runs: deque[tuple[float, bytes]] = attrs.Factory(lambda: deque(maxlen=MAX_REPLACED))
    warned: float = -WARN_INTERVAL


class Conflicts:
    """
    Detector of two agentk that keep replacing each other, which a restarted pod does
    not do.

    All times are the times of the newer connections.
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
                "agent {agent_name} ({agent_id}): several agentk claim to be pod "
                "{pod}, and keep replacing each other; give each its own POD_NAME, "
                "or none",
                agent_name=older.agent_name,
                agent_id=older.agent_id,
                pod=older.pod_name,
            )
        return (
            f"another agentk claims to be pod {older.pod_name}, too: give each its "
            "own POD_NAME, or none"
        )
