"""The reactor of both programs: it does what Twisted's does, and who gets it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from twisted.internet import error
from twisted.internet.abstract import FileDescriptor
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import Factory, Protocol

from tunnel.util.poller import PolledSocket, Poller

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
    # One that crashed leaves its threads.
    if reactor.threadpool is not None:
        reactor.threadpool.stop()
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


class _Player(Protocol):
    """One of two that pass a byte to each other, for ever."""

    def __init__(self, reactor: Any, act: Callable[[], object]) -> None:
        self._reactor, self._act = reactor, act

    def connectionMade(self) -> None:
        Poller.take(self.transport, self._reactor)

    def dataReceived(self, data: bytes) -> None:
        self._act()
        assert self.transport is not None
        self.transport.write(data)


def _play(reactor: Any, act: Callable[[], object]) -> None:
    """Until *reactor* stops, with *act* for each byte that comes."""
    made = Factory.forProtocol(partial(_Player, reactor, act))
    here, there = socket.socketpair()
    here.send(b"x")
    for one in (here, there):
        one.setblocking(False)
        reactor.adoptStreamConnection(one.fileno(), socket.AF_UNIX, made)
        one.close()
    _run(reactor)


class _Late:
    """A timer that is moved to now."""

    def __init__(self, reactor: Any) -> None:
        self._timer = reactor.callLater(60, reactor.crash)

    def __call__(self) -> None:
        if self._timer.active():
            self._timer.reset(0)


@pytest.mark.parametrize(
    "act",
    [
        lambda reactor: reactor.crash,
        lambda reactor: partial(reactor.callLater, 0, reactor.crash),
        lambda reactor: partial(reactor.callFromThread, reactor.crash),
        lambda reactor: partial(
            reactor.callInThread, reactor.callFromThread, reactor.crash
        ),
        _Late,
    ],
    ids=["crash", "timer", "call", "thread", "timer that is moved"],
)
def test_what_sockets_ask_for_is_done_at_once(act: Any) -> None:
    """However busy they are, and long before the next timer."""
    reactor: Any = PollerReactor()
    _play(reactor, act(reactor))


def test_stopped_by_a_socket() -> None:
    """As above, with all that follows it."""
    reactor: Any = PollerReactor()
    ended: list[bool] = []
    reactor.addSystemEventTrigger("after", "shutdown", ended.append, True)

    def stop() -> None:
        if reactor.running and not ended:
            with contextlib.suppress(error.ReactorNotRunning):
                reactor.stop()

    _play(reactor, stop)
    assert ended == [True]


def test_timers_beside_sockets_that_never_rest() -> None:
    """They run at their time."""
    reactor: Any = PollerReactor()
    passed: list[float] = []
    began = reactor.seconds()
    for part in (1, 2, 3):
        reactor.callLater(part / 50, lambda: passed.append(reactor.seconds()))
    reactor.callLater(4 / 50, reactor.stop)
    _play(reactor, lambda: None)
    assert len(passed) == 3 and passed[0] >= began + 1 / 50


@pytest.mark.parametrize("act", ["timer", "stop"])
def test_iterate_in_a_callback(act: str) -> None:
    """What it found or left to do is seen by the turn around it."""
    reactor: Any = PollerReactor()
    acted: list[float] = []

    def once() -> None:
        if acted:
            return
        acted.append(reactor.seconds())
        if act == "timer":
            reactor.callLater(0.01, reactor.crash)
        else:
            reactor.stop()
        reactor.iterate()

    _play(reactor, once)


def test_iterate_ends_with_the_first_event() -> None:
    """And not when the time is over."""
    reactor: Any = PollerReactor()
    here, there = socket.socketpair()
    read: Any = FileDescriptor(reactor)
    # As `Poller.take` gives it to transports.
    read.polled = PolledSocket()
    got: list[bytes] = []
    read.fileno = here.fileno
    read.doRead = lambda: got.append(here.recv(9))
    poller = Poller.of(reactor)
    assert poller is not None
    for one in (reactor, poller):
        one.addReader(read)
        there.send(b"x")
        reactor.iterate(30)
        one.removeReader(read)
    assert got == [b"x", b"x"]
    here.close()
    there.close()


def test_says_what_it_polls() -> None:
    """Trial, for one, looks for what a test has left in it."""
    reactor: Any = PollerReactor()
    poller = Poller.of(reactor)
    assert poller is not None
    assert reactor.removeAll() == []
    pairs = [socket.socketpair() for _ in range(2)]
    ones = [FileDescriptor(reactor) for _ in pairs]
    for one, (here, _) in zip(ones, pairs, strict=True):
        one.fileno = here.fileno  # type: ignore[method-assign]
        poller.addReader(one)
    poller.addWriter(ones[1])
    assert set(ones) <= {*reactor.getReaders()} and reactor.getWriters() == [ones[1]]
    assert reactor.removeAll() == ones
    assert not {*reactor.getReaders()} & {*ones} and reactor.getWriters() == []
    for pair in pairs:
        for each in pair:
            each.close()


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
