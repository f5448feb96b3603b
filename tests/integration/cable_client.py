"""A client of ActionCable, which sends its token in a subprotocol."""

from __future__ import annotations

import base64
import json
import ssl
from contextlib import ExitStack, suppress
from pathlib import Path
from socket import SHUT_RDWR
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.integration.processes import PATIENCE


class CableSocket:
    """
    One connection.

    :param authority: the CA of kas.
    """

    def __init__(self, port: int, authority: Path, token: str) -> None:
        encoded = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
        self._end = ExitStack()
        opening = connect(
            f"wss://localhost:{port}/-/cable",
            ssl=ssl.create_default_context(cafile=authority),
            proxy=None,
            subprotocols=[
                Subprotocol("actioncable-v1-json"),
                Subprotocol("actioncable-unsupported"),
                Subprotocol(f"base64url.bearer.authorization.k8s.io.{encoded}"),
            ],
        )
        self._socket: ClientConnection = self._end.enter_context(opening)

    def subscribe(self, channel: str, **params: Any) -> str:
        """Subscribe, and return the identifier."""
        identifier = json.dumps({"channel": channel, **params})
        self.command("subscribe", identifier)
        return identifier

    def command(self, name: str, identifier: str) -> None:
        """Send a command about a subscription."""
        self._socket.send(json.dumps({"command": name, "identifier": identifier}))

    def next(self, seconds: float = PATIENCE) -> dict[str, Any]:
        """Return the next message that is not a ping."""
        while True:
            message: dict[str, Any] = json.loads(self._socket.recv(seconds))
            if message.get("type") != "ping":
                return message

    def rows(self, seconds: float = PATIENCE) -> dict[str, Any]:
        """Return the next message of a channel."""
        while True:
            message = self.next(seconds)
            if "message" in message:
                found: dict[str, Any] = message["message"]
                return found
            assert message["type"] in ("welcome", "confirm_subscription"), message

    def skip(self) -> None:
        """Read and drop messages until the connection ends."""
        with suppress(ConnectionClosed):
            while True:
                self._socket.recv()

    def abort(self) -> None:
        """Cut the connection, also while another thread sends."""
        self._socket.socket.shutdown(SHUT_RDWR)

    def close(self) -> None:
        """End the connection."""
        self._end.close()
