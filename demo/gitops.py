"""The demo of GitOps: a preview, changes, protected objects and an undo of commits."""

from __future__ import annotations

import re
import shlex
import shutil
import time
from collections.abc import Callable
from typing import Any

import yaml

from demo.client import Client, KubernetesError
from demo.cluster import Cluster
from demo.processes import DemoError, Program
from demo.screen import Screen, Step, milliseconds
from demo.stack import AGENT, Stack
from demo.story import run_steps
from tools.git_repository import GitRepository

__all__ = ["GitopsStory"]

#: Name of the repository in kas' configuration, and namespace of its objects.
_REPOSITORY, _NAMESPACE = "demo", "kas-demo"

_FILE = f".gitlab/agents/{AGENT}/config.yaml"

#: Maximum number of seconds until a commit or command takes effect in the cluster.
_TIMEOUT = 60.0

#: Maximum number of characters of a line of kasctl that are shown.
_WIDTH = 100

_CONFIGURATION = """\
# Written by `make demo GITOPS=1`.
agent:
  listen: {{address: "127.0.0.1:{agents}", development_certificate: true}}
  # One repository for both: the agent's own file, and what is to be in the cluster.
  configuration: {{poll_period: 1s, repositories: {repositories}}}
  gitops: {{poll_period: 1s, repositories: {repositories}}}
  kubernetes_api:
    listen: {{address: "127.0.0.1:{kubectl}", development_certificate: true}}
observability:
  listen: {{address: "127.0.0.1:{health}"}}
"""


class GitopsStory:
    """
    The steps of the demo with one repository; all programs are real, including Git.
    """

    def __init__(self, screen: Screen, stack: Stack, cluster: Cluster) -> None:
        if cluster.choice == "sandbox":
            raise DemoError(
                "GitOps needs a real Kubernetes API: 'make kube' builds one in about "
                "16 minutes, or set KUBECONFIG"
            )
        self._screen = screen
        self._stack = stack
        self._cluster = cluster
        folder = stack.state / "gitops"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        self._origin = GitRepository.make(folder / f"{_REPOSITORY}.git")
        self._client: Client
        self._good = ""

    def run(self, programs: list[Program]) -> None:
        """Run all steps, and add started programs to *programs*."""
        steps = (
            ("kas is up, with a Git repository", self._kas),
            ("the Kubernetes API is up", self._kubernetes),
            ("agentk is connected", self._agentk),
            ("a commit comes to the cluster", self._commit),
            ("what a branch would change", self._preview),
            ("a person changes an object", self._drift),
            ("a commit deletes almost everything", self._held),
            ("a person lets it go", self._approve),
            ("back to the commit before", self._undo),
            ("Git rules again", self._resume),
        )
        run_steps(self._screen, self._stack, programs, steps)
        self._client.close()

    def advise(self) -> None:
        """Print commands to try while the demo runs."""
        state = shlex.quote(str(self._stack.kas_state))
        kubeconfig = shlex.quote(str(self._stack.kubeconfig))
        self._screen.say()
        self._screen.say("Commit to the repository, and look:", "1")
        self._screen.say(f"  git clone {shlex.quote(str(self._origin.path))}")
        self._screen.say(f"  export KUBECONFIG={kubeconfig}")
        self._screen.say(f"  kubectl get configmaps -n {_NAMESPACE} -w")
        for command in ("status", "drift", "history"):
            which = f" {_REPOSITORY}" if command == "history" else ""
            line = f"kasctl gitops {command} {AGENT}{which} --state-directory {state}"
            self._screen.say(f"  {line}")
        self._screen.say()

    # Steps that start programs.

    def _kas(self, step: Step, programs: list[Program]) -> None:
        stack, ports = self._stack, self._stack.ports
        project = {
            "id": _REPOSITORY,
            "paths": [{"glob": "/apps/**/*.yaml"}],
            "default_namespace": _NAMESPACE,
        }
        section = {"gitops": {"manifest_projects": [project]}}
        readme = "What is in the cluster.\n"
        self._origin.commit({_FILE: yaml.safe_dump(section), "apps/README": readme})
        text = _CONFIGURATION.format(
            agents=ports.agents,
            kubectl=ports.kubectl,
            health=ports.health,
            repositories=f'{{{_REPOSITORY}: {{path: "{self._origin.path}"}}}}',
        )
        step.note(stack.start_kas(text))
        programs.append(stack.kas)
        stack.wait_for_kas()
        step.note(f"it reads {self._origin.path}")

    def _kubernetes(self, step: Step, programs: list[Program]) -> None:
        step.took = self._cluster.wait()
        step.note(self._cluster.title)

    def _agentk(self, step: Step, programs: list[Program]) -> None:
        stack = self._stack
        step.note(stack.add_agent())
        self._client = stack.write_kubeconfig()
        stack.wait_until_known(self._client)
        options = stack.state / "agentk.yaml"
        options.write_text("modules: {gitops: {}}\n")
        lease = ("--namespace", self._cluster.namespace)
        more = ("--configuration-file", options, *lease)
        step.note(stack.start_agentk(self._cluster, programs, *more))
        self._make_namespace()

    def _make_namespace(self) -> None:
        """
        Create an empty namespace, because an earlier demo may have been interrupted.
        """
        path = f"/api/v1/namespaces/{_NAMESPACE}"
        try:
            self._client.request("DELETE", path)
            self._until(lambda: self._get(path) is None, "the old namespace to go")
        except KubernetesError as error:
            if error.status != 404:
                raise
        body = {"metadata": {"name": _NAMESPACE}}
        self._client.request("POST", "/api/v1/namespaces", body)

    # Steps that use these programs.

    def _commit(self, step: Step, programs: list[Program]) -> None:
        commit = self._good = self._apps({f"m{n}": "one" for n in range(6)})
        self._until(lambda: len(self._names()) == 6, "the objects of the commit")
        step.note(f"commit {commit[:12]}: 6 ConfigMaps in {_NAMESPACE}")
        self._until_done(commit)
        self._show(step, "status", AGENT)

    def _preview(self, step: Step, programs: list[Program]) -> None:
        files = {f"m{n}": "one" for n in range(1, 6)} | {"m1": "two", "m6": "new"}
        self._apps(files, "next")
        shown = self._show(step, "preview", AGENT, _REPOSITORY, "--ref", "next")
        if "change" not in shown or self._get(self._path("m6")) is not None:
            raise DemoError("the preview is wrong", self._stack.agentk.log)

    def _drift(self, step: Step, programs: list[Program]) -> None:
        path = self._path("m2")
        live = self._client.request("GET", path)
        live["data"] = {"value": "by hand"}
        began = time.monotonic()
        self._client.request("PUT", path, live)
        self._until(
            lambda: self._get(path)["data"] == {"value": "one"}, "drift to be repaired"
        )
        took = milliseconds(time.monotonic() - began)
        step.note(f"kubectl sets m2 to 'by hand'; {took} later it is as Git has it")
        log = self._stack.agentk.log
        pattern = re.compile(r"drift: (.*); it was repaired")
        self._until(lambda: pattern.search(log.read_text()) is not None, "the log")
        found = pattern.search(log.read_text())
        assert found is not None
        step.note(f"agentk says: {found[1]}")

    def _held(self, step: Step, programs: list[Program]) -> None:
        commit = self._apps({"m0": "one"})
        self._until_done(commit)
        self._show(step, "status", AGENT)
        if len(self._names()) != 6:
            raise DemoError("objects are gone", self._stack.agentk.log)
        step.note("all 6 objects are still there")

    def _approve(self, step: Step, programs: list[Program]) -> None:
        self._show(step, *self._release().split())
        self._until(lambda: self._names() == {"m0"}, "the objects to go")
        step.note("1 object is left")

    def _release(self) -> str:
        """
        Return the command that approves the held deletions; empty if no deletions are
        held.
        """
        status = self._stack.kasctl("gitops", "status", AGENT)
        found = re.search(r"kasctl gitops (approve \S+ \S+ \w+)", status)
        return found[1] if found is not None else ""

    def _undo(self, step: Step, programs: list[Program]) -> None:
        self._show(step, "undo", AGENT, _REPOSITORY, self._good[:12])
        self._until(lambda: len(self._names()) == 6, "the objects to come back")
        step.note("6 objects are there again")

    def _resume(self, step: Step, programs: list[Program]) -> None:
        self._show(step, "resume", AGENT, _REPOSITORY)
        self._until(lambda: bool(self._release()), "the last commit")
        step.note("what the last commit deletes waits again: an approval counts once")

    # Helpers.

    def _apps(self, values: dict[str, str], branch: str = "main") -> str:
        """Commit ConfigMaps with these values; return the id of the commit."""
        objects = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": _NAMESPACE},
                "data": {"value": value},
            }
            for name, value in values.items()
        ]
        files = {"apps/all.yaml": yaml.safe_dump_all(objects)}
        if branch == "main":
            return self._origin.commit(files)
        parent = self._origin.run("rev-parse", "main")
        return self._origin.commit(files, branch=branch, onto=parent)

    def _show(self, step: Step, *arguments: str) -> str:
        """Run kasctl, and show its output as notes of the step."""
        step.note(f"$ kasctl gitops {' '.join(arguments)}")
        said = self._stack.kasctl("gitops", *arguments)
        for line in said.splitlines():
            if line.strip():
                step.note(f"  {_cut(line)}")
        return said

    def _path(self, name: str) -> str:
        return f"/api/v1/namespaces/{_NAMESPACE}/configmaps/{name}"

    def _get(self, path: str) -> Any:
        """Return the object at a path; None if it does not exist."""
        try:
            return self._client.request("GET", path)
        except KubernetesError as error:
            if error.status == 404:
                return None
            raise

    def _names(self) -> set[str]:
        """Return the names of ConfigMaps that the repository has created."""
        path = f"/api/v1/namespaces/{_NAMESPACE}/configmaps"
        found = self._client.request("GET", path)["items"]
        names = {one["metadata"]["name"] for one in found}
        return {name for name in names if re.fullmatch(r"m\d", name)}

    def _until_done(self, commit: str) -> None:
        """Wait until agentk has reported the result of *commit*."""
        text = f"commit {commit} is in the cluster"
        log = self._stack.agentk.log
        self._until(lambda: text in log.read_text(), f"commit {commit[:12]}")

    def _until(self, done: Callable[[], bool], what: str) -> None:
        self._stack.agentk.wait_until(done, what, _TIMEOUT)


def _cut(line: str) -> str:
    """
    Shorten a line from kasctl to the width of a screen, unless the line has a command
    to copy.
    """
    if len(line) <= _WIDTH or "kubectl " in line:
        return line
    return f"{line[:_WIDTH]}..."
