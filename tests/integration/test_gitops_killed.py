"""GitOps where agentk is killed or frozen at any moment, with real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial

from tests.integration.processes import eventually
from tests.integration.stack import Agentk
from tests.integration.test_gitops import Stand, config_map, gitops_settings, stand

__all__ = ["gitops_settings", "stand"]

#: How often agentk is killed; the short form is for each run.
KILLS = int(os.environ.get("TXKAS_TEST_KILLS", "5"))

#: Objects of each commit.  None of them is in the next one.
OBJECTS = 100


def _named(stand: Stand) -> set[str]:
    """What the inventories name."""
    found: set[str] = set()
    for name in stand.inventories():
        data = stand.config_map(name).get("data") or {}
        found |= {key.split("_")[1] for key in data}
    return found


def _reached(steps: Callable[[], int], point: int) -> bool:
    return steps() >= point


def test_killed(stand: Stand) -> None:
    """Wherever it ends, the inventory names all there is, and the next one goes on."""
    space = stand.namespace
    stand.configure(prune_limits={"percent": 100, "count": 1000})
    environment = {"POD_NAME": "one", "POD_NAMESPACE": space}
    commit, old, new = "", set[str](), set[str]()

    def steps() -> int:
        """Objects that came, and then those that went."""
        live = stand.config_maps()
        came = len(live & new)
        return came if came < len(new) else came + len(old - live)

    for kill in range(KILLS):
        old, new = new, {f"m{kill}-{number:03}" for number in range(OBJECTS)}
        commit = stand.commit(*(config_map(one, space, a="1") for one in sorted(new)))
        point = 1 + kill * (len(old) + len(new)) // KILLS
        eventually(partial(_reached, steps, point), 60, f"step {point}", pause=0.002)
        process = stand.agentk.process
        assert process is not None
        process.kill()
        # What the API server still did for the one that is dead.
        eventually(lambda: stand.config_maps() <= _named(stand), 5, "no orphans")
        stand.restart(environment)
    stand.settled(commit)
    eventually(lambda: stand.config_maps() == new, 60, "all of the last commit")
    eventually(lambda: _named(stand) == new, what="the inventory says so")


def test_frozen(stand: Stand) -> None:
    """One that led and thaws behind another leader changes nothing any more."""
    space = stand.namespace
    stand.configure(prune_limits={"percent": 100, "count": 1000})
    first = stand.agentk
    other = Agentk(first.kas, first.token, first.kubeconfig, name="other")
    options = ("--configuration-file", str(stand.options), "--namespace", space)
    stand.settled(stand.commit(*(config_map(f"m{n}", space, a="1") for n in range(5))))
    other.start(*options)
    frozen, following = first.process, other.process
    assert frozen is not None
    assert following is not None
    try:
        frozen.child.send_signal(signal.SIGSTOP)
        wanted = {f"n{number}" for number in range(5)}
        objects = [config_map(one, space, a="2") for one in sorted(wanted)]
        commit = stand.commit(*objects, config_map("m0", space, a="2"))
        ended = f"commit {commit} is in the cluster"
        eventually(lambda: ended in following.said(), 60, "the other one leads")
        frozen.child.send_signal(signal.SIGCONT)
        last = stand.commit(config_map("m0", space, a="3"), *objects[:3])
        ended = f"commit {last} is in the cluster"
        eventually(lambda: ended in following.said(), 60, "it still leads")
        assert stand.config_maps() == {"m0", "n0", "n1", "n2"}
        assert stand.config_map("m0")["data"] == {"a": "3"}
        assert last not in frozen.said()
    finally:
        frozen.child.send_signal(signal.SIGCONT)
        following.kill()
