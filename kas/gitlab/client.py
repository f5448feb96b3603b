"""Client of GitLab's internal API, and of GitLab's API for CI jobs."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import attrs
from hyperlink import EncodedURL
from treq.client import HTTPClient
from twisted.internet.defer import (
    CancelledError,
    Deferred,
    DeferredSemaphore,
    TimeoutError,
    maybeDeferred,
)
from twisted.internet.error import ConnectError, ConnectionClosed, DNSLookupError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.web.client import (
    RequestGenerationFailed,
    RequestTransmissionFailed,
    ResponseFailed,
    ResponseNeverReceived,
)
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse

from kas.config.gitlab import GitLab
from kas.identity.jwt import Secrets, sign
from kas.request_queue import RequestQueue
from tunnel import __version__
from tunnel.bodies import TooLarge, WholeBody, collect
from tunnel.errors import CallError, ConfigurationError, Status
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.texts import clean
from tunnel.transport.negotiation import NegotiationError

__all__ = ["GitLabClient"]

T = TypeVar("T")

ISSUER = "gitlab-kas"
AUDIENCE = "gitlab"

#: Lifetime of the token of one request, in seconds.
TOKEN_LIFETIME = 30.0

#: Maximum seconds until the whole response to a request has arrived.
TIMEOUT = 20.0

#: Maximum bytes of a response.  The largest response lists the agents of a CI job: 200
#: bytes for each agent, and GitLab permits 500 agents per project.
MAX_BODY = 1024 * 1024

#: Maximum number of simultaneous requests: the same as in GitLab's own kas.
MAX_REQUESTS = 50

#: Number of retries, and the seconds between them.
RETRIES = 4
RETRY_FIRST, RETRY_MOST = 0.1, 30.0

_USER_AGENT = f"gitlab-kas/{__version__}/txkas"

_PREFIX = "/api/v4/internal/kubernetes/"
_ALLOWED_AGENTS = "/api/v4/job/allowed_agents"

#: Text of a 401 response from GitLab that refuses the signature of kas, and not the
#: agent's token (authenticate_gitlab_kas_request! in its lib/api).
NOT_SIGNED = "KAS JWT authentication invalid"

_MEANING = {
    401: Status.UNAUTHENTICATED,
    403: Status.PERMISSION_DENIED,
    404: Status.NOT_FOUND,
}

#: Meaning of statuses for requests whose 400 means that the request does not name a
#: user.
_EXPLAINED = {**_MEANING, 400: Status.UNAUTHENTICATED}

#: Seconds after a successful response during which it proves that GitLab accepts this
#: kas.  GitLab refuses every request of a kas with a wrong secret or clock, and such a
#: kas must not make other kas refuse valid credentials.
PROVEN = 600.0

#: GitLab's statuses for an invalid request body.
_UNPROCESSABLE = (400, 413, 422)

#: Maximum characters of GitLab's reason for a refusal.
MAX_REASON = 200

_BROKEN = (
    ConfigurationError,  # The file of CAs is invalid.
    ConnectError,
    ConnectionClosed,
    DNSLookupError,
    NegotiationError,  # Raised by TLS, or by the proxy.
    RequestGenerationFailed,
    RequestTransmissionFailed,
    ResponseFailed,
    ResponseNeverReceived,
    TimeoutError,
)


class _TryAgain(Exception):
    """
    Error of a failed attempt that kas may retry; *pause* is the number of seconds that
    GitLab asked kas to wait, or 0.
    """

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


@attrs.frozen
class _Request:
    """
    Request to GitLab, which may need several attempts.

    :ivar name: the name of the request in metrics.
    """

    method: str
    name: str
    path: str
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    query: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    body: bytes | None = attrs.field(default=None, repr=False)
    signed: bool = True
    #: See `GitLabClient.post`.
    explained: bool = False


class GitLabClient:
    """
    Client of GitLab's APIs that signs its requests with the shared secret.

    The client does not follow redirects or store cookies.  All errors are `CallError`:
    the statuses 401, 403 and 404 become UNAUTHENTICATED, PERMISSION_DENIED and
    NOT_FOUND (for 400, see `post`); every other error is UNAVAILABLE, because it does
    not concern the agent or user that the request is about.  A 401 about the signature
    of kas is also UNAVAILABLE: a wrong secret must not end every tunnel.

    :param agent: sends the requests.
    :param now: returns the time of day, for tokens.
    :param jitter: returns a number between 0 and 1, for pauses.
    :ivar outcomes: responses by path and outcome, for metrics.
    """

    def __init__(
        self,
        settings: GitLab,
        agent: IAgent,
        clock: IReactorTime,
        now: Callable[[], float],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._address = settings.address.rstrip("/")
        host = urlsplit(self._address).netloc
        # Twisted would omit the brackets of an IPv6 address.
        self._host = {"Host": host} if host.startswith("[") else {}
        self._secrets = Secrets(settings.authentication_secret_file, clock=clock)
        self._agent = agent
        self._clock = clock
        self._now = now
        self._jitter = jitter
        limit = settings.api_rate_limit
        self.queue = RequestQueue(
            limit.refill_rate_per_second,
            limit.bucket_size,
            clock,
            "requests to GitLab",
        )
        self._room = DeferredSemaphore(MAX_REQUESTS)
        self._taken_until = -math.inf
        self.outcomes: Counter[tuple[str, str]] = Counter()
        # Ignore every cookie that GitLab sets.
        cookies: Any = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
        # treq's types require a concrete reactor and concrete dictionaries.
        self._http: Any = HTTPClient(agent, cookies, WholeBody)

    def is_taken(self) -> bool:
        """
        Return whether GitLab accepted the signature of this kas within the last
        `PROVEN` seconds.
        """
        return self._clock.seconds() < self._taken_until

    async def get(
        self,
        path: str,
        *,
        agent_token: bytes = b"",
        query: Mapping[str, str] | None = None,
        retry: bool = True,
    ) -> dict[str, Any]:
        """
        Return GitLab's object at *path*, below ``/api/v4/internal/kubernetes/``.

        :param agent_token: token of the agent that the request concerns.
        :param retry: whether to retry if GitLab may respond later.
        """
        headers = {}
        if agent_token:
            headers["Authorization"] = "Bearer " + agent_token.decode("latin-1")
        request = _Request("GET", path, _PREFIX + path, headers, query or {})
        return await self._ask(request, retry)

    async def allowed_agents(self, job_token: str) -> dict[str, Any]:
        """
        Return the agents that a CI job may use; this request needs only the job's own
        token.
        """
        request = _Request(
            "GET",
            "allowed_agents",
            _ALLOWED_AGENTS,
            {"Job-Token": job_token},
            signed=False,
        )
        return await self._ask(request, retry=True)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        explained: bool = False,
        retry: bool = True,
    ) -> dict[str, Any]:
        """
        Post *body* to *path*, and return GitLab's response; empty if the response has
        no content.

        :param explained: whether the status 400 is a refusal, too; the message of the
            error is then GitLab's explanation.
        :param retry: whether to retry if GitLab may respond later.
        """
        request = _Request(
            "POST",
            path,
            _PREFIX + path,
            {"Content-Type": "application/json"},
            body=json.dumps(body).encode(),
            explained=explained,
        )
        return await self._ask(request, retry)

    async def forward(
        self,
        method: str,
        target: str,
        headers: Headers,
        body: IBodyProducer | None,
        agent_token: bytes,
    ) -> IResponse:
        """
        Send the request of a module in agentk to GitLab, and return the response,
        whatever its status.  The request is not retried, and the caller handles
        timeouts.

        :param target: the path and query.
        """
        await self.queue.passed()
        headers.setRawHeaders(b"Authorization", [b"Bearer " + agent_token])
        for name, value in self._host.items():
            headers.setRawHeaders(name.encode(), [value.encode()])
        headers.setRawHeaders(b"User-Agent", [_USER_AGENT.encode()])
        headers.setRawHeaders(b"Gitlab-Kas-Api-Request", [self._signature().encode()])
        try:
            response: IResponse = await self._agent.request(
                method.encode("ascii"),
                (self._address + target).encode("ascii"),
                headers,
                body,
            )
        except _BROKEN as error:
            if _was_cancelled(error):
                raise CancelledError from None
            self.outcomes["modules", "broken"] += 1
            text = f"kas cannot reach GitLab: {_reason(error)}"
            raise CallError(Status.UNAVAILABLE, text) from None
        self.outcomes["modules", str(response.code)] += 1
        return response

    def _signature(self) -> str:
        return sign(
            self._secrets,
            issuer=ISSUER,
            audience=AUDIENCE,
            now=self._now(),
            lifetime=TOKEN_LIFETIME,
        )

    async def _ask(self, request: _Request, retry: bool) -> dict[str, Any]:
        backoff = Backoff(self._jitter, RETRY_FIRST, RETRY_MOST)
        attempt = 0
        while True:
            await self.queue.passed()
            await self._room.acquire()
            try:
                return await self._once(request)
            except _TryAgain as error:
                attempt += 1
                if not retry or attempt > RETRIES:
                    text = f"GitLab is unavailable: {error}"
                    raise CallError(Status.UNAVAILABLE, text) from None
                pause = min(max(backoff.pause(), error.pause), RETRY_MOST)
            finally:
                self._room.release()
            await deferLater(self._clock, pause)

    async def _once(self, request: _Request) -> dict[str, Any]:
        """
        Make one attempt.

        A request that was sent is completed even if no caller waits for it any more:
        GitLab does the work anyway, and would receive the same request again if the
        response were dropped.
        """
        result, left = await _to_its_end(self._send(request))
        try:
            if isinstance(result, Failure):
                self._explain(result, request)
            response, body = result
            self.outcomes[request.name, str(response.code)] += 1
            answer = self._read(response, body, request)
            if request.signed:
                self._taken_until = self._clock.seconds() + PROVEN
            return answer
        except _TryAgain:
            if left:
                raise CancelledError from None
            raise

    def _send(self, request: _Request) -> Deferred[tuple[IResponse, bytes]]:
        headers = {
            "Accept": "application/json",
            **request.headers,
            **self._host,
            "User-Agent": _USER_AGENT,
        }
        if request.signed:
            headers["Gitlab-Kas-Api-Request"] = self._signature()
        asking = maybeDeferred(
            self._http.request,
            request.method,
            _Url.from_text(self._address + request.path),
            params=request.query,
            headers=headers,
            data=request.body,
            allow_redirects=False,
            unbuffered=True,
            # treq needs a reactor only for a timeout of its own.
            reactor=self._clock,
        ).addCallback(collect, MAX_BODY)
        return asking.addTimeout(TIMEOUT, self._clock, onTimeoutCancel=_too_late)

    def _explain(self, failure: Failure, request: _Request) -> NoReturn:
        try:
            failure.raiseException()
        except TimeoutError:
            self.outcomes[request.name, "timeout"] += 1
            raise _TryAgain(f"no response within {TIMEOUT:g} s") from None
        except TooLarge:
            self.outcomes[request.name, "unreadable"] += 1
            raise _unusable(f"a response of more than {MAX_BODY} bytes") from None
        except UnicodeError:
            raise _unusable("gitlab.address contains an invalid host") from None
        except _BROKEN as error:
            self.outcomes[request.name, "broken"] += 1
            raise _TryAgain(f"the connection failed ({_reason(error)})") from None

    def _read(
        self, response: IResponse, body: bytes, request: _Request
    ) -> dict[str, Any]:
        code: int = response.code
        meaning = _EXPLAINED if request.explained else _MEANING
        if code == 429 or (code >= 500 and code != 501):
            raise _TryAgain(f"it responded with {code}", _pause(response))
        if code == 204 and request.method == "POST":
            return {}
        if code not in (200, 201, *meaning):
            if code in _UNPROCESSABLE:
                raise Unprocessable(Status.UNAVAILABLE, f"GitLab responded with {code}")
            raise _unusable(f"it responded with {code}")
        kinds = response.headers.getRawHeaders(b"content-type", [b""])
        if kinds[0].partition(b";")[0].strip().lower() != b"application/json":
            # A refusal may also come from a server in front of GitLab.
            text = f"its response ({code}) is not JSON; check gitlab.address"
            raise _unusable(text)
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise _unusable("its response is malformed")
        if code not in meaning:
            return found
        if found.get("message") == NOT_SIGNED:
            raise _unusable(
                "GitLab refuses the signature of kas: compare the file of "
                "gitlab.authentication_secret_file with GitLab's secret, and the "
                "clocks of both machines"
            )
        text = f"GitLab responded with {code}"
        reason = found.get("message")
        if request.explained and isinstance(reason, str):
            text += f": {clean(reason, MAX_REASON)}"
        raise CallError(meaning[code], text)


class Unprocessable(CallError):
    """
    Error for a request whose body GitLab does not accept; a retry would fail, too.
    """


class _Url(EncodedURL):
    """A URL whose host may be an IPv6 address, which hyperlink treats as a name."""

    def to_uri(self) -> EncodedURL:
        """See hyperlink."""
        if ":" not in self.host:
            return super().to_uri()
        return EncodedURL.to_uri(self.replace(host="literal")).replace(host=self.host)


async def _to_its_end(asking: Deferred[Any]) -> tuple[Any, bool]:
    """
    Return the result of *asking*, and whether the callers cancelled the request in the
    meantime.
    """
    left = False
    while True:
        over: Deferred[tuple[Any]] = Deferred()
        asking.addBoth(_tell, over)
        try:
            (result,) = await over
        except CancelledError:
            left = True
        else:
            return result, left


def _tell(result: T, over: Deferred[tuple[T]]) -> T | None:
    if over.called:
        return result
    over.callback((result,))
    return None


def _too_late(result: object, seconds: float) -> Failure:
    # The failure itself says only that the request was cancelled.
    return Failure(TimeoutError(seconds))


def _was_cancelled(error: BaseException) -> bool:
    return any(one.check(CancelledError) for one in getattr(error, "reasons", ()))


def _unusable(why: str) -> CallError:
    return CallError(Status.UNAVAILABLE, f"cannot use GitLab: {why}")


def _pause(response: IResponse) -> float:
    said = response.headers.getRawHeaders(b"retry-after", [b""])[0]
    return float(said) if said.isdigit() and len(said) < 6 else 0.0


def _reason(error: BaseException) -> str:
    inner = getattr(error, "reasons", None)
    if inner:
        return str(inner[0].getErrorMessage() or type(inner[0].value).__name__)
    return str(error) or type(error).__name__
