"""
Credentials that a program prints: the ``exec`` plugins of a kubeconfig.

One run is one process with a timeout, started by the reactor, so that nothing blocks.
`agentk.kubernetes.cluster` decides when to run it again.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone
from twisted.internet.interfaces import IProcessTransport
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from agentk.kubernetes.kubeconfig import ExecPlugin, Target
from tunnel.errors import ConfigurationError
from tunnel.toolkit.timers import cancel_call

__all__ = ["ExecCredential", "run_plugin"]

# Maximum number of seconds of a run: plugins call a cloud's API, and a plugin that
# takes longer hangs.
TIMEOUT = 60.0
# Maximum number of bytes of output: two certificates and a token have 20 KiB, and
# larger output is not a credential.
MAX_OUTPUT = 1024 * 1024
# Number of characters of error output that are shown, from its end, because the end
# contains the reason.
MAX_COMPLAINT = 1000

_TOKEN = re.compile(r"[\x21-\x7e]+")


@attrs.frozen
class ExecCredential:
    """The output of a plugin."""

    token: str = attrs.field(default="", repr=False)
    certificate: bytes | None = None
    key: bytes | None = attrs.field(default=None, repr=False)
    #: Time of expiry in seconds since 1970; None if the credential is valid until the
    #: API server refuses it.
    expires_at: float | None = None


class PluginFailed(ConfigurationError):
    """
    Raised if the plugin did not provide a credential; contains the plugin's message.
    """


async def run_plugin(
    reactor: Any, target: Target, environ: Mapping[str, str]
) -> ExecCredential:
    """
    Run the plugin of *target* once.

    :raises PluginFailed: if the plugin does not provide a credential; the error
        contains the reason and the ``installHint`` of the kubeconfig.
    """
    plugin = target.plugin
    assert plugin is not None
    environment = {**environ, **{v.name: v.value for v in plugin.env}}
    environment["KUBERNETES_EXEC_INFO"] = json.dumps(_info(target, plugin))
    run = _Run()
    try:
        program = _program(target, plugin, environment.get("PATH", ""))
        run.begin(reactor, program, plugin.args, environment)
        return _parse(await run.done, plugin.api_version)
    except (ValueError, OSError) as error:
        hint = f"; {plugin.install_hint.strip()}" if plugin.install_hint else ""
        message = f"{target.origin}: the credential plugin {plugin.command}: "
        raise PluginFailed([f"{message}{error}{hint}"]) from None


def _program(target: Target, plugin: ExecPlugin, path: str) -> str:
    command = plugin.command
    if "/" in command:
        # As in kubectl, the path is relative to the folder of the kubeconfig, not to
        # the working directory.
        command = os.path.join(target.plugin_folder or "", command)
    found = shutil.which(command, path=path or os.defpath)
    if found is None:
        raise ValueError("is not installed, or not on the PATH of agentk")
    return found


def _info(target: Target, plugin: ExecPlugin) -> dict[str, Any]:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.provide_cluster_info:
        cluster: dict[str, Any] = {"server": target.url}
        if target.tls_server_name:
            cluster["tls-server-name"] = target.tls_server_name
        if target.insecure:
            cluster["insecure-skip-tls-verify"] = True
        authority = target.ca_data
        if authority is None and target.ca_file is not None:
            authority = target.ca_file.read_bytes()
        if authority is not None:
            encoded = base64.b64encode(authority).decode()
            cluster["certificate-authority-data"] = encoded
        spec["cluster"] = cluster
    return {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}


def _parse(output: bytes, api_version: str) -> ExecCredential:
    try:
        printed = json.loads(output)
    except (ValueError, RecursionError):
        raise ValueError("did not print JSON") from None
    if not isinstance(printed, dict) or printed.get("kind") != "ExecCredential":
        raise ValueError("did not print an ExecCredential")
    if printed.get("apiVersion") != api_version:
        raise ValueError(f"printed another apiVersion than {api_version}")
    status = printed.get("status")
    if not isinstance(status, dict):
        raise ValueError("did not print a status")
    values = {
        name: status.get(name) or ""
        for name in ("token", "clientCertificateData", "clientKeyData")
    }
    if not all(isinstance(value, str) for value in values.values()):
        raise ValueError("printed a status of the wrong types")
    token = values["token"]
    certificate, key = values["clientCertificateData"], values["clientKeyData"]
    if not token and not certificate:
        raise ValueError("printed neither token nor clientCertificateData")
    if token and not _TOKEN.fullmatch(token):
        raise ValueError("printed a token with spaces or special characters")
    if bool(certificate) != bool(key):
        raise ValueError("printed only one of clientCertificateData, clientKeyData")
    return ExecCredential(
        token=token,
        certificate=certificate.encode() or None,
        key=key.encode() or None,
        expires_at=_expiry(status.get("expirationTimestamp")),
    )


def _expiry(text: object) -> float | None:
    if not text:
        return None
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        raise ValueError("printed an expirationTimestamp that is not a time") from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


class _Run(ProcessProtocol):
    """
    One run of a plugin, which collects the output, and kills the process after a
    timeout.
    """

    transport: IProcessTransport

    def __init__(self) -> None:
        self.done: Deferred[bytes] = Deferred(lambda _: self._kill())
        self._output = bytearray()
        self._complaint = bytearray()
        self._timer: Any = None

    def begin(
        self,
        reactor: Any,
        program: str,
        arguments: tuple[str, ...],
        environment: Mapping[str, str],
    ) -> None:
        self._timer = reactor.callLater(TIMEOUT, self._too_long)
        # A plugin that reads its input gets the end of file, not our terminal.
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            reactor.spawnProcess(
                self,
                program,
                [program, *arguments],
                dict(environment),
                childFDs={0: nothing, 1: "r", 2: "r"},
            )
        except BaseException:
            self._timer.cancel()
            raise
        finally:
            os.close(nothing)

    def outReceived(self, data: bytes) -> None:
        self._output += data
        if len(self._output) > MAX_OUTPUT:
            self._end(f"printed more than {MAX_OUTPUT // 1024} KiB")

    def errReceived(self, data: bytes) -> None:
        self._complaint += data
        del self._complaint[:-MAX_COMPLAINT]

    def processEnded(self, reason: Failure) -> None:
        cancel_call(self._timer)
        if self.done.called:
            return
        if reason.check(ProcessDone):
            self.done.callback(bytes(self._output))
        else:
            text = self._complaint.decode("utf-8", "replace").strip()
            ended = reason.getErrorMessage()
            self.done.errback(ValueError(f"failed: {text or ended}"))

    def _too_long(self) -> None:
        self._end(f"took longer than {TIMEOUT:.0f} s")

    def _end(self, why: str) -> None:
        self._kill()
        if not self.done.called:
            self.done.errback(ValueError(why))

    def _kill(self) -> None:
        cancel_call(self._timer)
        self._output.clear()
        try:
            self.transport.signalProcess("KILL")
        except Exception:  # noqa: S110 - it ended at the same moment
            pass
        # Children of the plugin may keep the pipes open forever.
        self.transport.loseConnection()
