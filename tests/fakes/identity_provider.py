"""
An identity provider of which only what kas reads is there: its description, its keys.

It signs whatever claims a test wants.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from klein import Klein
from twisted.internet.defer import Deferred
from twisted.web.iweb import IRequest

__all__ = ["CLIENT_ID", "FakeIdentityProvider", "make_key"]

CLIENT_ID = "kubernetes"

_MAKE: dict[str, Callable[[], Any]] = {
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "short": lambda: rsa.generate_private_key(65537, 1024),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ES384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


@cache
def make_key(kind: str, number: int = 0) -> Any:
    """The same private key for the same arguments: an RSA key takes a while."""
    return _MAKE[kind]()


class FakeIdentityProvider:
    """
    A provider.

    :param now: the time of day.
    :ivar keys: private ones, by algorithm and name; those that it tells of.
    :ivar extra: what stands in its list of keys besides.
    :ivar asked: paths, as they were asked for.
    :ivar down: it answers 503.
    :ivar body: what it answers instead.
    :ivar silent: it takes requests, and does not answer them before `speak`.
    """

    app = Klein()

    def __init__(self, issuer: str, now: Callable[[], float]) -> None:
        self.issuer = issuer
        self.now = now
        self.keys: dict[str, tuple[str, Any]] = {"one": ("ES256", make_key("ES256"))}
        self.extra: list[Any] = []
        self.description: dict[str, Any] = {}
        self.asked: list[str] = []
        self.down = False
        self.body: bytes | None = None
        self.silent = False
        self._held: list[Deferred[None]] = []

    def speak(self) -> None:
        """Answer what came while it was silent."""
        self.silent = False
        held, self._held = self._held, []
        for one in held:
            one.callback(None)

    def token(
        self,
        kid: str | None = "one",
        *,
        header: dict[str, Any] | None = None,
        signed_with: tuple[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        """An ID token; a claim that is None is left out."""
        now = int(self.now())
        algorithm, key = signed_with or self.keys[kid or "one"]
        content = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "sub": "alice",
            "iat": now,
            "exp": now + 600,
            **claims,
        }
        payload = {name: value for name, value in content.items() if value is not None}
        headers = {**({} if kid is None else {"kid": kid}), **(header or {})}
        return jwt.encode(payload, key, algorithm, headers=headers)

    def answer(self, path: str) -> bytes | None:
        """What is at *path*, and that it was asked for."""
        content = None
        if path == "/.well-known/openid-configuration":
            content = {
                "issuer": self.issuer,
                "jwks_uri": f"{self.issuer}/keys",
                **self.description,
            }
        elif path == "/keys":
            content = {"keys": [*self.extra, *self._public()]}
        if content is None:
            return None
        self.asked.append(path)
        return json.dumps(content).encode() if self.body is None else self.body

    def _public(self) -> list[dict[str, Any]]:
        return [
            {
                **jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), True),
                "kid": kid,
            }
            for kid, (algorithm, key) in self.keys.items()
        ]

    @app.route("/", branch=True)
    async def _ask(self, request: IRequest) -> bytes:
        if self.silent:
            held: Deferred[None] = Deferred()
            self._held.append(held)
            await held
        body = self.answer(request.path.decode())
        if body is None:
            request.setResponseCode(404)
        elif self.down:
            request.setResponseCode(503)
        request.setHeader("Content-Type", "application/json")
        return body or b""
