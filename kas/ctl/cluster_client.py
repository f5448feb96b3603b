"""Client of the API server of a kubeconfig context, for `kasctl agent install`."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from kas.ctl.common import printable
from tunnel.config import nearest
from tunnel.errors import ConfigurationError, TunnelError

__all__ = ["ClusterClient", "ClusterError", "connect"]

#: Maximum seconds to connect, and maximum seconds for each response.
TIMEOUTS = (10.0, 30.0)

#: Field manager of the applied objects.
MANAGER = "kasctl"

_LIBRARY_PREFIX = "Invalid kube-config file. "


class ClusterError(TunnelError):
    """
    Error if the API server refused a request or did not respond.

    :ivar status: the HTTP status; 0 without a response.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ClusterClient:
    """
    Client that sends requests to one API server.

    :param dynamic: a ``kubernetes.dynamic.DynamicClient``.
    :param where: the context of the kubeconfig, for messages.
    """

    def __init__(self, dynamic: Any, where: str) -> None:
        self._dynamic = dynamic
        self.where = where

    def find(
        self, api_version: str, kind: str, name: str, namespace: str | None = None
    ) -> dict[str, Any] | None:
        """
        Return an object; None if the object does not exist.

        :raises ClusterError: if the API server refuses the request.
        """
        try:
            with self._errors(f"{kind} {name}"):
                resource = self._resource(api_version, kind)
                return _content(
                    resource.get(name=name, namespace=namespace, serializer=_plain)
                )
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    def select(
        self, api_version: str, kind: str, namespace: str, labels: str
    ) -> list[dict[str, Any]]:
        """
        Return the objects with these labels.

        :raises ClusterError: if the API server refuses the request.
        """
        with self._errors(kind):
            resource = self._resource(api_version, kind)
            found = resource.get(
                namespace=namespace, label_selector=labels, serializer=_plain
            )
            items: list[dict[str, Any]] = _content(found).get("items") or []
        return items

    def apply(
        self, body: Mapping[str, Any], *, force: bool = False, dry_run: bool = False
    ) -> str:
        """
        Apply an object with server-side apply and return ``created``, ``changed`` or
        ``unchanged``.

        :param force: whether to take over fields that belong to other field managers.
        :raises ClusterError: if the API server refuses the object.
        """
        metadata, kind = body["metadata"], body["kind"]
        name, namespace = metadata["name"], metadata.get("namespace")
        what = f"{kind} {name if namespace is None else f'{namespace}/{name}'}"
        before = None
        if not dry_run:
            before = self.find(body["apiVersion"], kind, name, namespace)
        with self._errors(what):
            found = self._resource(body["apiVersion"], kind).server_side_apply(
                body=dict(body),
                name=name,
                namespace=namespace,
                field_manager=MANAGER,
                force_conflicts=force or None,
                dry_run="All" if dry_run else None,
                serializer=_plain,
            )
            new = _content(found).get("metadata") or {}
        if before is None:
            return "created"
        same = before["metadata"].get("resourceVersion") == new.get("resourceVersion")
        return "unchanged" if same else "changed"

    def _resource(self, api_version: str, kind: str) -> Any:
        return self._dynamic.resources.get(api_version=api_version, kind=kind)

    def _errors(self, what: str) -> Any:
        return _errors(f"{self.where}: {what}")


def _plain(client: object, found: object) -> object:
    """Return the response unchanged, so that the library does not wrap it."""
    return found


def _content(found: object) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError("its response is not an object")
    return found


@contextmanager
def connect(
    kubeconfig: Path | None, context: str, environ: Mapping[str, str]
) -> Iterator[ClusterClient]:
    """
    Read a kubeconfig, ask the API server of *context* for its version, and yield a
    client.

    :param kubeconfig: None for ``$KUBECONFIG``, or the default file.
    :raises ConfigurationError: if the library is missing, or the context is wrong.
    :raises ClusterError: if the API server does not respond.
    """
    try:
        # Import the library here: only this command needs it, and the import takes half
        # a second.
        from kubernetes.client import ApiClient, Configuration
        from kubernetes.dynamic import DynamicClient
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            [
                f"{error.name} is not installed, and this command needs it: "
                "pip install 'txkas[server,kubeconfig]'"
            ]
        ) from None
    files = str(
        kubeconfig or environ.get("KUBECONFIG") or Path.home() / ".kube" / "config"
    )
    where = f"context {context!r} of {files}"

    class TimedClient(ApiClient):
        """Client whose every request has a timeout."""

        def call_api(self, *arguments: Any, **rest: Any) -> Any:
            rest["_request_timeout"] = rest.get("_request_timeout") or TIMEOUTS
            return super().call_api(*arguments, **rest)

    configuration = Configuration()
    # Disable the library's three retries of a connection, which would take four times
    # as long.
    configuration.retries = False
    _load(files, context, configuration)
    where = f"{where} ({configuration.host})"
    # Keep the discovery in a private folder: by default, the library keeps it in a file
    # that other users could write.
    with tempfile.TemporaryDirectory(prefix="kasctl-") as folder:
        with _errors(where):
            dynamic = DynamicClient(
                TimedClient(configuration), cache_file=os.path.join(folder, "discovery")
            )
        yield ClusterClient(dynamic, f"context {context!r}")


def _load(files: str, context: str, configuration: Any) -> None:
    """
    Set *configuration* for a context.

    :raises ConfigurationError: if the files, the context or its credentials are
        unusable.
    """
    from kubernetes.config import ConfigException, load_kube_config
    from kubernetes.config.kube_config import KubeConfigMerger

    try:
        merged = KubeConfigMerger(files).config
        if merged is None:
            raise ConfigurationError(
                [f"{files} does not exist; pass a kubeconfig with --kubeconfig FILE"]
            )
        known = [str(one["name"]) for one in merged.safe_get("contexts") or []]
        if context not in known:
            raise ConfigurationError(
                [f"{files} has no context {context!r}; {nearest(context, known)}"]
            )
        with _complaints() as complaints:
            load_kube_config(files, context, client_configuration=configuration)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark is not None else ""
        raise ConfigurationError([f"{files} is not YAML{line}"]) from None
    except (ConfigException, OSError, ValueError) as error:
        text = " ".join(str(error).split())
        if text.startswith(_LIBRARY_PREFIX):
            # Cut the rest of the message, which may quote a whole user, including the
            # token.
            text = text.removeprefix(_LIBRARY_PREFIX).partition(" in ")[0]
        raise ConfigurationError(
            [f"context {context!r} of {files}: {printable(text)}"]
        ) from None
    except (AttributeError, KeyError, TypeError):
        # The file may contain unexpected types, which the library does not check.
        raise ConfigurationError([f"{files} is not a kubeconfig"]) from None
    if complaints:
        # Check for errors of a plugin: if it provides no credential, the library
        # continues without one.
        text = printable(" ".join("; ".join(complaints).split()))
        raise ConfigurationError([f"context {context!r} of {files}: {text}"])


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """
    Collect the errors that the library logs instead of raising, and yield the list of
    them.
    """
    found: list[str] = []

    class Collector(logging.Handler):
        """Log handler that collects the messages of log records."""

        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    collector = Collector(logging.ERROR)
    root = logging.getLogger()
    root.addHandler(collector)
    try:
        yield found
    finally:
        root.removeHandler(collector)


@contextmanager
def _errors(what: str) -> Iterator[None]:
    """
    Convert exceptions of the library, because their texts contain headers, bodies and
    tracebacks.

    :raises ClusterError: if the library raised an exception; the text contains only the
        reason.
    """
    from kubernetes.client.exceptions import ApiException
    from kubernetes.dynamic.exceptions import ResourceNotFoundError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ApiException as error:
        message = printable(" ".join(_reason(error).split()))
        raise ClusterError(f"{what}: {message}", error.status or 0) from None
    except ResourceNotFoundError:
        raise ClusterError(f"{what}: the API server does not have its kind") from None
    except (HTTPError, OSError, ValueError) as error:
        text = printable(" ".join(str(error).split())).rpartition(": ")[2]
        raise ClusterError(
            f"{what}: the API server does not respond ({text or type(error).__name__})"
        ) from None


def _reason(error: Any) -> str:
    if not error.status:
        return f"the API server does not respond ({error.reason})"
    try:
        message = str(json.loads(error.body)["message"])
    except (KeyError, TypeError, ValueError):
        message = str(error.reason or "no reason given")
    advice = {
        401: "; check the credentials of this context",
        409: "; pass --force-conflicts to take these fields over",
    }
    return f"{message} ({error.status}){advice.get(error.status, '')}"
