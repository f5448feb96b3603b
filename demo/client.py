"""A client of the Kubernetes API, by a kubeconfig that kasctl wrote."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

__all__ = ["Client", "KubernetesError"]

#: Seconds without any answer.
TIMEOUT = 15.0

_CHANNELS = [Subprotocol("v5.channel.k8s.io"), Subprotocol("v4.channel.k8s.io")]


class KubernetesError(Exception):
    """The API, or kas, refused something; *status* is the one of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """Speaks to the cluster of the current context of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        content = yaml.safe_load(kubeconfig.read_text())
        cluster = content["clusters"][0]["cluster"]
        self.server: str = cluster["server"]
        # which agent is meant
        self._base = urlsplit(self.server).path
        self.token: str = content["users"][0]["user"]["token"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._context = ssl.create_default_context(cadata=authority)
        self._kept: http.client.HTTPSConnection | None = None

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        parts = urlsplit(self.server)
        assert parts.hostname is not None
        return http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=timeout, context=self._context
        )

    def _headers(self) -> dict[str, str]:
        return self._authorization() | {"Accept": "application/json"}

    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "User-Agent": "kas-demo"}

    def request(self, method: str, path: str, body: object = None) -> Any:
        """
        One request, on the connection that is kept for all of them.

        :raises KubernetesError: when it is refused.
        """
        data, headers = None, self._headers()
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        if self._kept is None:
            self._kept = self._connect(TIMEOUT)
        try:
            self._kept.request(method, self._base + path, data, headers)
            response = self._kept.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        if response.status >= 300:
            raise _error(response.status, content)
        return json.loads(content)

    def status(self, path: str, timeout: float) -> int | None:
        """The status of a GET, or None when there is no answer yet."""
        connection = self._connect(timeout)
        try:
            connection.request("GET", self._base + path, headers=self._headers())
            return connection.getresponse().status
        except TimeoutError:
            return None
        finally:
            connection.close()

    @contextmanager
    def stream(self, path: str, timeout: float = TIMEOUT) -> Iterator[Any]:
        """An answer that goes on, to be read line by line."""
        connection = self._connect(timeout)
        try:
            connection.request("GET", self._base + path, headers=self._headers())
            response = connection.getresponse()
            if response.status >= 300:
                raise _error(response.status, response.read())
            yield response
        finally:
            connection.close()

    @contextmanager
    def channels(self, path: str) -> Iterator[ClientConnection]:
        """A WebSocket as for ``exec``."""
        try:
            opened = connect(
                "wss" + self.server.removeprefix("https") + path,
                ssl=self._context,
                additional_headers=self._authorization(),
                subprotocols=_CHANNELS,
                compression=None,
                proxy=None,
                open_timeout=TIMEOUT,
                close_timeout=1,
            )
        except InvalidStatus as error:
            raise _error(error.response.status_code, error.response.body) from None
        except InvalidHandshake as error:
            raise KubernetesError(0, f"no WebSocket: {error}") from None
        with opened:
            yield opened

    def close(self) -> None:
        """Close the connection that is kept."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _error(status: int, content: bytes | bytearray | None) -> KubernetesError:
    try:
        message = str(json.loads(content or b"")["message"])
    except (ValueError, KeyError, TypeError):
        message = (content or b"")[:200].decode(errors="replace") or "no reason given"
    return KubernetesError(status, f"{status}: {' '.join(message.split())}")
