"""The section ``oidc``: the identity provider, and its users' access to agents."""

from __future__ import annotations

from typing import Literal

import attrs

from tunnel.config import (
    Duration,
    ExistingFile,
    Invalid,
    authorities,
    field,
    is_positive,
    is_url,
)
from tunnel.toolkit.texts import SUBJECT_RULE, is_subject
from tunnel.toolkit.urls import is_private

__all__ = ["OidcAccess", "OpenIdConnect"]

#: Characters of a prefix.
MAX_PREFIX = 128

Algorithm = Literal[
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
]


def _is_issuer(instance: object, attribute: object, value: str) -> None:
    is_url(instance, attribute, value)
    if not is_private(value):
        raise ValueError(
            "plain http is for an identity provider on this machine; write https://"
        )


def _is_prefix(instance: object, attribute: object, value: str) -> None:
    if len(value) > MAX_PREFIX or (value and not is_subject(value + "x")):
        raise ValueError(f"a prefix is at most {MAX_PREFIX} printable characters")


def _is_not_empty(instance: object, attribute: object, value: str) -> None:
    if not value:
        raise ValueError("this cannot be empty")


def _are_names(instance: object, attribute: object, value: tuple[str, ...]) -> None:
    for one in value:
        if not is_subject(one):
            raise ValueError(f"a user or group is {SUBJECT_RULE}")


@attrs.frozen(kw_only=True)
class OidcAccess:
    """An entry of ``oidc.access``: access of some users to agents."""

    users: tuple[str, ...] = field(
        default=(),
        doc="as the cluster sees them, with the prefix",
        validator=_are_names,
    )
    groups: tuple[str, ...] = field(
        default=(),
        doc="as the cluster sees them, with the prefix; being in one is enough",
        validator=_are_names,
    )
    agents: tuple[str, ...] = field(
        doc="names or ids of the agents that they may use; '*' for every one"
    )
    read_only: bool = field(
        default=False,
        doc="only what changes nothing, unless another entry allows more",
    )
    secrets: bool = field(
        default=False, doc="with read_only: Secrets may be read as well"
    )

    def __attrs_post_init__(self) -> None:
        if not self.users and not self.groups:
            raise Invalid("this entry matches no user: name users or groups", "groups")
        if not self.agents:
            raise Invalid("name agents, or '*' for every one", "agents")


@attrs.frozen(kw_only=True)
class OpenIdConnect:
    """The section ``oidc``: sign-in with an identity provider."""

    issuer: str = field(
        doc="URL of the identity provider, exactly as its tokens have it (iss)",
        validator=_is_issuer,
    )
    client_id: str = field(
        doc="what ID tokens have to be for (aud)", validator=_is_not_empty
    )
    ca_certificate_file: ExistingFile | None = field(
        default=None,
        doc="PEM certificates that may sign the provider's, besides the system's",
        validator=authorities,
    )
    username_claim: str = field(
        default="sub",
        doc="claim that names the user; email counts only with email_verified",
        validator=_is_not_empty,
    )
    username_prefix: str = field(
        default="oidc:",
        doc="what user names begin with in the cluster",
        validator=_is_prefix,
    )
    groups_claim: str = field(
        default="groups",
        doc="claim with the user's groups; '' for none",
    )
    groups_prefix: str = field(
        default="oidc:",
        doc="what groups begin with in the cluster",
        validator=_is_prefix,
    )
    allow_system_names: bool = field(
        default=False,
        doc=(
            "whether users and groups may begin with system:, which are Kubernetes' "
            "own; the provider could make anyone an administrator then"
        ),
    )
    authorized_parties: tuple[str, ...] = field(
        default=(),
        doc=(
            "other clients of the provider that may be given tokens for client_id (azp)"
        ),
    )
    required_claims: dict[str, str] = field(
        factory=dict, doc="claims that tokens have to have, with these values"
    )
    signing_algorithms: tuple[Algorithm, ...] = field(
        default=("RS256", "ES256"), doc="that tokens may be signed with"
    )
    clock_skew: Duration = field(
        default=30.0, doc="by how much the provider's clock may differ"
    )
    max_token_lifetime: Duration = field(
        default=86400.0,
        doc="for how long a token may be valid: until then it cannot be revoked",
        validator=is_positive,
    )
    keys_ttl: Duration = field(
        default=300.0,
        doc=(
            "how often the provider's keys are read again, and after which a key that "
            "it took back ends what tokens of it have open"
        ),
        validator=is_positive,
    )
    keys_outage_ttl: Duration = field(
        default=14400.0,
        doc="how long its last keys count while it does not answer",
        validator=is_positive,
    )
    access: tuple[OidcAccess, ...] = field(
        default=(), doc="access of users to agents; without an entry, none"
    )

    def __attrs_post_init__(self) -> None:
        if not self.signing_algorithms:
            raise Invalid("name one at least", "signing_algorithms")
        if self.keys_outage_ttl < self.keys_ttl:
            raise Invalid("this cannot be shorter than keys_ttl", "keys_outage_ttl")
        for number, one in enumerate(self.access):
            for what, names, prefix in (
                ("users", one.users, self.username_prefix),
                ("groups", one.groups, self.groups_prefix),
            ):
                for name in names:
                    if not name.startswith(prefix):
                        raise Invalid(
                            f"{name!r} in [{number}].{what} does not begin with "
                            f"{prefix!r}, as all {what} of this provider do",
                            "access",
                        )
