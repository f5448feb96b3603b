"""Section ``oidc``: the identity provider, and its users' access to agents."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

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
from tunnel.toolkit.secret_file import read_secret
from tunnel.toolkit.texts import SUBJECT_RULE, is_subject
from tunnel.toolkit.urls import is_private

__all__ = ["OidcAccess", "OpenIdConnect", "read_client_secret"]

#: Maximum characters of a prefix.
MAX_PREFIX = 128

#: Maximum characters of a title, which is the text of a button.
MAX_TITLE = 60

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


#: Scope (RFC 6749, 3.3).
_SCOPE = re.compile(r"[!#-\[\]-~]{1,200}")


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


def _is_title(instance: object, attribute: object, value: str) -> None:
    if len(value) > MAX_TITLE or not value.isprintable() or value != value.strip():
        raise ValueError(f"a title may have at most {MAX_TITLE} printable characters")


def _are_scopes(instance: object, attribute: object, value: tuple[str, ...]) -> None:
    for one in value:
        if _SCOPE.fullmatch(one) is None:
            raise ValueError(
                f"{one!r} is not a scope: use printable ASCII characters without "
                "spaces, '\"' and '\\'; write each scope as an entry of its own"
            )


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


def read_client_secret(file: Path) -> str:
    """
    Return the secret of a client at the identity provider.

    :raises ValueError: if the file does not contain such a secret; the text does not
        quote it.
    """
    secret = read_secret(file)
    # RFC 6749, A.2: a client secret consists of these characters.
    if not secret.isascii() or not secret.decode("ascii").isprintable():
        raise ValueError(
            f"the secret in {file} has characters other than printable ASCII; write "
            "the client secret of the identity provider there, and nothing else"
        )
    return secret.decode("ascii")


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
    client_secret_file: ExistingFile | None = field(
        default=None,
        doc=(
            "secret of the client for sign-in to kas' pages, if the client is "
            "registered as a confidential client"
        ),
    )
    title: str = field(
        default="",
        doc="name of the provider on kas' pages; by default the host of the issuer",
        validator=_is_title,
    )
    scopes: tuple[str, ...] = field(
        default=("profile", "email"),
        doc=(
            "scopes that kas' pages request in addition to openid, such as groups; "
            "offline_access is added if the provider supports it"
        ),
        validator=_are_scopes,
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

    @property
    def shown_title(self) -> str:
        """Return the title, or the host of the issuer."""
        return self.title or urlsplit(self.issuer).hostname or self.issuer

    def __attrs_post_init__(self) -> None:
        if not self.signing_algorithms:
            raise Invalid("name at least one", "signing_algorithms")
        if self.client_secret_file is not None:
            try:
                read_client_secret(self.client_secret_file)
            except ValueError as error:
                raise Invalid(str(error), "client_secret_file") from None
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
