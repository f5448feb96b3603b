"""The keys of an identity provider as kas follows them."""

from __future__ import annotations

import json
from typing import Any

import jwt
from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import LogLevel, globalLogPublisher

from kas.oidc import keys as module
from kas.oidc.code_flow import MAX_BODY
from kas.oidc.keys import MAX_KEYS, MIN_INTERVAL, TIMEOUT, ProviderKeys
from tests.fakes.identity_provider import make_key
from tests.kas.oidc.cases import ISSUER, OidcCase
from tunnel.errors import CallError, Status

_BOTH = ["/.well-known/openid-configuration", "/keys"]


def _jwk(algorithm: str, key: Any, **more: Any) -> dict[str, Any]:
    public = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), True)
    return {**public, **more}


class ProviderKeysTests(OidcCase):
    """Read, read again, kept."""

    def find(
        self, keys: ProviderKeys, kid: str | None = "one", algorithm: str = "ES256"
    ) -> Deferred[Any]:
        return self.settled(Deferred.fromCoroutine(keys.find(algorithm, kid)))

    def assert_refused(
        self, status: Status, keys: ProviderKeys, kid: str | None = "one"
    ) -> str:
        error = self.failureResultOf(self.find(keys, kid), CallError).value
        self.assertEqual(error.status, status)
        return str(error)

    def test_found(self) -> None:
        """By name and algorithm, with one question for many tokens."""
        self.provider.silent = True
        keys = self.make_keys()
        asked = [Deferred.fromCoroutine(keys.find("ES256", "one")) for _ in range(3)]
        self.settle()
        self.provider.speak()
        self.settle()
        found = [self.successResultOf(one) for one in asked]
        self.assertEqual(found[0].public, make_key("ES256").public_key())
        self.assertEqual(self.provider.asked, _BOTH)
        self.assertIn(found[0], keys)

    def test_metrics(self) -> None:
        """How many count, for how long, and what asking for them came to."""
        metrics = CollectorRegistry()
        keys = self.make_keys(keys_ttl=60.0, keys_outage_ttl=120.0)
        metrics.register(keys)
        self.assertEqual(metrics.get_sample_value("kas_oidc_keys"), 0)
        self.assertIsNone(metrics.get_sample_value("kas_oidc_keys_age_seconds"))
        keys.start()
        self.addCleanup(keys.stop)
        self.settle()
        self.assertEqual(metrics.get_sample_value("kas_oidc_keys"), 1)
        self.wait(50)
        age = metrics.get_sample_value("kas_oidc_keys_age_seconds")
        self.assertEqual(age, 50)
        self.provider.body = b"no keys"
        self.wait(130)
        self.flushLoggedErrors()
        self.assertEqual(metrics.get_sample_value("kas_oidc_keys"), 0)
        asked = {
            result: metrics.get_sample_value(
                "kas_oidc_keys_asked_total", {"result": result}
            )
            for result in ("read", "failed")
        }
        self.assertEqual(asked["read"], 1)
        self.assertGreater(asked["failed"] or 0, 5)

    def test_one_leaves(self) -> None:
        """A client that leaves takes nothing from others who wait."""
        self.provider.silent = True
        keys = self.make_keys()
        first = Deferred.fromCoroutine(keys.find("ES256", "one"))
        second = Deferred.fromCoroutine(keys.find("ES256", "one"))
        first.cancel()
        self.failureResultOf(first)
        self.settle()
        self.provider.speak()
        self.settle()
        self.successResultOf(second)

    def test_unnamed(self) -> None:
        """A token without kid means the only key there is, and none of several."""
        keys = self.make_keys()
        self.successResultOf(self.find(keys, None))
        self.provider.keys["two"] = ("ES256", make_key("ES256", 2))
        self.wait(MIN_INTERVAL)
        self.successResultOf(self.find(keys, "two"))
        self.assert_refused(Status.UNAUTHENTICATED, keys, None)

    def test_rotation(self) -> None:
        """An unknown name has the keys read once, and not again for a while."""
        keys = self.make_keys()
        self.successResultOf(self.find(keys))
        self.assert_refused(Status.UNAUTHENTICATED, keys, "two")
        self.assertEqual(len(self.provider.asked), 2)
        self.wait(MIN_INTERVAL)
        self.provider.keys["two"] = ("ES256", make_key("ES256", 2))
        self.successResultOf(self.find(keys, "two"))
        self.assertEqual(len(self.provider.asked), 4)
        for number in range(100):
            text = self.assert_refused(Status.UNAUTHENTICATED, keys, f"no{number}")
            self.assertIn(ISSUER, text)
        self.assertEqual(len(self.provider.asked), 4)

    def test_taken_back(self) -> None:
        """A key that is no longer listed is noticed within `keys_ttl`."""
        keys = self.make_keys(keys_ttl=60.0)
        keys.start()
        self.addCleanup(keys.stop)
        self.settle()
        key = self.successResultOf(self.find(keys))
        self.provider.keys = {"two": ("ES256", make_key("ES256", 2))}
        self.wait(50)
        self.assertIn(key, keys)
        self.wait(20)
        self.assertNotIn(key, keys)

    def test_another_of_the_same_name(self) -> None:
        """A key is what it is, not what it is called."""
        keys = self.make_keys(keys_ttl=60.0)
        keys.start()
        self.addCleanup(keys.stop)
        self.settle()
        key = self.successResultOf(self.find(keys))
        self.provider.keys = {"one": ("ES256", make_key("ES256", 2))}
        self.wait(70)
        self.assertNotIn(key, keys)

    def test_a_certificate_that_is_renewed(self) -> None:
        """The key is the same one: what it signed goes on."""
        key = _jwk("ES256", make_key("ES256"), kid="one")
        self.provider.keys, self.provider.extra = {}, [{**key, "x5c": ["old"]}]
        keys = self.make_keys(keys_ttl=60.0)
        keys.start()
        self.addCleanup(keys.stop)
        self.settle()
        found = self.successResultOf(self.find(keys))
        self.provider.extra = [{**key, "x5c": ["new"], "x5t": "x"}]
        self.wait(120)
        self.assertIn(found, keys)

    def test_one_that_gives_up_another(self) -> None:
        """Each that waits is answered once, whatever the others do then."""
        self.provider.silent = True
        keys = self.make_keys()
        second: list[Deferred[Any]] = []

        def give_up(result: Any) -> Any:
            for one in second:
                one.cancel()
            return result

        first = Deferred.fromCoroutine(keys.find("ES256", "one")).addBoth(give_up)
        second.append(Deferred.fromCoroutine(keys.find("ES256", "one")))
        second[0].addErrback(lambda failure: None)
        self.settle()
        self.provider.speak()
        self.settle()
        self.successResultOf(first)
        self.successResultOf(second[0])

    def test_outage(self) -> None:
        """The last keys count for `keys_outage_ttl`; what comes back is noticed."""
        seen = EventLoggingObserver()
        globalLogPublisher.addObserver(seen)
        self.addCleanup(globalLogPublisher.removeObserver, seen)
        keys = self.make_keys(keys_ttl=60.0, keys_outage_ttl=300.0)
        keys.start()
        self.addCleanup(keys.stop)
        self.settle()
        self.provider.down = True
        self.wait(295)
        self.successResultOf(self.find(keys))
        self.wait(10)
        self.assertFalse(keys.usable)
        self.assert_refused(Status.UNAVAILABLE, keys)
        errors = [one for one in seen if one["log_level"] is LogLevel.error]
        self.assertEqual(len(errors), 1, "said once")
        self.assertIn("503", errors[0]["reason"])
        self.provider.down = False
        self.wait(MIN_INTERVAL + module.LOOK_INTERVAL)
        self.successResultOf(self.find(keys))

    def test_silent(self) -> None:
        """A provider that takes requests and says nothing."""
        self.provider.silent = True
        keys = self.make_keys()
        asked = Deferred.fromCoroutine(keys.find("ES256", "one"))
        self.clock.advance(TIMEOUT)
        error = self.failureResultOf(asked, CallError).value
        self.assertEqual(error.status, Status.UNAVAILABLE)

    def test_stopped_while_asking(self) -> None:
        self.provider.silent = True
        keys = self.make_keys()
        keys.start()
        asked = Deferred.fromCoroutine(keys.find("ES256", "one"))
        keys.stop()
        self.failureResultOf(asked, CallError)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_unusable_answers(self) -> None:
        """None of them is believed, and none fails in another way."""
        for description in (
            {"issuer": "https://evil.example.com"},
            {"jwks_uri": None},
            {"jwks_uri": "http://id.example.com/keys"},
            {"jwks_uri": "file:///etc/passwd"},
            {"jwks_uri": ISSUER + "/missing"},
        ):
            self.provider.description = description
            self.assert_refused(Status.UNAVAILABLE, self.make_keys())
        self.provider.description = {}
        for body in (
            b"",
            b"[]",
            b"\xff",
            b"[" * 100_000,
            b"{}".ljust(MAX_BODY + 1),
            json.dumps({"issuer": ISSUER, "jwks_uri": ISSUER, "keys": {}}).encode(),
        ):
            self.provider.body = body
            self.assert_refused(Status.UNAVAILABLE, self.make_keys())

    def test_too_many(self) -> None:
        self.provider.extra = [{}] * (MAX_KEYS - 1)
        self.successResultOf(self.find(self.make_keys()))
        self.provider.extra.append({})
        self.assert_refused(Status.UNAVAILABLE, self.make_keys())

    def test_unusable_keys(self) -> None:
        """Keys for something else are passed over, and so are weak and broken ones."""
        ec, ed = make_key("ES256"), make_key("EdDSA")
        self.provider.keys = {"good": ("RS256", make_key("RS256"))}
        self.provider.extra = [
            None,
            "text",
            {"kty": "oct", "k": "AAAA", "kid": "oct", "alg": "HS256"},
            _jwk("RS256", make_key("short"), kid="short"),
            _jwk("ES256", ec, kid="enc", use="enc"),
            _jwk("ES256", ec, kid="other", alg="ES384"),
            _jwk("ES256", ec, kid=7),
            _jwk("ES384", make_key("ES384"), kid="curve"),
            _jwk("EdDSA", ed, kid="ed"),
            {"kty": "RSA", "kid": "empty"},
            {"kty": "EC", "crv": "P-256", "x": 1, "y": [], "kid": "types"},
        ]
        keys = self.make_keys()
        found = self.successResultOf(self.find(keys, "good", "RS256"))
        self.assertEqual({one.kid for one in keys._keys}, {"good"})
        self.assertEqual(found.algorithm, "RS256")

    def test_allowed(self) -> None:
        """EdDSA where the operator says so."""
        self.provider.keys = {"ed": ("EdDSA", make_key("EdDSA"))}
        self.assert_refused(Status.UNAVAILABLE, self.make_keys(), "ed")
        keys = self.make_keys(signing_algorithms=("EdDSA",))
        self.successResultOf(self.find(keys, "ed", "EdDSA"))
