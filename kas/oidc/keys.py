"""Keys that verify the tokens of an identity provider."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import jwt
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from kas.config.oidc import OpenIdConnect
from kas.oidc.code_flow import MAX_REASON
from kas.oidc.description import ProviderDescription
from kas.oidc.requests import ProviderRequests
from tunnel.errors import CallError, Status
from tunnel.toolkit.repeated import Repeated
from tunnel.toolkit.single_flight import SingleFlight
from tunnel.toolkit.texts import clean
from tunnel.toolkit.urls import is_private

__all__ = ["ProviderKeys", "VerificationKey"]

#: Maximum seconds to read the provider's description and its keys: less than a client
#: waits for the check of its token (`kas.identity.authenticators.CHECK_TIMEOUT`).
TIMEOUT = 6.0

#: Minimum seconds between two requests to the provider, whatever tokens arrive, because
#: any client can invent the name of a key.
MIN_INTERVAL = 10.0

#: Seconds between two checks whether the keys are too old.
LOOK_INTERVAL = 5.0

#: Maximum number of stored keys; providers have two to ten keys.
MAX_KEYS = 64

#: Minimum bits of an RSA key: shorter keys can be broken (NIST SP 800-131A).
MIN_RSA_BITS = 2048

#: The key type and the curve for each algorithm (RFC 7518, 3.1; RFC 8037).
_FITS = {
    **dict.fromkeys(("RS256", "RS384", "RS512"), ("RSA", None)),
    **dict.fromkeys(("PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}


#: For each type of key, the members in its thumbprint (RFC 7638, 3.2; RFC 8037, 2).
_MEMBERS = {
    "RSA": ("e", "kty", "n"),
    "EC": ("crv", "kty", "x", "y"),
    "OKP": ("crv", "kty", "x"),
}


class _Unusable(Exception):
    """Error for an invalid response of the provider."""


@attrs.frozen(cache_hash=True)
class VerificationKey:
    """Public key for one algorithm; keys with the same content are equal."""

    algorithm: str
    kid: str | None
    digest: bytes
    public: Any = attrs.field(eq=False, repr=False)


class ProviderKeys(Collector):
    """
    Keys of one provider, found through its description (OpenID Connect Discovery).

    The keys are read again every `keys_ttl`, and when a token names an unknown key.
    While the provider does not respond, the last keys stay valid for `keys_outage_ttl`.
    """

    _log = Logger()

    def __init__(
        self,
        settings: OpenIdConnect,
        description: ProviderDescription,
        requests: ProviderRequests,
        clock: IReactorTime,
    ) -> None:
        self._settings = settings
        self._description = description
        self._requests = requests
        self._clock = clock
        self._keys: frozenset[VerificationKey] = frozenset()
        self._read_at = float("-inf")
        self._asked_at = float("-inf")
        self._asking = SingleFlight(self._ask)
        self._failing = False
        #: Number of successful and of failed reads.
        self._reads = {"read": 0, "failed": 0}
        self._loop = Repeated(
            clock, "reading the keys of the identity provider", self._look
        )

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        yield GaugeMetricFamily(
            "kas_oidc_keys",
            "Valid keys of the identity provider.",
            len(self._keys) if self.usable else 0,
        )
        if self._keys:
            yield GaugeMetricFamily(
                "kas_oidc_keys_age_seconds",
                "Seconds since kas last read the identity provider's keys.",
                self._age(),
            )
        asked = CounterMetricFamily(
            "kas_oidc_keys_asked",
            "Requests for the identity provider's keys, by result.",
            labels=["result"],
        )
        for result, count in self._reads.items():
            asked.add_metric([result], count)
        yield asked

    def start(self) -> None:
        """Read the keys, now and periodically."""
        self._loop.start(LOOK_INTERVAL, now=True)

    def stop(self) -> None:
        """Stop reading the keys."""
        self._loop.stop()
        self._asking.cancel()

    @property
    def usable(self) -> bool:
        """Whether the provider responded recently enough for its keys to be used."""
        return self._age() <= self._settings.keys_outage_ttl

    def __contains__(self, key: VerificationKey) -> bool:
        return key in self._keys

    async def find(self, algorithm: str, kid: str | None) -> VerificationKey:
        """
        Return the key for tokens that name *kid* and *algorithm*.

        :raises CallError: UNAUTHENTICATED if the provider has no such key; UNAVAILABLE
            if the provider does not respond.
        """
        found = self._found(algorithm, kid)
        if found is None and self._may_ask():
            await self._asking.get()
            found = self._found(algorithm, kid)
        if found is not None:
            return found
        if not self.usable:
            raise CallError(
                Status.UNAVAILABLE,
                "the keys of the identity provider (oidc.issuer) are unavailable; "
                "try again",
            )
        raise CallError(
            Status.UNAUTHENTICATED,
            "the identity provider has no key that fits the token: is it a token of "
            f"{self._settings.issuer}?",
        )

    def _found(self, algorithm: str, kid: str | None) -> VerificationKey | None:
        if not self.usable:
            return None
        found = [
            key
            for key in self._keys
            if key.algorithm == algorithm and kid in (None, key.kid)
        ]
        # A token that does not name a key is unambiguous only if the provider has a
        # single key.
        return found[0] if len(found) == 1 else None

    def _age(self) -> float:
        return self._clock.seconds() - self._read_at

    def _may_ask(self) -> bool:
        pause = self._clock.seconds() - self._asked_at
        return self._asking.running or pause >= MIN_INTERVAL

    def _look(self) -> None:
        if self._age() >= self._settings.keys_ttl and self._may_ask():
            self._asking.start()

    def _ask(self) -> Deferred[None]:
        """
        Return a Deferred that fires after a request to the provider, even if the
        request failed.
        """
        self._asked_at = self._clock.seconds()
        asking = Deferred.fromCoroutine(self._read())
        return asking.addTimeout(TIMEOUT, self._clock).addErrback(self._failed)

    async def _read(self) -> None:
        url = (await self._description.read()).get("jwks_uri")
        if not isinstance(url, str) or not is_private(url):
            raise _Unusable("it does not announce an https URL of its keys (jwks_uri)")
        status, found = await self._requests.fetch(url)
        if status != 200:
            raise _Unusable(f"it responded with {status} to {url}")
        listed = found.get("keys")
        if not isinstance(listed, list) or len(listed) > MAX_KEYS:
            raise _Unusable(f"its keys are not a list of at most {MAX_KEYS}")
        keys = frozenset(_usable(listed, self._settings.signing_algorithms))
        if not keys:
            raise _Unusable("none of its keys is for oidc.signing_algorithms")
        if self._failing:
            self._log.info("the keys of the identity provider are available again")
        self._failing = False
        self._reads["read"] += 1
        self._keys = keys
        self._read_at = self._clock.seconds()

    def _failed(self, failure: Failure) -> None:
        if failure.check(CancelledError) and not self._loop.running:
            return
        self._reads["failed"] += 1
        if not self._failing:
            error = failure.value
            self._log.error(
                "cannot read the keys of the identity provider; the last keys stay "
                "valid for {ttl:g} s: {reason}",
                ttl=self._settings.keys_outage_ttl,
                reason=clean(str(error) or type(error).__name__, MAX_REASON),
            )
        self._failing = True


def _usable(
    listed: Iterable[object], allowed: Iterable[str]
) -> Iterator[VerificationKey]:
    """
    Yield the keys in *listed* that are usable for signatures; skip all other keys.
    """
    algorithms = tuple(allowed)
    for raw in listed:
        if not isinstance(raw, dict) or raw.get("use") not in (None, "sig"):
            continue
        kid = raw.get("kid")
        if kid is not None and not isinstance(kid, str):
            continue
        for algorithm in algorithms:
            kind, curve = _FITS[algorithm]
            if raw.get("kty") != kind or raw.get("alg") not in (None, algorithm):
                continue
            if curve is not None and raw.get("crv") != curve:
                continue
            public = _public(raw, algorithm)
            if public is not None:
                yield VerificationKey(algorithm, kid, _thumbprint(raw), public)


def _thumbprint(raw: dict[str, Any]) -> bytes:
    """Return the thumbprint of a key (RFC 7638), which ignores renewed certificates."""
    members = {name: raw.get(name) for name in _MEMBERS[raw["kty"]]}
    said = json.dumps(members, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(said.encode()).digest()


def _public(raw: dict[str, Any], algorithm: str) -> Any:
    """Return the public key in *raw*; None if it is invalid."""
    # Read only the public half: private keys do not belong in the list.
    stated = {name: value for name, value in raw.items() if name != "d"}
    read: Callable[[Any], Any] = jwt.get_algorithm_by_name(algorithm).from_jwk
    try:
        public = read(stated)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError):
        return None
    if stated["kty"] == "RSA" and public.key_size < MIN_RSA_BITS:
        return None
    return public
