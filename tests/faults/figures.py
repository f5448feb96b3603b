"""Figures that several experiments have: what clients saw, and the line for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.faults import clients, followers
from tests.faults.record import Record
from tests.integration.cluster import Audit

#: What `tools.load.clients.Load` says of its clients.
Seen = Mapping[str, Any]

#: Of requests that change something: done, or cleanly refused.
CLEAN = frozenset({"201", "502", "503"})


def requests_answered(
    record: Record,
    experiment: str,
    seen: Seen,
    what: str = "GETs",
    *,
    within: float | None = None,
) -> None:
    """
    None failed.

    :param within: seconds that none may take longer than.
    """
    longest = seen["longest"]
    record.note(
        experiment,
        f"{seen['requests']} {what}: {seen['failed']} failed, p99 {seen['p99']} s, "
        f"longest {longest} s {seen['failures'][:3] or ''}",
        "0 failed" if within is None else f"0 failed, none longer than {within:g} s",
        seen["failed"] == 0,
        in_time=within is None or longest <= within,
    )


def posts_done_once(record: Record, experiment: str, seen: Seen, audit: Audit) -> None:
    """Each was done or refused, and none was tried twice."""
    twice = tried_twice(audit, seen["by_name"])
    unclean = [one for one in seen["failures"] if one["outcome"] not in CLEAN]
    record.note(
        experiment,
        f"{seen['requests']} POSTs {seen['outcomes']}, {len(twice)} done twice "
        f"{twice[:3] or ''} {unclean[:2] or ''}",
        "201, 502 or 503; none twice",
        not twice and seen["outcomes"].keys() <= CLEAN,
    )


def tried_twice(audit: Audit, by_name: Mapping[str, str]) -> list[str]:
    """Names that somebody tried to make more than once."""
    count: dict[str, int] = {}
    for event in audit.events():
        if event["verb"] != "create" or event["stage"] != "ResponseComplete":
            continue
        if event.get("objectRef", {}).get("resource") != "configmaps":
            continue
        name = event["objectRef"].get("name", "")
        count[name] = count.get(name, 0) + 1
    return [name for name in by_name if count.get(name, 0) > 1]


def watches_complete(
    record: Record, experiment: str, seen: Seen, made: Sequence[str]
) -> None:
    """Each saw every event once, however often it began again."""
    problems = clients.watch_problems(seen["seen"], made)
    record.note(
        experiment,
        f"{len(seen['seen'])} watches of {len(made)} events: {seen['broken_count']} "
        f"broken, {seen['ends']} ended between events, {len(problems)} with lost or "
        f"repeated events {seen['broken'][:2] or ''} {problems[:2] or ''}",
        "0 broken, 0 lost or repeated",
        not problems and not seen["broken"],
    )


def execs_went_on(
    record: Record,
    experiment: str,
    execs: Sequence[followers.Exec],
    before: Sequence[int],
) -> None:
    """
    Each echoed on, and no byte was lost or repeated.

    :param before: lines that each had echoed when the fault came.
    """
    wrong = [problem for one in execs for problem in one.problems]
    assert all(
        len(one.numbers("got")) > count + 20
        for one, count in zip(execs, before, strict=True)
    )
    figure = f"{len(execs)} execs: {wrong or 'no byte lost or repeated'}"
    record.note(experiment, figure, "none", not wrong)
