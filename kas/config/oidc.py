"""Section ``oidc``: the identity provider, and its users' access to agents."""

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

#: Maximum characters of a prefix.
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
            "plain http is only allowed for an identity provider on this machine; "
            "write https://"
        )


def _is_prefix(instance: object, attribute: object, value: str) -> None:
    if len(value) > MAX_PREFIX or (value and not is_subject(value + "x")):
        raise ValueError(f"a prefix may have at most {MAX_PREFIX} printable characters")


def _is_not_empty(instance: object, attribute: object, value: str) -> None:
    if not value:
        raise ValueError("this must not be empty")


def _are_names(instance: object, attribute: object, value: tuple[str, ...]) -> None:
    for one in value:
        if not is_subject(one):
            raise ValueError(f"a user or group is {SUBJECT_RULE}")


@attrs.frozen(kw_only=True)
class OidcAccess:
    """Entry of ``oidc.access``: access of some users to agents."""

    users: tuple[str, ...] = field(
        default=(),
        doc="names of users in the cluster, with the prefix",
        validator=_are_names,
    )
    groups: tuple[str, ...] = field(
        default=(),
        doc="names of groups in the cluster, with the prefix; one of them suffices",
        validator=_are_names,
    )
    agents: tuple[str, ...] = field(
        doc="names or ids of the agents that they may use; '*' for all agents"
    )
    read_only: bool = field(
        default=False,
        doc="allow only requests that change nothing, unless another entry allows more",
    )
    secrets: bool = field(
        default=False, doc="with read_only: allow reading Secrets, too"
    )

    def __attrs_post_init__(self) -> None:
        if not self.users and not self.groups:
            raise Invalid("this entry matches no user: name users or groups", "groups")
        if not self.agents:
            raise Invalid("name agents, or '*' for all agents", "agents")


@attrs.frozen(kw_only=True)
class OpenIdConnect:
    """Section ``oidc``: sign-in with an identity provider."""

    issuer: str = field(
        doc="URL of the identity provider, exactly as in its tokens (iss)",
        validator=_is_issuer,
    )
    client_id: str = field(
        doc="required audience of ID tokens (aud)", validator=_is_not_empty
    )
    ca_certificate_file: ExistingFile | None = field(
        default=None,
        doc=(
            "PEM certificates of CAs for the identity provider, in addition to the "
            "system's CAs"
        ),
        validator=authorities,
    )
    username_claim: str = field(
        default="sub",
        doc="claim with the user's name; email is accepted only with email_verified",
        validator=_is_not_empty,
    )
    username_prefix: str = field(
        default="oidc:",
        doc="prefix of user names in the cluster",
        validator=_is_prefix,
    )
    groups_claim: str = field(
        default="groups",
        doc="claim with the user's groups; '' for none",
    )
    groups_prefix: str = field(
        default="oidc:",
        doc="prefix of groups in the cluster",
        validator=_is_prefix,
    )
    allow_system_names: bool = field(
        default=False,
        doc=(
            "whether names of users and groups may begin with system:, which are "
            "Kubernetes' own; the provider could then make any user an administrator"
        ),
    )
    authorized_parties: tuple[str, ...] = field(
        default=(),
        doc="other clients of the provider that may receive tokens for client_id (azp)",
    )
    required_claims: dict[str, str] = field(
        factory=dict, doc="claims that tokens must have, with these values"
    )
    signing_algorithms: tuple[Algorithm, ...] = field(
        default=("RS256", "ES256"), doc="permitted signature algorithms of tokens"
    )
    clock_skew: Duration = field(
        default=30.0, doc="tolerated difference of the provider's clock"
    )
    max_token_lifetime: Duration = field(
        default=86400.0,
        doc="maximum validity of a token: it cannot be revoked earlier",
        validator=is_positive,
    )
    keys_ttl: Duration = field(
        default=300.0,
        doc=(
            "interval at which the provider's keys are read again; after it, a key "
            "that the provider has withdrawn ends the connections of its tokens"
        ),
        validator=is_positive,
    )
    keys_outage_ttl: Duration = field(
        default=14400.0,
        doc="how long the last keys are used while the provider does not respond",
        validator=is_positive,
    )
    access: tuple[OidcAccess, ...] = field(
        default=(), doc="access of users to agents; none without an entry"
    )

    def __attrs_post_init__(self) -> None:
        if not self.signing_algorithms:
            raise Invalid("name at least one", "signing_algorithms")
        if self.keys_outage_ttl < self.keys_ttl:
            raise Invalid("this must not be shorter than keys_ttl", "keys_outage_ttl")
        for number, one in enumerate(self.access):
            for what, names, prefix in (
                ("users", one.users, self.username_prefix),
                ("groups", one.groups, self.groups_prefix),
            ):
                for name in names:
                    if not name.startswith(prefix):
                        raise Invalid(
                            f"{name!r} in [{number}].{what} does not begin with "
                            f"{prefix!r}, unlike all {what} of this provider",
                            "access",
                        )
