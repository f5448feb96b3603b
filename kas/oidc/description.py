"""Description of an identity provider, which names its endpoints and its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from kas.oidc.code_flow import SignInFailed, checked_description, description_url
from kas.oidc.requests import ProviderRequests
from tunnel.toolkit.single_flight import SingleFlight

__all__ = ["ProviderDescription"]

#: Seconds after a failure in which further sign-ins fail at once: any client can begin
#: sign-ins, and each would cause a request.
RETRY_PAUSE = 5.0

#: Maximum seconds of a description's use.  kas reads the description again together
#: with the keys, by default every five minutes, so that a sign-in rarely waits for it.
MAX_AGE = 900.0


class ProviderDescription:
    """
    Description of one provider (OpenID Connect Discovery), with one request at a time.
    """

    def __init__(
        self, issuer: str, requests: ProviderRequests, clock: IReactorTime
    ) -> None:
        self._issuer = issuer
        self._requests = requests
        self._clock = clock
        self._found: Mapping[str, Any] = {}
        self._read_at = float("-inf")
        #: The last failure, and its time.
        self._failure: SignInFailed | None = None
        self._failed_at = float("-inf")
        self._reading = SingleFlight(self._read, abandon=True)

    def read(self) -> Deferred[Mapping[str, Any]]:
        """
        Read the description from the provider.

        The Deferred fails with `SignInFailed` if the provider does not respond, or
        describes another provider.
        """
        return self._reading.get()

    async def get(self) -> Mapping[str, Any]:
        """
        Return a description that was read at most `MAX_AGE` ago.

        :raises SignInFailed: see `read`.
        """
        if self._clock.seconds() - self._read_at <= MAX_AGE:
            return self._found
        paused = self._clock.seconds() - self._failed_at < RETRY_PAUSE
        if self._failure is not None and paused:
            raise type(self._failure)(str(self._failure))
        return await self.read()

    async def _read(self) -> Mapping[str, Any]:
        try:
            answer = await self._requests.fetch(description_url(self._issuer))
            self._found = checked_description(self._issuer, *answer)
        except SignInFailed as error:
            self._failure, self._failed_at = error, self._clock.seconds()
            raise
        self._read_at = self._clock.seconds()
        return self._found
