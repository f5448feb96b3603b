"""``python -m demo.sandbox``: serve until a signal."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger, globalLogBeginner, textFileLogObserver

from demo.sandbox.api import Api, make_parser
from demo.sandbox.execution import Executions
from kas.state import pki
from kas.state.directory import StateDirectory
from tunnel.config import Listen
from tunnel.errors import ConfigurationError
from tunnel.http1 import HttpServerFactory
from tunnel.program.listening import Listening
from tunnel.testing.objects import FakeObjects, Refusal
from tunnel.toolkit.repeated import Repeated

#: Seconds between two lines of the pod `ticker`.
TICK = 0.5

_log = Logger()


def make_kubeconfig(url: str, authority: Path, token: str) -> str:
    """Return the kubeconfig as JSON, which is also YAML."""
    cluster = {"server": url, "certificate-authority": str(authority)}
    context = {"cluster": "sandbox", "user": "sandbox", "namespace": "default"}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sandbox", "cluster": cluster}],
            "users": [{"name": "sandbox", "user": {"token": token}}],
            "contexts": [{"name": "sandbox", "context": context}],
            "current-context": "sandbox",
        },
    )


class Sandbox:
    """The server with its objects and processes."""

    def __init__(self, state: StateDirectory, reactor: Any) -> None:
        self._state = state
        self._listening = Listening(reactor)
        self.token = secrets.token_urlsafe(32)
        self.executions = Executions(reactor, state.file("pods"))
        objects = FakeObjects(time.time)
        self.api = Api(self.token.encode(), objects, self.executions)
        self.front = HttpServerFactory(
            self.api, reactor, parser=make_parser(), render_error=_render
        )
        self._ticks = 0
        self.ticking = Repeated(reactor, "writing to the log of the ticker", self._tick)

    def _tick(self) -> None:
        self._ticks += 1
        self.api.logs["default", "ticker"].write(f"tick {self._ticks}")

    async def start(self) -> Path:
        """Listen, write the kubeconfig, and return its path."""
        files = pki.ensure(self._state, time.time, "localhost")
        assert files.ca_file is not None
        listen = Listen(
            endpoint="tcp:0:interface=127.0.0.1",
            certificate_file=files.certificate_file,
            key_file=files.key_file,
        )
        port = await self._listening.listen(
            listen,
            self.front,
            what="the Kubernetes API (sandbox)",
            alpn=("http/1.1",),
        )
        self.api.logs["default", "shell"].write("ready for exec")
        self.ticking.start(TICK)
        address: Any = port.getHost()
        url = f"https://127.0.0.1:{address.port}"
        text = make_kubeconfig(url, files.ca_file, self.token)
        self._state.write("kubeconfig", text.encode())
        return self._state.file("kubeconfig")

    async def stop(self) -> None:
        """End everything that the server started."""
        if self.ticking.running:
            self.ticking.stop()
        self.executions.end_all()
        self.front.abort_all()
        await self._listening.stop()


def _render(code: int, message: str) -> tuple[bytes, bytes]:
    body = json.dumps(Refusal(code, "", message).status).encode()
    return b"\r\nContent-Type: application/json", body


def main() -> None:
    """Run the sandbox."""
    parser = argparse.ArgumentParser(prog="python -m demo.sandbox", description=__doc__)
    parser.add_argument("--state-directory", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    from twisted.internet import reactor as installed

    reactor: Any = installed
    globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stderr)])
    os.umask(0o077)
    sandbox = Sandbox(StateDirectory.open(options.state_directory.absolute()), reactor)
    problems: list[str] = []

    async def start() -> None:
        try:
            _log.info("ready: {path}", path=await sandbox.start())
        except ConfigurationError as error:
            problems.extend(error.problems)
            reactor.stop()

    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(start()))
    reactor.addSystemEventTrigger(
        "before", "shutdown", lambda: Deferred.fromCoroutine(sandbox.stop())
    )
    reactor.run()
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
