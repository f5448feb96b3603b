"""
Host of the modules of one program; kas and agentk differ only in the module API.

First all modules are configured and validated; then they are created, in the order of
their names, so that every handler is registered before the first module starts; then
they start.  A module that cannot start stops the program.  A module that fails later is
stopped, loses its handlers, and is created again after a pause; the others are not
affected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.error import AlreadyCalled, AlreadyCancelled
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface.exceptions import Invalid
from zope.interface.interface import InterfaceClass
from zope.interface.verify import verifyObject

from tunnel.config import Section
from tunnel.errors import ConfigurationError
from tunnel.hosting.scope import ModuleScope
from tunnel.plugin import AgentModule, ServerModule, find_modules
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.files import in_words
from tunnel.toolkit.repeated import Repeated
from tunnel.toolkit.time_limit import within

#: First and longest pause before a failed module is restarted, in seconds.  The pause
#: doubles with every failure, and is reset after the module has run for the longest
#: pause.
RESTART_FIRST = 1.0
RESTART_MOST = 60.0

#: Maximum number of seconds that a module has to stop; then the program continues
#: without it.
STOP_TIMEOUT = 10.0

#: Seconds between notices about a module that is still starting.
START_NOTICE = 10.0

Plugin = ServerModule | AgentModule


@attrs.frozen
class Prepared:
    """A module that can be created: its factory, and its parsed section."""

    name: str
    factory: Callable[[Any], Any]
    configuration: Any
    #: The path of the module's section: ``modules.echo``.
    path: str = ""


def prepare(
    plugins: Sequence[Plugin], sections: Mapping[str, Section]
) -> list[Prepared]:
    """
    Import the factories and read their sections.

    :param sections: the sections by module name; a module without a section gets its
        defaults.
    :raises ConfigurationError: with every problem of every module.
    """
    problems: list[str] = []
    prepared: list[Prepared] = []
    for plugin in plugins:
        section = sections.get(plugin.name)
        if section is None:
            section = Section.empty(plugin.section or f"modules.{plugin.name}")
        try:
            factory = plugin.load()
            configuration = section.read(factory.configuration)
        except ConfigurationError as error:
            problems.extend(error.problems)
        except Exception as error:
            problems.append(
                f"module {plugin.name}: its configuration class is invalid: "
                f"{_one_line(error)}; tell its author"
            )
        else:
            prepared.append(Prepared(plugin.name, factory, configuration, section.path))
    if problems:
        raise ConfigurationError(problems)
    return prepared


def load_modules(
    kind: type[ServerModule] | type[AgentModule],
    sections: Mapping[str, Section],
    before: Sequence[str] = (),
    present: Container[str] = (),
) -> list[Prepared]:
    """
    Find the modules that *sections* enable, and `prepare` them.

    :param sections: the sections, by module name.
    :param before: problems of the file with the sections.
    :param present: the configuration sections that the file contains.
    :raises ConfigurationError: with *before*, and every problem of every module.
    """
    problems = list(before)
    prepared: list[Prepared] = []
    plugins: list[Any] = find_modules(
        kind, sections, present=present, problems=problems
    )
    try:
        prepared = prepare(plugins, sections)
    except ConfigurationError as error:
        problems.extend(error.problems)
    if problems:
        raise ConfigurationError(problems)
    return prepared


class _Hosted:
    """One module: its factory and its state."""

    def __init__(self, prepared: Prepared, backoff: Backoff) -> None:
        self.prepared = prepared
        self.backoff = backoff
        self.module: Any = None
        self.scope: ModuleScope | None = None
        #: Whether the module's `start` was called, and its `stop` was not.
        self.started = False
        self.started_at = 0.0
        #: Whether the module is being created or started.
        self.beginning = False
        #: Whether the module has started, and has neither failed nor been stopped.
        self.up = False
        #: The failure that the module reported while it started.
        self.refusal: Exception | None = None
        self.starting: Deferred[None] | None = None
        self.stopping: Deferred[None] | None = None
        self.restart: IDelayedCall | None = None
        #: Reason of the last failure; empty after the module has restarted.
        self.problem = ""


class ModuleHost:
    """
    Creates, starts, restarts and stops modules.

    :param make_api: creates the API object of a module.
    :param jitter: returns a factor between 0 and 1 for the pause before a restart.
    """

    _log = Logger()

    def __init__(
        self,
        prepared: Iterable[Prepared],
        *,
        interface: InterfaceClass,
        make_api: Callable[[ModuleScope], Any],
        clock: IReactorTime,
        jitter: Callable[[], float],
    ) -> None:
        self._hosted = {
            one.name: _Hosted(one, Backoff(jitter, RESTART_FIRST, RESTART_MOST))
            for one in prepared
        }
        self._interface = interface
        self._make_api = make_api
        self._clock = clock
        self._stopping = False
        #: Called when a module has failed, and when it runs again.
        self.on_changed: Callable[[], None] = lambda: None

    @property
    def states(self) -> dict[str, str]:
        """The state of each module by name: ``running`` or ``restarting``."""
        return {
            name: "running" if hosted.up else "restarting"
            for name, hosted in self._hosted.items()
        }

    @property
    def problems(self) -> dict[str, str]:
        """Reasons of the failures of ``restarting`` modules, by name."""
        return {
            name: hosted.problem
            for name, hosted in self._hosted.items()
            if hosted.problem
        }

    async def start(self) -> None:
        """
        Create all modules, then start them.

        :raises ConfigurationError: a module could not be created or started; modules
            that had started were stopped again.
        :raises CancelledError: `stop` was called in the meantime.
        """
        name = ""
        try:
            for hosted in self._hosted.values():
                name = hosted.prepared.name
                self._make(hosted)
            for hosted in self._hosted.values():
                name = hosted.prepared.name
                await self._start(hosted)
        except Exception as error:
            is_cancelled = self._stopping
            await self.stop()
            if is_cancelled or isinstance(error, ConfigurationError):
                raise
            self._log.failure("module {name} did not start", name=name)
            if isinstance(error, PermissionError) and error.filename is not None:
                # The module did not cause this error, and may be needed.
                text = f"module {name} cannot start: {in_words(error)}"
                raise ConfigurationError([text]) from error
            raise ConfigurationError(
                [
                    f"module {name} did not start: {_one_line(error)}; correct that, "
                    "or disable the module"
                ]
            ) from error

    async def stop(self) -> None:
        """Stop all modules that were started, the last one first."""
        self._stopping = True
        for hosted in reversed(self._hosted.values()):
            if hosted.restart is not None:
                hosted.restart.cancel()
                hosted.restart = None
            if hosted.starting is not None:
                hosted.starting.cancel()
            await self._stop(hosted)

    def fail(self, name: str, reason: Exception) -> None:
        """Stop a module that cannot continue, and start it again after a pause."""
        hosted = self._hosted[name]
        if hosted.beginning:
            # The code that starts the module handles the failure.
            hosted.refusal = hosted.refusal or reason
            if hosted.starting is not None:
                hosted.starting.cancel()
        elif hosted.up and not self._stopping:
            hosted.up = False
            if self._clock.seconds() - hosted.started_at > RESTART_MOST:
                hosted.backoff.reset()
            self._spawn(self._failed(hosted, reason))

    async def _failed(self, hosted: _Hosted, reason: Exception) -> None:
        delay = hosted.backoff.pause()
        hosted.problem = _with_type(reason)
        self._log.failure(
            "module {name} failed; restarting in {delay:.1f} s: {reason}",
            Failure(reason),
            name=hosted.prepared.name,
            delay=delay,
            reason=hosted.problem,
        )
        self.on_changed()
        # Two instances of a module must not run at the same time: the first one may
        # hold resources until it has stopped.
        await self._stop(hosted)
        if not self._stopping:
            hosted.restart = self._clock.callLater(delay, self._again, hosted)

    def _make(self, hosted: _Hosted) -> None:
        prepared = hosted.prepared
        hosted.beginning, hosted.refusal = True, None
        hosted.scope = ModuleScope(
            prepared.name,
            prepared.configuration,
            partial(self.fail, prepared.name),
            prepared.path,
        )
        module = prepared.factory(self._make_api(hosted.scope))
        try:
            verifyObject(self._interface, module)
        except Invalid as error:
            text = str(error).strip().splitlines()[-1].strip()
            raise ConfigurationError(
                [
                    f"module {prepared.name} does not provide "
                    f"{self._interface.__name__}: {text}"
                ]
            ) from None
        hosted.module = module

    async def _start(self, hosted: _Hosted) -> None:
        hosted.started_at = self._clock.seconds()
        if hosted.refusal is None:
            hosted.started = True
            hosted.starting = maybeDeferred(_awaited, hosted.module.start)
            notices = Repeated(
                self._clock, "a notice", partial(self._notice_start, hosted)
            )
            notices.start(START_NOTICE)
            try:
                await hosted.starting
            except CancelledError:
                if hosted.refusal is None:
                    raise
            finally:
                hosted.starting = None
                notices.stop()
        if hosted.refusal is not None:
            raise hosted.refusal
        hosted.beginning, hosted.up = False, True
        if hosted.problem:
            hosted.problem = ""
            self.on_changed()
        self._log.info("module {name} is running", name=hosted.prepared.name)

    def _notice_start(self, hosted: _Hosted) -> None:
        self._log.warn(
            "module {name} is still starting after {seconds:.0f} s; the program waits "
            "for it",
            name=hosted.prepared.name,
            seconds=self._clock.seconds() - hosted.started_at,
        )

    async def _stop(self, hosted: _Hosted) -> None:
        module, hosted.module = hosted.module, None
        started, hosted.started = hosted.started, False
        hosted.beginning = hosted.up = False
        name = hosted.prepared.name
        # Even a module that was not created completely may have registered handlers.
        if hosted.scope is not None:
            hosted.scope.release()
        if started:
            stopping = maybeDeferred(_awaited, module.stop)
            hosted.stopping = within(stopping, STOP_TIMEOUT, self._clock)
        if hosted.stopping is None:
            return
        try:
            await hosted.stopping
        except Exception:
            self._log.failure("module {name} did not stop cleanly", name=name)
        hosted.stopping = None

    def _again(self, hosted: _Hosted) -> None:
        hosted.restart = None
        self._spawn(self._restart(hosted))

    async def _restart(self, hosted: _Hosted) -> None:
        try:
            self._make(hosted)
            await self._start(hosted)
        except Exception as error:
            if not self._stopping:
                await self._failed(hosted, error)

    def _spawn(self, coroutine: Any) -> None:
        running: Deferred[Any] = Deferred.fromCoroutine(coroutine)
        running.addErrback(self._unexpected)

    def _unexpected(self, failure: Failure) -> None:
        if failure.check(CancelledError, AlreadyCalled, AlreadyCancelled) is None:
            self._log.failure("hosting modules failed", failure)


def _with_type(error: Exception) -> str:
    """Return the type and text of an error on one line."""
    text = " ".join(str(error).split())
    kind = type(error).__name__
    return f"{kind}: {text}" if text else kind


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _awaited(function: Callable[[], Awaitable[None]]) -> Deferred[None]:
    async def wait() -> None:
        await function()

    return Deferred.fromCoroutine(wait())
