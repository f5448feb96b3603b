"""
GitLab's internal API, as far as kas asks it.

It follows what is known of GitLab's own kas to the letter and takes nothing else: a
request that GitLab would not get from its kas is answered with 400 and noted in
`FakeGitLab.violations`.  It can be told to be slow, away, rate-limited or wrong.

``python -m tests.fakes.gitlab SECRET-FILE [CERTIFICATE KEY]`` runs it as a process: it
prints its port at the address INTERFACE of its environment (127.0.0.1), and
``POST /-/control`` takes what `FakeGitLab.control` does.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import jwt
from klein import Klein
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.web.iweb import IRequest

__all__ = ["FakeAgent", "FakeGitLab", "job_answer", "user_answer"]

_PREFIX = "/api/v4/internal/kubernetes"


@attrs.define
class FakeAgent:
    """An agent that is registered."""

    agent_id: int
    name: str
    project_id: int


#: What usage reports may have.
COUNTERS = {
    "gitops_sync",
    "k8s_api_proxy_request",
    "flux_git_push_notifications_total",
    *(f"k8s_api_proxy_requests_via_{kind}_access" for kind in ("ci", "user", "pat")),
}
UNIQUE_COUNTERS = {
    "agent_users_using_ci_tunnel",
    "flux_git_push_notified_unique_projects",
    *(
        f"k8s_api_proxy_requests_unique_{who}_via_{kind}_access"
        for who in ("users", "agents")
        for kind in ("ci", "user", "pat")
    ),
}


#: What is said of an agent that registers.
REGISTRATION = {
    "project_id": int,
    "agent_id": int,
    "agent_version": str,
    "architecture": str,
    "kubernetes_version": str,
    "extra_telemetry_data": dict,
}
TELEMETRY = {"installation_method", "helm_chart_version"}


def job_answer(
    agents: dict[int, Any],
    *,
    job: int = 501,
    environment: dict[str, str] | None = None,
    groups: tuple[int, ...] = (9, 8),
) -> dict[str, Any]:
    """
    What GitLab says of a job of *dev*, in project 5.

    :param agents: what each agent's ``configuration`` says, by its id.
    """
    answer: dict[str, Any] = {
        "allowed_agents": [
            {"id": agent, "config_project": {"id": 42}, "configuration": said}
            for agent, said in agents.items()
        ],
        "job": {"id": job},
        "pipeline": {"id": 301},
        "project": {"id": 5, "groups": [{"id": group} for group in groups]},
        "user": {"id": 77, "username": "dev", "roles_in_project": ["developer"]},
    }
    if environment is not None:
        answer["environment"] = environment
    return answer


def user_answer(agent: int, access_as: Any) -> dict[str, Any]:
    """What GitLab says of *alice* at an agent."""
    return {
        "agent": {"id": agent, "config_project": {"id": 42}},
        "user": {"id": 78, "username": "alice"},
        "access_as": access_as,
    }


@attrs.define(eq=False)
class FakeGitLab:
    """
    :param secret: what kas shares with GitLab, decoded.
    :param now: the time of day.
    :ivar agents: by token.
    :ivar jobs: what is said of a CI job, by its token; see `job_answer`.
    :ivar users: what is said of a person, by the access key; see `user_answer`.  The
        CSRF token of a session is ``csrf-of-`` and its key.
    :ivar mood: ``ok``; ``down`` (503), ``limited`` (429), ``html`` (a login page),
        ``login`` (a proxy that wants one to sign in, with 401),
        ``moved`` (a redirect), ``partial`` (answers lack what has to be in them),
        ``huge``, or a status such as ``403``.
    :ivar delay: seconds before each answer.
    :ivar asked: how often each token was asked about.
    :ivar violations: what kas has to do otherwise.
    """

    secret: bytes = attrs.field(repr=False)
    clock: IReactorTime
    now: Callable[[], float] = time.time
    agents: dict[str, FakeAgent] = attrs.field(factory=dict)
    jobs: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    users: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    mood: str = "ok"
    delay: float = 0.0
    #: Where Gitaly is, and what it wants to know.
    gitaly: dict[str, Any] = attrs.field(factory=dict)
    #: How each agent is configured, as kas said it.
    configurations: dict[int, Any] = attrs.field(factory=dict)
    #: How much kas said is used, each report.
    usage: list[dict[str, Any]] = attrs.field(factory=list)
    #: Agents that kas said registered.
    registered: list[dict[str, Any]] = attrs.field(factory=list)
    asked: Counter[str] = attrs.field(factory=Counter)
    paths: Counter[str] = attrs.field(factory=Counter)
    violations: list[str] = attrs.field(factory=list)
    #: When each request came.
    times: list[float] = attrs.field(factory=list)
    app: Klein = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.app = Klein()
        self.app.route(f"{_PREFIX}/agent_info", methods=["GET"])(self._agent_info)
        self.app.route("/api/v4/job/allowed_agents", methods=["GET"])(
            self._allowed_agents
        )
        self.app.route(f"{_PREFIX}/authorize_proxy_user", methods=["POST"])(
            self._authorize_proxy_user
        )
        self.app.route(f"{_PREFIX}/agent_configuration", methods=["POST"])(
            self._agent_configuration
        )
        self.app.route(f"{_PREFIX}/usage_metrics", methods=["POST"])(
            self._usage_metrics
        )
        self.app.route(f"{_PREFIX}/agent_events", methods=["POST"])(self._agent_events)
        self.app.route(f"{_PREFIX}/modules/<name>", branch=True)(self._module)
        self.app.route("/-/control", methods=["POST"])(self._control)
        self.app.route("/", branch=True)(self._unknown)

    def control(
        self,
        mood: str | None = None,
        delay: float | None = None,
        agents: dict[str, dict[str, Any]] | None = None,
        jobs: dict[str, dict[str, Any]] | None = None,
        users: dict[str, dict[str, Any]] | None = None,
        gitaly: dict[str, Any] | None = None,
        revoke: str = "",
    ) -> dict[str, Any]:
        """Be told how to be, and say what happened."""
        self.gitaly.update(gitaly or {})
        self.mood = self.mood if mood is None else mood
        self.delay = self.delay if delay is None else delay
        for token, agent in (agents or {}).items():
            self.agents[token] = FakeAgent(**agent)
        self.jobs.update(jobs or {})
        self.agents.pop(revoke, None)
        self.jobs.pop(revoke, None)
        self.users.update(users or {})
        self.users.pop(revoke, None)
        return {
            "asked": dict(self.asked),
            "paths": dict(self.paths),
            "violations": self.violations,
            "configurations": self.configurations,
            "usage": self.usage,
            "registered": self.registered,
            "times": self.times,
        }

    def _control(self, request: IRequest) -> bytes:
        return json.dumps(self.control(**json.load(request.content))).encode()

    def _unknown(self, request: IRequest) -> bytes:
        return self._violation(request, "GitLab has no such path for kas", 404)

    def _violation(self, request: IRequest, what: str, code: int = 400) -> bytes:
        path = request.path.decode("ascii", "replace")
        self.violations.append(f"{request.method.decode()} {path}: {what}")
        return self._say(request, {"message": what}, code)

    def _say(self, request: IRequest, answer: Any, code: int = 200) -> bytes:
        request.setResponseCode(code)
        request.setHeader(b"content-type", b"application/json")
        return json.dumps(answer).encode()

    # What every request has to have.

    def _signed(self, request: IRequest) -> str:
        """What is wrong with the signature; empty: nothing."""
        token = request.getHeader("Gitlab-Kas-Api-Request")
        if token is None:
            return "no Gitlab-Kas-Api-Request"
        try:
            claims = jwt.decode(
                token,
                self.secret,
                ["HS256"],
                audience="gitlab",
                issuer="gitlab-kas",
                options={
                    "require": ["iss", "aud", "exp", "nbf", "iat"],
                    # By the time of the test, below.
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except jwt.PyJWTError as error:
            return str(error)
        now = self.now()
        if not claims["nbf"] <= now < claims["exp"] or claims["exp"] > now + 31:
            return "the token is not of now, or valid for too long"
        return ""

    async def _mood(self, request: IRequest) -> bytes | None:
        """What is answered in place of the truth; None: the truth."""
        self.paths[request.path.decode()] += 1
        self.times.append(self.clock.seconds())
        if self.delay:
            await deferLater(self.clock, self.delay)
        if self.mood == "ok":
            return None
        if self.mood == "down":
            return self._say(request, {"message": "503"}, 503)
        if self.mood == "limited":
            request.setHeader(b"retry-after", b"2")
            return self._say(request, {"message": "429"}, 429)
        if self.mood in ("html", "login"):
            request.setResponseCode(401 if self.mood == "login" else 200)
            request.setHeader(b"content-type", b"text/html; charset=utf-8")
            return b"<html>sign in</html>"
        if self.mood == "moved":
            request.setResponseCode(302)
            request.setHeader(b"location", b"https://elsewhere.example/steal")
            return b""
        if self.mood == "partial":
            return self._say(request, {"agent_id": 7})
        if self.mood == "huge":
            return self._say(request, {"agent_id": 7, "agent_name": "x" * 2**21})
        return self._say(request, {"message": self.mood}, int(self.mood))

    def _strict(self, request: IRequest, query: set[str]) -> str:
        agent = request.getHeader("user-agent") or ""
        parts = agent.split("/")
        if len(parts) != 3 or parts[0] != "gitlab-kas":
            return f"User-Agent {agent!r} is not gitlab-kas/<version>/<commit>"
        if request.getHeader("accept") != "application/json":
            return "Accept has to be application/json"
        given = {name.decode() for name in request.args}
        if given != query:
            return f"query {sorted(given)}, not {sorted(query)}"
        if request.getHeader("cookie"):
            return "kas keeps no cookies"
        return ""

    # What it answers.

    def _unsigned(self, request: IRequest) -> bytes | None:
        """What is answered where the signature is wrong."""
        wrong = self._signed(request)
        if not wrong:
            return None
        self.violations.append(wrong)
        return self._say(request, {"message": "KAS JWT authentication invalid"}, 401)

    async def _agent_info(self, request: IRequest) -> bytes:
        if wrong := self._strict(request, set()):
            return self._violation(request, wrong)
        if (unsigned := self._unsigned(request)) is not None:
            return unsigned
        scheme, _, token = (request.getHeader("authorization") or "").partition(" ")
        if scheme != "Bearer" or not token:
            return self._violation(request, "no Authorization: Bearer <agent token>")
        self.asked[token] += 1
        request.setHeader(b"set-cookie", b"_gitlab_session=of-nobody; path=/")
        if (mood := await self._mood(request)) is not None:
            return mood
        agent = self.agents.get(token)
        if agent is None:
            return self._say(request, {"message": "401 Unauthorized"}, 401)
        path = f"group/project-{agent.project_id}"
        return self._say(
            request,
            {
                "project_id": agent.project_id,
                "agent_id": agent.agent_id,
                "agent_name": agent.name,
                "gitaly_info": {
                    "address": "tcp://gitaly.example:8075",
                    "token": "gitaly-secret",
                    "features": {},
                    **self.gitaly,
                },
                "gitaly_repository": {
                    "storage_name": "default",
                    "relative_path": "@hashed/ab/cd.git",
                    "git_object_directory": "",
                    "git_alternate_object_directories": [],
                    "gl_repository": f"project-{agent.project_id}",
                    "gl_project_path": path,
                },
                "default_branch": "main",
                "more_than_kas_knows": True,
            },
        )

    async def _refused(self, request: IRequest) -> bytes | None:
        """What a POST gets that is not as it has to be, or comes at a bad time."""
        if wrong := self._strict(request, set()):
            return self._violation(request, wrong)
        if (unsigned := self._unsigned(request)) is not None:
            return unsigned
        return await self._mood(request)

    async def _agent_configuration(self, request: IRequest) -> bytes:
        if (refused := await self._refused(request)) is not None:
            return refused
        said = json.load(request.content)
        if (
            set(said) != {"agent_id", "agent_config"}
            or type(said["agent_id"]) is not int
        ):
            return self._violation(request, "agent_id and agent_config are needed")
        if said["agent_id"] not in {one.agent_id for one in self.agents.values()}:
            return self._say(request, {"message": "404 Agent Not Found"}, 404)
        self.configurations[said["agent_id"]] = said["agent_config"]
        request.setResponseCode(204)
        return b""

    async def _usage_metrics(self, request: IRequest) -> bytes:
        if (refused := await self._refused(request)) is not None:
            return refused
        said = json.load(request.content)
        counters, unique = said.get("counters", {}), said.get("unique_counters", {})
        if (
            not set(said) <= {"counters", "unique_counters"}
            or not set(counters) <= COUNTERS
            or not set(unique) <= UNIQUE_COUNTERS
            or not all(type(one) is int and one > 0 for one in counters.values())
            or not all(type(id_) is int for ids in unique.values() for id_ in ids)
        ):
            return self._violation(request, f"what is counted: {said}")
        self.usage.append(said)
        request.setResponseCode(204)
        return b""

    async def _agent_events(self, request: IRequest) -> bytes:
        if (refused := await self._refused(request)) is not None:
            return refused
        said = json.load(request.content)
        events = said.get("events", {}).get("register_agent_at_kas", [])
        if set(said) != {"events"} or set(said["events"]) != {"register_agent_at_kas"}:
            return self._violation(request, f"events: {said}")
        for event in events:
            kinds = {name: type(value) for name, value in event.items()}
            telemetry = event.get("extra_telemetry_data", {})
            if kinds != REGISTRATION or not set(telemetry) <= TELEMETRY:
                return self._violation(request, f"registration: {event}")
        self.registered += events
        request.setResponseCode(204)
        return b""

    async def _module(self, request: IRequest, name: str) -> bytes:
        """Answer with what came; ``Location`` and a cookie are for nobody."""
        if (unsigned := self._unsigned(request)) is not None:
            return unsigned
        scheme, _, token = (request.getHeader("authorization") or "").partition(" ")
        if scheme != "Bearer" or token not in self.agents:
            return self._violation(request, "no Authorization: Bearer <agent token>")
        if not (request.getHeader("user-agent") or "").startswith("gitlab-kas/"):
            return self._violation(request, "User-Agent is not kas'")
        for field in ("Cookie", "Upgrade", "Job-Token", "Private-Token"):
            if request.getHeader(field) is not None:
                return self._violation(request, f"no {field} belongs here")
        if (mood := await self._mood(request)) is not None:
            return mood
        request.setHeader(b"set-cookie", b"_gitlab_session=of-nobody; path=/")
        request.setHeader(b"x-from", b"gitlab")
        return self._say(
            request,
            {
                "agent": self.agents[token].agent_id,
                "module": name,
                "method": request.method.decode(),
                "uri": request.uri.decode(),
                "body": request.content.read().decode("latin-1"),
                "headers": {
                    key.decode().lower(): [value.decode() for value in values]
                    for key, values in request.requestHeaders.getAllRawHeaders()
                },
            },
            201 if request.method == b"POST" else 200,
        )

    async def _allowed_agents(self, request: IRequest) -> bytes:
        if wrong := self._strict(request, set()):
            return self._violation(request, wrong)
        for name in ("Gitlab-Kas-Api-Request", "Authorization"):
            if request.getHeader(name) is not None:
                return self._violation(request, f"no {name} belongs here")
        tokens = request.requestHeaders.getRawHeaders("Job-Token", [])
        if len(tokens) != 1 or not tokens[0]:
            return self._violation(request, "not one Job-Token")
        self.asked[tokens[0]] += 1
        if (mood := await self._mood(request)) is not None:
            return mood
        answer = self.jobs.get(tokens[0])
        if answer is None:
            return self._say(request, {"message": "401 Unauthorized"}, 401)
        return self._say(request, answer)

    async def _authorize_proxy_user(self, request: IRequest) -> bytes:
        if wrong := self._strict(request, set()):
            return self._violation(request, wrong)
        if (unsigned := self._unsigned(request)) is not None:
            return unsigned
        if request.getHeader("authorization") is not None:
            return self._violation(request, "no Authorization belongs here")
        if request.getHeader("content-type") != "application/json":
            return self._violation(request, "the body is JSON")
        body = json.load(request.content)
        kinds = {
            "session_cookie": {"csrf_token"},
            "personal_access_token": set(),
        }
        kind = kinds.get(body.get("access_type"))
        if kind is None or set(body) != {
            "agent_id",
            "access_type",
            "access_key",
            *kind,
        }:
            return self._violation(request, f"the body has {sorted(body)}")
        agent_id, key = body["agent_id"], body["access_key"]
        if type(agent_id) is not int or not 0 < agent_id < 2**63:
            return self._violation(request, "agent_id is no id")
        self.asked[key] += 1
        if (mood := await self._mood(request)) is not None:
            return mood
        answer = self.users.get(key)
        if answer is None:
            return self._say(request, {"message": "400 Bad request - no user"}, 400)
        if kind and body["csrf_token"] != f"csrf-of-{key}":
            message = "401 Unauthorized - CSRF token does not match"
            return self._say(request, {"message": message}, 401)
        if answer["agent"]["id"] != agent_id:
            return self._say(request, {"message": "404 Agent Not Found"}, 404)
        return self._say(request, answer)


def main(secret_file: str, *tls: str) -> None:
    """Serve until the process is killed."""
    from twisted.internet import endpoints, reactor
    from twisted.web.server import Site

    clock: Any = reactor
    secret = base64.b64decode(Path(secret_file).read_text().strip(), validate=True)
    fake = FakeGitLab(secret, clock)
    # Twisted's strings end a part at each colon.
    interface = os.environ.get("INTERFACE", "127.0.0.1").replace(":", "\\:")
    where = f"tcp:0:interface={interface}"
    if tls:
        where = f"ssl:0:interface={interface}:certKey={tls[0]}:privateKey={tls[1]}"
    listening = endpoints.serverFromString(clock, where).listen(
        Site(fake.app.resource())
    )
    listening.addCallback(lambda port: print(port.getHost().port, flush=True))
    clock.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
