"""``python -m demo``: see ``--help``."""

from __future__ import annotations

import argparse
import fcntl
import os
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from demo.client import preload
from demo.cluster import CHOICES, Cluster, choose
from demo.gitops import GitopsStory
from demo.governance import GovernanceStory
from demo.live import LiveStory
from demo.page import PageStory
from demo.processes import DemoError, Program, end_all
from demo.screen import Screen, milliseconds
from demo.stack import Stack, child_environment, find_ports
from demo.steps import Steps
from demo.stopping import Stopped, Stopping

#: Seconds between two checks whether all programs still run.
_LOOK = 0.05

_ELSEWHERE = "use another: .venv/bin/python -m demo --state-directory DIR"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="Show the main job of kas on this machine: kas, agentk, and a "
        "Kubernetes API that is reached through them. Stays until Ctrl-C.",
        epilog="The cluster is the one of $KUBECONFIG if that is set (one ConfigMap is "
        "made there and deleted, and a shell is started in a pod); else a "
        "kube-apiserver that 'make kube' built; else the sandbox, a small stand-in.",
    )
    parser.add_argument(
        "--gitlab",
        action="store_true",
        help="show what GitLab has of kas: agents, configuration from Git, CI jobs and "
        "people, with a stand-in for GitLab",
    )
    parser.add_argument(
        "--gitops",
        action="store_true",
        help="show how a Git repository rules a cluster: preview, drift, a held prune, "
        "undo; needs a real Kubernetes API, and uses the namespace kas-demo",
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="show the live data of two clusters: a node disappears, a Deployment "
        "cannot run, and one cluster goes offline; makes nodes and a Deployment there",
    )
    parser.add_argument(
        "--page",
        action="store_true",
        help="show the page with two clusters that change all the time; makes nodes "
        "and Deployments there",
    )
    parser.add_argument(
        "--governance",
        action="store_true",
        help="show a shell that the policy of the cluster's owner denies, a search in "
        "the audit log, and a changed line that is found",
    )
    parser.add_argument("--once", action="store_true", help="end after the last step")
    parser.add_argument(
        "--cluster",
        choices=CHOICES,
        default=os.environ.get("KAS_DEMO_CLUSTER") or None,
        help="which Kubernetes API to use [default: the best there is, or "
        "$KAS_DEMO_CLUSTER]",
    )
    parser.add_argument(
        "--state-directory",
        type=Path,
        metavar="DIR",
        help="where everything is kept [default: $XDG_STATE_HOME/kas-demo or "
        "~/.local/state/kas-demo]",
    )
    parser.add_argument(
        "--free-ports",
        action="store_true",
        help="use any free ports, even if those of kas are free",
    )
    options = parser.parse_args()
    stories = (
        *(options.gitlab, options.gitops, options.live, options.page),
        options.governance,
    )
    if sum(stories) > 1:
        parser.error(
            "--gitlab, --gitops, --live, --page and --governance are stories; choose "
            "one"
        )
    if options.cluster not in (None, *CHOICES):
        parser.error(f"$KAS_DEMO_CLUSTER: choose from {', '.join(CHOICES)}")
    return options


def _locate(given: Path | None) -> Path:
    if given is not None:
        return given.absolute()
    base = os.environ.get("XDG_STATE_HOME", "")
    if base.startswith("/"):
        return Path(base) / "kas-demo"
    return Path.home() / ".local" / "state" / "kas-demo"


@contextmanager
def _alone(state: Path) -> Iterator[None]:
    """Hold a lock, so that only one demo uses a state directory."""
    try:
        (state / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (state / "lock").open("w")
    except OSError as error:
        raise DemoError(
            f"{state}: cannot be used ({error.strerror}); {_ELSEWHERE}"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(
                f"another demo runs with {state}; end it, or {_ELSEWHERE}"
            ) from None
        yield


def _show(
    screen: Screen, state: Path, options: argparse.Namespace, programs: list[Program]
) -> Stack:
    """Run all steps until the user can continue."""
    environment = child_environment(os.environ)
    # The client's libraries read these variables, too.
    os.environ.update({key: environment[key] for key in ("no_proxy", "NO_PROXY")})
    threading.Thread(target=preload, daemon=True).start()
    story_of_its_own = (
        options.gitlab
        or options.gitops
        or options.live
        or options.page
        or options.governance
    )
    free = options.free_ports or story_of_its_own
    ports = find_ports(any_free=free)
    cluster = choose(options.cluster, environment, state, state / "logs")
    if cluster.program is not None:
        programs.append(cluster.program)
    screen.say(f"state and logs  {state}")
    screen.say(f"Kubernetes API  {cluster.title}")
    if cluster.is_yours:
        screen.say(f"{'':16}a ConfigMap comes and goes in {cluster.namespace}, and a")
        screen.say(f"{'':16}shell in a pod; KAS_DEMO_CLUSTER=sandbox leaves it alone")
    screen.say()
    stack = Stack(state, ports, environment)
    if story_of_its_own:
        story = _story(options, screen, stack, cluster)
        story.run(programs)
        if not options.once:
            story.advise()
        return stack
    with screen.step("kas is up") as step:
        step.note(stack.start_kas())
        programs.append(stack.kas)
        if ports.reason:
            step.note(f"on other ports than usual: {ports.reason}")
        stack.wait_for_kas()
    with screen.step("an agent is added") as step:
        step.note(stack.add_agent())
        client = stack.write_kubeconfig()
        step.note("kasctl kubeconfig --agent demo ...")
        stack.add_page_user([stack.agent])
        began = time.monotonic()
        stack.wait_until_known(client)
        took = milliseconds(time.monotonic() - began)
        step.note(f"kas knew {took} later: it looks once a second")
    if cluster.program is not None:
        with screen.step("the Kubernetes API is up") as step:
            step.took = cluster.wait()
            step.note("it was started before all others, and has run beside them")
    with screen.step("agentk is connected, bytes flow") as step:
        step.note(stack.start_agentk(cluster, programs))
    Steps(screen, client, cluster, stack.agentk.log).run()
    client.close()
    if not options.once:
        _advise(screen, stack, client.server, cluster)
    return stack


class _Story(Protocol):
    """A demo with steps of its own."""

    def run(self, programs: list[Program]) -> None: ...

    def advise(self) -> None: ...


def _story(
    options: argparse.Namespace, screen: Screen, stack: Stack, cluster: Cluster
) -> _Story:
    if options.gitops:
        return GitopsStory(screen, stack, cluster)
    if options.live:
        return LiveStory(screen, stack, cluster)
    if options.page:
        return PageStory(screen, stack, cluster)
    if options.governance:
        return GovernanceStory(screen, stack, cluster)
    # Imported here, because the fake GitLab of the tests needs more packages than the
    # demo.
    from demo.gitlab import GitLabStory

    return GitLabStory(screen, stack, cluster)


def _advise(screen: Screen, stack: Stack, server: str, cluster: Cluster) -> None:
    kubectl = [
        f"export KUBECONFIG={shlex.quote(str(stack.kubeconfig))}",
        "kubectl get pods -A",
    ]
    kubectl.append("kubectl get configmaps -w")
    if cluster.log_pod:
        kubectl.append(f"kubectl logs -f {cluster.log_pod}")
        kubectl.append(f"kubectl exec -it {cluster.exec_pod} -- sh")
    file = shlex.quote(str(stack.curl))
    curl = [f"curl -K {file} {server}/api/v1/namespaces"]
    if cluster.log_pod:
        path = f"/api/v1/namespaces/{cluster.namespace}/pods/{cluster.log_pod}/log"
        curl.append(f"curl -K {file} '{server}{path}?follow=true'")
    missing = "" if shutil.which("kubectl") else " (not installed here)"
    screen.say()
    screen.say(f"The same with kubectl{missing}:", "1")
    for line in kubectl:
        screen.say(f"  {line}")
    screen.say("with curl:", "1")
    for line in curl:
        screen.say(f"  {line}")
    screen.say("and what kas sees:", "1")
    screen.say(f"  curl http://127.0.0.1:{stack.ports.health}/status")
    screen.say("the cluster in a browser:", "1")
    for line in stack.page_advice():
        screen.say(f"  {line}")
    screen.say()


def _stay(screen: Screen, programs: Sequence[Program]) -> None:
    screen.say("It all runs until Ctrl-C.  Try it in another terminal.", "1")
    while True:
        Stopping.check()
        for program in programs:
            program.check()
        time.sleep(_LOOK)


def main() -> int:
    """Run the demo and return the exit status."""
    options = _options()
    screen = Screen(sys.stdout)
    os.umask(0o077)
    Stopping.begin()
    programs: list[Program] = []
    shown = False
    try:
        state = _locate(options.state_directory)
        with _alone(state):
            try:
                _show(screen, state, options, programs)
                shown = True
                if not options.once:
                    _stay(screen, programs)
            finally:
                Stopping.end()
                end_all(programs[::-1])
    except Stopped as stopped:
        screen.say("\nended; nothing is left but the state directory")
        return 0 if shown else 128 + stopped.number
    except DemoError as error:
        print(*["", *error.lines()], sep="\n", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
