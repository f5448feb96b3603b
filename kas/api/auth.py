"""Authentication of calls by their JSON Web Token."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from kas.fleet.tokens import IDENTITY
from kas.identity.jwt import Secrets, verify
from tunnel.errors import CallError, Status

__all__ = ["AUDIENCE", "Authenticator", "EveryCaller"]

#: Audience that GitLab's tokens for kas must name.
AUDIENCE = "gitlab-kas"


@attrs.frozen
class Authenticator:
    """
    Checker of ``Authorization: Bearer <JSON Web Token>``.

    :param issuer: the only issuer that tokens may name; empty for any.
    """

    secrets: Secrets
    issuer: str
    #: Returns the time of day.
    now: Callable[[], float]

    def check(self, authorization: str | None) -> str:
        """
        Check the Authorization of a call, and return the issuer of its token.

        :raises CallError: UNAUTHENTICATED, with a reason that may be shown to the
            client.
        """
        if authorization is None:
            raise CallError(
                Status.UNAUTHENTICATED,
                "JWT validation failed: the token is missing; send 'Authorization: "
                "Bearer <token>'",
            )
        scheme, _, token = authorization.strip().partition(" ")
        if scheme.lower() != "bearer":
            raise CallError(
                Status.UNAUTHENTICATED,
                "JWT validation failed: Authorization is not 'Bearer <token>'",
            )
        claims = verify(
            token.strip(), self.secrets, AUDIENCE, self.issuer, now=self.now()
        )
        if claims.get("iss") == IDENTITY:
            # Refuse tokens of other kas, which have the same audience and perhaps the
            # same secret: a false peer that obtained such a token must not use it for
            # calls.
            raise CallError(
                Status.UNAUTHENTICATED,
                f"JWT validation failed: tokens of the issuer {IDENTITY} are only "
                "valid for the private API between kas",
            )
        return str(claims.get("iss", ""))


class EveryCaller:
    """Checker that accepts all calls, for a socket that only an operator can open."""

    def check(self, authorization: str | None) -> str:
        """Return an empty issuer."""
        return ""
