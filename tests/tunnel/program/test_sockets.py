"""Sockets that listen, and the paths of those that are files."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import endpoints
from twisted.internet import reactor as _reactor
from twisted.internet.endpoints import quoteStringArgument
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory, Protocol
from twisted.python.systemd import ListenFDs

from tunnel.config import Listen
from tunnel.errors import ConfigurationError
from tunnel.program.listening import Listening
from tunnel.program.sockets import ListeningSocket, is_unix, open_socket

reactor: Any = _reactor


def _connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


async def _opened(path: Path, more: str = "") -> ListeningSocket:
    return await open_socket(f"unix:{quoteStringArgument(str(path))}{more}")


async def _listen(listening: Listening, path: Path) -> Any:
    return await listening.listen(
        Listen(network="unix", address=str(path)),
        Factory.forProtocol(Protocol),
        what="pages",
        setting="web.listen.address",
    )


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("unix:/run/kas.sock:mode=660", True),
        ("systemd:domain=UNIX:name=x", True),
        ("systemd:name=x:domain=UNIX", True),
        ("systemd:domain=INET:name=x", False),
        ("tcp:8150", False),
    ],
)
def test_is_unix(endpoint: str, expected: bool) -> None:
    assert is_unix(endpoint) is expected


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_tcp_is_closed_for_others_by_themselves(host: str) -> None:
    """A copy goes on to accept, and nobody else may have the port meanwhile."""
    kind = "tcp6" if ":" in host else "tcp"
    where = f"{kind}:0:interface={quoteStringArgument(host)}"
    opened = await open_socket(where)
    with socket.socket(fileno=os.dup(opened.fileno())) as copy:
        port = copy.getsockname()[1]
        opened.close()
        opened.remove_path()
        with socket.create_connection((host, port)):
            pass
        with pytest.raises(CannotListenError, match="in use"):
            await open_socket(where.replace(":0:", f":{port}:"))


@pytest_twisted.ensureDeferred
async def test_a_path_outlives_the_copy_here(tmp_path: Path) -> None:
    """Clients of others that share the socket need it, until it is removed."""
    path = tmp_path / "s"
    listening = Listening(reactor)
    number = await listening.reserve(Listen(network="unix", address=str(path)), "", "")
    with socket.socket(fileno=os.dup(number)):
        listening.let_go()
        assert _connects(path)
    assert not _connects(path)
    await listening.stop()
    assert not path.exists()
    await listening.stop()


@pytest_twisted.ensureDeferred
async def test_a_path_that_another_one_has(tmp_path: Path) -> None:
    """Nothing is taken from it, whatever the number of its file."""
    path = tmp_path / "s"
    one, two = Listening(reactor), Listening(reactor)
    await _listen(one, path)
    path.unlink()
    await _listen(two, path)
    await one.stop()
    assert _connects(path)
    path.unlink()
    await two.stop()


@pytest_twisted.ensureDeferred
async def test_a_path_in_use(tmp_path: Path) -> None:
    """One that listens keeps it, also where it takes no connections."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as other, socket.socket(socket.AF_UNIX) as full:
        other.bind(str(path))
        other.listen(0)
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="s is in use"):
                await _listen(Listening(reactor), path)
            full.setblocking(False)
            full.connect_ex(str(path))
        assert path.exists()


@pytest_twisted.ensureDeferred
async def test_what_a_crash_left(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    opened = await _opened(path, ":mode=600")
    assert path.stat().st_mode & 0o777 == 0o600
    assert _connects(path)
    opened.close()
    opened.remove_path()


@pytest_twisted.ensureDeferred
async def test_a_name_without_a_file() -> None:
    name = f"\0txkas-{os.getpid()}"
    opened = await open_socket(f"unix:{name}")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(name)
    opened.close()
    opened.remove_path()


@pytest_twisted.ensureDeferred
async def test_a_file_is_no_socket(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("x")
    with pytest.raises(CannotListenError, match="in use"):
        await _opened(path)
    assert path.read_text() == "x"


@pytest_twisted.ensureDeferred
async def test_what_systemd_opened_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the socket yet, and starts kas again when somebody connects."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as systemds:
        systemds.bind(str(path))
        systemds.listen()
        handed = os.dup(systemds.fileno())
        parser: Any = endpoints._SystemdParser
        monkeypatch.setattr(parser, "_sddaemon", ListenFDs([handed], ["x"]))
        listening = Listening(reactor)
        await listening.listen(
            Listen(endpoint="systemd:domain=UNIX:name=x"),
            Factory.forProtocol(Protocol),
            what="pages",
        )
        await listening.stop()
        assert _connects(path)
