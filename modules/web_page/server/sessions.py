"""Sessions of the page's users, in the store of all kas."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Any, Final

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from tunnel.api import IStore, StoreEvent, StoreEventType
from tunnel.errors import CallError, Status
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.parallel import in_parallel

__all__ = [
    "IDLE_SECONDS",
    "LONGEST_SECONDS",
    "MAX_SESSIONS_EACH",
    "TOUCH_SECONDS",
    "UserSession",
    "UserSessions",
]

#: Seconds without any request after which a session ends: a working day.
IDLE_SECONDS: Final = 8 * 3600.0

#: Seconds after which a session ends in any case.
LONGEST_SECONDS: Final = 24 * 3600.0

#: Minimum number of seconds between two records of the last request of a session,
#: because each of them is a change of the store.
TOUCH_SECONDS: Final = 300.0

#: Maximum number of sessions of one user, who needs one for each browser: a further
#: session ends the oldest.  So no user fills the store, which has 10,000 keys.
MAX_SESSIONS_EACH: Final = 20

#: Maximum characters of an address or the name of a program.
_MAX_TEXT: Final = 200

#: Number of sessions that are read at the same time after a restart.
_AT_ONCE: Final = 20

#: Maximum number of attempts to change a session that other kas change, too: each of
#: them changes it at most once in `TOUCH_SECONDS`.
_MAX_TRIES: Final = 5

#: Seconds until the store is followed again after an error.
_RETRY_SECONDS: Final = 5.0


@attrs.frozen
class UserSession:
    """
    One session, without its secret.

    :ivar key: key in the store; see `modules.web_page.server.secret.SessionSecret`.
    :ivar owner: the user, as in `tunnel.api.Access`.
    :ivar name: the user's name, for display.
    :ivar method: how the user signed in: ``token``, or the name of a provider.
    :ivar credential_id: the id of the credential that the session stands for.
    :ivar created_at: Unix time in seconds, like `used_at`.
    :ivar used_at: time of the last request, at most `TOUCH_SECONDS` too early.
    :ivar address: address of the browser at sign-in.
    :ivar program: ``User-Agent`` of the browser at sign-in.
    :ivar sealed: the encrypted credential.
    :ivar renewing_until: time until which one kas renews the credential; 0 otherwise.
    :ivar subject: the user's id at the identity provider, and `session` the
        provider's own session; empty without a provider.
    """

    key: str
    owner: str
    name: str
    method: str
    credential_id: str
    created_at: float
    used_at: float
    address: str
    program: str
    sealed: bytes = attrs.field(repr=False)
    renewing_until: float = 0.0
    subject: str = ""
    session: str = ""

    @property
    def id(self) -> str:
        """Id that is safe to show and to log."""
        return self.key[:16]

    @property
    def ends_at(self) -> float:
        """Time at which the session ends unless it is used before."""
        return min(self.used_at + IDLE_SECONDS, self.created_at + LONGEST_SECONDS)

    def to_bytes(self) -> bytes:
        """Return the value in the store."""
        content = attrs.asdict(self)
        content["sealed"] = base64.b64encode(self.sealed).decode()
        for name in ("address", "program", "name"):
            content[name] = content[name][:_MAX_TEXT]
        del content["key"]
        return json.dumps(content).encode()

    @classmethod
    def from_bytes(cls, key: str, value: bytes) -> UserSession | None:
        """
        Return the session of a value; None if neither this version of kas wrote it nor
        one that is similar.
        """
        try:
            content: dict[str, Any] = json.loads(value)
            content["sealed"] = base64.b64decode(content["sealed"])
            known = {one.name for one in attrs.fields(cls)}
            found = cls(key, **{k: v for k, v in content.items() if k in known})
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        return found if _is_sound(found) else None


def _is_sound(session: UserSession) -> bool:
    """Return whether all attributes have the declared types."""
    for one in attrs.fields(UserSession):
        value = getattr(session, one.name)
        if isinstance(one.default, float) or one.name.endswith("_at"):
            if type(value) not in (int, float) or not math.isfinite(value):
                return False
        elif one.name != "sealed" and not isinstance(value, str):
            return False
    return True


class UserSessions:
    """
    All sessions, as this process knows them from the store.

    :param ended: called with each session that has ended, at any kas.
    """

    _log = Logger()

    def __init__(
        self,
        store: IStore,
        clock: IReactorTime,
        now: Callable[[], float],
        ended: Callable[[UserSession], object],
    ) -> None:
        self._store = store
        self._clock = clock
        self._now = now
        self._ended = ended
        self._known: dict[str, UserSession] = {}
        self._following: Deferred[None] | None = None

    def start(self) -> None:
        """Follow the store until `stop`."""
        self._following = Deferred.fromCoroutine(self._follow())

    def stop(self) -> None:
        """End following."""
        following, self._following = self._following, None
        if following is not None:
            following.addErrback(lambda failure: failure.trap(CancelledError))
            following.cancel()

    def all(self) -> list[UserSession]:
        """Return the known sessions."""
        return list(self._known.values())

    def get(self, key: str) -> UserSession | None:
        """Return a session that this process knows, unless it has ended."""
        found = self._known.get(key)
        if found is not None and self._now() >= found.ends_at:
            self._forget(key)
            return None
        return found

    async def find(self, key: str) -> UserSession | None:
        """
        Return a session; another kas may have created it a moment ago.

        :raises CallError: UNAVAILABLE if the store cannot be read.
        """
        return self.get(key) or await self._read(key)

    async def add(self, session: UserSession) -> None:
        """
        Store a new session.

        :raises CallError: UNAVAILABLE if the store cannot be changed,
            RESOURCE_EXHAUSTED if it is full.
        """
        await self._put(session, 0)
        # Afterwards, because others may begin while the store is changed.
        mine = [one for one in self._known.values() if one.owner == session.owner]
        mine.sort(key=lambda one: one.used_at)
        for oldest in mine[:-MAX_SESSIONS_EACH]:
            await self.end(oldest.key)

    async def replace(
        self, key: str, change: Callable[[UserSession], UserSession]
    ) -> UserSession | None:
        """
        Change a session in the store, and return it; None if it has ended.

        :param change: called again if another kas changes the session meanwhile.
        :raises CallError: UNAVAILABLE if the store cannot be changed; ABORTED if other
            kas change the session all the time.
        """
        for tries in range(_MAX_TRIES, 0, -1):
            before, version = await self._stored(key)
            if before is None:
                return None
            after = change(before)
            try:
                await self._put(after, version)
            except CallError as error:
                if error.status is not Status.ABORTED or tries == 1:
                    raise
            else:
                return after
        return None

    async def reserve(
        self, key: str, seconds: float
    ) -> tuple[UserSession | None, bool]:
        """
        Let this process renew the credential of a session.

        :return: the session, None if it has ended; and False if another one renews it.
        """
        before, version = await self._stored(key)
        now = self._now()
        if before is None or now < before.renewing_until:
            return before, False
        try:
            await self._put(attrs.evolve(before, renewing_until=now + seconds), version)
        except CallError as error:
            if error.status is not Status.ABORTED:
                raise
            return before, False
        return before, True

    async def _put(self, session: UserSession, version: int) -> None:
        await self._store.set(
            session.key,
            session.to_bytes(),
            version=version,
            expires_after=max(1.0, session.ends_at - self._now()),
        )
        self._known[session.key] = session

    async def touch(self, session: UserSession) -> None:
        """Record that a session is used now, unless it was recorded just before."""
        now = self._now()
        if now - session.used_at < TOUCH_SECONDS:
            return
        # The next request must not record it as well.
        self._known[session.key] = attrs.evolve(session, used_at=now)
        try:
            # A session that has ended at another kas does not begin again.
            await self.replace(session.key, lambda one: attrs.evolve(one, used_at=now))
        except CallError as error:
            if error.status is not Status.ABORTED:
                self._log.warn(
                    "the use of a session was not recorded: {why}", why=str(error)
                )

    async def end(self, key: str) -> bool:
        """
        End a session at all kas, and return whether it existed.

        :raises CallError: UNAVAILABLE if the store cannot be changed.
        """
        existed = await self._store.delete(key)
        self._forget(key)
        return existed

    def end_later(self, session: UserSession) -> None:
        """End a session at once here, and at other kas as soon as possible."""
        self._forget(session.key)
        ending = Deferred.fromCoroutine(self.end(session.key))
        ending.addErrback(
            lambda failure: self._log.failure("ending a session failed", failure)
        )

    def _forget(self, key: str) -> None:
        found = self._known.pop(key, None)
        if found is not None:
            self._ended(found)

    async def _stored(self, key: str) -> tuple[UserSession | None, int]:
        """Return a session with the version of its value; forget one that is gone."""
        stored = await self._store.get(key)
        found = None if stored is None else UserSession.from_bytes(key, stored.value)
        if stored is None or found is None:
            self._forget(key)
            return None, 0
        return found, stored.version

    async def _read(self, key: str) -> UserSession | None:
        found, _ = await self._stored(key)
        if found is None:
            return None
        if self._now() >= found.ends_at:
            self._forget(key)
            return None
        self._known[key] = found
        return found

    async def _follow(self) -> None:
        while True:
            try:
                async with aclosing(self._store.watch()) as events:
                    async for event in events:
                        await self._changed(event)
            except CallError as error:
                self._log.warn("following the sessions: {why}", why=str(error))
            except Exception:
                # Without this, sessions that end at other kas would go on here.
                self._log.failure("following the sessions failed")
            await deferLater(self._clock, _RETRY_SECONDS)

    async def _changed(self, event: StoreEvent) -> None:
        if event.type is StoreEventType.DELETED:
            self._forget(event.key)
        elif event.type is StoreEventType.SET:
            await self._again([event.key])
        else:
            found: list[str] = []
            try:
                async for page in self._store.keys():
                    found += page
            except CallError as error:
                self._unread(error)
                return
            gone = self._known.keys() - set(found)
            for_each(tuple(gone), self._forget, "ending a session")
            await self._again(found)

    async def _again(self, keys: list[str]) -> None:
        async def read(key: str) -> None:
            try:
                await self._read(key)
            except CallError as error:
                self._unread(error)

        await in_parallel([partial(read, one) for one in keys], _AT_ONCE)

    def _unread(self, error: CallError) -> None:
        # The known sessions stay; `find` reads others when they are needed, and the
        # watch begins again with RESET after an outage.
        if error.status is not Status.UNAVAILABLE:
            self._log.warn("a session cannot be read: {why}", why=str(error))
