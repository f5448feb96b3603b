"""F20: what crowds for an absent agent, and crowds of idle agents, cost."""

from __future__ import annotations

import time

import pytest

from tests.faults.record import Record
from tests.faults.redis_experiments import LONG
from tests.faults.redis_stand import Stand, commands, since
from tests.integration.processes import eventually
from tools.load.clients import Agents, Churn

# F20: crowds for an agent that is not there.


@pytest.mark.alone
def test_absent_agent(stand: Stand, record: Record) -> None:
    """However many ask for it, Redis is asked once per interval, and not for each."""
    number = stand.unused()
    (path,) = stand.paths(number, number)
    seconds = 60 if LONG else 8
    ports = [kas.proxy for kas in stand.kas]
    before = commands(stand.redis)
    lookups = [kas.value("kas_directory_lookups_total") for kas in stand.kas]
    with stand.alive(), Churn(ports, path, stand.user, 2000) as churn:
        began = time.monotonic()
        seen = churn.run(seconds, 0.1)
        took = time.monotonic() - began
        spent = since(stand.redis, before)
        looked = [
            kas.value("kas_directory_lookups_total") - one
            for kas, one in zip(stand.kas, lookups, strict=True)
        ]
    rate = seen["sent"] / took
    record.note(
        "F20",
        f"{seen['sent']} requests, {rate:.0f} a second, for an absent agent in "
        f"{took:.0f} s; answered {seen['answered']}, refused {seen['refused']}",
        "all wait until their client leaves",
        not seen["answered"] and not seen["refused"],
        in_time=rate > 200,
    )
    most = 2 + took / 30
    record.note(
        "F20",
        f"look-ups of each kas: {[int(one) for one in looked]}",
        f"<= {most:.0f}: one, and one more every 30 s",
        max(looked) <= most and min(looked) >= 1,
    )
    record.note(
        "F20",
        f"HSCAN {spent.get('hscan', 0)}, all commands "
        f"{sum(spent.values()) / took:.1f} a second: {spent}",
        "HSCAN as the look-ups, all <= 20 a second",
        spent.get("hscan", 0) == sum(looked) and sum(spent.values()) <= 20 * took,
    )
    eventually(
        lambda: all(not kas.value("kas_waiting_streams") for kas in stand.kas),
        what="nobody waits any more",
    )


def test_a_thousand_wait(stand: Stand, record: Record, agents: Agents) -> None:
    """They share one look-up, and the news of the connection wake them all."""
    number = stand.unused()
    (path,) = stand.paths(number, number)
    before = commands(stand.redis)
    with stand.alive(), stand.load([path], 300) as load:
        load.window("fault")
        time.sleep(3.5)
        spent = since(stand.redis, before).get("hscan", 0)
        began = time.monotonic()
        agents.connect([stand.tokens[number - 1]], stand.kas[2].agents)
        load.window("after")
        seen = load.windows()
        took = time.monotonic() - began
    waited = seen["fault"]
    record.note(
        "bug 23",
        f"{waited['requests']} requests waited, {waited['failed']} failed "
        f"{waited['failures'][:2] or ''}, {spent} look-ups at 3 kas, all answered "
        f"{took:.1f} s after the agent came",
        "0 failed, <= 2 look-ups of each, <= 5 s",
        not waited["failed"] and spent <= 6,
        in_time=waited["requests"] > 900 and took <= 5,
    )


# Bugs 14 and 15, and what idle agents cost.


def test_idle(tmp_path_factory: pytest.TempPathFactory, record: Record) -> None:
    """Agents that are known cost nothing; those that are connected, next to nothing."""
    count, seconds = (10_000, 120) if LONG else (2_000, 12)
    few = 50
    with Stand(tmp_path_factory.mktemp("idle"), max(5_000, count)) as stand:
        # Past what every start does.
        time.sleep(5)
        cpu = [kas.cpu() for kas in stand.kas]
        before = commands(stand.redis)
        time.sleep(seconds)
        spent = sum(since(stand.redis, before).values()) / seconds
        used = [
            (kas.cpu() - one) / seconds for kas, one in zip(stand.kas, cpu, strict=True)
        ]
        record.note(
            "bug 15",
            f"{max(5_000, count)} agents that are known and not connected: "
            f"{spent:.1f} commands a second, CPU of each kas "
            + ", ".join(f"{100 * one:.2f} %" for one in used),
            "leases alone (<= 5 commands a second), < 1 %",
            spent <= 5,
            in_time=max(used) < 0.01,
        )
        memory = stand.kas[2].resident()
        with stand.agents() as agents:
            half = (count - few) // 2
            agents.connect(stand.tokens[:half], stand.kas[0].agents)
            agents.connect(stand.tokens[half : count - few], stand.kas[1].agents)
            agents.connect(stand.tokens[count - few : count], stand.kas[2].agents)
            eventually(lambda: stand.known() == count, what="all are in Redis")
            grown = stand.kas[2].resident() - memory
            answers = stand.kas[2].value("kas_directory_answers")
            record.note(
                "bug 14",
                f"the kas with {few} of {count} agents grew by {grown / 2**20:.1f} MiB "
                f"and remembers {answers:.0f} answers",
                "<= 10 MiB, 0 answers",
                grown <= 10 * 2**20 and answers == 0,
            )
            time.sleep(5)
            before = commands(stand.redis)
            time.sleep(seconds)
            spent = sum(since(stand.redis, before).values()) / seconds
        limit = 10 + 40 * count / 10_000
        record.note(
            "idle",
            f"{count} agents at 3 kas: {spent:.1f} Redis commands a second",
            f"<= {limit:g}",
            spent <= limit,
        )
