"""The steps through the tunnel: list, watch, logs, exec."""

from __future__ import annotations

import itertools
import json
import re
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from demo.client import TIMEOUT, Client, KubernetesError, errors
from demo.cluster import Cluster
from demo.processes import POLL, DemoError
from demo.screen import Screen, Step, milliseconds

__all__ = ["Steps"]

POD = "kas-demo"

#: Number of lines of ``logs -f`` to wait for, and the timeout if the pod is unknown.
_LOG_LINES = 4
_STRANGE_LOG_SECONDS = 3.0
#: Maximum number of pods of the user's cluster in which to try a shell.
_TRIES = 3
#: Rows and columns of the window, before and after it is resized.
_SIZES = ((30, 100), (40, 132))
_EXIT_STATUS = 7
_NO_STTY = 9
_POD_SECONDS = 60.0

_TICKER = "n=0; while :; do n=$((n+1)); echo tick $n; sleep 0.5; done"
_TERMINAL = (
    f"command -v stty >/dev/null || exit {_NO_STTY}; tty; "
    "while read -r word; do stty size; "
    f'if [ "$word" = end ]; then exit {_EXIT_STATUS}; fi; done'
)


@attrs.frozen
class _Pod:
    namespace: str
    name: str
    container: str


class Steps:
    """
    The steps of the demo through kas.

    :param log: the log to read after a failure.
    """

    def __init__(
        self, screen: Screen, client: Client, cluster: Cluster, log: Path
    ) -> None:
        self._log = log
        self._screen = screen
        self._client = client
        self._cluster = cluster
        self._core = client.core
        self._namespace = cluster.namespace

    def run(self) -> None:
        """Run all steps in order."""
        if self._cluster.choice == "kube":
            with self._screen.step("a pod runs") as step:
                self._do(self._make_pod, step)
        for title, act in (
            ("list namespaces and pods", self._list),
            ("watch: an event arrives", self._watch),
            ("logs -f", self._logs),
            ("exec with a terminal", self._exec),
        ):
            with self._screen.step(title) as step:
                self._do(act, step)

    def _do(self, act: Callable[[Step], None], step: Step) -> None:
        try:
            with errors():
                act(step)
        except KubernetesError as error:
            if not (self._cluster.is_yours and error.status == 403):
                raise DemoError(str(error), self._log) from None
            step.leave_out(f"your cluster refuses it: {error}")
        except OSError as error:
            reason = f"the connection failed ({error or type(error).__name__})"
            raise DemoError(reason, self._log) from None

    def _make_pod(self, step: Step) -> None:
        container = {"name": "main", "image": "none", "command": ["sh", "-c", _TICKER]}
        self._core.create_namespaced_pod(
            self._namespace,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": POD},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
            },
        )
        deadline = time.monotonic() + _POD_SECONDS
        phase = ""
        while phase != "Running":
            if time.monotonic() > deadline:
                raise DemoError(f"the pod {POD} is still {phase or 'not there'}")
            time.sleep(POLL)
            phase = self._core.read_namespaced_pod(POD, self._namespace).status.phase
        self._cluster.log_pod = self._cluster.exec_pod = POD
        step.note(f"{POD}, made for this in the namespace {self._cluster.namespace}")

    def _list(self, step: Step) -> None:
        for what, call in (
            ("namespaces", self._core.list_namespace),
            ("pods", self._core.list_pod_for_all_namespaces),
        ):
            began = time.monotonic()
            found = call(limit=500).items
            took = milliseconds(time.monotonic() - began)
            names = ", ".join(one.metadata.name for one in found[:5])
            more = ", ..." if len(found) > 5 else ""
            step.note(f"{what} in {took}: {names or 'none'}{more}")

    def _watch(self, step: Step) -> None:
        listing = self._core.list_namespaced_config_map
        name = f"kas-demo-{secrets.token_hex(4)}"
        version = listing(self._namespace, limit=1).metadata.resource_version
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {"from": "the demo of kas; may be deleted"},
        }
        with self._client.stream(
            listing,
            self._namespace,
            timeout=TIMEOUT,
            watch=True,
            field_selector=f"metadata.name={name}",
            resource_version=version,
        ) as events:
            try:
                made = self._core.create_namespaced_config_map(self._namespace, body)
                answered = time.monotonic()
                event: dict[str, Any] = next(events, {})
                took = milliseconds(time.monotonic() - answered)
            finally:
                self._delete(name)
        found: Any = event.get("object")
        if event.get("type") != "ADDED" or found.metadata.uid != made.metadata.uid:
            raise DemoError(f"the watch told something else: {str(event)[:200]}")
        step.note(f"ADDED ConfigMap {name}, {took} after the answer to its POST")
        step.note("(and deleted again)")

    def _delete(self, name: str) -> None:
        try:
            with errors():
                self._core.delete_namespaced_config_map(name, self._namespace)
        except KubernetesError as error:
            if error.status not in (403, 404):
                raise

    def _pods(self, name: str) -> list[_Pod]:
        """
        Return the pod *name*; in the user's cluster, return some running pods instead.
        """
        if name:
            found = [self._core.read_namespaced_pod(name, self._namespace)]
        else:
            found = self._core.list_namespaced_pod(
                self._namespace, field_selector="status.phase=Running", limit=50
            ).items
        return [
            _Pod(pod.metadata.namespace, pod.metadata.name, pod.spec.containers[0].name)
            for pod in found
        ]

    def _logs(self, step: Step) -> None:
        pods = self._pods(self._cluster.log_pod)
        if not pods:
            step.leave_out(f"no pod runs in the namespace {self._cluster.namespace}")
            return
        pod = pods[0]
        seconds = _STRANGE_LOG_SECONDS if self._cluster.is_yours else TIMEOUT
        began = time.monotonic()
        lines: list[str] = []
        with self._client.stream(
            self._core.read_namespaced_pod_log,
            pod.name,
            pod.namespace,
            timeout=seconds,
            container=pod.container,
            follow=True,
            tail_lines=2,
        ) as log:
            try:
                for line in itertools.islice(log, _LOG_LINES):
                    after = milliseconds(time.monotonic() - began)
                    lines.append(f"{after:>8}  {line.rstrip()[:60]}")
            except TimeoutError:
                lines.append(f"nothing more within {seconds:g} s")
        if len(lines) < _LOG_LINES and not self._cluster.is_yours:
            raise DemoError(f"logs -f of {pod.name} gave {len(lines)} lines, and ended")
        step.note(f"{pod.namespace}/{pod.name}")
        for text in lines:
            step.note(text)

    def _exec(self, step: Step) -> None:
        pods = self._pods(self._cluster.exec_pod)[:_TRIES]
        reason = f"no pod runs in the namespace {self._cluster.namespace}"
        for pod in pods:
            try:
                for text in _use_terminal(self._client, pod):
                    step.note(text)
                return
            except (_NoTerminal, KubernetesError) as error:
                reason = f"exec in {pod.name}: {error}"
                if not self._cluster.is_yours:
                    raise DemoError(reason, self._log) from None
        step.leave_out(reason)


class _NoTerminal(Exception):
    """Raised if ``exec`` does not work in a pod."""


def _use_terminal(client: Client, pod: _Pod) -> list[str]:
    """Start a shell, resize its window and end it; return notes for the step."""
    began = time.monotonic()
    with client.exec(
        pod.name,
        pod.namespace,
        command=["sh", "-c", _TERMINAL],
        container=pod.container,
        stdin=True,
        stdout=True,
        stderr=False,
        tty=True,
    ) as socket:
        terminal = _Terminal(socket)
        said = [f"{pod.namespace}/{pod.name}: sh with a terminal"]
        for rows, columns in _SIZES:
            asked = time.monotonic()
            terminal.resize(rows, columns)
            took = milliseconds(time.monotonic() - asked)
            said.append(
                f"window of {rows} x {columns}: 'stty size' agrees after {took}"
            )
        name = re.search(r"/dev/\S+", terminal.output)
        said[0] += f" {name[0]}" if name else ""
        said[0] += f", {socket.subprotocol}"
        status = terminal.end()
    if status != _EXIT_STATUS:
        raise _NoTerminal(f"exit status {status} instead of {_EXIT_STATUS}")
    took = milliseconds(time.monotonic() - began)
    return [*said, f"exit status {status}, as it should be; all in {took}"]


class _Terminal:
    """The remote terminal of ``exec``; *socket* is the library's ``WSClient``."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self.output = ""

    def resize(self, rows: int, columns: int) -> None:
        """
        Resize the window, and wait until the shell reports the new size.

        Size and input take different paths inside a kubelet, so either may arrive
        first.
        """
        from kubernetes.stream.ws_client import RESIZE_CHANNEL

        size = json.dumps({"Height": rows, "Width": columns})
        self._socket.write_channel(RESIZE_CHANNEL, size)
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            known = len(self._sizes())
            self._socket.write_stdin("\n")
            while len(sizes := self._sizes()) == known:
                self._receive()
            if sizes[-1] == (rows, columns):
                return
        raise _NoTerminal(f"the window never became {rows} x {columns}")

    def _sizes(self) -> Sequence[tuple[int, int]]:
        found = re.findall(r"(?m)^(\d+) (\d+)\r?\n", self.output)
        return [(int(rows), int(columns)) for rows, columns in found]

    def _receive(self) -> None:
        deadline = time.monotonic() + TIMEOUT
        # Some messages contain no output.
        while not (text := self._socket.read_stdout(deadline - time.monotonic())):
            if not self._socket.is_open():
                raise _NoTerminal(_explain(self._socket))
            if time.monotonic() >= deadline:
                raise _NoTerminal(f"no answer within {TIMEOUT:g} s")
        self.output += text

    def end(self) -> int:
        """Let the shell exit; return its status."""
        self._socket.write_stdin("end\n")
        self._socket.run_forever(timeout=TIMEOUT)
        status = self._socket.returncode
        if status is None:
            raise _NoTerminal(f"the shell did not end within {TIMEOUT:g} s")
        return int(status)


def _explain(socket: Any) -> str:
    """Return the reason why the other end closed the connection."""
    from kubernetes.stream.ws_client import ERROR_CHANNEL

    try:
        status = json.loads(socket.peek_channel(ERROR_CHANNEL))
    except ValueError:
        return "the connection ended"
    causes = status.get("details", {}).get("causes", [])
    if {"reason": "ExitCode", "message": str(_NO_STTY)} in causes:
        return "there is no stty in the container"
    return str(status.get("message") or "the shell ended at once")
