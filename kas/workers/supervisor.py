"""
The process that operators start where a kas has several workers.

    twistd kas ──> Supervisor: ports, readiness, metrics, status, kasctl, systemd
                      │ starts, watches, replaces
                      ├──> worker 1: a whole kas, but for what stands above
                      └──> worker 2 ...

It holds no agent and passes no request: the workers accept from its sockets, and reach
each other by the private API as other kas do.  So it has little that could fail, and a
worker that dies takes nothing with it but its own connections.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import socket
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.endpoints import UNIXClientEndpoint, quoteStringArgument
from twisted.logger import Logger
from twisted.web.client import Agent, FileBodyProducer, ResponseFailed, readBody
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from kas.config.loading import certificate_names, listeners
from kas.config.own_address import interface_addresses, own_address
from kas.config.schema import KasConfiguration, PrivateApi
from kas.state import pki, running
from kas.state.control import control_site, parse_change
from kas.state.directory import StateDirectory
from kas.state.process_socket import CALLS, CONTROL, MAX_PATH, ProcessSocket, path_of
from kas.workers.folder import WorkersFolder
from kas.workers.process import WorkerProcess
from kas.workers.sharing import OBSERVABILITY, PRIVATE_API
from kas.workers.summary import MetricTotals, add_agents, add_progress, add_states
from kas.workers.worker import Worker, private_listen
from tunnel import __version__
from tunnel.compiled import build_name
from tunnel.config import Listen
from tunnel.errors import CallError, ConfigurationError, Status
from tunnel.hosting.modules import Prepared
from tunnel.program import sdnotify
from tunnel.program.listening import Listening
from tunnel.program.logs import LoggingService
from tunnel.program.site import Page, Site, as_json, exposition, plain
from tunnel.program.startup import start_or_exit

__all__ = ["Supervisor", "WorkerCommand"]

#: Names of each worker's sockets for `kasctl`, in addition to sections.
_CONTROL, _CALLS = "control", "calls"

#: Timeout of a worker's answer: less than the timeout of `kasctl` for all, and more
#: than a worker needs to dial other kas.
ANSWER_TIMEOUT = 2.3


@attrs.frozen
class WorkerCommand:
    """
    Command line of workers.

    :ivar arguments: of ``twistd kas``.
    :ivar twisted: of ``twistd`` itself.
    :ivar file: the configuration file; a replacement reads its original content,
        because all workers are one kas.
    """

    arguments: Sequence[str] = ()
    twisted: Sequence[str] = ()
    file: Path | None = None


class Supervisor(LoggingService, Service):
    """
    Supervisor of several workers.

    :param command: the command line of each worker.
    """

    _log = Logger()

    def __init__(
        self,
        configuration: KasConfiguration,
        modules: Sequence[Prepared],
        state: StateDirectory,
        command: WorkerCommand,
        reactor: Any,
        *,
        now: Callable[[], float] = time.time,
        environ: Mapping[str, str] = os.environ,
        remarks: Sequence[str] = (),
    ) -> None:
        self.name = "kas"
        self._remarks = remarks
        self._configuration = configuration
        self._modules = modules
        self._state = state
        self._command = command
        self._reactor = reactor
        self._now = now
        self._environ = environ
        #: Made when it starts, because a daemon is another process than this one.
        self._made: WorkersFolder | None = None
        self._listening = Listening(
            reactor, self._development_certificate, program="kas", now=now
        )
        self._shared = Listening(reactor, program="kas", now=now)
        #: The sockets of each worker alone, in the order of the workers.
        self._own: list[Listening] = []
        self._workers: list[WorkerProcess] = []
        self._ready: Deferred[None] | None = None
        #: Open while the file of the modules' stores is ours.
        self._store_lock: int | None = None
        #: Open while no other kas without Redis may use the state directory.
        self._held: int | None = None
        self._draining = False
        #: Workers that are being told so.
        self._telling: set[WorkerProcess] = set()
        self._is_ready = False
        self._totals = MetricTotals()
        self._watchdog = sdnotify.Watchdog(reactor)
        self._control = ProcessSocket(
            state, CONTROL, control_site(self), reactor, "drain and rebalance"
        )

    # Start.

    def startService(self) -> None:
        """Begin; a failure to do so ends the process with its reason."""
        super().startService()  # type: ignore[no-untyped-call]
        self.start_logging(self._reactor)
        for remark in self._remarks:
            self._log.warn("{remark}", remark=remark)
        start_or_exit(self._start(), self._reactor)

    async def _start(self) -> None:
        running.refuse_twins(self._state)
        if self._configuration.redis is None:
            self._held = running.hold(self._state)
        self._made = WorkersFolder.make(self._state, self._configuration.workers)
        try:
            await self._start_in(self._made)
        except BaseException:
            self._made.remove()
            raise

    async def _start_in(self, folder: WorkersFolder) -> None:
        if self._command.file is not None:
            folder.keep(self._command.file)
        if any(one.own_certificate for _, one in self._listeners()):
            # Once, and not by all of them at a time.
            self._development_certificate()
        self._workers = [
            self._worker(number, sockets)
            for number, sockets in enumerate(await self._open(), 1)
        ]
        await self._listening.listen(
            self._configuration.observability.listen,
            self._site(),
            what=running.OBSERVABILITY,
            setting=f"{OBSERVABILITY}.address",
        )
        ready = self._ready = Deferred()
        for one in self._workers:
            one.start()
            if ready.called:
                break  # no room for it: start no further one
        await ready
        await self._control.open()
        opened = [
            *self._listening.opened,
            *(
                one
                for one in self._workers[0].opened or ()
                if one.what not in (running.OBSERVABILITY, running.OTHER_KAS)
            ),
        ]
        for port in opened[1:]:
            self._listening.announce(port)
        running.tell(self._state, opened)
        self._is_ready = True
        sdnotify.notify("READY=1")
        self._watchdog.start()
        self._log.info("kas is ready, with {count} workers", count=len(self._workers))

    def _listeners(self) -> list[tuple[str, Listen]]:
        return list(listeners(self._configuration, self._modules))

    async def _open(self) -> list[Worker]:
        """Open every port, and return the settings of each worker."""
        shared = await self._open_shared()
        if self._configuration.redis is not None:
            private_api = self._configuration.private_api
            assert private_api is not None
            urls = tuple(self._url(number) for number in self._numbers)
            secret = ""
        else:
            private_api = None
            urls = tuple(
                f"unix://{self._folder.socket(number, 'peer')}"
                for number in self._numbers
            )
            secret = str(self._folder.secret)
            self._state.write(
                str(self._folder.secret.relative_to(self._state.path)),
                b64encode(secrets.token_bytes(32)),
                durable=False,
            )
            # Here, as in `kas.service`: SQLite is not everywhere.
            from kas.storage.file_backend import lock_file

            # Where another kas has it, modules that need it say so.
            with suppress(ConfigurationError):
                self._store_lock = lock_file(self._state)
        return [
            Worker(
                number=number,
                urls=urls,
                sockets={**shared, **await self._open_own(number, private_api)},
                secret=secret,
                configuration=(
                    ""
                    if self._command.file is None
                    else str(self._folder.configuration)
                ),
                shares_store=self._store_lock is not None,
            )
            for number in self._numbers
        ]

    async def _open_shared(self) -> dict[str, int]:
        """Open the ports from which all workers accept."""
        shared: dict[str, int] = {}
        for section, listen in self._listeners():
            if section in (OBSERVABILITY, PRIVATE_API):
                continue
            shared[section] = await self._shared.reserve(
                listen, section, f"{section}.address"
            )
        calls = path_of(self._state, os.getpid(), CALLS)
        # Beyond that kas goes on without, and each worker says what is amiss.
        if len(os.fsencode(calls)) <= MAX_PATH:
            shared[_CALLS] = await self._socket(self._shared, calls, "calls")
        return shared

    async def _open_own(
        self, number: int, private_api: PrivateApi | None
    ) -> dict[str, int]:
        """
        Open the sockets of one worker; None: it has a private API only for the other
        workers.
        """
        own = {}
        listening = Listening(self._reactor, program="kas", now=self._now)
        self._own.append(listening)
        for section, what in ((OBSERVABILITY, "status"), (_CONTROL, "control")):
            path = self._folder.socket(number, what)
            own[section] = await self._socket(listening, path, section)
        if private_api is None:
            path = self._folder.socket(number, "peer")
            own[PRIVATE_API] = await self._socket(listening, path, "other workers")
        else:
            own[PRIVATE_API] = await self._shared.reserve(
                private_listen(private_api.listen, number),
                "other kas",
                f"{PRIVATE_API}.address",
            )
        return own

    @property
    def _folder(self) -> WorkersFolder:
        assert self._made is not None, "used before it is started"
        return self._made

    @property
    def _numbers(self) -> Sequence[int]:
        return range(1, self._configuration.workers + 1)

    async def _socket(self, listening: Listening, path: Path, what: str) -> int:
        where = f"unix:{quoteStringArgument(str(path))}:mode=600"
        return await listening.reserve(Listen(endpoint=where), what, "")

    def _url(self, number: int) -> str:
        worker = Worker(number=number)
        configuration, environ = worker.configure(self._configuration, self._environ)
        assert configuration.private_api is not None
        listen = configuration.private_api.listen
        return own_address(listen, environ, interface_addresses).url

    def _worker(self, number: int, told: Worker) -> WorkerProcess:
        return WorkerProcess(
            told,
            [
                *(sys.executable, "-P", "-c", _PROGRAM, "--nodaemon", "--pidfile="),
                *(
                    "--logfile=-",
                    *self._command.twisted,
                    "kas",
                    *self._command.arguments,
                ),
                f"--log-format={self.log_format}",
            ],
            {
                **{
                    name: value
                    for name, value in self._environ.items()
                    if name not in _SUPERVISORS
                },
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            self._reactor,
            secrets.SystemRandom().random,
            None if self.log_is_output else self._write_line,
            self._worker_ready,
            self._worker_told,
            self._worker_failed,
        )

    def _write_line(self, line: str) -> None:
        if self.log_writer is not None:
            self.log_writer.write(line)
        else:
            self._log.info("{line}", line=line.rstrip())  # syslog

    def _worker_ready(self, worker: WorkerProcess) -> None:
        self._log.info(
            "worker {number} is ready (pid {worker_pid})",
            number=worker.number,
            worker_pid=worker.pid,
        )
        ready = self._ready
        if ready is not None and all(one.opened is not None for one in self._workers):
            self._ready = None
            ready.callback(None)

    def _worker_told(self, worker: WorkerProcess, draining: bool) -> None:
        """Repeat the order to a worker that is a replacement, or did not receive it."""
        if draining is self._draining or worker in self._telling:
            return
        self._telling.add(worker)
        Deferred.fromCoroutine(
            self._ask_one(worker, "control", _order(self._draining), b"POST")
        ).addBoth(lambda answer: self._telling.discard(worker))

    def _worker_failed(self, worker: WorkerProcess, how: str) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            for one in self._workers:
                one.stop()
            ready.errback(
                ConfigurationError(
                    [
                        f"worker {worker.number} ended before it was ready ({how}); "
                        "it says why above"
                    ]
                )
            )

    # Requests to workers.

    async def _ask(
        self,
        worker: WorkerProcess,
        socket_name: str,
        path: str,
        method: bytes = b"GET",
        timeout: float = ANSWER_TIMEOUT,
        body: bytes | None = None,
    ) -> bytes:
        """
        Return the response of a worker to a request.

        :param timeout: seconds for the response.
        :raises Exception: there is none in time.
        """
        where = self._folder.socket(worker.number, socket_name)
        agent = Agent.usingEndpointFactory(self._reactor, _Socket(self._reactor, where))
        producer = None if body is None else FileBodyProducer(io.BytesIO(body))
        url = b"http://kas" + path.encode()
        asking = agent.request(method, url, bodyProducer=producer)
        asking.addTimeout(timeout, self._reactor)
        response = await asking
        reading = readBody(response)
        reading.addTimeout(timeout, self._reactor)
        answer: bytes = await reading
        if response.code != 200:
            raise ConfigurationError([f"worker {worker.number}: {response.code}"])
        return answer

    async def _ask_one(
        self, worker: WorkerProcess, socket_name: str, path: str, method: bytes
    ) -> bytes | None:
        """
        Return the response of a worker; None: there is none, and the log has the
        reason.
        """
        try:
            return await self._ask(worker, socket_name, path, method)
        except Exception as error:
            # A worker that has nothing more to end closes before its process exits.
            if self._is_ready:
                self._log.warn(
                    "worker {number} does not answer: {reason}",
                    number=worker.number,
                    reason=_why(error),
                )
            return None

    async def _ask_all(
        self, socket_name: str, path: str, method: bytes = b"GET"
    ) -> list[tuple[WorkerProcess, bytes]]:
        """
        Return the answers of ready workers; a worker that dies in the meantime has
        none.
        """
        asked = [one for one in self._workers if one.opened is not None]
        answers = await gatherResults(
            [
                Deferred.fromCoroutine(self._ask_one(one, socket_name, path, method))
                for one in asked
            ]
        )
        return [
            (one, answer)
            for one, answer in zip(asked, answers, strict=True)
            if answer is not None
        ]

    async def _summed(
        self,
        socket_name: str,
        path: str,
        add: Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]],
        method: bytes = b"GET",
    ) -> dict[str, Any]:
        """Return the combined answer of all workers."""
        answers = await self._ask_all(socket_name, path, method)
        return {
            # Their agents are unknown.
            "silent_workers": len(self._workers) - len(answers),
            **add([json.loads(body) for _, body in answers]),
            "pid": os.getpid(),
            "draining": self._draining,
            "ready": self._serves,
        }

    @property
    def _serves(self) -> bool:
        """
        Whether kas is ready.

        It is ready if it has started, is neither draining nor stopping, and at least
        one worker is open.  A killed worker is soon replaced, and the others go on
        meanwhile.
        """
        return (
            self._is_ready
            and not self._draining
            and any(one.opened is not None for one in self._workers)
        )

    # Answers of all workers as one kas.

    def _site(self) -> Site:
        settings = self._configuration.observability

        def readiness() -> Page:
            if self._serves:
                return plain("ready")
            return plain("not ready: starting, or draining", 503)

        async def status() -> Page:
            summed = await self._summed("status", "/status", add_states)
            workers = [
                {
                    "worker": one.number,
                    "pid": one.pid,
                    "ready": one.opened is not None,
                    "replaced": one.replaced,
                }
                for one in self._workers
            ]
            silent = summed.pop("silent_workers")
            agents = summed.pop("agents", [])
            return as_json(
                {
                    "version": __version__,
                    "build": build_name(),
                    **summed,
                    "workers": workers,
                    "silent_workers": silent,
                    "agents": agents,
                }
            )

        async def metrics() -> Page:
            path = settings.prometheus.url_path
            # A name belongs to one process: another one may soon replace it.
            names = {one: one.name for one in self._workers}
            answers = await self._ask_all("status", path)
            found = self._totals.add(
                {names[one]: body.decode() for one, body in answers},
                {one.name for one in self._workers},
            )
            registry = CollectorRegistry()
            registry.register(_Metrics([*found, *self._own_metrics()]))
            return exposition(registry)

        async def profile() -> Page:
            # One is enough, and the first is like the others.
            patience = settings.profile.duration + ANSWER_TIMEOUT
            first = self._workers[0]
            found = await self._ask(first, "status", "/debug/profile", timeout=patience)
            return Page(found)

        pages: dict[str, Callable[[], Page | Coroutine[Any, Any, Page]]] = {
            settings.liveness_probe.url_path: lambda: plain("alive"),
            settings.readiness_probe.url_path: readiness,
            settings.prometheus.url_path: metrics,
            "/status": status,
        }
        if settings.profile.enabled:
            pages["/debug/profile"] = profile
        return Site(pages, self._reactor)

    def _own_metrics(self) -> list[Metric]:
        return [
            GaugeMetricFamily(
                "kas_workers", "Processes of this kas.", value=len(self._workers)
            ),
            GaugeMetricFamily(
                "kas_workers_ready",
                "Number of ready workers.",
                value=sum(one.opened is not None for one in self._workers),
            ),
            CounterMetricFamily(
                "kas_workers_replaced",
                "Number of workers that died and were replaced.",
                value=sum(one.replaced for one in self._workers),
            ),
        ]

    # Requests of kasctl; see `kas.state.control.Controlled`.

    async def progress(self) -> dict[str, Any]:
        """Return the numbers of agents and requests of all workers."""
        return await self._progress("/")

    async def drain(self) -> dict[str, Any]:
        """Drain every worker."""
        return await self._set_draining(True)

    async def undrain(self) -> dict[str, Any]:
        """Have every worker accept agents again."""
        return await self._set_draining(False)

    async def _set_draining(self, draining: bool) -> dict[str, Any]:
        # Workers that do not respond get the order again when they report.
        self._draining = draining
        return await self._progress(_order(draining), b"POST")

    async def _progress(self, path: str, method: bytes = b"GET") -> dict[str, Any]:
        found = await self._summed("control", path, add_progress, method)
        return {"agents": 0, "requests": 0, **found}

    async def rebalance(self) -> dict[str, Any]:
        """Move agents above the mean; ``asked`` is their number in all workers."""
        return await self._summed_or_fail("/rebalance", b"POST")

    async def peers(self) -> dict[str, Any]:
        """Return the state of the other kas as all workers see it."""
        return await self._summed_or_fail("/peers")

    async def _summed_or_fail(
        self, path: str, method: bytes = b"GET"
    ) -> dict[str, Any]:
        found = await self._summed("control", path, add_progress, method)
        if found["silent_workers"] == len(self._workers):
            raise _no_worker_answers()
        return found

    async def agents(self) -> dict[str, Any]:
        """Return every agent, with its connections to all workers."""
        answers = await self._ask_all("control", "/agents")
        if not answers:
            raise _no_worker_answers()
        silent = len(self._workers) - len(answers)
        found = [json.loads(body) for _, body in answers]
        return add_agents(found, silent, alone=self._configuration.redis is None)

    async def record_change(self, body: bytes) -> dict[str, Any]:
        """
        Have one worker write a change that `kasctl` made to the audit log.

        This does not wait: workers that hang would keep `kasctl` for seconds each.
        """
        parse_change(body)
        Deferred.fromCoroutine(self._record_change(body)).addErrback(
            lambda failure: self._log.failure("while recording a change", failure)
        )
        return {}

    async def _record_change(self, body: bytes) -> None:
        for worker in self._workers:
            if worker.opened is None:
                continue
            try:
                await self._ask(worker, "control", "/changes", b"POST", body=body)
                return
            except Exception as error:
                self._log.warn(
                    "worker {number} did not record a change: {reason}",
                    number=worker.number,
                    reason=_why(error),
                )
        self._log.error(
            "no worker answers: the audit log has no entry for {change}",
            change=body.decode(errors="replace"),
        )

    def _development_certificate(self) -> tuple[Path, Path]:
        names = certificate_names(self._configuration, self._modules, self._environ)
        files = pki.ensure(self._state, self._now, socket.gethostname(), names)
        return files.certificate_file, files.key_file

    # Signals, and the end.

    def reload(self) -> None:
        """Open the log again, and have the workers read their files again."""
        self.reopen_log()
        self._log.info("SIGHUP: passed on to the workers")
        for one in self._workers:
            one.reload()

    def stopService(self) -> Deferred[None]:
        """Have every worker end what runs, and then close."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self._is_ready = False
        running.leave(self._state)
        if self._held is not None:
            # A successor may start while this one ends what it has.
            os.close(self._held)
            self._held = None
        sdnotify.notify("STOPPING=1")
        self._watchdog.stop()
        ending = [
            Deferred.fromCoroutine(self._end(one, own))
            # A start that failed may have opened more than it started.
            for one, own in zip(self._workers, self._own, strict=False)
        ]
        # Ours are copies: a worker accepts from its own as long as it has to, and as
        # long has a unix socket its path.
        self._shared.let_go()
        for one in ending:
            await one
        await self._shared.close_all()
        await self._control.close()
        await self._listening.close_all()
        running.forget(self._state)
        if self._store_lock is not None:
            os.close(self._store_lock)
        if self._made is not None:
            self._made.remove()

    async def _end(self, worker: WorkerProcess, own: Listening) -> None:
        await worker.stop()
        # Their paths go with our copies, and by them we and the other workers reach
        # this one as long as it has something to end.
        await own.close_all()


def _order(draining: bool) -> str:
    """To take no agents, or to take some again."""
    return "/drain" if draining else "/undrain"


def _no_worker_answers() -> CallError:
    return CallError(Status.UNAVAILABLE, "no worker answers")


def _why(error: Exception) -> str:
    """Describe why the answer is missing."""
    if isinstance(error, ResponseFailed) and error.reasons:
        error = error.reasons[0].value
    if isinstance(error, CancelledError | TimeoutError):
        return f"not within {ANSWER_TIMEOUT:g} s"
    return str(error) or type(error).__name__


#: Program of a worker: twistd, with the arguments that follow.
_PROGRAM = "from twisted.scripts.twistd import run; run()"

#: Of the environment: what systemd says to the process that it started.
_SUPERVISORS = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
)


@implementer(IAgentEndpointFactory)
@attrs.frozen
class _Socket:
    """Leads every request to one unix socket."""

    reactor: Any
    path: Path

    def endpointForURI(self, uri: object) -> UNIXClientEndpoint:
        return UNIXClientEndpoint(self.reactor, str(self.path), timeout=ANSWER_TIMEOUT)


@attrs.frozen(eq=False)
class _Metrics(Collector):
    found: list[Metric]

    def collect(self) -> list[Metric]:
        return self.found
