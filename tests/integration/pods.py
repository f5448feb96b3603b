"""Pods that tests speak with; their processes run on this machine."""

from __future__ import annotations

import hashlib
import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.kubectl import PATIENT, Kubectl

#: Megabytes for the tests of much data; the least that outgrows every buffer by far.
LARGE = int(os.environ.get("TXKAS_TEST_MEGABYTES", "100"))

#: Has ``kubectl cp`` ask for what the API server lost.  It sends the kubelet a PING
#: each 5 seconds.  A kubelet that has written all output and closed answers with a
#: reset, and drops what a slow reader has not taken: the output is cut off, and that
#: counts as success.  Of 23 slow ``exec`` straight at the API server 20 lost their end
#: so.  A stream that kas or agentk breaks ends kubectl at once, with or without it.
RETRIES = "--retries=2"

_PODS = """\
apiVersion: v1
kind: Pod
metadata: {name: main}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: echo
    image: any
    stdin: true
    command: [sh, -c, 'while read line; do echo "got $line"; done; echo end']
  - name: tick
    image: any
    command: [sh, -c, 'i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.1; done']
---
apiVersion: v1
kind: Pod
metadata: {name: term}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: sh, image: any, stdin: true, tty: true, command: [sh, -i]}]
"""


def start_pods(kubectl: Kubectl) -> None:
    """``main`` with the containers ``echo`` and ``tick``, and ``term``."""
    kubectl.ok("apply", "-f", "-", input=_PODS.encode())
    kubectl.ok("wait", "--for=condition=Ready", "pods/main", "pods/term", PATIENT)


def digest(path: Path) -> str:
    """What tells two files apart."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def random_file(path: Path, megabytes: int) -> Path:
    """Bytes that no compression makes smaller."""
    with path.open("wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(1_000_000))
    return path


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        """Send back what comes, until the other side has said all."""
        while data := self.request.recv(65536):
            self.request.sendall(data)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64


@contextmanager
def echo_server() -> Iterator[int]:
    """A process "in a pod" that listens; its port."""
    with _Server(("127.0.0.1", 0), _Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def exchange(port: int, data: bytes) -> bytes:
    """Say *data* to an echo server, and hear it to its end."""
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        sender = threading.Thread(target=sock.sendall, args=(data,))
        sender.start()
        heard = bytearray()
        while len(heard) < len(data) and (chunk := sock.recv(65536)):
            heard += chunk
        sender.join()
        return bytes(heard)
