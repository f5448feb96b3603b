"""Options of the socket under a tunnel."""

from __future__ import annotations

import socket

from twisted.internet.testing import StringTransport

from tunnel.transport.sockets import (
    RECEIVED,
    UNSENT,
    bound_received,
    bound_unsent,
    tune_socket,
)


class Transport:
    """A transport of this socket."""

    def __init__(self, handle: socket.socket) -> None:
        self._handle = handle

    def getHandle(self) -> socket.socket:
        return self._handle


def test_what_does_not_leave_is_bounded_in_time() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as connection,
    ):
        assert tune_socket(Transport(connection), 28.0)
        option = connection.getsockopt
        assert option(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 28_000
        assert option(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert option(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


def test_buffers_of_http_are_bounded() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as connection,
    ):
        bound_unsent(Transport(connection))
        assert connection.getsockopt(socket.IPPROTO_TCP, 25) == UNSENT
        bound_received(Transport(connection))
        # The kernel doubles it for its own books, within what the machine allows.
        size = connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        assert size <= 2 * RECEIVED


def test_where_there_is_no_tcp_nothing_happens() -> None:
    assert not tune_socket(StringTransport(), 28.0)
    first, second = socket.socketpair()
    with first, second:
        assert not tune_socket(Transport(first), 28.0)
