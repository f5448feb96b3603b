"""Status of a project, for operators and other projects."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import attrs

from modules.gitops.agent.drift.drift import UNWATCHED_AGAIN, Drifts
from modules.gitops.agent.project.desired import DesiredCommits
from modules.gitops.agent.project.explanations import (
    LOST,
    LOST_BEFORE,
    MAX_KINDS,
    pruning_lines,
)
from modules.gitops.agent.project.journal import MAX_LINE, Journal, bounded
from modules.gitops.agent.project.passes import AGAIN, Passes
from modules.gitops.agent.project.transfers import Transfers
from modules.gitops.agent.source.commits import Commits
from tunnel.toolkit.texts import clean

__all__ = ["ProjectStatus", "State"]


class State(Enum):
    """State of a project."""

    #: No commit has arrived, or the commit cannot be read, or another project comes
    #: first.
    WAITING = "waiting"
    WORKING = "working"
    #: All objects are as in Git.
    CURRENT = "current"
    #: Some objects differ from Git, because of an error.
    FAILED = "failed"
    #: Objects that were removed from Git wait for an operator's approval.
    HELD = "held"
    #: An operator has suspended all changes.
    SUSPENDED = "suspended"


@attrs.define(eq=False)
class ProjectStatus:
    """
    Status of one project.

    :param drift_mode: ``ManifestProject.drift.mode``.
    :param now: returns the time in seconds since 1970.
    :ivar out_of_sync_since: when the cluster began to differ from Git; None if it does
        not differ.
    """

    _desired: DesiredCommits
    _commits: Commits
    _passes: Passes
    _journal: Journal
    _transfers: Transfers
    _drifts: Drifts
    _drift_mode: str
    _now: Callable[[], float]
    out_of_sync_since: float | None = attrs.field(default=None, init=False)

    def note_sync(self) -> None:
        """Note the time at which the cluster began to differ from Git."""
        report = self._passes.report
        behind = report is None or bool(
            report.problems or report.failed or self._passes.guarded(report)
        )
        # A newer commit exists, but cannot be read.
        newer = bool(self._desired.refused.problems or self._commits.problem_of_newer)
        if not (behind or newer or self._drifts.present):
            self.out_of_sync_since = None
        elif self.out_of_sync_since is None:
            self.out_of_sync_since = self._now()

    @property
    def next_commit(self) -> str:
        """
        Newest commit, if it is not the commit of the last report; empty otherwise.
        """
        report = self._passes.report
        done = report.commit if report is not None else ""
        newest = self._commits.refused or self._commits.seen
        return newest if newest != done else ""

    @property
    def next_reason(self) -> str:
        """
        Reason why `next_commit` is not applied yet; empty if no such commit exists.
        """
        newest, orders = self.next_commit, self._desired.orders
        refused, journal = self._desired.refused, self._journal
        if not newest:
            return ""
        if orders.suspended:
            return "the project is suspended"
        if orders.pinned:
            return f"the project is pinned to {orders.pinned[:12]}"
        if refused.problems and refused.commit == newest:
            return bounded(refused.problems)[0]
        if self._commits.problem_of_newer:
            return self._commits.problem
        # The report is about an earlier commit.
        if self._desired.commit == newest:
            if self._passes.is_busy:
                return "agentk is applying it"
            if journal.problems and journal.commit == newest:
                return journal.problems[0]
        return "agentk is about to apply it"

    @property
    def problems(self) -> list[str]:
        """Current problems, as logged."""
        refused, orders = self._desired.refused, self._desired.orders
        pruning = self._passes.pruning
        said = self._journal.problems
        in_progress = orders.pinned or self._desired.commit
        if self._passes.is_busy and self._journal.commit != in_progress:
            # Another commit is in progress.
            said = []
        if pruning is not None:
            # Deletes that were approved after the report do not wait any more.
            said = [*pruning_lines(pruning)] + ([] if pruning.approved else said)
        why = bounded(
            f"commit {refused.commit[:12]}: {one}"
            for one in refused.problems
            # A pinned project does not follow the newest commit.
            if not orders.pinned
        )
        return [*filter(None, [self._commits.problem]), *why, *said]

    @property
    def notices(self) -> list[str]:
        """Lines for operators that are not failures."""
        is_notice = self._desired.orders.lost and LOST not in self._journal.problems
        return [LOST_BEFORE] if is_notice else []

    @property
    def release(self) -> str:
        """
        Name of the held deletes (see `Report.release`); also empty while the approved
        deletes are made, or if an approval would have no effect now.
        """
        report, pruning = self._passes.report, self._passes.pruning
        approved = pruning is not None and pruning.approved
        if report is None or approved or self._desired.orders.suspended:
            return ""
        return report.release

    @property
    def state(self) -> State:
        """State of the project."""
        report, problems = self._passes.report, self._journal.problems
        if self._desired.orders.suspended:
            return State.SUSPENDED
        if self._passes.is_busy:
            return State.WORKING
        if self._passes.awaits_dependency:
            return State.WAITING
        if not self._desired.orders.pinned:
            if self._desired.refused.problems or self._commits.refused:
                return State.FAILED
            if self._commits.not_read:
                return State.WAITING
        if report is None:
            return State.FAILED if problems else State.WAITING
        if report.release:
            return State.HELD
        if problems and self._transfers.awaits_agents:
            return State.WAITING
        return State.FAILED if problems else State.CURRENT

    @property
    def is_current(self) -> bool:
        """
        Whether all objects of the newest or pinned commit are as in Git.

        An object that stays until another project takes it is ignored, because that
        project may wait for this one.
        """
        done = not self.next_commit or bool(self._desired.orders.pinned)
        hands_over = self.state is State.FAILED and self._transfers.hands_over
        return done and (self.state is State.CURRENT or hands_over or self._is_complete)

    @property
    def _is_complete(self) -> bool:
        """Whether the project is not current only because of unproven objects."""
        report, desired = self._passes.report, self._desired
        is_refused = desired.refused.problems or self._commits.refused
        return (
            self.state in (State.HELD, State.FAILED)
            and report is not None
            and report.is_complete
            and not self._passes.has_failed
            and bool(desired.orders.pinned or not is_refused)
        )

    @property
    def hands_over(self) -> bool:
        """
        Whether objects stay until another project takes them, without any other
        problem.
        """
        waits = self._transfers.only_waits
        return self.state in (State.FAILED, State.WAITING) and waits

    @property
    def drift_delay(self) -> str:
        """
        Reason why drift is detected late; empty if drift is detected at once, or not at
        all.
        """
        problems = self._drifts.unwatched if self._drift_mode != "off" else {}
        if not problems:
            return ""
        seconds = AGAIN if self._drift_mode == "repair" else UNWATCHED_AGAIN
        kinds = sorted(kind for _, kind in problems)
        named = ", ".join(kinds[:MAX_KINDS])
        if len(kinds) > MAX_KINDS:
            named += f" and {len(kinds) - MAX_KINDS} more kinds"
        why = clean(next(iter(problems.values())), MAX_LINE, " ")
        return (
            f"changes to {named} by other clients are detected every "
            f"{seconds / 60:.0f} minutes only, because agentk cannot watch them (it "
            f"needs list and watch in the whole cluster): {why}"
        )
