"""Secrets, and tokens that are or are not signed with them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from kas.identity.jwt import (
    LEEWAY,
    LOOK_INTERVAL,
    MAX_LIFETIME,
    MAX_TOKEN,
    MIN_SECRET,
    Secrets,
    read_secret,
    sign,
    verify,
)
from tunnel.errors import CallError, Status
from tunnel.toolkit.files import MAX_SECRET_FILE

NOW = 1_800_000_000.0
SECRET = bytes(range(32))
OTHER = bytes(range(100, 132))


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def raw_token(header: object, payload: object, secret: bytes = SECRET) -> str:
    """A token with any header, signed by HS256 whatever that says."""
    parts = [
        part if isinstance(part, bytes) else json.dumps(part).encode()
        for part in (header, payload)
    ]
    text = ".".join(_b64(part) for part in parts)
    digest = hmac.new(secret, text.encode(), hashlib.sha256).digest()
    return f"{text}.{_b64(digest)}"


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.clock = Clock()
        self.path = self.write("secret", SECRET)
        self.secrets = Secrets(self.path, clock=self.clock)

    def observer(self) -> EventLoggingObserver:
        observer = EventLoggingObserver()
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        return observer

    def write(self, name: str, secret: bytes) -> Path:
        path = self.folder / name
        temporary = self.folder / f"{name}.new"
        temporary.write_bytes(base64.b64encode(secret) + b"\n")
        os.rename(temporary, path)
        return path


class SecretTests(_Case):
    """What may be in a file."""

    def refused(self, content: bytes) -> str:
        self.path.write_bytes(content)
        return str(self.assertRaises(ValueError, read_secret, self.path))

    def test_base64(self) -> None:
        """Standard base64, with or without a line end."""
        self.assertEqual(read_secret(self.path), SECRET)
        self.path.write_bytes(base64.b64encode(SECRET))
        self.assertEqual(read_secret(self.path), SECRET)

    def test_too_short(self) -> None:
        """One byte less than needed."""
        said = self.refused(base64.b64encode(b"x" * (MIN_SECRET - 1)))
        self.assertIn("has 31 bytes when decoded, but needs 32", said)

    def test_not_base64(self) -> None:
        """Neither raw bytes nor two lines; and what is there is not repeated."""
        self.assertIn("does not contain base64", self.refused(b"hunter2!" * 8))
        self.assertNotIn("hunter2", self.refused(b"hunter2!" * 8))
        # The wrong path may be that of a key: no command that would overwrite it.
        self.assertNotIn(f"> {self.path}", self.refused(b"hunter2!" * 8))
        line = base64.b64encode(SECRET)
        self.assertIn("does not contain base64", self.refused(line + b"\n" + line))

    def test_missing_and_large(self) -> None:
        """A file that is not there, and one that is no secret."""
        self.assertIn("is larger than", self.refused(b"A" * (MAX_SECRET_FILE + 1)))
        self.path.write_bytes(b"A" * MAX_SECRET_FILE)
        self.assertEqual(len(read_secret(self.path)), MAX_SECRET_FILE * 3 // 4)
        missing = self.folder / "nothing"
        error = self.assertRaises(ValueError, read_secret, missing)
        self.assertIn("cannot be read (No such file", str(error))

    def test_public_key(self) -> None:
        """A public key is known to everyone, and must not become a secret."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.public_key().public_bytes(
            serialization.Encoding.PEM,
            serialization.PublicFormat.SubjectPublicKeyInfo,
        )
        self.assertIn("not a secret", self.refused(base64.b64encode(pem)))


class RotationTests(_Case):
    """Files that change, and a second secret."""

    def token(self) -> str:
        return sign(self.secrets, issuer="gitlab", audience="a", now=NOW)

    def test_read_again(self) -> None:
        """A new secret is in force a moment later, the old one is not."""
        old = self.token()
        self.write("secret", OTHER)
        self.assertEqual(self.secrets.current, SECRET)
        self.clock.advance(LOOK_INTERVAL)
        self.assertEqual(self.secrets.current, OTHER)
        verify(self.token(), self.secrets, "a", "gitlab", now=NOW)
        self.assertRaises(CallError, verify, old, self.secrets, "a", "gitlab", now=NOW)

    def test_bad_file_keeps_the_old(self) -> None:
        """A slip must not lock GitLab out; the log says so once, without the secret."""
        observer = self.observer()
        self.write("secret", b"short")
        for _ in range(3):
            self.clock.advance(LOOK_INTERVAL)
            self.assertEqual(self.secrets.accepted, (SECRET,))
        self.assertEqual(len(observer), 1)
        self.assertNotIn(base64.b64encode(b"short").decode(), str(list(observer)))

    def test_garbage_that_is_written_into_it(self) -> None:
        """The next use says so."""
        observer = self.observer()
        self.path.write_text("garbage!\n")
        self.clock.advance(LOOK_INTERVAL)
        verify(self.token(), self.secrets, "a", "gitlab", now=NOW)
        (event,) = observer
        self.assertIn("stays in effect", event["log_format"])
        self.assertIn(str(self.path), event["problem"])

    def test_readable_by_everybody(self) -> None:
        """It works, and the log says what to do, at each reading."""
        observer = self.observer()
        self.path.chmod(0o640)
        Secrets(self.path, clock=self.clock)
        self.assertEqual(list(observer), [])
        self.path.chmod(0o644)
        Secrets(self.path, clock=self.clock)
        (event,) = observer
        self.assertEqual(event["mode"], "644")
        self.assertIn("chmod 600 {path}", event["log_format"])

    def test_second_secret(self) -> None:
        """Both are accepted, the first one signs."""
        second = self.write("second", OTHER)
        both = Secrets(self.path, [second], clock=self.clock)
        other = Secrets(second, clock=self.clock)
        for signer in (self.secrets, other, both):
            token = sign(signer, issuer="i", audience="a", now=NOW)
            self.assertEqual(verify(token, both, "a", "i", now=NOW)["iss"], "i")
        self.assertEqual(both.current, SECRET)

    def test_bad_at_start(self) -> None:
        """At the start there is no older one to go on with."""
        self.path.write_bytes(b"")
        self.assertRaises(ValueError, Secrets, self.path, clock=self.clock)


class VerifyTests(_Case):
    """Which tokens are good."""

    def claims(self, **changes: Any) -> dict[str, Any]:
        claims = {
            "iss": "gitlab",
            "aud": "gitlab-kas",
            "iat": NOW,
            "nbf": NOW - 5,
            "exp": NOW + 60,
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not ...}

    def check(self, token: str | bytes, issuer: str = "gitlab") -> dict[str, Any]:
        return verify(token, self.secrets, "gitlab-kas", issuer, now=NOW)

    def accepted(self, **changes: Any) -> None:
        self.check(jwt.encode(self.claims(**changes), SECRET))

    def refused(self, token: str | bytes, **arguments: Any) -> str:
        observer = self.observer()
        error = self.assertRaises(CallError, self.check, token, **arguments)
        self.assertIs(error.status, Status.UNAUTHENTICATED)
        self.assertEqual(len(observer), 0)
        message: str = error.message
        _, prefix, reason = message.partition("JWT validation failed: ")
        self.assertTrue(prefix)
        return reason

    def refused_claims(self, **changes: Any) -> str:
        return self.refused(jwt.encode(self.claims(**changes), SECRET))

    def test_algorithms(self) -> None:
        """The three HMACs, and of these only what the caller allows."""
        for name in ("HS256", "HS384", "HS512"):
            self.check(jwt.encode(self.claims(), SECRET, name))
        token = jwt.encode(self.claims(), SECRET, "HS512")
        self.assertRaises(
            CallError,
            verify,
            token,
            self.secrets,
            "gitlab-kas",
            "gitlab",
            ["HS256", "RS256", "none"],
            now=NOW,
        )

    def test_none(self) -> None:
        """``alg: none`` in every spelling, with and without a signature."""
        names: list[object] = ["none", "None", "NONE", "nOnE", "", None, 0, [], {}]
        for name in names:
            for secret in (SECRET, b""):
                token = raw_token({"alg": name}, self.claims(), secret)
                self.assertIn("algorithm", self.refused(token))
                self.refused(token.rpartition(".")[0] + ".")
        self.refused(jwt.encode(self.claims(), "", "none"))

    def test_asymmetric(self) -> None:
        """A token signed by a private key is not taken, nor one by its public key."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.public_key().public_bytes(
            serialization.Encoding.PEM,
            serialization.PublicFormat.SubjectPublicKeyInfo,
        )
        self.assertIn(
            "algorithm", self.refused(jwt.encode(self.claims(), key, "RS256"))
        )
        self.refused(raw_token({"alg": "HS256"}, self.claims(), pem))
        self.refused(raw_token({"alg": "RS256"}, self.claims(), SECRET))

    def test_header_is_not_followed(self) -> None:
        """A kid, key or URL in the header leads nowhere."""
        for extra in (
            {"kid": "../../dev/null"},
            {"kid": "x' UNION SELECT 'secret"},
            {"jku": "https://evil.example/keys"},
            {"jwk": {"kty": "oct", "k": _b64(OTHER)}},
        ):
            header = {"alg": "HS256", **extra}
            self.check(raw_token(header, self.claims()))
            for secret in (OTHER, b""):
                self.refused(raw_token(header, self.claims(), secret))

    def test_critical(self) -> None:
        """What the header calls critical is not known here."""
        for crit in (["exp"], ["b64"], [], None):
            self.refused(raw_token({"alg": "HS256", "crit": crit}, self.claims()))
        self.refused(raw_token({"alg": "HS256", "b64": False}, self.claims()))

    def test_signature(self) -> None:
        """An empty, a cut and a foreign one."""
        token = jwt.encode(self.claims(), SECRET)
        self.refused(token.rpartition(".")[0] + ".")
        self.refused(token[:-4])
        said = self.refused(jwt.encode(self.claims(), OTHER))
        self.assertIn("signature", said)

    def test_audience(self) -> None:
        """Ours, or a list with ours."""
        self.accepted(aud=["gitlab", "gitlab-kas"])
        everything: list[Any] = [..., None, "gitlab", "gitlab-kas ", [], ["x"], {}, 1]
        for wrong in everything:
            self.assertIn("audience", self.refused_claims_raw(aud=wrong))
        self.assertIn("audience", self.refused_claims_raw(aud=["gitlab-kas", 1]))

    def refused_claims_raw(self, **changes: Any) -> str:
        return self.refused(raw_token({"alg": "HS256"}, self.claims(**changes)))

    def test_spelling(self) -> None:
        """Padding, and bits that decode to nothing, are not in a token."""
        token = jwt.encode(self.claims(), SECRET)
        self.check(token)
        head, body, signature = token.split(".")
        for other in (
            f"{token}=",
            f"{head}=.{body}.{signature}",
            f"{head}.{body}==.{signature}",
            token[:-1] + chr(ord(token[-1]) + 1),
        ):
            self.assertTrue(self.refused(other))

    def test_issuer(self) -> None:
        """Exactly the one that is configured, or any when none is."""
        for wrong in (..., None, "gitlab-kas", ["gitlab"], "GitLab"):
            self.assertIn("issuer", self.refused_claims_raw(iss=wrong))
        token = jwt.encode(self.claims(iss="gitlab.example"), SECRET)
        self.check(token, issuer="")

    def test_times(self) -> None:
        """Each with the leeway and not a second more."""
        self.accepted(exp=NOW - LEEWAY + 1)
        self.accepted(nbf=NOW + LEEWAY, iat=NOW + LEEWAY)
        self.accepted(nbf=..., iat=...)
        for changes in (
            {"exp": NOW - LEEWAY},
            {"nbf": NOW + LEEWAY + 1},
            {"iat": NOW + LEEWAY + 1},
        ):
            self.assertIn("check the clocks", self.refused_claims(**changes))
        said = self.refused_claims(exp=NOW - LEEWAY - 10)
        self.assertIn("expired 70 s ago", said)
        said = self.refused_claims(nbf=NOW + LEEWAY + 10)
        self.assertIn("valid only in 70 s (nbf)", said)
        # To a clock that is late it is valid for too long as well, which is no hint.
        day = NOW + 86400
        said = self.refused_claims(nbf=day, iat=day, exp=day + 60)
        self.assertIn("valid only in 86400 s (nbf); check the clocks", said)

    def test_no_eternal_token(self) -> None:
        """There has to be an end, and a near one."""
        self.assertIn("exp", self.refused_claims(exp=...))
        self.accepted(exp=NOW + MAX_LIFETIME + LEEWAY)
        said = self.refused_claims(exp=NOW + MAX_LIFETIME + LEEWAY + 1)
        self.assertIn("more than 3600 s from now", said)

    def test_times_that_are_none(self) -> None:
        """Text, lists, NaN and numbers without end."""
        everything: list[Any] = ["1800000060", [], True, {"a": 1}]
        for wrong in everything:
            for name in ("exp", "nbf", "iat"):
                self.refused_claims_raw(**{name: wrong})
        text = json.dumps(self.claims()).encode()
        exp = str(NOW + 60).encode()
        for number in (b"NaN", b"Infinity", b"1e999", b"1" * 400, b"1" * 4400):
            payload = text.replace(exp, number)
            self.assertNotEqual(payload, text)
            self.refused(raw_token({"alg": "HS256"}, payload))

    def test_duplicate_claims(self) -> None:
        """Nobody can know which of the two counts."""
        text = json.dumps(self.claims()).encode()
        payload = text[:-1] + b', "aud": "gitlab-kas"}'
        self.assertIn(
            "cannot be read", self.refused(raw_token({"alg": "HS256"}, payload))
        )

    def test_large_token(self) -> None:
        """100 KB are refused before anything is decoded."""
        token = jwt.encode(self.claims(pad="x" * 100_000), SECRET)
        self.assertIn(f"longer than {MAX_TOKEN}", self.refused(token))
        self.assertEqual(self.refused("x" * MAX_TOKEN), "not a token")
        self.assertIn("longer than", self.refused("x" * (MAX_TOKEN + 1)))

    def test_deep_nesting(self) -> None:
        """Neither the header nor the claims make the parser run away."""
        deep = b"[" * 2900 + b"]" * 2900
        self.refused(raw_token(b'{"a":' + deep[:5800], {}))
        self.refused(raw_token(b"[" * 2000, self.claims()))
        self.refused(raw_token({"alg": "HS256"}, b"[" * 2000))
        self.refused(raw_token({"alg": "HS256"}, b"[1]"))

    @given(st.one_of(st.text(max_size=200), st.binary(max_size=200)))
    def test_garbage(self, garbage: str | bytes) -> None:
        """Anything else is refused, and nothing else is raised."""
        for token in (garbage, f"eyJhbGciOiJIUzI1NiJ9.{garbage!r}.x"):
            self.assertRaises(CallError, self.check, token)

    def test_own(self) -> None:
        """What `sign` makes ends soon, and says for whom it is."""
        token = sign(self.secrets, issuer="gitlab-kas", audience="gitlab-kas", now=NOW)
        claims = self.check(token, issuer="gitlab-kas")
        self.assertEqual(claims["exp"], NOW + 5)
        self.assertEqual(claims["nbf"], NOW - 5)
        # What kas say to each other is no token of GitLab.
        self.refused(token)
