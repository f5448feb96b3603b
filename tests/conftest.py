"""For all tests: none hangs, and none is left out in silence."""

from __future__ import annotations

import faulthandler
import itertools
import os
import re
import signal
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.faults import page, record
from tests.integration import cluster, needs, processes
from tests.integration.cluster import ControlPlane
from tools import compiled
from tunnel.compiled import build_name, chosen_sources, unusable
from tunnel.program.tuning import allow_many_files

#: Seconds for one test and its fixtures.  Far more than any takes, beside others on a
#: busy machine and under coverage: this is for those that would never end.
UNIT_SECONDS = 300
INTEGRATION_SECONDS = 600
#: ... and for an experiment of `make faults`.
FAULTS_SECONDS = 1200

#: After this many more the whole run ends: the test did not let itself be interrupted.
GRACE_SECONDS = 20

#: Of each log, in the report of a test that failed.
LOG_TAIL = 6000

#: What all tests of a folder are.
MARKS = {"integration": ("integration",), "faults": ("integration", "faults")}

#: What begins, because it takes longest; the others fill what is left.  A file runs in
#: one process: one that takes minutes and began late would run alone at the end.
FIRST = (
    "faults/test_rolling.py",
    "faults/test_slow.py",
    "faults/test_loss.py",
    "faults/test_silence.py",
    "faults/test_cut_off.py",
    "faults/test_killed.py",
    "faults/test_clock.py",
    # Of those that are alone the most sensitive last: tests that only compute are done.
    "faults/test_black_hole.py",
    "faults/test_hostile.py",
    "faults/test_redis_crowds.py",
    "faults/test_redis_faults.py",
    "faults",
    "integration/test_gitops_bundles.py",
    "integration/test_workers.py",
    "integration/test_gitops.py",
    "integration/test_logs.py",
    "integration/test_git.py",
    "integration/test_kubectl_api.py",
    "integration/test_gitlab.py",
    "integration/test_kubectl_streams.py",
    "integration",
)

# Time limits are above; how long one example takes says how busy the machine is.  In CI
# examples are the same in every run; elsewhere new ones are looked for.
settings.register_profile("txkas", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("txkas")

# Hypothesis takes constants out of every module of ours that is loaded, so that what
# else a process has run would decide which examples are "the same in every run".
providers._get_local_constants = providers.Constants  # type: ignore[attr-defined]

_STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the terminal: during tests the standard streams are captured."""
    # Else they would test sources where what is compiled was meant.
    reason = unusable(compiled.ROOT)
    if reason is not None and not chosen_sources(os.environ):
        raise pytest.UsageError(reason)
    config.stash[_STDERR] = os.dup(2)
    # A shell without job control starts a command in the background with SIGINT
    # ignored, and a program that a test starts would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # As kas and agentk do: an ordinary user may have 1,024 files open until then.
    allow_many_files()


def pytest_report_header() -> str:
    """Which build is tested."""
    return f"txkas: {build_name()}"


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give it back."""
    if _STDERR in config.stash:
        os.close(config.stash[_STDERR])


def _long() -> bool:
    """Whether experiments take the time of `make faults`."""
    return os.environ.get("TXKAS_FAULTS") == "long"


def _seconds(item: pytest.Item) -> int:
    if item.get_closest_marker("faults") is not None and _long():
        return FAULTS_SECONDS
    if item.get_closest_marker("integration") is not None:
        return INTEGRATION_SECONDS
    return UNIT_SECONDS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark those of the folders that start processes, and put them first."""
    for item in items:
        for mark in MARKS.get(_folder(item), ()):
            item.add_marker(mark)
        if item.get_closest_marker("faults") is not None and not _long():
            item.add_marker(pytest.mark.flaky(**record.AGAIN))
    items.sort(key=_order)


def _order(item: pytest.Item) -> int:
    path = _path(item)
    found = (n for n, first in enumerate(FIRST) if path.is_relative_to(first))
    return next(found, len(FIRST))


def _path(item: pytest.Item) -> Path:
    here = Path(__file__).parent
    return item.path.relative_to(here) if item.path.is_relative_to(here) else Path()


def _folder(item: pytest.Item) -> str:
    return next(iter(_path(item).parts), "")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the processes said when a test of theirs fails."""
    report = yield
    if report.failed and item.get_closest_marker("integration") is not None:
        for process in processes.running:
            if process.name != "control plane":
                report.sections.append((f"log of {process.name}", _log(process)))
    return report


def _log(process: processes.Process) -> str:
    # Without the lines of those who ask again and again whether it is ready.
    lines = [one for one in process.said().splitlines() if "GET /" not in one]
    return "\n".join(lines)[-LOG_TAIL:]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Interrupt a test that takes too long, and show where it was."""
    terminal = item.config.stash[_STDERR]
    seconds = _seconds(item)

    def too_long(*_: Any) -> None:
        os.write(terminal, f"\n{item.nodeid}: {seconds} s are over\n".encode())
        faulthandler.dump_traceback(terminal)
        pytest.fail(f"still running after {seconds} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    # A reactor takes the exception for one of its callbacks' and goes on waiting.
    faulthandler.dump_traceback_later(seconds + GRACE_SECONDS, exit=True, file=terminal)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def control_plane(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> ControlPlane:
    """An API server with everything around it, for all processes that run tests."""
    folder = tmp_path_factory.getbasetemp()
    if hasattr(pytestconfig, "workerinput"):
        folder = folder.parent
    stack = ExitStack()
    pytestconfig.add_cleanup(stack.close)
    return stack.enter_context(
        cluster.shared(needs.kubernetes(), folder / "control-plane")
    )


_numbers = itertools.count(1)


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A name of its own in which pods can start; removed, but not waited for."""
    yield from _namespace(control_plane)


@pytest.fixture(scope="module")
def shared_namespace(control_plane: ControlPlane) -> Iterator[str]:
    """The same for a whole file."""
    yield from _namespace(control_plane)


def _namespace(control_plane: ControlPlane) -> Iterator[str]:
    name = f"ns-{os.getpid()}-{next(_numbers):03}"
    control_plane.add_namespace(name)
    yield name
    control_plane.remove_namespace(name)


_NEEDS = re.compile(r"(?:Skipped: )?needs (?P<what>.*?): (?P<command>.*)", re.DOTALL)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what the experiments measured, and what was not tested."""
    _tell_figures(terminalreporter)
    _tell_skipped(terminalreporter)


def _tell_figures(terminalreporter: Any) -> None:
    """The figures, good and bad; kept in ``build/faults.json``."""
    found: dict[str, list[record.Figure]] = {}
    ran: dict[str, tuple[bool, float]] = {}
    for report in itertools.chain(*terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            # Each report of a test has those of its earlier ones.
            figures = record.noted(report.user_properties)
            if len(figures) > len(found.get(report.nodeid, ())):
                found[report.nodeid] = figures
            if report.when == "call" and report.outcome in ("passed", "failed"):
                # The last one of a test that ran again.
                ran[report.nodeid] = report.passed, report.duration
    if shown := page.figures((name, *how) for name, how in ran.items()):
        record.write(shown)
    if found:
        figures = [figure for _, one in sorted(found.items()) for figure in one]
        terminalreporter.section("faults")
        terminalreporter.line(record.table(figures))
        record.write(figures)


def _tell_skipped(terminalreporter: Any) -> None:
    """What was skipped, and the command that brings it."""
    counts: dict[str, int] = defaultdict(int)
    for report in terminalreporter.stats.get("skipped", []):
        if not isinstance(report.longrepr, tuple):
            continue
        path, line, reason = report.longrepr
        found = _NEEDS.fullmatch(reason)
        if found is None:
            text = f"{reason.removeprefix('Skipped: ')} ({path}:{line})"
        else:
            text = f"without {found['what']}; to have it: {found['command']}"
        counts[text] += 1
    if counts:
        terminalreporter.section("not tested here")
        for text, count in sorted(counts.items()):
            tests = "1 test" if count == 1 else f"{count} tests"
            terminalreporter.line(f"{tests} {text}")
