"""Stores of modules, in the backend that the configuration selects."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kas.config.schema import KasConfiguration
from kas.identity import jwt
from kas.state.directory import StateDirectory
from kas.storage.sealed_backend import SealedBackend
from tunnel.api import StoreEvent
from tunnel.hosting.stores import StoreBackend, Stores
from tunnel.program.runtime import Runtime

if TYPE_CHECKING:
    from kas.redis import RedisClient

__all__ = ["make_stores"]

#: Function that is called with the name of a store and each change of this store.
Changed = Callable[[str, StoreEvent], None]


def make_stores(
    configuration: KasConfiguration,
    state: StateDirectory,
    runtime: Runtime,
    directory: RedisClient | None,
    changed: Callable[[], Changed | None],
    secrets: jwt.Secrets | None,
) -> Stores:
    """
    Return the stores: in Redis, or in a file of the state directory.

    :param directory: the Redis client of the directory, whose metrics are combined with
        the metrics of the stores' own client.
    :param changed: function that returns the listener for changes in the file, or None
        if no other worker shares the file.
    :param secrets: the secrets of ``private_api``, which seal the values in Redis; the
        configuration requires them there.
    """
    redis = configuration.redis
    if redis is None:

        def make_file() -> StoreBackend:
            # Import it here: few modules need a store, and a kas without a store also
            # works without SQLite.
            from kas.storage.file_backend import FileBackend

            return FileBackend(state, runtime.reactor, runtime.now, tell=changed())

        return Stores(make_file, runtime.reactor)
    # Import it here, because importing kas.redis installs the reactor.
    from kas.redis.metrics import RedisCollector

    clients = {} if directory is None else {"directory": directory}
    runtime.metrics.register(RedisCollector(clients))

    def make_redis() -> StoreBackend:
        from kas.storage.redis_backend import RedisBackend

        assert secrets is not None
        backend = RedisBackend(redis, runtime.reactor, runtime.random)
        clients["stores"] = backend.client
        return SealedBackend(backend, lambda: secrets.accepted)

    return Stores(make_redis, runtime.reactor)
