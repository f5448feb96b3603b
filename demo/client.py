"""
A client of the Kubernetes API: the ``kubernetes`` library, by a kubeconfig of kasctl.

So each step of the demo is one that other programs with this library may take, too.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Client", "KubernetesError", "errors", "preload"]

#: Seconds without any answer.
TIMEOUT = 15.0


class KubernetesError(Exception):
    """The API, or kas, refused something; *status* is the one of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def preload() -> None:
    """Import the library: that takes two seconds, in which other programs start."""
    import kubernetes.client
    import kubernetes.config
    import kubernetes.stream
    import kubernetes.watch

    # It imports each API when it is named first.
    _ = kubernetes.client.CoreV1Api


class Client:
    """
    Speaks to the cluster of the current context of a kubeconfig.

    :ivar core: the library's ``CoreV1Api``; its calls belong into `errors`.
    """

    def __init__(self, kubeconfig: Path) -> None:
        from kubernetes import client, config

        configuration = client.Configuration()
        configuration.retries = False
        config.load_kube_config(
            str(kubeconfig),
            client_configuration=configuration,
            # With the certificate of the authority, which the library needs as a file.
            temp_file_path=str(kubeconfig.parent / "client"),
        )
        # Nothing on this machine is reached through a proxy.
        configuration.proxy = None
        self._api = client.ApiClient(configuration)
        self._api.user_agent = "kas-demo"
        # To a type checker, each field of each of its objects may be None.
        self.core: Any = client.CoreV1Api(self._api)
        self.server: str = configuration.host
        token = configuration.api_key["BearerToken"]
        self.token: str = token.removeprefix("Bearer ")

    def request(self, method: str, path: str, body: object = None) -> Any:
        """
        One request for which `core` has no call.

        :raises KubernetesError: when it is refused.
        """
        return json.loads(self._request(method, path, body, (TIMEOUT, TIMEOUT)))

    def status(self, path: str, timeout: float) -> int | None:
        """The status of a GET, or None when there is no answer yet."""
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
        An answer that goes on: events of a watch, or lines of a log.

        :param call: one of `core`, with ``watch`` or ``follow`` among its options.
        :param timeout: seconds without any answer.
        """
        from kubernetes.watch import Watch

        with errors():
            # The library's watch would begin with the first event that is awaited.
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
                # It asks no second time with a limit of its own.
                yield _items(Watch().stream(begun, timeout_seconds=int(timeout)))
            finally:
                response.close()

    @contextmanager
    def exec(self, name: str, namespace: str, **options: Any) -> Iterator[Any]:
        """The library's client for the channels of ``exec``."""
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
        """Close the connections that are kept."""
        self._api.rest_client.pool_manager.clear()


def _items(found: Iterator[Any]) -> Iterator[Any]:
    with errors():
        yield from found


@contextmanager
def errors() -> Iterator[None]:
    """
    Exceptions of the library become ours.

    :raises KubernetesError: the request was refused.
    :raises TimeoutError: no answer.
    :raises ConnectionError: the connection failed.
    """
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import ConnectTimeoutError, HTTPError, ReadTimeoutError
    from websocket import WebSocketBadStatusException, WebSocketException

    try:
        yield
    except ApiException as error:
        # The library has hidden why there is no WebSocket.
        cause = error.__context__
        if isinstance(cause, WebSocketBadStatusException):
            raise _refusal(cause.status_code, cause.resp_body) from None
        if not error.status:
            raise KubernetesError(0, f"no WebSocket: {error.reason}") from None
        raise _refusal(error.status, error.body) from None
    except (HTTPError, WebSocketException) as error:
        # A connection that is refused is one of the first, to the library.
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
