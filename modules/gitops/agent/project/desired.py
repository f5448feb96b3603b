"""
Commits that a project should apply, and the operators' orders that determine them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection

import attrs
from twisted.internet.interfaces import IReactorTime

from modules.gitops.agent.inventory.handover import names
from modules.gitops.agent.inventory.orders import Orders
from modules.gitops.agent.objects.error_statuses import AWAY
from modules.gitops.agent.objects.manifests import ObjectKey, Source
from modules.gitops.agent.project.reconcile import Report
from modules.gitops.agent.project.stores import ProjectStores
from modules.gitops.agent.source.commits import Commits
from modules.gitops.agent.source.snapshot import Location, Snapshot
from modules.gitops.wire.settings import ManifestProject
from tunnel.errors import CallError, Status

__all__ = ["MAX_PAST", "DesiredCommits", "UnreadablePin"]

#: Maximum number of commits that a project remembers: other projects that follow the
#: same branch are not further behind.
MAX_PAST = 100


class UnreadablePin(CallError):
    """Error if a project's pinned commit cannot be obtained."""


class DesiredCommits:
    """
    Record of the newest commit of a project, and of the commit that operators pinned
    the project to.

    :param commits: sends commits to `accept` and `refuse`.
    :param changed: called when `contains` may return other results, and by
        `note_inventory`.
    :ivar orders: the operators' orders, as last read.
    :ivar snapshot: the newest commit that can be applied; None before the first one.
    :ivar source: the content of *snapshot*.
    :ivar absent: a newer commit without the project's folder, see `Commits.absent`.
    :ivar pinned: the commit that *orders* pin, with its content; None if no commit is
        pinned, or if the pinned commit has not been read yet.
    :ivar refused: the newest commit and the reasons, if that commit cannot be used; the
        previous commit then remains in effect.
    :ivar known_since: the time when `known_commit` became known.
    """

    def __init__(
        self,
        settings: ManifestProject,
        commits: Commits,
        stores: ProjectStores,
        clock: IReactorTime,
        changed: Callable[[], None],
    ) -> None:
        self.orders = Orders()
        self.snapshot: Snapshot | None = None
        self.source: Source | None = None
        self.absent: Snapshot | None = None
        self.pinned: tuple[Snapshot, Source] | None = None
        self.refused = Report("")
        self.known_since = 0.0
        self._settings = settings
        self._commits = commits
        self._stores = stores
        self._clock = clock
        self._changed = changed
        self._noted_inventory = ""
        #: Whether `orders` were read at least once.
        self._orders_read = False
        #: Commits that were read before the current one.
        self._past: deque[str] = deque(maxlen=MAX_PAST)
        #: Content of the commit that was last read because an order pinned it.
        self._last_pinned: tuple[Snapshot, Source] | None = None
        #: Predicates that `contains` calls.
        self._named: list[Callable[[ObjectKey], bool]] = []

    @property
    def repository(self) -> str:
        """
        Repository of the project's files; empty if the repository is not known yet.
        """
        return self.snapshot.project if self.snapshot is not None else ""

    @property
    def name_in_commands(self) -> str:
        """Name of the project as an argument of kasctl."""
        return self._settings.label or self.repository

    @property
    def inventory(self) -> str:
        """
        Id of the project's inventory; empty while the repository is unknown.

        The id is usually known before the first commit, and even if no commit can be
        read: it needs only the name of the repository.
        """
        found = self.snapshot or self._commits.absent or self._commits.located
        return "" if found is None else self._stores.id_of(found)

    @property
    def commit(self) -> str:
        """Last commit that was read; empty before the first."""
        return "" if self.snapshot is None else self.snapshot.commit

    @property
    def known_commit(self) -> str:
        """
        Return the last commit that `contains` knows; empty before the first.

        A commit without the project's folder counts as a commit without its objects,
        although the project itself stays at the previous commit.
        """
        absent = self._commits.absent
        return self.commit if absent is None else absent.commit

    @property
    def past_commits(self) -> Collection[str]:
        """
        Known commits from before `known_commit`: commits that were read earlier, and
        commits of the orders' history.
        """
        history = (one.commit for one in self.orders.history)
        return {*self._past, *history, self.commit} - {"", self.known_commit}

    @property
    def knows_orders(self) -> bool:
        """Whether `contains` knows the commit that an operator pinned, if any."""
        pinned = self.orders.pinned
        known = self.pinned[0].commit if self.pinned is not None else ""
        return self._orders_read and pinned in ("", known)

    @property
    def location(self) -> Location:
        """Ref and repository of the project, as kas resolved them."""
        if self.snapshot is not None:
            return self.snapshot.at
        located = self._commits.located
        found = Location() if located is None else located.at
        ref = self._settings.ref
        if found.ref or ref is None:
            return found
        # The default branch is the only ref whose name may be missing in the
        # configuration.
        name = f"refs/heads/{ref.branch}" if ref.branch else f"refs/tags/{ref.tag}"
        return attrs.evolve(found, ref=ref.commit or name)

    def contains(self, key: ObjectKey) -> bool:
        """Return whether the newest commit, or the pinned one, contains an object."""
        return any(named(key) for named in self._named)

    # Methods that process new commits and orders.

    def note_inventory(self) -> None:
        """Tell the other projects if the id of the inventory has changed."""
        found = self.inventory
        if found != self._noted_inventory:
            self._noted_inventory = found
            self._changed()

    def note_absent(self) -> bool:
        """
        Note whether the newest commit lacks the project's folder.

        :returns: whether the result differs from the last call.
        """
        found = self._commits.absent
        if found is self.absent:
            return False
        if self.absent is not None:
            self._past.append(self.absent.commit)
        self.absent = found
        self.known_since = self._clock.seconds()
        self._note_named()
        self._changed()
        return True

    def refuse(self, commit: str, source: Source) -> None:
        """Note the problems of the newest commit, which is not applied."""
        self.refused = Report(commit, source.problems)

    def accept(self, snapshot: Snapshot, source: Source) -> None:
        """Note the newest commit."""
        self.refused = Report("")
        if self.snapshot is None or self.snapshot.commit != snapshot.commit:
            self.known_since = self._clock.seconds()
            if self.snapshot is not None:
                self._past.append(self.snapshot.commit)
        self.snapshot, self.source = snapshot, source
        self._note_named()

    async def take_orders(
        self, orders: Orders, snapshot: Snapshot, source: Source | None
    ) -> None:
        """
        Record the operators' orders, and read the commit that they pin.

        :param snapshot: the newest commit; *source* is its content, or None if the
            commit was not read.
        :raises UnreadablePin: if the pinned commit cannot be read now.
        """
        self.orders = orders
        before = self.pinned
        if before is not None and before[0].commit != orders.pinned:
            self.pinned = None
            self._note_named()
        if orders.pinned and self.pinned is None:
            if orders.pinned == snapshot.commit and source is not None:
                self.pinned = (snapshot, source)
            else:
                self.pinned = await self._of_pinned(orders.pinned)
        if not self._orders_read or self.pinned is not before:
            self._orders_read = True
            self._note_named()
            self._changed()

    async def _of_pinned(self, commit: str) -> tuple[Snapshot, Source]:
        """
        Return the content of the pinned commit.

        Each order makes kas check the commit again, because a forced push may have
        removed it from the history.  If kas or the Git server is unavailable, a commit
        that was read for an earlier order remains valid.

        :raises UnreadablePin: if the commit cannot be read, or is not in the history of
            the ref.
        """
        try:
            found = await self._commits.of_history(commit)
        except CallError as error:
            known = self._last_pinned
            is_known = known is not None and known[0].commit == commit
            if known is not None and is_known and error.status in AWAY:
                return known
            why = _unreadable(commit, error.message)
            raise UnreadablePin(error.status, why) from None
        if problems := found[1].problems:
            why = _unreadable(commit, str(problems[0]))
            raise UnreadablePin(Status.FAILED_PRECONDITION, why)
        self._last_pinned = found
        return found

    def _note_named(self) -> None:
        pinned = None if self.pinned is None else self.pinned[1]
        newest = self.source if self.absent is None else None
        self._named = [
            names(one.manifests, self._settings.default_namespace)
            for one in (newest, pinned)
            if one is not None
        ]


def _unreadable(commit: str, why: str) -> str:
    return (
        f"the project is pinned to {commit[:12]}, which cannot be applied; the "
        f"cluster stays as it is: {why}"
    )
