"""
A client of the Kubernetes API: the ``kubernetes`` library with a kubeconfig from
kasctl.

Other programs that use this library can do each step of the demo in the same way.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Client", "KubernetesError", "errors", "preload"]

#: Timeout of a response, in seconds.
TIMEOUT = 15.0


class KubernetesError(Exception):
    """Raised if the API or kas refused a request; *status* is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def preload() -> None:
    """Import the library, which takes two seconds, while other programs start."""
    import kubernetes.client
    import kubernetes.config
    import kubernetes.stream
    import kubernetes.watch

    # The library imports each API when it is first used.
    _ = kubernetes.client.CoreV1Api


class Client:
    """
    Client of the cluster in the current context of a kubeconfig.

    :ivar core: the library's ``CoreV1Api``; call its methods within `errors`.
    """

    def __init__(self, kubeconfig: Path) -> None:
        from kubernetes import client, config

        configuration = client.Configuration()
        configuration.retries = False
        config.load_kube_config(
            str(kubeconfig),
            client_configuration=configuration,
            # The folder is for the CA certificate, which the library needs as a file.
            temp_file_path=str(kubeconfig.parent / "client"),
        )
        # Connections within this machine use no proxy.
        configuration.proxy = None
        self._api = client.ApiClient(configuration)
        self._api.user_agent = "kas-demo"
        # For a type checker, each field of the library's objects may be None.
        self.core: Any = client.CoreV1Api(self._api)
        self.server: str = configuration.host
        token = configuration.api_key["BearerToken"]
        self.token: str = token.removeprefix("Bearer ")

    def request(self, method: str, path: str, body: object = None) -> Any:
        """
        Send a request for which `core` has no method.

        :raises KubernetesError: the request was refused.
        """
        return json.loads(self._request(method, path, body, (TIMEOUT, TIMEOUT)))

    def status(self, path: str, timeout: float) -> int | None:
        """Return the status of a GET; None if no response arrived in time."""
        try:
            self._request("GET", path, None, (TIMEOUT, timeout))
        except KubernetesError as error:
            return error.status
        except TimeoutError:
            return None
        return 200

    def _request(
        self, method: str, path: str, body: object, timeout: tuple[float, float]
    ) -> bytes:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        with errors():
            request = self._api.param_serialize(
                method,
                path,
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            response = self._api.call_api(*request, _request_timeout=timeout)
            content: bytes = response.read()
        if response.status >= 300:
            raise _refusal(response.status, content)
        return content

    @contextmanager
    def stream(
        self, call: Callable[..., Any], *arguments: Any, timeout: float, **options: Any
    ) -> Iterator[Iterator[Any]]:
        """
        Open a continuous response: events of a watch, or lines of a log.

        :param call: a method of `core`, with ``watch`` or ``follow`` among its options.
        :param timeout: maximum number of seconds without any data.
        """
        from kubernetes.watch import Watch

        with errors():
            # The request is sent in this place, because the library's watch would send
            # it only when the first event is read.
            response = call(
                *arguments,
                _preload_content=False,
                _request_timeout=(TIMEOUT, timeout),
                **options,
            )
            try:
                if response.status >= 300:
                    raise _refusal(response.status, response.data)
                begun = functools.wraps(call)(lambda **_: response)
                # The timeout keeps the library from repeating the request when the
                # response ends.
                yield _items(Watch().stream(begun, timeout_seconds=int(timeout)))
            finally:
                response.close()

    @contextmanager
    def exec(self, name: str, namespace: str, **options: Any) -> Iterator[Any]:
        """Open the library's client for the channels of ``exec``."""
        from kubernetes.stream import stream

        with errors():
            opened = stream(
                self.core.connect_get_namespaced_pod_exec,
                name,
                namespace,
                _preload_content=False,
                **options,
            )
            try:
                yield opened
            finally:
                opened.close(timeout=1)

    def close(self) -> None:
        """Close the connections that are kept for reuse."""
        self._api.rest_client.pool_manager.clear()


def _items(found: Iterator[Any]) -> Iterator[Any]:
    with errors():
        yield from found


@contextmanager
def errors() -> Iterator[None]:
    """
    Convert exceptions of the library.

    :raises KubernetesError: the request was refused.
    :raises TimeoutError: no response arrived in time.
    :raises ConnectionError: the connection failed.
    """
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import ConnectTimeoutError, HTTPError, ReadTimeoutError
    from websocket import WebSocketBadStatusException, WebSocketException

    try:
        yield
    except ApiException as error:
        # The library hides the reason of a failed WebSocket in the context.
        cause = error.__context__
        if isinstance(cause, WebSocketBadStatusException):
            raise _refusal(cause.status_code, cause.resp_body) from None
        if not error.status:
            raise KubernetesError(0, f"no WebSocket: {error.reason}") from None
        raise _refusal(error.status, error.body) from None
    except (HTTPError, WebSocketException) as error:
        # Not isinstance: the library's error of a refused connection is a subclass of
        # ConnectTimeoutError.
        if type(error) in (ConnectTimeoutError, ReadTimeoutError):
            raise TimeoutError("no answer in time") from None
        raise ConnectionError(str(error) or type(error).__name__) from None


def _refusal(status: int, content: str | bytes | None) -> KubernetesError:
    data = content.encode() if isinstance(content, str) else content or b""
    try:
        message = str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        message = data[:200].decode(errors="replace") or "no reason given"
    return KubernetesError(status, f"{status}: {' '.join(message.split())}")
