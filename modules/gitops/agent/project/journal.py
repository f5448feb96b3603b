"""
Log of a project, which contains each problem once, and a limited number of lines about
drift.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from modules.gitops.agent.drift.drift import Drift, DriftState
from modules.gitops.agent.project.reconcile import Report
from tunnel.toolkit.allowance import Allowance
from tunnel.toolkit.texts import clean

__all__ = ["MAX_LINE", "MAX_LINES", "Journal", "bounded", "counted"]

#: Maximum number of lines about drift in a period, and the seconds of that period;
#: further lines are only counted.
DRIFT_LINES, DRIFT_LINES_SECONDS = 30, 60.0

#: Maximum number of lines of one report; further lines are counted.  Maximum characters
#: of a line: authors choose the names of files and keys, and a circle names thousands
#: of objects.
MAX_LINES, MAX_LINE = 20, 2000

#: Ends of log lines about drift, by the state of the drift.
_STATE_WORDS = {
    DriftState.REPORTED: "it is not repaired",
    DriftState.DUE: "it is repaired",
    DriftState.REPAIRED: "it was repaired",
    DriftState.PAUSED: "its repair is paused for an hour",
    DriftState.FAILED: "it could not be repaired",
    DriftState.ENDED: "it matches Git again",
}
_GOOD = (DriftState.REPAIRED, DriftState.ENDED)


@attrs.define(eq=False)
class Journal:
    """
    Writer of one project's log lines.

    :ivar project: the name of the project.
    :ivar problems: the reasons why the project is not current, as logged.
    :ivar commit: the commit that has these *problems*.
    """

    _log = Logger()

    project: str
    _clock: IReactorTime
    problems: list[str] = attrs.field(factory=list, init=False)
    commit: str = attrs.field(default="", init=False)
    _summary: tuple[str, str] = attrs.field(default=("", ""), init=False)
    _drift_lines: Allowance = attrs.field(
        factory=lambda: Allowance(DRIFT_LINES, DRIFT_LINES_SECONDS), init=False
    )
    _unsaid_drifts: int = attrs.field(default=0, init=False)

    def explain(self, commit: str, lines: list[str], *, is_wrong: bool = True) -> None:
        """
        Log why the project is not current, unless the same reasons were logged last.
        """
        lines = bounded(lines)
        self.commit = commit
        if lines == self.problems:
            return
        self.problems = lines
        self.list_all(commit, lines, is_wrong=is_wrong)

    def list_all(self, commit: str, lines: list[str], *, is_wrong: bool = True) -> None:
        """Log *lines*, up to the limit of one report."""
        log = self._log.error if is_wrong else self._log.info
        for line in lines[:MAX_LINES]:
            log(
                "project {project}, commit {commit}: {line}",
                project=self.project,
                commit=commit[:12],
                line=line,
            )
        if len(lines) > MAX_LINES:
            log(
                "project {project}, commit {commit}: and {count} more",
                project=self.project,
                commit=commit[:12],
                count=len(lines) - MAX_LINES,
            )

    def summarize(self, report: Report) -> None:
        """Log the outcomes of a commit if they differ from the last ones."""
        summary = counted(one.outcome.value for one in report.results.values())
        if (report.commit, summary) == self._summary:
            return
        self._summary = (report.commit, summary)
        self._log.info(
            "project {project}: commit {commit} is {what}: {summary}",
            project=self.project,
            commit=report.commit,
            what="in the cluster"
            if not report.failed
            else "in the cluster, but incomplete",
            summary=summary,
        )

    def superseded(self) -> None:
        """Log that a pass ended early."""
        self._log.info(
            "project {project}: another agentk changed the inventory, or an "
            "operator changed the orders; retrying",
            project=self.project,
        )

    def dry_run(self, commit: str, verbs: Iterable[str]) -> None:
        """Log the changes that a commit would make."""
        self._log.info(
            "project {project}: commit {commit} would {what} (dry run)",
            project=self.project,
            commit=commit,
            what=counted(verbs),
        )

    def drift(self, drift: Drift) -> None:
        """Log drift, up to the limit of lines in a period."""
        now = self._clock.seconds()
        if self._drift_lines.wait(now):
            self._unsaid_drifts += 1
            return
        self._drift_lines.take(now)
        if self._unsaid_drifts:
            self._log.warn(
                "project {project}: {count} more lines about drift",
                project=self.project,
                count=self._unsaid_drifts,
            )
            self._unsaid_drifts = 0
        say = self._log.info if drift.state in _GOOD else self._log.warn
        say(
            "project {project}: drift: {drift}; {state}{reason}",
            project=self.project,
            drift=str(drift),
            state=_STATE_WORDS[drift.state],
            reason=clean(f": {drift.reason}", MAX_LINE, " ") if drift.reason else "",
        )


def bounded(lines: Iterable[object]) -> list[str]:
    """Return *lines* as texts that are safe and short enough for a log."""
    return [clean(str(one), MAX_LINE, " ") for one in lines]


def counted(words: Iterable[str]) -> str:
    """Return the number of occurrences of each word: ``3 created, 1 pruned``."""
    counts = Counter(words)
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "0"
