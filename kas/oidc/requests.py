"""HTTP requests of kas to an identity provider."""

from __future__ import annotations

from collections.abc import Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.parse import urlencode

from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.web.iweb import IAgent

from kas.oidc.code_flow import (
    MAX_BODY,
    MAX_REASON,
    SignInFailed,
    Unreachable,
    read_object,
)
from tunnel.bodies import TooLarge, WholeBody, collect
from tunnel.toolkit.texts import clean
from tunnel.toolkit.time_limit import within

__all__ = ["TIMEOUT", "ProviderRequests"]

#: Maximum seconds for one response of the provider: a browser waits for two of them.
TIMEOUT = 10.0


class ProviderRequests:
    """
    Client for requests to one identity provider.

    It follows no redirects, because a secret would be sent to an unverified URL.

    :param agent: sends the requests.
    """

    def __init__(self, agent: IAgent, clock: IReactorTime) -> None:
        self._clock = clock
        cookies: Any = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
        self._http: Any = HTTPClient(agent, cookies)

    async def fetch(
        self,
        url: str,
        form: Mapping[str, str] | None = None,
        authorization: str = "",
    ) -> tuple[int, dict[str, Any]]:
        """
        Return the status and the JSON object of a response.

        :param form: form fields to post; None to read the URL.
        :param authorization: the value of the header with this name.
        :raises Unreachable: if the provider does not respond within `TIMEOUT`, or
            responds with a server error.
        :raises SignInFailed: if the response is too large, or not a JSON object.
        """
        work = Deferred.fromCoroutine(self._ask(url, form, authorization))
        try:
            status, body = await within(work, TIMEOUT, self._clock)
        except CancelledError:
            raise
        except TooLarge:
            raise SignInFailed(
                f"the response of {url} has more than {MAX_BODY} bytes"
            ) from None
        except TimeoutError:
            raise Unreachable(
                f"{url}: no complete response within {TIMEOUT:g} s"
            ) from None
        # Each layer below has its own exceptions, which have no common class.
        except Exception as error:
            raise Unreachable(f"{url}: {_reason(error)}") from None
        return status, read_object(url, status, body)

    async def _ask(
        self, url: str, form: Mapping[str, str] | None, authorization: str
    ) -> tuple[int, bytes]:
        headers = {"Accept": "application/json", "User-Agent": "kas"}
        if authorization:
            headers["Authorization"] = authorization
        data = None
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            data = WholeBody(urlencode(form).encode())
        response = await self._http.request(
            "GET" if form is None else "POST",
            url,
            headers=headers,
            data=data,
            allow_redirects=False,
            unbuffered=True,
            reactor=self._clock,
        )
        # Read error responses, too, because unread responses would hold the connection.
        _, body = await collect(response, MAX_BODY)
        return response.code, body


def _reason(error: Exception) -> str:
    inner = getattr(error, "reasons", None)
    if inner:
        error = inner[0].value
    return clean(str(error) or type(error).__name__, MAX_REASON)
