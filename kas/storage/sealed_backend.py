"""
Seals on the values of a backend that other programs may write to.

    value in the backend: format (1 byte), HMAC-SHA256 (32 bytes), value of the module

Modules use their values to decide what agents get, and a program that can write to
Redis is not permitted to decide that.  Therefore kas seals each value, for its
namespace and key, with a key that it derives from the secret of ``private_api``.  A
value without a valid seal counts as missing; the next `set` replaces it.

A program that can write to Redis can still delete values, and replace a value by an
earlier one of the same key.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
from twisted.logger import Logger

from tunnel.api import StoredValue
from tunnel.errors import CallError, Status
from tunnel.hosting.stores import BackendListener, StoreBackend

__all__ = ["SEAL_BYTES", "ReplacingBackend", "SealedBackend"]

#: First byte of a sealed value, which a later format will change.
_FORMAT = b"\x01"

#: Number of bytes that a seal adds to a value.
SEAL_BYTES = 33

#: Label of the key that seals are made with, so that a seal can never be used as
#: another message that the same secret signs.
_KEY = b"txkas/1 seal of stored values"

#: Number of keys per page when values get new seals.
_PAGE = 500


class ReplacingBackend(StoreBackend, Protocol):
    """A backend that can also replace a value without a change of its version."""

    async def replace(self, name: str, key: str, value: bytes, version: int) -> bool:
        """
        Replace the value with this version by one of the same length; the version and
        the expiry stay, and no watch is notified.

        :returns: False if the key has another version.
        """


@attrs.define(eq=False)
class SealedBackend:
    """
    Implementation of `tunnel.hosting.stores.StoreBackend` that seals values.

    :param inner: contains the sealed values.
    :param secrets: returns the accepted secrets, beginning with the current one.
    """

    _inner: ReplacingBackend
    _secrets: Callable[[], Sequence[bytes]]
    #: The namespaces in which values without a valid seal were logged.
    _complained: set[str] = attrs.field(factory=set, init=False)
    #: The secrets with which each namespace was last checked for old seals.
    _renewed: dict[str, Sequence[bytes]] = attrs.field(
        factory=dict, init=False, repr=False
    )
    _log = Logger()

    @property
    def hears(self) -> bool:
        """See `StoreBackend`; the same applies to the other methods."""
        return self._inner.hears

    @property
    def sweep_interval(self) -> float:
        """See `StoreBackend`."""
        return self._inner.sweep_interval

    def start(self, listener: BackendListener) -> None:
        """See `StoreBackend`."""
        self._inner.start(listener)

    async def stop(self) -> None:
        """See `StoreBackend`."""
        await self._inner.stop()

    async def get(self, name: str, key: str) -> StoredValue | None:
        """See `StoreBackend`."""
        found = await self._inner.get(name, key)
        if found is None:
            return None
        if self._maker(name, key, found.value) is None:
            self._complain(name)
            return None
        return StoredValue(found.value[SEAL_BYTES:], found.version)

    async def set(
        self,
        name: str,
        key: str,
        value: bytes,
        version: int | None,
        expires_after: float | None,
    ) -> int:
        """See `StoreBackend`."""
        sealed = _sealed(self._secrets()[0], name, key, value)
        try:
            return await self._inner.set(name, key, sealed, version, expires_after)
        except CallError as error:
            if version != 0 or error.status is not Status.ABORTED:
                raise
            found = await self._inner.get(name, key)
            if found is None or self._maker(name, key, found.value) is not None:
                raise
        # The key does not exist for modules.
        return await self._inner.set(name, key, sealed, found.version, expires_after)

    async def delete(self, name: str, key: str, version: int | None) -> bool:
        """See `StoreBackend`."""
        return await self._inner.delete(name, key, version)

    async def page(
        self, name: str, prefix: str, after: str, limit: int
    ) -> tuple[list[str], str]:
        """See `StoreBackend`."""
        return await self._inner.page(name, prefix, after, limit)

    async def sweep(self, name: str) -> float:
        """
        See `StoreBackend`; also replace seals of secrets that will not be accepted any
        more.
        """
        secrets = self._secrets()
        if self._renewed.get(name) != secrets:
            if len(secrets) > 1:
                await self._renew(name, secrets[0])
            self._renewed[name] = secrets
        return await self._inner.sweep(name)

    async def _renew(self, name: str, current: bytes) -> None:
        count, last = 0, ""
        while True:
            keys, last = await self._inner.page(name, "", last, _PAGE)
            for key in keys:
                count += await self._renew_one(name, key, current)
            if not last:
                break
        if count:
            self._log.info(
                "sealed {count} values of {name} with the new secret",
                count=count,
                name=name,
            )

    async def _renew_one(self, name: str, key: str, current: bytes) -> bool:
        found = await self._inner.get(name, key)
        if found is None or self._maker(name, key, found.value) in (None, current):
            return False
        sealed = _sealed(current, name, key, found.value[SEAL_BYTES:])
        return await self._inner.replace(name, key, sealed, found.version)

    def _maker(self, name: str, key: str, sealed: bytes) -> bytes | None:
        """Return the accepted secret that sealed a value; None if none did."""
        value, seal = sealed[SEAL_BYTES:], sealed[:SEAL_BYTES]
        for secret in self._secrets():
            if hmac.compare_digest(_seal(secret, name, key, value), seal):
                return secret
        return None

    def _complain(self, name: str) -> None:
        if name not in self._complained:
            self._complained.add(name)
            self._log.error(
                "ignoring values of {name} in Redis without a valid seal: another "
                "program, an earlier version, or a kas with another secret of "
                "private_api wrote them",
                name=name,
            )


def _sealed(secret: bytes, name: str, key: str, value: bytes) -> bytes:
    return _seal(secret, name, key, value) + value


def _seal(secret: bytes, name: str, key: str, value: bytes) -> bytes:
    # No name or key contains a zero byte.
    text = b"\0".join((name.encode(), key.encode(), value))
    own = hmac.digest(secret, _KEY, "sha256")
    return _FORMAT + hmac.digest(own, text, "sha256")
