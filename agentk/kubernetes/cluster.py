"""
Access to the Kubernetes API server of agentk's cluster, with credentials that stay
valid.

This file does not use HTTP; modules do, with the endpoint and credentials from
`ClusterAccess`.
"""

from __future__ import annotations

import base64
import os
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from agentk.kubernetes.exec_credential import ExecCredential, PluginFailed, run_plugin
from agentk.kubernetes.kubeconfig import SERVICE_ACCOUNT, Target, find_target
from tunnel.api import ICluster
from tunnel.errors import ConfigurationError
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.files import WatchedFile, file_version, read_secret_file
from tunnel.transport.tls import ALPN_HTTP, client_context, identity_files
from tunnel.transport.tlsio import TLSClientEndpoint

__all__ = ["ClusterAccess", "find_cluster"]

# Seconds between two checks of a token file; the kubelet replaces it minutes before its
# expiry.
CHECK_INTERVAL = 10.0
# Maximum number of seconds to connect: an API server on the same network responds at
# once or not at all.
CONNECT_TIMEOUT = 10.0
# Fraction of a credential's lifetime that is left when its plugin runs again, and the
# minimum number of seconds since the last run, because some plugins print tokens that
# have nearly expired.
REFRESH_LEFT = 0.2
MIN_REFRESH = 10.0
# Seconds before another run after a failure: doubled from the first to the last value.
RETRY_FIRST = 5.0
RETRY_LAST = 300.0
# Maximum number of bytes of a token: most tokens have less than 4 KiB, the tokens of
# some clouds twice that.
MAX_TOKEN = 64 * 1024

_T = TypeVar("_T")

_TOKEN = re.compile(rb"[\x21-\x7e]+")


def find_cluster(
    reactor: Any,
    now: Callable[[], float],
    kubeconfig: str | None,
    context: str | None,
    environ: Mapping[str, str],
    *,
    service_account: Path = SERVICE_ACCOUNT,
) -> ClusterAccess:
    """
    Return access to the cluster that the options and the environment name; see
    `find_target`.

    :param now: returns the time of day in seconds since 1970, for expiry.
    """
    target = find_target(kubeconfig, context, environ, service_account=service_account)
    return ClusterAccess(target, reactor, now, environ)


@implementer(ICluster)
class ClusterAccess:
    """
    Access to the API server that a `Target` describes.

    :raises ConfigurationError: if a certificate, key or token in the target is invalid.
    """

    _log = Logger()

    def __init__(
        self,
        target: Target,
        reactor: Any,
        now: Callable[[], float],
        environ: Mapping[str, str],
    ) -> None:
        self.target = target
        self.host = target.host
        self.port = target.port
        self.path_prefix = target.path_prefix
        self.host_header = target.authority.encode("ascii", "backslashreplace")
        self._reactor = reactor
        self._static = _static_authorization(target)
        # The token of a service account is read again whenever its file changes.
        self._token_file = (
            None
            if target.token_file is None
            else self._watched(
                partial(file_version, target.token_file),
                partial(_read_token, target.token_file),
                "{problem}; the previous token stays in use",
                CHECK_INTERVAL,
            )
        )
        self._plugin = (
            _Plugin(target, reactor, now, environ) if self._needs_plugin() else None
        )
        self._context: WatchedFile[ssl.SSLContext] | None = None
        if target.tls and self._plugin is None:
            self.tls_context()

    def _needs_plugin(self) -> bool:
        # As in client-go, a token in the file takes precedence over the plugin
        target = self.target
        written = target.token or target.token_file or target.username
        return target.plugin is not None and not written

    async def start(self) -> None:
        """
        Get the first credential, and keep it valid from now on.

        :raises ConfigurationError: a plugin did not provide a credential.
        """
        if self._plugin is not None:
            await self._plugin.start()
            self.tls_context()

    def stop(self) -> None:
        """Stop renewing the credential."""
        if self._plugin is not None:
            self._plugin.stop()

    def authorization(self) -> bytes | None:
        if self._token_file is not None:
            return self._token_file.get()
        if self._plugin is not None and (token := self._plugin.credential.token):
            return b"Bearer " + token.encode("ascii")
        return self._static

    def rejected(self) -> None:
        """Look for a newer credential; called when the API server responds with 401."""
        if self._token_file is not None:
            self._token_file.look_soon()
        if self._plugin is not None:
            self._plugin.refresh_soon()

    def tls_server_name(self) -> str:
        return self.target.tls_server_name or self.host

    def tls_context(self) -> ssl.SSLContext | None:
        """
        See `ICluster`.

        The context is created again after a file or a plugin's certificate has changed.
        """
        if not self.target.tls:
            return None
        if self._context is None:
            self._context = self._watched(
                self._tls_version,
                self._make_context,
                # The new files may be incomplete, and the old certificates may still be
                # valid.
                "the new certificates for the API server are invalid: {problem}",
                0.0,
            )
        return self._context.get()

    def _watched(
        self,
        version: Callable[[], object],
        read: Callable[[], _T],
        complaint: str,
        interval: float,
    ) -> WatchedFile[_T]:
        return WatchedFile(
            version,
            read,
            lambda error: self._log.error(complaint, problem=str(error)),
            unusable=ConfigurationError,
            seconds=self._reactor.seconds,
            interval=interval,
        )

    def endpoint(self) -> IStreamClientEndpoint:
        """
        Return an endpoint for connections to the API server, with TLS if the target
        uses it.
        """
        endpoint = HostnameEndpoint(
            self._reactor, self.host, self.port, timeout=CONNECT_TIMEOUT
        )
        if not self.target.tls:
            return endpoint
        return TLSClientEndpoint(
            endpoint, self._required_context, self.tls_server_name(), self._reactor
        )

    def _required_context(self) -> ssl.SSLContext:
        context = self.tls_context()
        assert context is not None
        return context

    def _tls_version(self) -> object:
        target = self.target
        files = (target.ca_file, target.cert_file, target.key_file)
        versions = tuple(file_version(file) for file in files if file is not None)
        credential = self._plugin.credential if self._plugin is not None else None
        return versions, None if credential is None else credential.certificate

    def _make_context(self) -> ssl.SSLContext:
        target = self.target
        plugin = self._plugin.credential if self._plugin is not None else None
        certificate, key = target.cert_data, target.key_data
        if plugin is not None and plugin.certificate is not None:
            certificate, key = plugin.certificate, plugin.key
        own_authority = target.ca_file is not None or target.ca_data is not None
        with (
            _as_path(certificate, target.cert_file) as cert_path,
            _as_path(key, target.key_file) as key_path,
        ):
            try:
                return client_context(
                    None if target.ca_file is None else str(target.ca_file),
                    target.ca_data,
                    insecure=target.insecure,
                    identity=identity_files(cert_path, key_path),
                    alpn=(ALPN_HTTP,),
                    # The API server determines the version of TLS, so 1.2 is permitted.
                    minimum_version=ssl.TLSVersion.TLSv1_2,
                    system_pool=not own_authority,
                )
            except ConfigurationError as error:
                problems = [f"{target.origin}: {text}" for text in error.problems]
                raise ConfigurationError(problems) from None


def _static_authorization(target: Target) -> bytes | None:
    if target.token:
        return b"Bearer " + target.token.encode("ascii")
    if target.username:
        pair = f"{target.username}:{target.password}".encode()
        return b"Basic " + base64.b64encode(pair)
    return None


@contextmanager
def _as_path(data: bytes | None, file: Path | None) -> Iterator[str | None]:
    """
    Provide a key as the path of a file, because OpenSSL reads keys only from files.

    The key is never written to a disk.
    """
    if data is None:
        yield None if file is None else str(file)
        return
    descriptor = os.memfd_create("credential", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _read_token(path: Path) -> bytes:
    """Return the field value for the bearer token in a file."""
    try:
        token = read_secret_file(path, MAX_TOKEN).strip()
    except ValueError as error:
        raise ConfigurationError([str(error)]) from None
    if not _TOKEN.fullmatch(token):
        message = f"{path} must contain only a token"
        raise ConfigurationError([message])
    return b"Bearer " + token


class _Plugin:
    """Runner of a plugin, which runs it again before its credential expires."""

    _log = Logger()

    def __init__(
        self,
        target: Target,
        reactor: Any,
        now: Callable[[], float],
        environ: Mapping[str, str],
    ) -> None:
        self._target = target
        self._reactor = reactor
        self._now = now
        self._environ = environ
        self.credential = ExecCredential()
        self._ran_at = 0.0
        # The backoff has no jitter, because one agentk runs one program on its own
        # machine.
        self._backoff = Backoff(lambda: 1.0, RETRY_FIRST, RETRY_LAST)
        self._timer: Any = None
        self._refreshing: Deferred[None] | None = None

    async def start(self) -> None:
        await self._run()
        self._plan(self._next())

    def stop(self) -> None:
        self._plan(None)
        if self._refreshing is not None:
            self._refreshing.cancel()

    def refresh_soon(self) -> None:
        """
        Run the plugin again as soon as permitted, unless it is running, or will run
        before that.
        """
        soon = max(0.0, self._ran_at + MIN_REFRESH - self._reactor.seconds())
        if self._refreshing is None:
            planned = self._timer.getTime() if self._timer is not None else None
            if planned is None or planned > self._reactor.seconds() + soon:
                self._plan(soon)

    async def _run(self) -> None:
        self._ran_at = self._reactor.seconds()
        self.credential = await run_plugin(self._reactor, self._target, self._environ)

    def _next(self) -> float | None:
        expires_at = self.credential.expires_at
        if expires_at is None:
            return None
        left = expires_at - self._now()
        return max(MIN_REFRESH, left * (1 - REFRESH_LEFT))

    def _plan(self, delay: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if delay is not None:
            self._timer = self._reactor.callLater(delay, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._refreshing = Deferred.fromCoroutine(self._refresh())
        self._refreshing.addErrback(self._stopped)

    def _stopped(self, failure: Failure) -> None:
        self._refreshing = None
        if not failure.check(CancelledError):
            self._log.failure("running the credential plugin failed", failure)

    async def _refresh(self) -> None:
        delay: float | None
        try:
            await self._run()
        except PluginFailed as error:
            delay = self._backoff.failed()
            self._log.error(
                "{problem}; trying again in {delay} s", problem=str(error), delay=delay
            )
        else:
            self._backoff.reset()
            delay = self._next()
        self._refreshing = None
        self._plan(delay)
