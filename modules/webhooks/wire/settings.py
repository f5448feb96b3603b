"""The section ``webhooks`` of the agent's configuration file."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Literal
from urllib.parse import urlsplit

import attrs

from tunnel.config import Invalid, field
from tunnel.toolkit.texts import DNS_LABEL, DNS_SUBDOMAIN

__all__ = ["SecretKey", "ServicePort", "WebhookTarget", "WebhooksSection"]

#: Maximum number of targets of one agent: one for each engine, repository and team.
MAX_TARGETS = 20

#: Maximum number of refs of all targets of one agent: kas stores a value for each, and
#: its store has room for 10,000.
MAX_REFS = 100

#: Maximum characters of the name of a ref, and of a path or URL.
MAX_REF, MAX_URL = 250, 1000

_SERVICE = re.compile(rf"({DNS_LABEL})/({DNS_LABEL}):([1-9][0-9]{{0,4}})")
_SECRET = re.compile(rf"({DNS_LABEL})/({DNS_SUBDOMAIN})/([-._A-Za-z0-9]{{1,253}})")
_NAME = re.compile(r"[A-Za-z0-9][-\w.]{0,62}", re.ASCII)
_PATH = re.compile(r"/[!-~]*")
_URL = re.compile(r"[!-~]+")

#: Prefixes of the full names of refs that a target may follow.
_FULL = ("refs/heads/", "refs/tags/")


@attrs.frozen
class ServicePort:
    """A port of a Service."""

    namespace: str
    name: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ServicePort:
        """
        Read ``namespace/name:port``.

        :raises ValueError: *text* has another form.
        """
        found = _SERVICE.fullmatch(text)
        if found is None or int(found[3]) > 65535:
            raise ValueError("must be namespace/name:port of a Service")
        return cls(found[1], found[2], int(found[3]))

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}:{self.port}"


@attrs.frozen
class SecretKey:
    """A key of a Secret."""

    namespace: str
    name: str
    key: str

    @classmethod
    def parse(cls, text: str) -> SecretKey:
        """
        Read ``namespace/name/key``.

        :raises ValueError: *text* has another form.
        """
        found = _SECRET.fullmatch(text)
        if found is None:
            raise ValueError("must be namespace/name/key of a Secret")
        return cls(found[1], found[2], found[3])

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}/{self.key}"


def _is_name(instance: object, attribute: object, value: str) -> None:
    if _NAME.fullmatch(value) is None:
        raise ValueError(
            "must have 1 to 63 letters, digits, '-', '_' and '.', and begin with a "
            "letter or digit"
        )


def _is_service(instance: object, attribute: object, value: str) -> None:
    service = ServicePort.parse(value)
    if (service.namespace, service.name) == ("default", "kubernetes"):
        raise ValueError("must not be the API server")


def _is_secret(instance: object, attribute: object, value: str) -> None:
    # The message never repeats the value, because it may be the secret itself.
    if value:
        SecretKey.parse(value)


def _is_path(instance: object, attribute: object, value: str) -> None:
    if _PATH.fullmatch(value) is None or "#" in value or len(value) > MAX_URL:
        raise ValueError(
            f"must be a path of at most {MAX_URL} characters such as /api/webhook, "
            "percent-encoded"
        )


def _is_url(instance: object, attribute: object, value: str) -> None:
    if not value:
        return
    # Messages omit the value, because it may contain a password.
    try:
        url = urlsplit(value)
        wrong = url.scheme not in ("http", "https") or not url.hostname
    except ValueError:
        url, wrong = urlsplit(""), True
    if wrong or _URL.fullmatch(value) is None or len(value) > MAX_URL:
        raise ValueError("write https://git.example.org/group/project")
    if url.username or url.password:
        raise ValueError("it must not contain a user name or password")


def _are_refs(instance: object, attribute: object, value: tuple[str, ...]) -> None:
    if not value:
        raise ValueError("must name at least one ref, such as main")
    for one in value:
        if not 0 < len(one) <= MAX_REF or not one.isprintable() or "*" in one:
            raise ValueError(
                f"{one[:80]!r} is not a ref: write a branch such as main, a full name "
                "such as refs/tags/v1, or HEAD for the default branch"
            )
        if one.startswith("refs/") and not one.startswith(_FULL):
            raise ValueError(f"{one[:80]!r} does not begin with {' or '.join(_FULL)}")
    if len(set(value)) < len(value):
        raise ValueError("names a ref twice")


@attrs.frozen(kw_only=True)
class WebhookTarget:
    """One entry of ``webhooks.targets``."""

    name: str = field(
        doc="unique name of the target, for kasctl webhooks", validator=_is_name
    )
    service: str = field(
        doc="Service that receives the request: namespace/name:port",
        validator=_is_service,
    )
    path: str = field(default="/", doc="path of the request", validator=_is_path)
    format: Literal["github", "gitlab", "generic"] = field(
        default="generic",
        doc="the Git server whose requests it imitates; generic has signatures of "
        "Standard Webhooks",
    )
    secret: str = field(
        default="",
        doc="key of a Secret with the receiver's secret: namespace/name/key",
        validator=_is_secret,
    )
    ca_certificate: str = field(
        default="",
        doc="key of a Secret with the CA of the Service's certificate, which enables "
        "TLS: namespace/name/key",
        validator=_is_secret,
    )
    repository: str = field(
        default="", doc="name of a repository in kas' configuration, or the project"
    )
    repository_url: str = field(
        default="",
        doc="URL of the repository as the receiver knows it; by default the URL in "
        "kas' configuration",
        validator=_is_url,
    )
    refs: tuple[str, ...] = field(
        default=("HEAD",),
        doc="branches, or full names such as refs/tags/v1; HEAD is the default branch",
        validator=_are_refs,
    )

    def __attrs_post_init__(self) -> None:
        if not self.secret:
            return
        # Otherwise the author of the file could let agentk send a secret to any
        # Service, for instance to his own.
        namespace = ServicePort.parse(self.service).namespace
        if SecretKey.parse(self.secret).namespace != namespace:
            raise ValueError(
                f"the secret must be in the namespace of the Service, {namespace}"
            )

    @property
    def address(self) -> str:
        """Return the receiver, for operators."""
        scheme = "https" if self.ca_certificate else "http"
        return f"{scheme} {self.service}{self.path}"

    @property
    def fingerprint(self) -> str:
        """Return a text that changes with the receiver."""
        parts = (self.service, self.path, self.format, self.secret, self.ca_certificate)
        return sha256("\n".join(parts).encode()).hexdigest()[:16]


@attrs.frozen(kw_only=True)
class WebhooksSection:
    """Section ``webhooks``."""

    targets: tuple[WebhookTarget, ...] = field(
        default=(), doc="Services that agentk notifies of pushes"
    )

    def __attrs_post_init__(self) -> None:
        problem = ""
        names = [one.name for one in self.targets]
        twice = next((one for one in names if names.count(one) > 1), None)
        refs = sum(len(one.refs) for one in self.targets)
        if len(names) > MAX_TARGETS:
            problem = f"has {len(names)} entries; at most {MAX_TARGETS} are allowed"
        elif refs > MAX_REFS:
            problem = f"has {refs} refs; at most {MAX_REFS} are allowed"
        elif twice is not None:
            problem = f"two targets are called {twice!r}: rename one of them"
        if problem:
            raise Invalid(problem, "targets")
