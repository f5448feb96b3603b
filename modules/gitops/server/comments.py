"""The single comment of kas on a merge request, through GitLab's API."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any, Final

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IResponse

from modules.gitops.server.config import MergeRequestSettings
from tunnel import __version__
from tunnel.api import IStore
from tunnel.bodies import TooLarge, WholeBody, collect
from tunnel.errors import CallError, Status
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.secret_file import read_secret

__all__ = ["Comments"]

#: Maximum number of attempts for one request, and first and maximum pause between them
#: in seconds.
ATTEMPTS, PAUSE_FIRST, PAUSE_MOST = 5, 1.0, 60.0

#: Maximum seconds for one attempt.
SECONDS = 20.0

#: Number of comments in one page, which is GitLab's limit, and maximum number of pages
#: that are searched.
PER_PAGE, MAX_PAGES = 100, 50

#: Maximum bytes of a response.  A comment is at most a million characters long.  A user
#: who writes many such comments can prevent kas from finding its own comment if the
#: store does not contain kas' comment.
MAX_ANSWER = 4 * 1024 * 1024

#: Seconds that a comment is remembered: few merge requests are idle for longer.
REMEMBERED = 90 * 24 * 3600.0

#: Maximum digits of the id of a comment: GitLab's ids have 64 bits.
MAX_DIGITS = 19

_REFUSED: Final = {
    401: "the token is not valid, or has expired",
    403: "the token needs the scope api, and its user a member's permissions",
    404: "the user of the token cannot see this merge request",
}


class _TryAgain(Exception):
    """
    Error for a failed request if a retry may succeed.

    :ivar pause: the seconds that GitLab requested; 0 if none.
    """

    def __init__(self, why: str, pause: float = 0.0) -> None:
        super().__init__(why)
        self.pause = pause


@attrs.define(eq=False)
class Comments:
    """
    Reader and writer of the comments of kas, which belong to the user who owns kas'
    token.

    Only that user's own comments are read, so an imitation by another user is not
    changed. Source: GitLab's Notes API.

    :param mark: the beginning of kas' comments.
    :param store: store that remembers the ids of the comments for all replicas of kas.
    """

    _settings: MergeRequestSettings
    _store: IStore
    _http: IAgent
    _clock: IReactorTime
    _random: Callable[[], float]
    _mark: str

    async def described(self, project_id: int, merge_request: int) -> tuple[Any, Any]:
        """
        Return GitLab's description of a merge request, and GitLab's description of its
        project.

        :raises CallError: if GitLab is unavailable, or refuses the request.
        """
        project = f"/projects/{project_id}"
        found = await self.merge_request(project_id, merge_request)
        return found, await self._ask("GET", project)

    async def merge_request(self, project_id: int, merge_request: int) -> Any:
        """
        Return GitLab's description of a merge request.

        :raises CallError: if GitLab is unavailable, or refuses the request.
        """
        path = f"/projects/{project_id}/merge_requests/{merge_request}"
        return await self._ask("GET", path)

    async def find(self, project_id: int, merge_request: int) -> list[tuple[int, str]]:
        """
        Return the ids and texts of kas' comments on a merge request, the oldest first.

        :raises CallError: if GitLab is unavailable, or refuses the request.
        """
        me = (await self._ask("GET", "/user")).get("id")
        notes = _path(project_id, merge_request)
        found = []
        for page in range(1, MAX_PAGES + 1):
            query = f"?sort=asc&order_by=created_at&per_page={PER_PAGE}&page={page}"
            asked = await self._ask("GET", notes + query)
            every = asked if isinstance(asked, list) else []
            for one in every:
                if _is_of(one, me) and one["body"].startswith(self._mark):
                    found.append((one["id"], one["body"]))
            if len(every) < PER_PAGE:
                break
        return found

    async def put(self, project_id: int, merge_request: int, text: str) -> None:
        """
        Make *text* the only comment of kas on a merge request.

        If several replicas comment at the same moment, only the oldest comment remains,
        with the text of any of them.

        :param text: the text of the comment, which must begin with the mark.
        :raises CallError: if GitLab is unavailable, or refuses the request.
        """
        notes, key = _path(project_id, merge_request), f"{project_id}-{merge_request}"
        known = await self._known(key)
        if known is not None and await self._change_known(notes, known, text):
            await self._remember(key, known)
            return
        found = await self.find(project_id, merge_request)
        if not found:
            made = await self._ask("POST", notes, {"body": text})
            if not isinstance(made, dict) or not isinstance(made.get("id"), int):
                return
            # Another replica may have created a comment at the same moment: the replica
            # that created the last comment sees all of them, in the same order as the
            # others.
            found = await self.find(project_id, merge_request) or [(made["id"], text)]
        (first, before), *more = found
        await self._change(notes, first, before, text)
        for number, _ in more:
            await self._delete(notes, number)
        await self._remember(key, first)

    async def _change_known(self, notes: str, number: int, text: str) -> bool:
        """
        Change the text of a comment that the store names; return whether the comment
        exists and belongs to kas.

        The check is needed because other programs may write to the store, and could
        name a comment of another user that the token can change.
        """
        me = (await self._ask("GET", "/user")).get("id")
        try:
            note = await self._ask("GET", f"{notes}/{number}")
        except CallError as error:
            if error.status is not Status.NOT_FOUND:
                raise
            return False
        if not _is_of(note, me) or not note["body"].startswith(self._mark):
            return False
        return await self._change(notes, number, note["body"], text)

    async def _change(self, notes: str, number: int, before: str, text: str) -> bool:
        """
        Change the text of a comment; return whether the comment exists.

        :param before: the present text.  It comes from GitLab and not from the store,
            because another replica or a user may have changed the comment.
        """
        # GitLab removes whitespace at the end.
        if before.rstrip() == text.rstrip():
            return True
        try:
            await self._ask("PUT", f"{notes}/{number}", {"body": text})
        except CallError as error:
            if error.status is not Status.NOT_FOUND:
                raise
            return False
        return True

    async def _delete(self, notes: str, number: int) -> None:
        """Delete a comment, unless another replica has deleted it."""
        try:
            await self._ask("DELETE", f"{notes}/{number}")
        except CallError as error:
            if error.status is not Status.NOT_FOUND:
                raise

    async def _known(self, key: str) -> int | None:
        """Return the id of a comment, as the store remembers it; None if unknown."""
        try:
            found = await self._store.get(key)
        except CallError:
            # Ignore the failure, because kas can also find the comment through GitLab.
            return None
        if found is None:
            return None
        # Earlier versions of kas add a digest of the text.
        number = found.value.decode("ascii", "replace").partition(" ")[0]
        is_valid = number.isdecimal() and len(number) <= MAX_DIGITS
        return int(number) if is_valid else None

    async def _remember(self, key: str, number: int) -> None:
        with contextlib.suppress(CallError):
            value = str(number).encode()
            await self._store.set(key, value, expires_after=REMEMBERED)

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """
        Send a request with retries; return the parsed JSON response; None if the
        response is empty.

        :raises CallError: NOT_FOUND and others if GitLab refuses the request;
            UNAVAILABLE if all attempts failed.
        """
        backoff = Backoff(self._random, PAUSE_FIRST, PAUSE_MOST)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._try(method, path, body)
            except _TryAgain as error:
                if attempt == ATTEMPTS:
                    raise CallError(Status.UNAVAILABLE, f"GitLab: {error}") from None
                pause = error.pause or backoff.pause()
                await deferLater(self._clock, min(pause, PAUSE_MOST))
        raise AssertionError

    async def _try(self, method: str, path: str, body: Any) -> Any:
        try:
            token = read_secret(self._settings.token_file)
        except ValueError as error:
            raise CallError(Status.FAILED_PRECONDITION, str(error)) from None
        headers = Headers(
            {
                b"User-Agent": [f"txkas/{__version__}".encode()],
                b"Accept": [b"application/json"],
                b"Private-Token": [token],
            }
        )
        producer = None
        if body is not None:
            headers.addRawHeader(b"Content-Type", b"application/json")
            producer = WholeBody(json.dumps(body).encode())
        url = f"{self._settings.gitlab_url.rstrip('/')}/api/v4{path}"
        asking: Deferred[tuple[IResponse, bytes]] = self._http.request(
            method.encode(), url.encode(), headers, producer
        ).addCallback(collect, MAX_ANSWER)
        asking.addTimeout(SECONDS, self._clock)
        try:
            response, content = await asking
        except CancelledError:
            raise
        except TooLarge:
            text = f"GitLab: a response has more than {MAX_ANSWER // 1024**2} MiB"
            raise CallError(Status.RESOURCE_EXHAUSTED, text) from None
        except Exception as error:
            # Name only the type of the error, because errors have many causes: no
            # route, unknown name, bad certificate, timeout.
            raise _TryAgain(type(error).__name__) from None
        return _answered(response, content)


def _answered(response: IResponse, content: bytes) -> Any:
    code = response.code
    if code == 429 or code >= 500:
        raise _TryAgain(f"it responded with {code}", _pause(response))
    if code in _REFUSED:
        status = Status.NOT_FOUND if code == 404 else Status.PERMISSION_DENIED
        raise CallError(status, f"GitLab: {_REFUSED[code]} ({code})")
    if not 200 <= code < 300:
        raise CallError(Status.FAILED_PRECONDITION, f"GitLab: it responded with {code}")
    if not content.strip():
        return None
    try:
        return json.loads(content)
    except ValueError:
        text = "GitLab: the response is not JSON; check gitlab_url"
        raise CallError(Status.FAILED_PRECONDITION, text) from None


def _pause(response: IResponse) -> float:
    (said, *_) = response.headers.getRawHeaders("Retry-After", [""])
    return float(said) if said.isascii() and said.isdigit() else 0.0


def _path(project_id: int, merge_request: int) -> str:
    return f"/projects/{project_id}/merge_requests/{merge_request}/notes"


def _is_of(note: Any, user: Any) -> bool:
    """Return whether *user* wrote the comment *note*."""
    return (
        isinstance(note, dict)
        and isinstance(note.get("author"), dict)
        and isinstance(note.get("id"), int)
        and isinstance(note.get("body"), str)
        and not note.get("system")
        and user is not None
        and note["author"].get("id") == user
    )
