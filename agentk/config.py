"""
agentk's options: flags and environment, under the names of GitLab's agentk.

agentk has few options, because kas makes most decisions; the only configuration file is
for the sections of agent modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

import attrs
from twisted.logger import Logger

from tunnel.config import (
    ExistingFile,
    Invalid,
    Listen,
    PartlyRead,
    Profile,
    Section,
    Sentry,
    Text,
    Tracing,
    authorities,
    field,
    is_positive,
    read_file,
    read_flags,
)
from tunnel.errors import ConfigurationError
from tunnel.hosting.modules import Prepared, load_modules
from tunnel.http1 import UpstreamLimits
from tunnel.plugin import AgentModule
from tunnel.transport.address import KasAddress, parse_kas_address

__all__ = [
    "AdmissionSettings",
    "AgentkConfiguration",
    "AgentkOptions",
    "KubernetesConfiguration",
    "ObservabilitySection",
    "PolicySettings",
    "ProbeListen",
    "TokenSource",
    "read_configuration",
    "read_options",
    "read_token",
]

#: The variable with the token, if no file can be mounted.
TOKEN_VARIABLE = "AGENTK_TOKEN"  # noqa: S105 - the name, not a token
# Maximum number of bytes of a token: kas refuses longer tokens, and a wrong path must
# not be read as a whole.
MAX_TOKEN = 4096

_TOKEN = re.compile(rb"[\x21-\x7e]+")
_HEADER_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\t\x20-\x7e]*[\x21-\x7e])?")


def _kas(instance: object, attribute: object, texts: tuple[str, ...]) -> None:
    for text in texts:
        try:
            parse_kas_address(text)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None


def _header(text: str) -> tuple[str, str]:
    name, colon, value = (part.strip() for part in text.partition(":"))
    if not (colon and _HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)):
        raise ValueError
    return name, value


_Header = Annotated[tuple[str, str], Text(_header, "'Name: value'")]


@attrs.frozen(kw_only=True)
class ProbeListen(Listen):
    """``--observability-listen-*``: probes and metrics."""

    # The listener uses every address, because the kubelet connects to the address of
    # the pod.
    address: str = field(default=":8080", doc="host:port for probes and metrics")


@attrs.frozen(kw_only=True)
class AgentkOptions:
    """Settings from the command line and the environment; see `read_options`."""

    #: Flags for settings that belong to a section, by the path of the setting.
    FLAGS: ClassVar[Mapping[str, str]] = {
        "observability.network": "observability-listen-network",
        "observability.address": "observability-listen-address",
        "observability.certificate_file": "observability-cert-file",
        "observability.key_file": "observability-key-file",
    }

    kas_address: tuple[str, ...] = field(
        validator=_kas, doc="the address of kas, such as tls://kas.example:8150"
    )
    ca_cert_file: ExistingFile | None = field(
        default=None,
        validator=authorities,
        doc="CAs that are trusted in addition to the system's",
    )
    # Headers are treated as secrets, because some contain tokens.
    kas_header: tuple[_Header, ...] = field(
        default=(), secret=True, doc="for WebSockets"
    )
    kas_insecure_skip_tls_verify: bool = field(
        default=False, doc="trust any server that responds as kas"
    )
    kas_tls_server_name: str = field(
        default="", doc="the name that kas' certificate must contain"
    )
    observability: ProbeListen = field(factory=ProbeListen, doc="probes and metrics")
    namespace: str = field(
        default="", doc="namespace of the pod; default: the one of the service account"
    )
    pod_name: str = field(default="", doc="name of the pod")

    @property
    def kas(self) -> tuple[KasAddress, ...]:
        """The addresses of kas; agentk is connected to only one of them at a time."""
        return tuple(map(parse_kas_address, self.kas_address))

    def __attrs_post_init__(self) -> None:
        if problems := list(self._without_effect()):
            raise ExceptionGroup("agentk", problems)

    def _without_effect(self) -> Iterator[Invalid]:
        # Without this error, operators would rely on a verification that does not
        # happen.
        kas = self.kas
        scheme = kas[0].scheme
        if self.kas_header and not any(one.is_websocket for one in kas):
            yield Invalid(
                f"{scheme}:// does not support headers; use wss://, or remove this key",
                "kas_header",
            )
        if not any(one.scheme in ("tls", "wss") for one in kas):
            for key in (
                "ca_cert_file",
                "kas_tls_server_name",
                "kas_insecure_skip_tls_verify",
            ):
                if getattr(self, key):
                    yield Invalid(
                        (
                            f"{scheme} does not use TLS; use tls:// or wss://, or "
                            "remove this key"
                        ),
                        key,
                    )


@attrs.frozen(kw_only=True)
class KubernetesConfiguration:
    """``kubernetes``: the connections to the API server, which all modules share."""

    max_connections: int = field(
        default=10_000, validator=is_positive, doc="maximum number of connections"
    )
    max_idle_connections: int = field(
        default=64,
        validator=is_positive,
        doc="connections that are kept between requests",
    )
    allow_own_namespace: bool = field(
        default=False,
        doc=(
            "let clients change agentk's own namespace, and read Secrets there, with "
            "agentk's own permissions: they can then obtain the agent's token and "
            "give orders"
        ),
    )

    def upstream_limits(self) -> UpstreamLimits:
        """Return the limits for `tunnel.http1.UpstreamPool`."""
        return UpstreamLimits(
            max_connections=self.max_connections, max_idle=self.max_idle_connections
        )


def _is_service_name(instance: object, attribute: object, value: str) -> None:
    if value and re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", value) is None:
        raise ValueError("must be the name of a Service, such as 'agentk'")


@attrs.frozen(kw_only=True)
class AdmissionSettings:
    """
    ``policy.admission``: a webhook that decides once more, inside the API server.
    """

    address: str = field(
        default=":8443", doc="host:port on which agentk listens for the API server"
    )
    service: str = field(
        default="",
        validator=_is_service_name,
        doc="the Service in agentk's own namespace that leads to this address",
    )
    url: str = field(
        default="",
        doc="https://HOST:PORT of this address, in place of a Service, for an agentk "
        "outside the cluster",
    )

    def __attrs_post_init__(self) -> None:
        if self.service and self.url:
            raise Invalid("excludes url; remove one of the two", "service")
        if not (self.service or self.url):
            raise Invalid("is missing; name a Service, or set url", "service")
        if self.url and not self.host:
            raise Invalid("must be https://HOST:PORT, without a path", "url")

    @property
    def host(self) -> str:
        """The host of `url`; empty if it is not usable."""
        found = urlsplit(self.url)
        plain = not (found.path.strip("/") or found.query or found.username)
        return found.hostname or "" if found.scheme == "https" and plain else ""


@attrs.frozen(kw_only=True)
class PolicySettings:
    """``policy``: which requests of kas the owner of the cluster permits."""

    file: Path | None = field(
        default=None, doc="the policy; default: no policy, everything is permitted"
    )
    keys: Path | None = field(
        default=None, doc="keys that sign policies; default: no signature is needed"
    )
    signatures: int = field(
        default=1,
        validator=is_positive,
        doc="number of signatures by different owners of keys that a policy needs",
    )
    admission: AdmissionSettings | None = field(
        default=None, doc="the admission webhook; default: none"
    )

    def __attrs_post_init__(self) -> None:
        for name in ("keys", "admission"):
            if self.file is None and getattr(self, name) is not None:
                raise Invalid("has no effect without a policy; set policy.file", name)
        if self.keys is None and self.signatures != 1:
            raise Invalid("needs keys; set policy.keys", "signatures")

    @property
    def signature_file(self) -> Path:
        """The file with the signatures of the policy."""
        assert self.file is not None
        return self.file.with_name(f"{self.file.name}.sig")

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that determine the policy."""
        assert self.file is not None
        if self.keys is None:
            return (self.file,)
        return self.file, self.signature_file, self.keys


@attrs.frozen(kw_only=True)
class LoggingSection:
    """``observability.logging`` of the agent's configuration in Git."""

    level: Literal["debug", "info", "warn", "error"] | None = field(
        default=None,
        doc="minimum level of logged events; default: the level at the start",
    )


@attrs.frozen(kw_only=True)
class ObservabilitySection:
    """``observability`` of the agent's configuration in Git."""

    logging: LoggingSection = field(factory=LoggingSection, doc="logs")


@attrs.frozen(kw_only=True)
class AgentkObservability:
    """Schema of ``observability``: traces, errors and profiles of agentk."""

    tracing: Tracing | None = field(
        default=None, doc="spans for OpenTelemetry, of requests that kas traces"
    )
    sentry: Sentry = field(factory=Sentry, doc="failures for Sentry; off by default")
    profile: Profile = field(factory=Profile, doc="profiles of agentk; off by default")


@attrs.frozen(kw_only=True)
class AgentkConfiguration:
    """Schema of the file that ``--configuration-file`` names."""

    kubernetes: KubernetesConfiguration = field(
        factory=KubernetesConfiguration, doc="connections to the API server"
    )
    policy: PolicySettings = field(
        factory=PolicySettings, doc="the policy of the cluster's owner"
    )
    observability: AgentkObservability = field(
        factory=AgentkObservability, doc="traces and failures"
    )
    modules: dict[str, Section] = field(
        factory=dict, doc="one section per agent module, by the module's name"
    )


def read_options(flags: Mapping[str, Any], environ: Mapping[str, str]) -> AgentkOptions:
    """
    Check the flags of the command line.

    :param flags: the values of flags, by their names without ``--``; keys may be
        missing; ``kas-address`` and ``kas-header`` are lists.
    :raises ConfigurationError: with every problem.
    """
    given = dict(flags)
    address = given.get("kas-address")
    if isinstance(address, str):
        given["kas-address"] = [address]
    given["namespace"] = flags.get("namespace") or environ.get("POD_NAMESPACE")
    given["pod-name"] = environ.get("POD_NAME")
    return read_flags(given, AgentkOptions, AgentkOptions.FLAGS)


def read_configuration(
    file: str | None,
) -> tuple[AgentkConfiguration, list[Prepared]]:
    """
    Read the configuration file, and find the modules that run by default or that the
    file names.

    :param file: the value of ``--configuration-file``.
    :raises ConfigurationError: with every problem of the file and of all modules.
    """
    problems: tuple[str, ...] = ()
    configuration = AgentkConfiguration()
    sections = configuration.modules
    if file := (file or "").strip():
        try:
            configuration = read_file(Path(file).absolute(), AgentkConfiguration)
            sections = configuration.modules
        except PartlyRead as error:
            problems = error.problems
            sections = error.below("modules")
    return configuration, load_modules(AgentModule, sections, problems)


def read_token(file: str | None, environ: MutableMapping[str, str]) -> TokenSource:
    """
    Return the source of the token: the file or ``$AGENTK_TOKEN``.

    The variable is removed from *environ*, so that child processes do not inherit it.

    :param file: the value of ``--token-file``.
    :raises ConfigurationError: if no source or two sources are given, or the content is
        not a token.
    """
    given = environ.pop(TOKEN_VARIABLE, "")
    file = (file or "").strip()
    if given and file:
        raise ConfigurationError(
            [f"--token-file and ${TOKEN_VARIABLE} are mutually exclusive; remove one"]
        )
    if given:
        return TokenSource(None, _checked(given.encode(), f"${TOKEN_VARIABLE}"))
    if not file:
        raise ConfigurationError(
            [
                f"no token: pass --token-file FILE, or set ${TOKEN_VARIABLE}; create "
                "one with 'kasctl agent add NAME' on kas"
            ]
        )
    # twistd changes the working directory later
    path = Path(file).absolute()
    return TokenSource(path, _read(path))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as source:
            data = source.read(MAX_TOKEN + 1)
    except OSError as error:
        message = (
            f"--token-file: cannot read the token in {path} ({error.strerror}); "
            "correct the path"
        )
        raise ConfigurationError([message]) from None
    return _checked(data, str(path))


def _checked(data: bytes, where: str) -> bytes:
    token = data.strip()
    if len(data) > MAX_TOKEN or not _TOKEN.fullmatch(token):
        raise ConfigurationError([f"{where} must contain one token and nothing else"])
    return token


@attrs.define(eq=False)
class TokenSource:
    """The agent's current token, read again when its file is replaced."""

    _path: Path | None
    _token: bytes = attrs.field(repr=False)
    _complained: bool = False
    _log = Logger()

    @property
    def where(self) -> str:
        """The file or variable that contains the token, for messages."""
        return f"${TOKEN_VARIABLE}" if self._path is None else str(self._path)

    def current(self) -> bytes:
        """
        Return the token; called for each connection, and never raises an exception.
        """
        if self._path is None:
            return self._token
        try:
            self._token = _read(self._path)
        except ConfigurationError as error:
            if not self._complained:
                self._log.error(
                    "{problem}; the previous token stays in use", problem=str(error)
                )
            self._complained = True
        else:
            self._complained = False
        return self._token
