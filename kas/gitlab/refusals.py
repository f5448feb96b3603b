"""
GitLab's refusals, shared by all kas through Redis for the lifetime of refusals.

=======================================  ====  ========================================
Key, below ``<key_prefix>:txkas1:``      Type  Content
=======================================  ====  ========================================
``agent_info_errs:<hash>``               text  for agents' tokens
``allowed_agents_errs:<hash>``           text  for CI jobs' tokens
``auth_proxy_user_errs:<kind>:<hash>``   text  for users' credentials, by their kind
=======================================  ====  ========================================

The content is GitLab's status, a blank, and the message. It expires with the refusal.
The hash covers the whole credential (SHA-256, in bytes). GitLab's kas hashes only the
first half, so that it confuses a mistyped token, or a CI job's signed token, with other
tokens that begin with the same characters. Therefore this kas does not use the keys of
GitLab's kas, which are directly below the prefix.

Importing this module installs a reactor, as importing `kas.redis` does.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime

from kas.redis import (
    RedisClient,
    RedisRefused,
    RedisUnavailable,
    trap_redis_errors,
)
from tunnel.errors import CallError, Status
from tunnel.toolkit.texts import clean

__all__ = ["SharedRefusals"]

#: Timeout in seconds of a query to Redis for a refusal of another kas: an agent waits
#: during the query, and kas can send the request to GitLab instead.
PATIENCE = 0.5

#: Maximum characters of a refusal's message, and maximum bytes of a value that is read.
MAX_MESSAGE = 500
MAX_VALUE = 4 * MAX_MESSAGE + 4

_CODES = {
    Status.UNAUTHENTICATED: b"401",
    Status.PERMISSION_DENIED: b"403",
    Status.NOT_FOUND: b"404",
}
_MEANING = {code: status for status, code in _CODES.items()}


@attrs.define(eq=False)
class SharedRefusals:
    """
    Implementation of `kas.gitlab.cache.Refusals`.

    While Redis is down, kas shares no refusals and does not wait for Redis.

    :param family: the prefix of the keys.
    :param proven: returns whether GitLab has accepted this kas, so that a refusal must
        be about the credential.
    """

    _redis: RedisClient
    _prefix: str
    _family: str
    _clock: IReactorTime
    _proven: Callable[[], bool]

    async def find(self, key: bytes) -> CallError | None:
        """
        Return the refusal that any kas received from GitLab; None if no refusal is
        known.
        """
        asking: Deferred[bytes | None] = self._redis.call("GET", self._key(key))
        try:
            value = await asking.addTimeout(PATIENCE, self._clock)
        except (RedisRefused, RedisUnavailable, TimeoutError):
            return None
        return None if value is None else _read(value)

    def add(self, key: bytes, error: CallError, seconds: float) -> None:
        """Share a refusal with all kas, in the background."""
        if not self._proven():
            return
        message = clean(error.message, MAX_MESSAGE).encode()
        value = _CODES[error.status] + b" " + message
        milliseconds = max(1, round(seconds * 1000))
        self._redis.call("SET", self._key(key), value, "PX", milliseconds).addErrback(
            trap_redis_errors
        )

    def _key(self, key: bytes) -> bytes:
        return f"{self._prefix}:txkas1:{self._family}:".encode() + key


def _read(value: bytes) -> CallError | None:
    code, _, message = value[: MAX_VALUE + 1].partition(b" ")
    status = _MEANING.get(code)
    if status is None or len(value) > MAX_VALUE:
        return None
    return CallError(status, clean(message.decode("utf-8", "replace"), MAX_MESSAGE))
