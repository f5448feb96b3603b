"""The part of the supervisor that opens the sockets of all workers."""

from __future__ import annotations

import os
import secrets
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from twisted.internet.endpoints import quoteStringArgument

from kas.config.loading import listeners
from kas.config.own_address import interface_addresses, own_address
from kas.config.schema import KasConfiguration
from kas.state.directory import StateDirectory
from kas.state.process_socket import CALLS, MAX_PATH, path_of
from kas.workers.folder import WorkersFolder
from kas.workers.sharing import OBSERVABILITY, PRIVATE_API
from kas.workers.worker import Worker, private_listen
from tunnel.config import Listen
from tunnel.errors import ConfigurationError
from tunnel.hosting.modules import Prepared
from tunnel.program.listening import Listening
from tunnel.program.parts import Part
from tunnel.program.runtime import Runtime

__all__ = ["WorkerSockets"]

#: Names of each worker's sockets for `kasctl`, which no section configures.
_CONTROL, _CALLS = "control", "calls"


class WorkerSockets(Part):
    """
    Sockets of the workers, and the folder with the private sockets.

    :param file: the configuration file; the process that replaces a worker reads the
        file's original content, because all workers are one kas.
    """

    name = "the sockets of the workers"

    def __init__(
        self,
        configuration: KasConfiguration,
        modules: Sequence[Prepared],
        state: StateDirectory,
        file: Path | None,
        runtime: Runtime,
    ) -> None:
        self._configuration = configuration
        self._modules = modules
        self._state = state
        self._file = file
        self._runtime = runtime
        #: Folder of the private sockets; `start` creates it, because a daemon starts in
        #: another process than the one that called the constructor.
        self._folder: WorkersFolder | None = None
        self._shared = self._listening()
        #: Private sockets of each worker, by the worker's number.
        self._own: dict[int, Listening] = {}
        #: Descriptor of the lock of the modules' stores; None if this process does not
        #: hold the lock.
        self._store_lock: int | None = None
        #: Settings of each worker.
        self.workers: list[Worker] = []

    def _listening(self) -> Listening:
        runtime = self._runtime
        return Listening(runtime.reactor, program="kas", now=runtime.now)

    @property
    def folder(self) -> WorkersFolder:
        """Folder of the private sockets."""
        assert self._folder is not None, "used before it is started"
        return self._folder

    async def start(self) -> None:
        """Open all sockets."""
        configuration = self._configuration
        self._folder = folder = WorkersFolder.make(self._state, configuration.workers)
        if self._file is not None:
            folder.keep(self._file)
        shared = await self.open_shared()
        numbers = range(1, configuration.workers + 1)
        alone = configuration.redis is None
        if alone:
            urls = tuple(f"unix://{folder.socket(one, 'peer')}" for one in numbers)
            self._state.write(
                str(folder.secret.relative_to(self._state.path)),
                b64encode(secrets.token_bytes(32)),
                durable=False,
            )
            # Import it here as in `kas.storage.backend`, because SQLite may be missing.
            from kas.storage.file_backend import lock_file

            # Ignore the error: if another kas uses the file, the modules that need the
            # file report this.
            with suppress(ConfigurationError):
                self._store_lock = lock_file(self._state)
        else:
            urls = tuple(self._url(number) for number in numbers)
        self.workers = [
            Worker(
                number=number,
                urls=urls,
                sockets={**shared, **await self._open_own(number)},
                secret=str(folder.secret) if alone else "",
                configuration="" if self._file is None else str(folder.configuration),
                shares_store=self._store_lock is not None,
            )
            for number in numbers
        ]

    async def open_shared(self) -> dict[str, int]:
        """Open the ports that all workers accept connections from."""
        shared: dict[str, int] = {}
        for section, listen in listeners(self._configuration, self._modules):
            if section in (OBSERVABILITY, PRIVATE_API):
                continue
            shared[section] = await self._shared.reserve(
                listen, section, f"{section}.address"
            )
        calls = path_of(self._state, os.getpid(), CALLS)
        # If the path is too long, continue without this socket; each worker logs the
        # reason.
        if len(os.fsencode(calls)) <= MAX_PATH:
            shared[_CALLS] = await _reserve(self._shared, calls, "calls")
        return shared

    async def _open_own(self, number: int) -> dict[str, int]:
        """Open the sockets of one worker."""
        own, folder = {}, self.folder
        listening = self._own[number] = self._listening()
        for section, what in ((OBSERVABILITY, "status"), (_CONTROL, "control")):
            path = folder.socket(number, what)
            own[section] = await _reserve(listening, path, section)
        private_api = self._configuration.private_api
        if self._configuration.redis is None or private_api is None:
            # Only the other workers use this socket.
            path = folder.socket(number, "peer")
            own[PRIVATE_API] = await _reserve(listening, path, "other workers")
        else:
            own[PRIVATE_API] = await self._shared.reserve(
                private_listen(private_api.listen, number),
                "other kas",
                f"{PRIVATE_API}.address",
            )
        return own

    def _url(self, number: int) -> str:
        worker = Worker(number=number)
        configuration, environ = worker.configure(
            self._configuration, self._runtime.environ
        )
        assert configuration.private_api is not None
        listen = configuration.private_api.listen
        return own_address(listen, environ, interface_addresses).url

    def let_go(self) -> None:
        """
        Close the supervisor's copies of the shared sockets.

        A worker accepts connections from its own copies as long as necessary, and the
        path of a Unix socket exists for the same time.
        """
        self._shared.let_go()

    async def close_own(self, number: int) -> None:
        """
        Close the sockets of a worker that has ended.

        The paths of the sockets are removed together with the supervisor's copies.
        Until then, the other workers and the supervisor use these paths to reach the
        worker while it drains.
        """
        await self._own[number].stop()

    async def stop(self) -> None:
        """Close all sockets."""
        await self._shared.stop()
        for listening in self._own.values():
            await listening.stop()
        if self._store_lock is not None:
            os.close(self._store_lock)
        if self._folder is not None:
            self._folder.remove()


async def _reserve(listening: Listening, path: Path, what: str) -> int:
    where = f"unix:{quoteStringArgument(str(path))}:mode=600"
    return await listening.reserve(Listen(endpoint=where), what, "")
