"""
State of a pod in one word, as ``kubectl get pods`` prints it.

One rule differs: a pod that runs but is not ready is ``NotReady``, because kubectl
shows this in a second column.

Source: kubernetes, pkg/printers/internalversion/printers.go, printPod.
"""

from __future__ import annotations

from modules.cluster_data.agent.shapes import ContainerStatus, Pod

__all__ = ["pod_state"]


def pod_state(pod: Pod) -> str:
    """Return the state of a pod: ``Running``, ``CrashLoopBackOff``, ``Init:0/1``."""
    status = pod.status
    state = status.reason or status.phase or "Unknown"
    state, is_initializing = _of_init_containers(pod, state)
    if not is_initializing:
        state = _of_containers(pod, state)
    if pod.metadata.deletion_timestamp:
        return "Unknown" if status.reason == "NodeLost" else "Terminating"
    return state


def _of_init_containers(pod: Pod, state: str) -> tuple[str, bool]:
    """Return the state, and whether init containers have not all succeeded."""
    found = pod.status.init_container_statuses or []
    total = len(pod.spec.init_containers or found)
    for count, one in enumerate(found):
        terminated = one.state.terminated if one.state else None
        if terminated is not None and terminated.exit_code == 0:
            continue
        if one.started:
            # A restartable init container runs beside the others.
            continue
        if terminated is not None:
            return f"Init:{_ended(one)}", True
        waiting = one.state.waiting if one.state else None
        if waiting is not None and waiting.reason not in ("", "PodInitializing"):
            return f"Init:{waiting.reason}", True
        return f"Init:{count}/{total}", True
    return state, False


def _of_containers(pod: Pod, state: str) -> str:
    runs = False
    for one in reversed(pod.status.container_statuses or []):
        found = one.state
        if found is not None and found.waiting is not None and found.waiting.reason:
            state = found.waiting.reason
        elif found is not None and found.terminated is not None:
            state = _ended(one)
        elif one.ready and found is not None and found.running is not None:
            runs = True
    if state == "Completed" and runs:
        return "Running" if _is_ready(pod) else "NotReady"
    if state == "Running" and not _is_ready(pod):
        return "NotReady"
    return state


def _ended(one: ContainerStatus) -> str:
    assert one.state is not None and one.state.terminated is not None
    ended = one.state.terminated
    if ended.reason:
        return ended.reason
    return f"Signal:{ended.signal}" if ended.signal else f"ExitCode:{ended.exit_code}"


def _is_ready(pod: Pod) -> bool:
    return any(
        one.type == "Ready" and one.status == "True"
        for one in pod.status.conditions or []
    )
