"""The demo of GitLab, Git and CI with kas: agents, configuration, jobs and users."""

from __future__ import annotations

import base64
import json
import re
import secrets
import shlex
import shutil
import ssl
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from demo.client import Client, KubernetesError
from demo.cluster import Cluster
from demo.processes import DemoError, Program
from demo.screen import Screen, Step, milliseconds
from demo.stack import Stack, write_secret
from kas.state import pki
from kas.state.directory import StateDirectory
from tests.fakes.gitlab import job_answer, user_answer
from tools.git_repository import GitRepository
from tools.git_server import GitServer
from tools.ports import free_port

__all__ = ["GitLabStory"]

#: The agent's id, name and configuration file, as GitLab has them.
_ID, _NAME = 7, "prod"
_FILE = f".gitlab/agents/{_NAME}/config.yaml"

_BROKEN = "observability:\n  logging:\n    levle: debug\n"

#: Seconds for which responses of GitLab are cached; GitLab's own kas has 300, and 60
#: for jobs.
_LIFETIME = 2
_TIMEOUT = 30.0

_CONFIGURATION = """\
# Written by `make demo GITLAB=1`.
agent:
  listen: {{address: "127.0.0.1:{agents}", development_certificate: true}}
  info_cache_ttl: {lifetime}s
  configuration:
    poll_period: 1h
    repositories:
      clusters: {{url: "{repository}", agents: ["*:*"]}}
  kubernetes_api:
    listen: {{address: "127.0.0.1:{kubectl}", development_certificate: true}}
    allowed_agent_cache_ttl: {lifetime}s
    allowed_agent_cache_error_ttl: 1s
gitlab:
  address: https://127.0.0.1:{gitlab}
  authentication_secret_file: {folder}/gitlab.secret
  ca_certificate_file: {authority}
modules:
  notifications: {{webhook_secret_file: {folder}/hook.secret}}
observability:
  listen: {{address: "127.0.0.1:{health}"}}
web:
  listen: {{address: "127.0.0.1:{web}", development_certificate: false}}
"""


class GitLabStory:
    """
    The steps of the demo with one agent that is registered in GitLab.

    GitLab is the fake of the tests: it imitates GitLab's internal API, refuses requests
    that this API does not have, and has no login.  All other programs are real.
    """

    def __init__(self, screen: Screen, stack: Stack, cluster: Cluster) -> None:
        self._screen = screen
        self._stack = stack
        self._cluster = cluster
        self._folder = stack.state / "gitlab"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._web = free_port()
        self._gitlab: Program
        self._port = 0
        self._authority: Path
        self._origin: GitRepository
        self._server: GitServer
        self._tokens = {
            name: prefix + secrets.token_hex(12)
            for name, prefix in (
                ("agent", "glagent-"),
                ("job", "glcbt-"),
                ("person", "glpat-"),
            )
        }

    def run(self, programs: list[Program]) -> None:
        """Run all steps, and add started programs to *programs*."""
        for title, act in (
            ("GitLab and a Git server are up", self._neighbours),
            ("kas is up, and asks GitLab", self._kas),
            ("the Kubernetes API is up", self._kubernetes),
            ("agentk connects; GitLab knows it", self._agentk),
            ("a push changes the agent", self._push),
            ("a CI job uses kubectl", self._job),
            ("a person uses kubectl", self._person),
            ("a push with an error", self._broken),
            ("GitLab is down", self._down),
            ("the job ends", self._end),
        ):
            with self._screen.step(title) as step:
                act(step, programs)

    def advise(self) -> None:
        """Print commands to try while the demo runs."""
        # The job has ended, so the user's token is used.
        self._client(f"pat:{_ID}:{self._tokens['person']}").close()
        self._screen.say()
        self._screen.say("As alice, with kubectl:", "1")
        kubeconfig = shlex.quote(str(self._stack.kubeconfig))
        self._screen.say(f"  export KUBECONFIG={kubeconfig}")
        self._screen.say("  kubectl auth whoami")
        self._screen.say("what kas sees:", "1")
        self._screen.say(f"  curl http://127.0.0.1:{self._stack.ports.health}/status")
        self._screen.say("and its configuration, to begin your own with:", "1")
        self._screen.say(f"  {shlex.quote(str(self._stack.state / 'kas.yaml'))}")
        self._screen.say()

    # Steps that start programs.

    def _neighbours(self, step: Step, programs: list[Program]) -> None:
        folder = self._folder
        for name in ("gitlab", "hook"):
            secret = base64.b64encode(secrets.token_bytes(32)).decode()
            write_secret(folder / f"{name}.secret", secret)
        files = pki.DevelopmentPki(
            StateDirectory.open(folder / "pki"), "h", lambda: datetime.now(UTC)
        ).ensure()
        assert files.ca_file is not None
        self._authority = files.ca_file
        command: list[str | Path] = [sys.executable, "-m", "tests.fakes.gitlab"]
        command += [folder / "gitlab.secret", files.certificate_file, files.key_file]
        log = self._stack.state / "logs" / "gitlab.log"
        self._gitlab = self._stack.program("GitLab", command, log)
        programs.append(self._gitlab)
        found = _Search(log, r"(?m)^(\d+)$")
        self._gitlab.wait_until(found.look, "GitLab", _TIMEOUT)
        self._port = int(found.text)
        self._control(
            agents={
                self._tokens["agent"]: {
                    "agent_id": _ID,
                    "name": _NAME,
                    "project_id": 42,
                }
            },
            jobs={
                self._tokens["job"]: job_answer({_ID: {"access_as": {"ci_job": {}}}})
            },
            users={
                self._tokens["person"]: user_answer(_ID, {"user": {"projects": []}})
            },
        )
        served = folder / "served"
        shutil.rmtree(served, ignore_errors=True)
        served.mkdir()
        self._origin = GitRepository.make(served / "clusters.git")
        self._origin.commit({_FILE: _file("info"), "README": "clusters\n"})
        self._server = GitServer(served)
        step.note("GitLab is a stand-in of this project: it cannot run here itself;")
        step.note(f"it has the agent {_NAME} ({_ID}), a job of the user dev, and alice")
        step.note(f"Git is real: {self._origin.path}")

    def _kas(self, step: Step, programs: list[Program]) -> None:
        stack, ports = self._stack, self._stack.ports
        text = _CONFIGURATION.format(
            agents=ports.agents,
            kubectl=ports.kubectl,
            health=ports.health,
            gitlab=self._port,
            repository=self._server.url("clusters.git"),
            folder=self._folder,
            authority=self._authority,
            web=self._web,
            lifetime=_LIFETIME,
        )
        step.note(stack.start_kas(text))
        programs.append(stack.kas)
        stack.wait_for_kas()

    def _kubernetes(self, step: Step, programs: list[Program]) -> None:
        step.took = self._cluster.wait()
        step.note(self._cluster.title)
        if self._cluster.choice == "kube" and self._cluster.kubeconfig is not None:
            self._let_jobs_read(Client(self._cluster.kubeconfig))
            step.note("its administrator lets the group gitlab:ci_job read (view)")

    def _agentk(self, step: Step, programs: list[Program]) -> None:
        write_secret(self._stack.token_file, self._tokens["agent"])
        step.note(self._stack.start_agentk(self._cluster, programs))
        self._in_effect(self._origin.run("rev-parse", "main"))
        asked = self._control()["asked"].get(self._tokens["agent"], 0)
        step.note(f"GitLab was asked about it {_times(asked)}")
        step.note(f"and has {_FILE} from Git")

    # Steps that use these programs.

    def _push(self, step: Step, programs: list[Program]) -> None:
        commit = self._origin.commit({_FILE: _file("debug")})
        step.note(f"commit {commit[:12]}: observability.logging.level: debug")
        began = time.monotonic()
        self._pushed()
        self._in_effect(commit)
        took = milliseconds(time.monotonic() - began)
        step.note(f"agentk has it {took} after the hook of the repository told kas")

    def _job(self, step: Step, programs: list[Program]) -> None:
        step.note("token ci:<agent>:$CI_JOB_TOKEN, which GitLab checks")
        self._who(step, "job", f"ci:{_ID}:{self._tokens['job']}")

    def _person(self, step: Step, programs: list[Program]) -> None:
        step.note("token pat:<agent>:<personal access token>")
        self._who(step, "person", f"pat:{_ID}:{self._tokens['person']}")

    def _broken(self, step: Step, programs: list[Program]) -> None:
        self._origin.commit({_FILE: _BROKEN})
        self._pushed()
        pattern = rf"commit \w+: {re.escape(_FILE)}:3:5: [^\n\"]*"
        step.note(self._said(self._stack.agentk, pattern)[:100])
        step.note("so agentk says, and kasctl status; what was in effect goes on")
        self._origin.commit({_FILE: _file("info")})
        self._pushed()
        self._in_effect(self._origin.run("rev-parse", "main"))
        step.note("and the next push mends it")

    def _down(self, step: Step, programs: list[Program]) -> None:
        self._control(mood="down")
        try:
            # The cached responses of GitLab expire in the meantime.
            time.sleep(_LIFETIME)
            known = self._client(f"ci:{_ID}:{self._tokens['job']}")
            took = self._timed(lambda: known.request("GET", "/version"))
            known.close()
            step.note(f"the job that it knew goes on: an answer in {took}")
            new = self._client(f"ci:{_ID}:glcbt-new")
            try:
                new.request("GET", "/version")
                raise DemoError("a token that nobody knows was accepted")
            except KubernetesError as error:
                step.note(f"a new one gets {str(error)[:90]}")
            finally:
                new.close()
        finally:
            self._control(mood="ok")

    def _end(self, step: Step, programs: list[Program]) -> None:
        client = self._client(f"ci:{_ID}:{self._tokens['job']}")
        listing = client.core.list_namespaced_config_map
        try:
            with client.stream(
                listing, "default", timeout=_TIMEOUT, watch=True
            ) as watch:
                self._control(revoke=self._tokens["job"])
                took = self._timed(lambda: _until_the_end(watch))
            step.note(f"its watch is cut {took} after GitLab forgot the token;")
            step.note(f"the bound is allowed_agent_cache_ttl, {_LIFETIME} s here")
        except KubernetesError as error:
            # By default, the cluster gives jobs no permission to read.
            step.note(f"the cluster does not let the job watch: {str(error)[:60]}")
            self._control(revoke=self._tokens["job"])
        deadline = time.monotonic() + _TIMEOUT
        while client.status("/version", _TIMEOUT) != 401:
            if time.monotonic() > deadline:
                raise DemoError("a token that GitLab forgot is still accepted")
            time.sleep(0.1)
        step.note("its next request gets 401")
        client.close()

    # Helpers.

    def _client(self, token: str) -> Client:
        """Return a client with a kubeconfig like that of a GitLab pipeline."""
        authority = (self._stack.kas_state / "ca.crt").read_bytes()
        server = f"https://127.0.0.1:{self._stack.ports.kubectl}"
        cluster = {
            "server": server,
            "certificate-authority-data": base64.b64encode(authority).decode(),
        }
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kas", "cluster": cluster}],
            "users": [{"name": "gitlab", "user": {"token": token}}],
            "contexts": [
                {"name": "gitlab", "context": {"cluster": "kas", "user": "gitlab"}}
            ],
            "current-context": "gitlab",
        }
        write_secret(self._stack.kubeconfig, json.dumps(content))
        return Client(self._stack.kubeconfig)

    def _who(self, step: Step, who: str, token: str) -> None:
        """Show the user that the cluster sees for a token."""
        client = self._client(token)
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        try:
            said = client.request("POST", path, review)["status"]["userInfo"]
            step.note(f"the cluster sees {said['username']}")
            groups = [one for one in said["groups"] if one.startswith("gitlab:")]
            step.note(f"in {', '.join(groups)}"[:100])
        except KubernetesError as error:
            if self._cluster.choice == "kube":
                raise DemoError(str(error), self._stack.agentk.log) from None
            client.request("GET", "/version")
            step.note(f"the {who} is let in; this cluster cannot say as whom")
        finally:
            client.close()

    def _let_jobs_read(self, administrator: Client) -> None:
        group = "rbac.authorization.k8s.io"
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "jobs-of-gitlab"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "view"},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": "gitlab:ci_job"}],
        }
        path = f"/apis/{group}/v1/clusterrolebindings"
        administrator.request("POST", path, binding)
        administrator.close()

    def _pushed(self) -> None:
        """Send the webhook of a push, as a post-receive hook would."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._web}/git/pushed/clusters",
            b"{}",
            {"X-Gitlab-Token": (self._folder / "hook.secret").read_text()},
        )
        with _opener().open(request, timeout=_TIMEOUT):
            pass

    def _in_effect(self, commit: str) -> None:
        text = f"the configuration of commit {commit} is in effect"
        self._said(self._stack.agentk, text)

    def _said(self, program: Program, pattern: str) -> str:
        found = _Search(program.log, f"({pattern})")
        program.wait_until(found.look, "what was pushed", _TIMEOUT)
        return found.text

    def _timed(self, act: Callable[[], object]) -> str:
        began = time.monotonic()
        act()
        return milliseconds(time.monotonic() - began)

    def _control(self, **rest: Any) -> dict[str, Any]:
        """See `tests.fakes.gitlab.FakeGitLab.control`."""
        context = ssl.create_default_context(cafile=str(self._authority))
        url = f"https://127.0.0.1:{self._port}/-/control"
        opener = _opener(urllib.request.HTTPSHandler(context=context))
        with opener.open(url, json.dumps(rest).encode(), timeout=_TIMEOUT) as answer:
            state: dict[str, Any] = json.loads(answer.read())
        return state


def _file(level: str) -> str:
    """Return the content of the agent's configuration file."""
    job = {"id": "group/app", "access_as": {"ci_job": {}}}
    said = {
        "observability": {"logging": {"level": level}},
        "ci_access": {"projects": [job]},
    }
    return json.dumps(said, indent=2)


class _Search:
    """Search for a pattern with one group in a log that grows."""

    def __init__(self, log: Path, pattern: str) -> None:
        self._log = log
        self._pattern = pattern
        self.text = ""

    def look(self) -> bool:
        """Tell whether the pattern was found; `text` is then the text of its group."""
        found = re.search(self._pattern, self._log.read_text(errors="replace"))
        self.text = found[1] if found else ""
        return found is not None


def _opener(*handlers: urllib.request.BaseHandler) -> urllib.request.OpenerDirector:
    """Return an opener without a proxy, for connections within this machine."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), *handlers)


def _until_the_end(events: Iterator[Any]) -> None:
    try:
        for _ in events:
            pass
    except OSError:
        # kas cuts the response of the watch, which has no end by itself.
        pass


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
