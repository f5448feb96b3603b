"""Requests of a module in agentk to GitLab, which kas signs and sends."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from tunnel.api import IClientCall, IGitLab, IGitLabResponse, IServiceClient
from tunnel.errors import CallError, Status
from tunnel.pb import gitlab_access_pb2 as pb

__all__ = ["MAX_TIME", "SERVICE", "GitLabAccess", "check_path"]

SERVICE = pb.DESCRIPTOR.services_by_name["GitlabAccess"]

#: Maximum number of seconds of one request, including its body and response.
MAX_TIME = 3600.0

#: Maximum number of characters of a path below a module's path.
MAX_PATH = 4096

#: Maximum number of bytes in one message with a part of a body.
CHUNK = 64 * 1024

#: Characters that RFC 3986 permits in paths.
_PATH = re.compile(r"(?:/[A-Za-z0-9\-._~!$&'()*+,=:@%]*)*")
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
#: Bytes that a server on the way could treat as a separator, or decode again.
_BAD_BYTES = re.compile(rb"[\x00-\x20/\\%;?#\x7f]")


def check_path(path: str) -> None:
    """
    Refuse a path that could lead out of a module's own path.

    :raises CallError: INVALID_ARGUMENT.
    """
    wrong = ""
    if len(path) > MAX_PATH:
        wrong = f"has more than {MAX_PATH} characters"
    elif _PATH.fullmatch(path) is None or _BAD_PERCENT.search(path) is not None:
        wrong = "does not consist of / and percent-encoded segments"
    else:
        segments = path.split("/")[1:]
        for place, segment in enumerate(segments):
            plain = unquote_to_bytes(segment)
            if plain in (b".", b".."):
                wrong = "has a segment . or .."
            elif _BAD_BYTES.search(plain) is not None:
                wrong = "has an encoded separator, blank, control character or %"
            elif not plain and place < len(segments) - 1:
                wrong = "has an empty segment"
    if wrong:
        raise CallError(Status.INVALID_ARGUMENT, f"the path of a request {wrong}")


@implementer(IGitLab)
class GitLabAccess:
    """
    Access of one module to GitLab.

    :param client: the client of `SERVICE`.
    """

    def __init__(self, client: IServiceClient, module: str) -> None:
        self._client = client
        self._module = module

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | AsyncIterable[bytes] = b"",
        timeout: float = 60.0,
    ) -> GitLabResponse:
        """See `IGitLab.request`."""
        check_path(path)
        if not 0 < timeout <= MAX_TIME:
            raise ValueError(
                f"a timeout must be more than 0 and at most {MAX_TIME:g} s"
            )
        known = isinstance(body, bytes)
        head = pb.HttpRequest(
            header=pb.HttpRequest.Header(
                request=pb.Request(
                    method=method,
                    url_path=path,
                    header=_values(headers),
                    query=_values(query),
                ),
                content_length=len(body) if isinstance(body, bytes) else -1,
            )
        )
        head.header.extra.Pack(pb.HeaderExtra(module_name=self._module))
        call: IClientCall = self._client.open("MakeRequest", timeout=timeout)
        sending = Deferred.fromCoroutine(
            _send(call, head, _parts(body) if known else body)
        )
        response = GitLabResponse(call, sending)
        try:
            await response.begin()
        except BaseException:
            response.close()
            raise
        return response


@implementer(IGitLabResponse)
class GitLabResponse:
    """See `IGitLabResponse`."""

    def __init__(self, call: IClientCall, sending: Deferred[None]) -> None:
        self.status = 0
        self.headers: dict[str, tuple[str, ...]] = {}
        self._call = call
        self._messages = aiter(call)
        self._sending = sending
        #: Error while the module's request body was read; None without an error.
        self._broken: BaseException | None = None
        self._complete = False
        sending.addErrback(self._not_sent)

    def _not_sent(self, failure: Failure) -> None:
        # If the call has ended, reading its response reports the reason.
        if not failure.check(CallError, CancelledError):
            self._broken = failure.value
            self._call.cancel()

    async def _next(self) -> pb.HttpResponse | None:
        try:
            return await anext(self._messages, None)
        except CallError:
            if self._broken is not None:
                raise self._broken from None
            raise

    async def begin(self) -> None:
        """Wait for the head of GitLab's response."""
        message = await self._next()
        if message is None or message.WhichOneof("message") != "header":
            raise CallError(Status.INTERNAL, "kas sent a response without a head")
        response = message.header.response
        self.status = response.status_code
        self.headers = {
            name.lower(): tuple(values.value)
            for name, values in response.header.items()
        }

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._complete:
            message = await self._next()
            if message is None:
                raise CallError(Status.INTERNAL, "kas sent an incomplete response")
            if message.WhichOneof("message") == "trailer":
                self._complete = True
                self.close()
            elif message.data.data:
                return message.data.data
        raise StopAsyncIteration

    async def read(self, limit: int = 1024 * 1024) -> bytes:
        """See `IGitLabResponse.read`."""
        parts: list[bytes] = []
        size = 0
        try:
            async for part in self:
                size += len(part)
                if size > limit:
                    raise CallError(
                        Status.RESOURCE_EXHAUSTED,
                        f"the response of GitLab has more than {limit} bytes",
                    )
                parts.append(part)
        finally:
            self.close()
        return b"".join(parts)

    def close(self) -> None:
        """See `IGitLabResponse.close`."""
        self._sending.cancel()
        self._call.cancel()


def _values(fields: Mapping[str, str] | None) -> dict[str, Any]:
    return {name: pb.Values(value=[value]) for name, value in (fields or {}).items()}


async def _parts(body: Any) -> AsyncIterator[bytes]:
    yield body


async def _send(
    call: IClientCall, head: pb.HttpRequest, body: AsyncIterable[bytes] | Any
) -> None:
    await call.send(head)
    async for part in body:
        for start in range(0, len(part), CHUNK):
            data = pb.Data(data=part[start : start + CHUNK])
            await call.send(pb.HttpRequest(data=data))
    await call.send(pb.HttpRequest(trailer=pb.Trailer()))
    call.finish()
