"""The backend of modules' stores that the configuration selects."""

from __future__ import annotations

import secrets
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING

from kas.config.schema import KasConfiguration
from kas.state.directory import StateDirectory
from tunnel.hosting.stores import StoreBackend
from tunnel.program.runtime import Runtime

if TYPE_CHECKING:
    from kas.redis import RedisClient

__all__ = ["make_backend"]


def make_backend(
    configuration: KasConfiguration,
    state: StateDirectory,
    runtime: Runtime,
    changed: Callable[..., None] | None,
    clients: MutableMapping[str, RedisClient],
) -> StoreBackend:
    """
    Return the backend: Redis, or a file in the state directory.

    :param changed: called with each change in the file; None: no other worker shares
        the file.
    :param clients: receives the Redis client.
    """
    redis = configuration.redis
    if redis is None:
        # Here, because few modules store something: without one kas needs no SQLite.
        from kas.storage.file_backend import FileBackend

        return FileBackend(state, runtime.reactor, runtime.now, tell=changed)
    # Here, because it imports the reactor.
    from kas.storage.redis_backend import RedisBackend

    backend = RedisBackend(redis, runtime.reactor, secrets.SystemRandom().random)
    clients["stores"] = backend.client
    return backend
