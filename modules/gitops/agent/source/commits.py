"""
Commits of one source: requested from kas, read, and rendered if configured.

    kas ──files of a commit──> the newest commit ──read──> the last good commit

A commit that arrives while another one is being read, which may take a renderer two
minutes, replaces the other one at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from modules.gitops.agent.objects.ignored import without_ignored
from modules.gitops.agent.objects.manifests import Source
from modules.gitops.agent.source.loader import read_snapshot
from modules.gitops.agent.source.pause import ASK_FIRST, ASK_MOST, pause
from modules.gitops.agent.source.rendering import Renderer
from modules.gitops.agent.source.snapshot import (
    Snapshot,
    receive,
    ref_message,
)
from modules.gitops.wire import rpc_pb2
from modules.gitops.wire.commit_id import COMMIT
from modules.gitops.wire.settings import ManifestProject
from tunnel.api import (
    IAgentModuleApi,
    IServiceClient,
    TunnelConnected,
)
from tunnel.errors import CallError, Status
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.interruptible import Interruptible
from tunnel.toolkit.parallel import in_parallel
from tunnel.toolkit.texts import clean

__all__ = ["Commits", "Rendering"]

#: Minimum seconds between two commits that agentk reads.
BETWEEN = 1.0

#: Maximum seconds between two checks for another commit while kas fails.
LOOK_MOST = 60.0

#: Maximum characters of a problem.
MAX_PROBLEM = 2000


@attrs.frozen
class Rendering:
    """
    Programs and threads that make objects of a commit's files.

    :ivar decrypted: returns a source with its Secrets decrypted.
    """

    renderer: Renderer
    decrypted: Callable[[Source], Awaitable[Source]]


@attrs.define(eq=False)
class Commits:
    """
    Reader of the commits of one source.

    :param name: the name of the project, for the log.
    :param service: the client for the service of kas that sends files.
    :param rendering: the programs for commits that are applied; *previewed* are the
        programs for previews.
    :param came: called with each commit and the source that was read from it.
    :param changed: called when `problem` has changed.
    :ivar located: the repository and ref, as kas resolved them last, without files; its
        commit is empty if kas could not read the ref.  None before the first response.
    :ivar seen: the newest commit that arrived, valid or not.
    :ivar refused: a newer commit whose files kas does not send; empty if no such commit
        exists.
    :ivar absent: the newest commit, if kas could read it but it lacks the folder of the
        source; None if the folder exists or this is unknown.
    """

    _name: str
    _api: IAgentModuleApi
    _service: IServiceClient
    _settings: ManifestProject
    _random: Callable[[], float]
    _rendering: Rendering
    _previewed: Rendering
    _came: Callable[[Snapshot, Source], None]
    _changed: Callable[[], None]
    located: Snapshot | None = attrs.field(default=None, init=False)
    seen: str = attrs.field(default="", init=False)
    refused: str = attrs.field(default="", init=False)
    absent: Snapshot | None = attrs.field(default=None, init=False)
    #: Value of `absent` for the commit that was read last.
    _read_absent: Snapshot | None = attrs.field(default=None, init=False)
    #: Last commit that kas began to send, without files.
    _begun: Snapshot | None = attrs.field(default=None, init=False)
    #: Reason why kas sends no files, and reason why the files cannot be read; each
    #: reason is logged once.
    _not_sent: str = attrs.field(default="", init=False)
    _not_read: str = attrs.field(default="", init=False)
    #: Whether kas or its Git server was unavailable at the last attempt.
    _was_away: bool = attrs.field(default=False, init=False)
    #: Commit to read, and the step that reads a commit or waits for one.
    _unread: Snapshot | None = attrs.field(default=None, init=False)
    _reading: Interruptible = attrs.field(factory=Interruptible, init=False)
    #: Pauses that a call of `newest` ends.
    _pauses: set[Deferred[None]] = attrs.field(factory=set, init=False)
    _log = Logger()

    @property
    def problem(self) -> str:
        """Reason why no newer commit is available; empty without a problem."""
        return self._not_sent or self._not_read

    @property
    def problem_of_newer(self) -> bool:
        """Whether a newer commit exists that cannot be fetched or read."""
        return bool(self.refused or self._not_read)

    @property
    def not_read(self) -> bool:
        """Whether a newer commit cannot be read now."""
        return bool(self._not_read)

    async def run(self) -> None:
        """Follow the ref until cancelled."""
        end = self._api.events.subscribe(TunnelConnected, lambda _: self._reconnected())
        try:
            await in_parallel([self._follow, self._read_all])
        finally:
            end()

    def _reconnected(self) -> None:
        """
        Forget why kas was unavailable, because agentk repeats the request within
        seconds.
        """
        if self._was_away and not self.refused:
            self._sends()

    async def at(self, ref: rpc_pb2.Ref | None) -> tuple[Snapshot, Source]:
        """
        Return the commit that a ref points to, for a preview.

        :param ref: None for the ref of the source.
        :raises CallError: if the ref does not exist, or cannot be fetched or read now.
        """
        asked = ref_message(self._settings.ref) if ref is None else ref
        return await self._received(self._asked(asked, ""), self._previewed)

    async def of_history(self, commit: str) -> tuple[Snapshot, Source]:
        """
        Return a commit if it is in the history of the followed ref.

        :raises CallError: if the commit is not in that history; if *commit* is not the
            id of a commit; otherwise as for `at`.
        """
        if COMMIT.fullmatch(commit) is None:
            text = f"{commit[:64]!r} is not the id of a commit"
            raise CallError(Status.INVALID_ARGUMENT, text)
        ref = ref_message(self._settings.ref)
        answer = self._asked(rpc_pb2.Ref(commit=commit), "", history_of=ref)
        return await self._received(answer, self._rendering)

    async def newest(self) -> str:
        """
        Return the id of the ref's current commit, and read that commit at once.

        :raises CallError: if kas cannot resolve the ref.
        """
        found = await self._at_now()
        for over in tuple(self._pauses):
            if not over.called:
                over.callback(None)
        if not found:
            raise CallError(Status.UNAVAILABLE, "kas is stopping: retry")
        return found

    async def _at_now(self) -> str:
        """
        Return the ref's current commit; empty if kas is stopping and did not respond.
        """
        request = rpc_pb2.ObjectsToSynchronizeRequest(
            project_id=self._settings.id,
            ref=ref_message(self._settings.ref),
            only_commit=True,
        )
        found = await receive(self._service.stream("GetObjectsToSynchronize", request))
        return "" if found is None else found.commit

    async def _received(
        self,
        answer: AsyncIterator[rpc_pb2.ObjectsToSynchronizeResponse],
        made: Rendering,
    ) -> tuple[Snapshot, Source]:
        snapshot = await receive(answer)
        if snapshot is None:
            text = "kas is stopping: retry"
            raise CallError(Status.UNAVAILABLE, text)
        return attrs.evolve(snapshot, files=()), await self._read(snapshot, made)

    async def _follow(self) -> None:
        backoff = Backoff(self._random, ASK_FIRST, ASK_MOST)
        while True:
            began: list[str] = []
            try:
                # Check the ref now, because the stream that follows may not deliver a
                # commit for weeks.
                if self._not_sent and self.seen and await self._at_now() == self.seen:
                    if self._unread is None:
                        # The ref is back at the commit that was read last.
                        self.absent = self._read_absent
                    self._sends()
                asked = ref_message(self._settings.ref)
                answer = self._asked(asked, self.seen)
                snapshot = await receive(answer, began.append, self._locate)
            except CallError as error:
                if self.located is None or not self.located.at.repository:
                    await self._ask_repository()
                self._not_sent = self._complain(self._not_sent, error)
                self._was_away = error.status is Status.UNAVAILABLE
                self.refused = began[0] if began else self.refused
                if began and error.status is Status.NOT_FOUND:
                    # A repository returns this status only for a commit that it can
                    # read.
                    self._note_absent()
                self._changed()
                if await self._pause(backoff.pause(), *began, looks=True):
                    backoff.reset()
                continue
            backoff.reset()
            self._sends()
            if snapshot is None:
                # kas is stopping, and another replica will respond.
                await deferLater(self._api.clock, ASK_FIRST * self._random())
                continue
            self.seen = snapshot.commit
            self._unread = snapshot
            self._reading.interrupt()
            await deferLater(self._api.clock, BETWEEN)
            if self._settings.ref is not None and self._settings.ref.commit:
                # The ref is the id of a commit, which never changes, so wait until
                # cancelled.
                await Deferred()

    def _note_absent(self) -> None:
        begun = self._begun
        if begun and (self.absent is None or self.absent.commit != begun.commit):
            self.absent = begun

    def _locate(self, begun: Snapshot) -> None:
        self.located = self._begun = begun

    async def _ask_repository(self) -> None:
        """
        Request the identity of the repository, which kas can send even if the files
        cannot be read.
        """
        request = rpc_pb2.ObjectsToSynchronizeRequest(
            project_id=self._settings.id,
            ref=ref_message(self._settings.ref),
            # Set this field, too, for an older kas that does not know the next field.
            only_commit=True,
            only_repository=True,
        )
        try:
            responses = self._service.stream("GetObjectsToSynchronize", request)
            async for response in responses:
                if response.WhichOneof("message") == "header":
                    self.located = Snapshot.of(response.header)
        except CallError:
            # Ignore the error: the project already reports that kas is unavailable.
            return

    def _sends(self) -> None:
        """Record that kas can send the ref's current commit."""
        if self._not_sent:
            self._not_sent = self.refused = ""
            self._changed()

    async def _pause(
        self, seconds: float, refused: str = "", *, looks: bool = False
    ) -> bool:
        """
        Wait before a retry; a call of `newest` ends the wait early.

        :param refused: the commit that kas refused; empty if kas could not read the
            ref.
        :param looks: whether to end the pause if the ref points to another commit, or
            if kas can read the ref again.
        :returns: whether such a check ended the pause.
        """
        over: Deferred[None] = Deferred()
        self._pauses.add(over)
        looking: Deferred[None] = Deferred()
        if looks:
            looking = Deferred.fromCoroutine(self._another(refused))
        found = False

        def end(_: object) -> None:
            nonlocal found
            found = True
            if not over.called:
                over.callback(None)

        looking.addCallbacks(end, lambda failure: failure.trap(CancelledError))
        try:
            await pause(self._api, seconds, self._random, over)
        finally:
            self._pauses.discard(over)
            looking.cancel()
        return found

    async def _another(self, commit: str) -> None:
        """
        Wait until the ref points to a commit other than *commit*.

        :param commit: empty if kas could not read the ref: then wait until kas can read
            it.
        """
        request = rpc_pb2.ObjectsToSynchronizeRequest(
            project_id=self._settings.id,
            commit_id=commit,
            ref=ref_message(self._settings.ref),
            only_commit=True,
        )
        backoff = Backoff(self._random, ASK_FIRST, LOOK_MOST)
        failed = False
        while True:
            try:
                answer = self._service.stream("GetObjectsToSynchronize", request)
                if await receive(answer) is not None:
                    break
            except CallError:
                failed = True
            await deferLater(self._api.clock, backoff.pause())
        if not (commit or failed):
            # kas can read the ref, so requests fail for another reason: wait until
            # cancelled.
            await Deferred()

    async def _read_all(self) -> None:
        backoff = Backoff(self._random, ASK_FIRST, ASK_MOST)
        while True:
            self._reading.begin()
            snapshot = self._unread
            if snapshot is None:
                await self._reading.run(Deferred[None]())
            else:
                await self._reading.run(self._read_one(snapshot, backoff))

    async def _read_one(self, snapshot: Snapshot, backoff: Backoff) -> None:
        try:
            source = await self._read(snapshot, self._rendering)
        except CallError as error:
            self._not_read = self._complain(self._not_read, error)
            self._changed()
            await self._pause(backoff.pause())
            return
        backoff.reset()
        self._not_read, self._unread = "", None
        self._log.info(
            "project {project}: received commit {commit}: {files}, {objects}",
            project=self._name,
            commit=snapshot.commit,
            files=_number_of(len(snapshot.files), "file"),
            objects=_number_of(len(source.manifests), "object"),
        )
        without = attrs.evolve(snapshot, files=())
        self._read_absent = without if self._lacks_folder(snapshot) else None
        self.absent = self._read_absent
        self._came(without, source)

    def _lacks_folder(self, snapshot: Snapshot) -> bool:
        """Return whether a commit has no file in the folder to be rendered."""
        kind = self._settings.source
        folder = f"{kind.path.strip('/')}/"
        rendered = kind.kind != "plain" and folder != "/"
        return rendered and not any(
            path.startswith(folder) for path, _ in snapshot.files
        )

    async def _read(self, snapshot: Snapshot, made: Rendering) -> Source:
        settings, client = self._settings, self._api.kubernetes.as_agentk()
        source = await read_snapshot(snapshot, settings, made.renderer, client)
        source = await made.decrypted(source)
        return without_ignored(source, settings.drift.ignore)

    def _asked(
        self, ref: rpc_pb2.Ref, known: str, history_of: rpc_pb2.Ref | None = None
    ) -> AsyncIterator[rpc_pb2.ObjectsToSynchronizeResponse]:
        """
        Request the files at *ref*, once *ref* points to a commit other than *known*.
        """
        request = rpc_pb2.ObjectsToSynchronizeRequest(
            project_id=self._settings.id,
            commit_id=known,
            paths=[rpc_pb2.Path(glob=one) for one in self._settings.globs],
            ref=ref,
            history_of=history_of,
            # Charts and bases of kustomizations may be in hidden folders.
            hidden_folders=self._settings.source.kind != "plain",
        )
        return self._service.stream("GetObjectsToSynchronize", request)

    def _complain(self, before: str, error: CallError) -> str:
        # The message may contain names of files, which other users chose.
        problem = clean(error.message, MAX_PROBLEM, " ")
        if problem != before:
            self._log.warn(
                "project {project}: cannot get its files; the cluster "
                "stays as it is: {reason}",
                project=self._name,
                reason=problem,
            )
        return problem


def _number_of(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
