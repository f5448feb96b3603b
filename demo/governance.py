"""The demo of governance: a denied shell, a search in the audit log, a changed line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from demo.client import Client, KubernetesError
from demo.cluster import Cluster
from demo.processes import DemoError, Program
from demo.screen import Screen, Step
from demo.stack import Stack
from demo.story import run_steps

__all__ = ["GovernanceStory"]

_NAMESPACE = "kas-demo"
_CONFIG_MAPS = f"/api/v1/namespaces/{_NAMESPACE}/configmaps"
_EXEC = f"/api/v1/namespaces/{_NAMESPACE}/pods/web/exec?command=sh&stdout=true"

#: Maximum number of seconds until an event is in the log.
_TIMEOUT = 30.0

_CONFIGURATION = """\
# Written by `make demo GOVERNANCE=1`.
agent:
  listen: {{address: "127.0.0.1:{agents}", development_certificate: true}}
  kubernetes_api:
    listen: {{address: "127.0.0.1:{kubectl}", development_certificate: true}}
observability:
  listen: {{address: "127.0.0.1:{health}"}}
  audit: {{file: {log}, events: all}}
"""

_POLICY = """\
# Written by `make demo GOVERNANCE=1`: what kas may request in this cluster.
kind: AgentPolicy
rules:
- name: everything-else
  allow: ["*"]
  resources: ["*/*"]
- name: no-shells
  deny: ["*"]
  resources: [pods/exec, pods/attach]
"""


class GovernanceStory:
    """The steps of the demo; the policy is the cluster owner's, and the log is kas'."""

    def __init__(self, screen: Screen, stack: Stack, cluster: Cluster) -> None:
        self._screen = screen
        self._stack = stack
        self._cluster = cluster
        self._log = stack.state / "audit" / "audit.jsonl"
        self._policy = stack.state / "policy.yaml"
        self._key = stack.state / "audit" / "audit.pub"
        self._client: Client | None = None

    def run(self, programs: list[Program]) -> None:
        """Run all steps, and add started programs to *programs*."""
        steps = (
            ("kas is up, with an audit log", self._kas),
            ("agentk is connected, with a policy of the cluster's owner", self._agent),
            ("a change is permitted", self._change),
            ("a shell is denied, and the response names the rule", self._shell),
            ("who did what?", self._search),
            ("the log is as kas wrote it", self._verify),
            ("a changed line is found", self._tamper),
        )
        try:
            run_steps(self._screen, self._stack, programs, steps)
        finally:
            if self._client is not None:
                self._client.close()

    def advise(self) -> None:
        """Print commands to try while the demo runs."""
        log = shlex.quote(str(self._log))
        state = shlex.quote(str(self._stack.kas_state))
        policy = shlex.quote(str(self._policy))
        kubeconfig = shlex.quote(str(self._stack.kubeconfig))
        self._screen.say()
        self._screen.say("Ask the policy, and search in the log:", "1")
        for command in (
            f"agentk-policy explain {policy} create pods/exec web -n {_NAMESPACE}",
            f"kasctl audit tail {log}",
            f"kasctl audit search {log} --denied",
            f"kasctl audit verify {log} --state-directory {state}",
            f"export KUBECONFIG={kubeconfig}   # for kubectl",
        ):
            self._screen.say(f"  {command}")
        self._screen.say(f"  edit {policy}; agentk uses it ten seconds later")
        self._screen.say()

    # Steps that start programs.

    def _kas(self, step: Step, programs: list[Program]) -> None:
        stack, ports = self._stack, self._stack.ports
        self._log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = _CONFIGURATION.format(
            agents=ports.agents,
            kubectl=ports.kubectl,
            health=ports.health,
            log=json.dumps(str(self._log)),
        )
        step.note(stack.start_kas(text))
        programs.append(stack.kas)
        stack.wait_for_kas()

    def _agent(self, step: Step, programs: list[Program]) -> None:
        stack = self._stack
        self._cluster.wait()
        step.note(stack.add_agent())
        self._client = stack.write_kubeconfig()
        stack.wait_until_known(self._client)
        self._policy.write_text(_POLICY)
        options = stack.state / "agentk.yaml"
        options.write_text(f"policy: {{file: {json.dumps(str(self._policy))}}}\n")
        stack.start_agentk(self._cluster, programs, "--configuration-file", options)
        step.note("the rule no-shells denies pods/exec and pods/attach")

    # Steps that use these programs.

    def _request(self, method: str, path: str, body: object = None) -> Any:
        assert self._client is not None
        return self._client.request(method, path, body)

    def _change(self, step: Step, programs: list[Program]) -> None:
        for path, name in (("/api/v1/namespaces", _NAMESPACE), (_CONFIG_MAPS, "demo")):
            try:
                self._request("POST", path, {"metadata": {"name": name}})
            except KubernetesError as error:
                # Earlier demos may have left it.
                if error.status != 409:
                    raise
        step.note(f"the ConfigMap demo is in {_NAMESPACE}")

    def _shell(self, step: Step, programs: list[Program]) -> None:
        try:
            self._request("POST", _EXEC)
        except KubernetesError as error:
            if error.status != 403 or "no-shells" not in str(error):
                raise
            step.note(str(error))
        else:
            raise DemoError("the policy has not denied the shell", programs[-1].log)

    def _search(self, step: Step, programs: list[Program]) -> None:
        found = self._until(
            lambda: self._stack.kasctl("audit", "search", self._log, "--denied"),
            "the denied request in the log",
        )
        self._show(step, "kasctl audit search audit.jsonl --denied", found)
        found = self._until(
            lambda: self._stack.kasctl(
                *("audit", "search", self._log),
                *("--object", "configmaps", "-n", _NAMESPACE),
            ),
            "the change in the log",
        )
        self._show(
            step,
            f"kasctl audit search audit.jsonl --object configmaps -n {_NAMESPACE}",
            found,
        )

    def _verify(self, step: Step, programs: list[Program]) -> None:
        self._key.write_text(self._stack.kasctl("audit", "key"))
        step.note("kasctl audit key > audit.pub")
        # The newest lines have no checkpoint yet.
        found = self._until(
            lambda: _verdict(self._stack, "good", self._log),
            "a checkpoint of the log",
        )
        self._show(step, "kasctl audit verify audit.jsonl", found)

    def _tamper(self, step: Step, programs: list[Program]) -> None:
        copy = self._log.with_name("changed.jsonl")
        text = self._log.read_text()
        changed = text.replace('"subresource":"exec"', '"subresource":"log"', 1)
        if changed == text:
            raise DemoError(f"{self._log} has no event of the shell")
        copy.write_text(changed)
        step.note("the demo copies the log, and changes pods/exec to pods/log in it")
        found = _verdict(self._stack, "tampered", copy, "--key", self._key)
        if not found:
            raise DemoError("kasctl has not found the changed line")
        self._show(step, "kasctl audit verify changed.jsonl --key audit.pub", found)

    def _show(self, step: Step, command: str, text: str) -> None:
        step.note(command)
        for line in text.splitlines()[:6]:
            step.note(f"  {line}")

    def _until(self, look: Callable[[], str], what: str) -> str:
        found = ""

        def has_come() -> bool:
            nonlocal found
            found = look()
            return bool(found)

        self._stack.kas.wait_until(has_come, what, _TIMEOUT)
        return found


def _verdict(stack: Stack, expected: str, log: Path, *options: str | Path) -> str:
    """Return the output of a verification with this verdict; empty for another one."""
    try:
        text = stack.kasctl("audit", "verify", log, *options)
    except DemoError as error:
        text = "\n".join(error.lines())
    return text if expected in text else ""
