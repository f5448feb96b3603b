"""What the demo does through the tunnel: list, watch, logs, exec."""

from __future__ import annotations

import http.client
import json
import re
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import attrs
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from demo.client import TIMEOUT, Client, KubernetesError
from demo.cluster import Cluster
from demo.processes import POLL, DemoError
from demo.screen import Screen, Step, milliseconds

__all__ = ["Steps"]

POD = "kas-demo"

#: Lines of ``logs -f`` to wait for, and for how long if the pod is a stranger.
_LOG_LINES = 4
_STRANGE_LOG_SECONDS = 3.0
#: Pods of somebody's cluster to try a shell in.
_TRIES = 3
#: Rows and columns, before and after the window is resized.
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

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{quote(self.namespace)}/pods/{quote(self.name)}"


class Steps:
    """
    Everything that goes through kas.

    :param log: where to look when that fails.
    """

    def __init__(
        self, screen: Screen, client: Client, cluster: Cluster, log: Path
    ) -> None:
        self._log = log
        self._screen = screen
        self._client = client
        self._cluster = cluster
        self._base = f"/api/v1/namespaces/{quote(cluster.namespace)}"

    def run(self) -> None:
        """All of them, in order."""
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
            act(step)
        except KubernetesError as error:
            if not (self._cluster.is_yours and error.status == 403):
                raise DemoError(str(error), self._log) from None
            step.leave_out(f"your cluster refuses it: {error}")
        except (OSError, http.client.HTTPException) as error:
            reason = f"the connection failed ({error or type(error).__name__})"
            raise DemoError(reason, self._log) from None

    def _make_pod(self, step: Step) -> None:
        container = {"name": "main", "image": "none", "command": ["sh", "-c", _TICKER]}
        self._client.request(
            "POST",
            f"{self._base}/pods",
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
            phase = self._client.request("GET", f"{self._base}/pods/{POD}")["status"][
                "phase"
            ]
        self._cluster.log_pod = self._cluster.exec_pod = POD
        step.note(f"{POD}, made for this in the namespace {self._cluster.namespace}")

    def _list(self, step: Step) -> None:
        for what in ("namespaces", "pods"):
            began = time.monotonic()
            found = self._client.request("GET", f"/api/v1/{what}?limit=500")["items"]
            took = milliseconds(time.monotonic() - began)
            names = ", ".join(one["metadata"]["name"] for one in found[:5])
            more = ", ..." if len(found) > 5 else ""
            step.note(f"{what} in {took}: {names or 'none'}{more}")

    def _watch(self, step: Step) -> None:
        maps = f"{self._base}/configmaps"
        name = f"kas-demo-{secrets.token_hex(4)}"
        version = self._client.request("GET", f"{maps}?limit=1")["metadata"]
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": version["resourceVersion"],
        }
        with self._client.stream(f"{maps}?{urlencode(query)}") as events:
            try:
                made = self._client.request(
                    "POST",
                    maps,
                    {
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "metadata": {"name": name},
                        "data": {"from": "the demo of kas; may be deleted"},
                    },
                )
                answered = time.monotonic()
                event = json.loads(events.readline() or b"{}")
                took = milliseconds(time.monotonic() - answered)
            finally:
                self._delete(f"{maps}/{name}")
        metadata = event.get("object", {}).get("metadata", {})
        if (
            event.get("type") != "ADDED"
            or metadata.get("uid") != made["metadata"]["uid"]
        ):
            raise DemoError(f"the watch told something else: {str(event)[:200]}")
        step.note(f"ADDED ConfigMap {name}, {took} after the answer to its POST")
        step.note("(and deleted again)")

    def _delete(self, path: str) -> None:
        try:
            self._client.request("DELETE", path)
        except KubernetesError as error:
            if error.status not in (403, 404):
                raise

    def _pods(self, name: str) -> list[_Pod]:
        """The pod of that name; in a cluster of somebody else, some that run."""
        if name:
            found = [self._client.request("GET", f"{self._base}/pods/{name}")]
        else:
            query = urlencode({"fieldSelector": "status.phase=Running", "limit": 50})
            found = self._client.request("GET", f"{self._base}/pods?{query}")["items"]
        return [
            _Pod(
                pod["metadata"]["namespace"],
                pod["metadata"]["name"],
                pod["spec"]["containers"][0]["name"],
            )
            for pod in found
        ]

    def _logs(self, step: Step) -> None:
        pods = self._pods(self._cluster.log_pod)
        if not pods:
            step.leave_out(f"no pod runs in the namespace {self._cluster.namespace}")
            return
        pod = pods[0]
        query = {"follow": "true", "tailLines": "2", "container": pod.container}
        seconds = _STRANGE_LOG_SECONDS if self._cluster.is_yours else TIMEOUT
        began = time.monotonic()
        lines: list[str] = []
        with self._client.stream(f"{pod.path}/log?{urlencode(query)}", seconds) as log:
            try:
                while len(lines) < _LOG_LINES and (line := log.readline()):
                    after = milliseconds(time.monotonic() - began)
                    text = line.decode(errors="replace").rstrip()[:60]
                    lines.append(f"{after:>8}  {text}")
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
    """Why ``exec`` does not do in this pod."""


def _use_terminal(client: Client, pod: _Pod) -> list[str]:
    """Start a shell, resize its window, end it; gives what to say about it."""
    words = ("sh", "-c", _TERMINAL)
    query = [("command", word) for word in words]
    query += [(name, "true") for name in ("stdin", "stdout", "tty")]
    query.append(("container", pod.container))
    began = time.monotonic()
    with client.channels(f"{pod.path}/exec?{urlencode(query)}") as socket:
        terminal = _Terminal(socket)
        said = [f"{pod.namespace}/{pod.name}: sh with a terminal"]
        for rows, columns in _SIZES:
            asked = time.monotonic()
            terminal.resize(rows, columns)
            took = milliseconds(time.monotonic() - asked)
            said.append(
                f"window of {rows} x {columns}: 'stty size' agrees after {took}"
            )
        name = re.search(rb"/dev/\S+", terminal.output)
        said[0] += f" {name[0].decode()}" if name else ""
        said[0] += f", {socket.subprotocol}"
        status = terminal.end()
    if status != _EXIT_STATUS:
        raise _NoTerminal(f"exit status {status} instead of {_EXIT_STATUS}")
    took = milliseconds(time.monotonic() - began)
    return [*said, f"exit status {status}, as it should be; all in {took}"]


class _Terminal:
    """The far end of a WebSocket of ``exec``."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.output = b""

    def resize(self, rows: int, columns: int) -> None:
        """
        Change the window, and ask until the other side has seen it.

        Size and input go different ways inside a kubelet, so either may be first.
        """
        size = json.dumps({"Height": rows, "Width": columns}).encode()
        self._socket.send(b"\x04" + size)
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            known = len(self._sizes())
            self._socket.send(b"\x00\n")
            while len(sizes := self._sizes()) == known:
                self._receive()
            if sizes[-1] == (rows, columns):
                return
        raise _NoTerminal(f"the window never became {rows} x {columns}")

    def _sizes(self) -> Sequence[tuple[int, int]]:
        found = re.findall(rb"(?m)^(\d+) (\d+)\r?\n", self.output)
        return [(int(rows), int(columns)) for rows, columns in found]

    def _receive(self) -> None:
        channel, data = self._message()
        if channel in (1, 2):
            self.output += data
        elif channel == 3:
            raise _NoTerminal(_explain(json.loads(data)))

    def _message(self) -> tuple[int, bytes]:
        try:
            message: Any = self._socket.recv(timeout=TIMEOUT)
        except TimeoutError:
            raise _NoTerminal(f"no answer within {TIMEOUT:g} s") from None
        except ConnectionClosed as error:
            raise _NoTerminal(f"the connection ended: {error}") from None
        data = message.encode() if isinstance(message, str) else message
        return (data[0], data[1:]) if data else (-1, b"")

    def end(self) -> int:
        """Let the shell exit; gives its status."""
        self._socket.send(b"\x00end\n")
        channel, data = self._message()
        while channel != 3:
            channel, data = self._message()
        status = json.loads(data)
        return 0 if status.get("status") == "Success" else _exit_code(status)


def _exit_code(status: dict[str, Any]) -> int:
    causes = status.get("details", {}).get("causes", [])
    for cause in causes:
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    return -1


def _explain(status: dict[str, Any]) -> str:
    if _exit_code(status) == _NO_STTY:
        return "there is no stty in the container"
    return str(status.get("message") or "the shell ended at once")
