"""Crowds of agents whose GitLab is a fake: what GitLab is asked, and how fast."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from tests.faults.record import Record
from tests.faults.stand import Fleet, FleetKas
from tests.integration.rawhttp import Way
from tests.integration.test_gitlab import GitLabProcess
from tools.load.clients import Agents

LONG = os.environ.get("TXKAS_FAULTS") == "long"

#: Agents, all at once; the long form has as many as one kas is made for.
COUNT = 10_000 if LONG else 1_000

#: Of them, those that greet at the same time: more than one process here can do within
#: the time that a greeting may take would come back again and again.
AT_ONCE = 1_000

#: Requests to GitLab in a second, and at once after a pause, of each kas.
RATE, BURST = (250, 250) if LONG else (150, 100)

#: Seconds in which requests are counted: one counts those that a busy machine held up.
WINDOW = 3

#: Tokens that GitLab does not know, each tried often at every kas.
UNKNOWN = 50

#: Seconds until all are there.
PATIENCE = 600 if LONG else 60


@attrs.define
class Crowd:
    """Two kas around one Redis, their GitLab, and agents that it knows."""

    gitlab: GitLabProcess
    fleet: Fleet
    agents: Agents
    tokens: list[str]

    def requests(self) -> tuple[Counter[str], list[float]]:
        """How often GitLab was asked about each token so far, and each time."""
        told = self.gitlab.control()
        return Counter(told["asked"]), told["times"]


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    gitlab = GitLabProcess(tmp_path)
    tokens = [f"glagent-{number:05}-{'x' * 20}" for number in range(1, COUNT + 1)]
    gitlab.control(
        agents={
            token: {"agent_id": number, "name": f"a-{number}", "project_id": 42}
            for number, token in enumerate(tokens, 1)
        }
    )
    settings = gitlab.settings + (
        f"  api_rate_limit: {{refill_rate_per_second: {RATE}, bucket_size: {BURST}}}\n"
        "  failed_checks_per_address_per_minute: 10000\n"
    )
    fleet = Fleet(tmp_path, 2, settings)
    try:
        for kas in fleet.kas:
            kas.proxy_settings = ("allowed_agent_cache_error_ttl: 60s",)
        fleet.start()
        fleet.know_each_other()
        authority = fleet.kas[0].authority
        ports = [kas.agents for kas in fleet.kas]
        with Agents(str(authority), ports, at_once=AT_ONCE) as agents:
            yield Crowd(gitlab, fleet, agents, tokens)
        assert gitlab.control()["violations"] == []
    finally:
        fleet.stop()
        gitlab.process.kill()


def test_crowd(crowd: Crowd, record: Record) -> None:
    """One question for each token and lifetime, at the rate of the configuration."""
    first, second = crowd.fleet.kas
    times: list[float] = []
    what = f"GitLab, {COUNT} agents at once"
    with record.together():
        for where, kas, most in (
            ("which nobody knows", first, 1),
            ("to the same kas", first, 1),
            ("to another kas", second, 2),
        ):
            # Whoever has to try again does so at the same one.
            crowd.agents.come_back_at(kas.agents)
            began = time.monotonic()
            do = "connect" if where == "which nobody knows" else "move"
            crowd.agents.ask(do, crowd.tokens, kas.agents, seconds=PATIENCE)
            seconds = time.monotonic() - began
            asked, times = crowd.requests()
            often = Counter(asked[token] for token in crowd.tokens)
            record.note(
                f"{what}, {where}",
                f"all there after {seconds:.1f} s; tokens by how often GitLab was "
                f"asked about them so far: {dict(sorted(often.items()))}",
                f"{most} for each: one for each kas that did not know it",
                often == {most: COUNT},
                in_time=seconds <= PATIENCE,
            )
        busiest = max(
            bisect_right(times, one + WINDOW) - at for at, one in enumerate(times)
        )
        # Those of one more second were on their way.
        limit = BURST + RATE * (WINDOW + 1)
        record.note(
            what,
            f"{busiest} requests to GitLab in its busiest {WINDOW} seconds",
            f"<= {limit}: {RATE} a second and {BURST} at once",
            in_time=busiest <= limit,
        )
    assert len(second.status()["agents"]) == COUNT
    _refused_everywhere(crowd, record)


def _refused_everywhere(crowd: Crowd, record: Record) -> None:
    """What GitLab refuses one kas none asks again; Redis has no credential."""
    secrets = [f"glcbt-{number}-{'y' * 20}" for number in range(UNKNOWN)]
    told = 0
    for _ in range(3):
        for kas in crowd.fleet.kas:
            told += sum(_status(kas, secret) == 401 for secret in secrets)
    paths = crowd.gitlab.control()["paths"]
    asked = paths.get("/api/v4/job/allowed_agents", 0)
    record.note(
        "GitLab, refused tokens",
        f"{told} requests at two kas with {UNKNOWN} unknown tokens: all 401, "
        f"GitLab was asked {asked} times",
        "once for each token, whichever kas it came to",
        told == 6 * UNKNOWN and asked == UNKNOWN,
    )
    keys = crowd.fleet.redis("KEYS", "*_errs:*")
    assert len(keys) == UNKNOWN
    assert all(
        key.startswith(b"gitlab-kas:txkas1:allowed_agents_errs:") for key in keys
    )
    for key in keys:
        assert 0 < crowd.fleet.redis("PTTL", key) <= 60_000
        value = crowd.fleet.redis("GET", key)
        assert value.startswith(b"401 ")
        assert not any(secret.encode() in key + value for secret in secrets)


def _status(kas: FleetKas, secret: str) -> int:
    way = Way("a job", kas.proxy, kas.authority, f"ci:7:{secret}")
    return way.ask("GET", "/version").status
