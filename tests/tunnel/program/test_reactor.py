"""The reactor of both programs: it does what Twisted's does, and who gets it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import pytest
from twisted.internet import error
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import Factory, Protocol

from tunnel.util.poller import Poller

pytest.importorskip("twisted.internet.epollreactor")

from tunnel.program.reactor import PollerReactor


class _Echo(Protocol):
    """Answers, and moves to the poller when it is made."""

    def __init__(self, reactor: Any, wanted: int, done: Any) -> None:
        self._reactor, self._wanted, self._done = reactor, wanted, done
        self.got = b""
        self.lost: list[Any] = []

    def connectionMade(self) -> None:
        Poller.take(self.transport, self._reactor)
        assert self.transport is not None
        self.transport.write(b"hello")

    def dataReceived(self, data: bytes) -> None:
        self.got += data
        if len(self.got) == self._wanted:
            self._done()

    def connectionLost(self, reason: Any = None) -> None:
        self.lost.append(reason.value)


def _run(reactor: Any) -> None:
    limit = reactor.callLater(30, reactor.crash)
    reactor.run(installSignalHandlers=False)
    assert not limit.called, "nobody stopped it"


def test_sockets_timers_and_threads() -> None:
    """All of a reactor, with sockets in the poller and ports in what it leads."""
    reactor: Any = PollerReactor()
    order: list[str] = []
    echoes: list[_Echo] = []

    def answered() -> None:
        order.append("answered")
        if order.count("answered") == 6:
            reactor.callLater(0, order.append, "timer")
            reactor.callInThread(reactor.callFromThread, threaded)

    def threaded() -> None:
        assert threading.current_thread() is threading.main_thread()
        order.append("thread")
        reactor.stop()

    class Made(Factory):
        def buildProtocol(self, addr: object) -> _Echo:
            echoes.append(_Echo(reactor, 5, answered))
            return echoes[-1]

    port = reactor.listenTCP(0, Made(), interface="127.0.0.1")
    for _ in range(3):
        TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port).connect(Made())
    _run(reactor)
    assert order == ["answered"] * 6 + ["timer", "thread"]
    assert [one.got for one in echoes] == [b"hello"] * 6
    # Those in the poller are told of the end, as those of any reactor are.
    for one in echoes:
        assert [type(reason) for reason in one.lost] == [error.ConnectionLost]


def _in_process(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": ""},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


_NAME = """
import sys
from twisted.scripts.twistd import ServerOptions
options = ServerOptions()
try:
    options.parseOptions([*sys.argv[1:], "--help"])
except SystemExit:
    pass
from twisted.internet import reactor
print(type(reactor).__name__)
"""


@pytest.mark.parametrize("program", ["kas", "agentk"])
def test_both_programs_get_it(program: str) -> None:
    """With twistd, whichever way; and another one where somebody chooses it."""
    assert _in_process(_NAME, program).endswith("\nPollerReactor")
    chosen = _in_process(_NAME, "--reactor=epoll", program)
    assert chosen.endswith("\nEPollReactor")


def test_one_that_is_there_stays() -> None:
    """A process has one reactor."""
    code = "from twisted.internet import reactor\n" + _NAME
    assert _in_process(code, "kas").endswith("\nEPollReactor")
