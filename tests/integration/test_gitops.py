"""Manifests in a real Git repository, through kas and agentk, into a real cluster."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import time
import urllib.error
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from modules.gitops.agent.objects.owner_annotations import OWNER
from tests.integration import needs
from tests.integration.cluster import ControlPlane
from tests.integration.processes import PATIENCE, eventually, kasctl
from tests.integration.stack import Agentk, Kas
from tests.modules.gitops.agent.source.test_decryption import IDENTITY, encrypted
from tests.modules.gitops.agent.source.test_rendering import CHART
from tools.git_repository import GitRepository

FILE = ".gitlab/agents/main/config.yaml"


def config_map(name: str, namespace: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def definition(group: str) -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "spec": {
                        "type": "object",
                        "properties": {
                            "size": {"type": "integer"},
                            "commit": {"type": "string"},
                        },
                    }
                },
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things", "singular": "thing"},
            "versions": [version],
        },
    }


class Stand:
    """kas and agentk, and a repository with the agent's file and the manifests."""

    def __init__(
        self,
        folder: Path,
        kas: Kas,
        agentk: Agentk,
        cluster: ControlPlane,
        gitops_settings: str,
    ) -> None:
        self.kas, self.agentk, self.cluster = kas, agentk, cluster
        self.options = folder / "agentk.yaml"
        self.options.write_text("modules: {gitops: {}}\n")
        self.namespace = f"gitops-{time.time_ns() % 10**10}"
        self.group = f"{self.namespace}.example.org"
        #: Agents of other tests have the same id in the same cluster: what is theirs
        #: and what is ours is told apart by this.
        self.repository = f"apps-{self.namespace}"
        self.origin = GitRepository.make(folder / "apps.git")
        kas.agent_settings = tuple(
            f"{section}: {{poll_period: 1s, repositories: "
            f"{{{self.repository}: {{path: {self.origin.path}}}, "
            # The same once more, for a second project of it.
            f"{self.repository}-twin: {{path: {self.origin.path}}}}}{more}}}"
            for section, more in (("configuration", ""), ("gitops", gitops_settings))
        )

    def restart(self, environment: Mapping[str, str] | None = None) -> None:
        """agentk, with the same options."""
        self.agentk.start(
            *("--configuration-file", str(self.options), "--namespace", self.namespace),
            environment=environment,
        )

    def configure(self, *more: dict[str, Any], **project: Any) -> str:
        """
        Configure one project.

        :param more: other projects.
        :return: the commit that has it.
        """
        projects = [
            {
                "paths": [{"glob": "/apps/**/*.yaml"}],
                "default_namespace": self.namespace,
                "prune_timeout": "90s",
                **one,
            }
            for one in (project, *more)
        ]
        section = {"gitops": {"manifest_projects": projects}}
        return self.origin.commit({FILE: yaml.safe_dump(section)})

    def commit(self, *objects: dict[str, Any], **files: str | None) -> str:
        return self.origin.commit(
            {"apps/all.yaml": yaml.safe_dump_all(objects), **files}
        )

    def live(self, path: str) -> Any:
        """The object there; None: there is none."""
        try:
            return self.cluster.call("GET", path)
        except urllib.error.HTTPError as error:
            # 429: of a kind that has just been defined.
            if error.code in (404, 429):
                return None
            raise

    def config_map(self, name: str) -> Any:
        return self.live(f"/api/v1/namespaces/{self.namespace}/configmaps/{name}")

    def config_maps(self) -> set[str]:
        """Names of those that are not of agentk itself."""
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        names = {
            one["metadata"]["name"] for one in self.cluster.call("GET", path)["items"]
        }
        return {
            one
            for one in names
            if one != "kube-root-ca.crt" and not one.startswith("inventory-")
        }

    def inventories(self) -> set[str]:
        """Names of the ConfigMaps that are inventories."""
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        found = self.cluster.call("GET", path)["items"]
        names = {one["metadata"]["name"] for one in found}
        return {one for one in names if one.startswith("inventory-")}

    def says(self, text: str, seconds: float = PATIENCE) -> None:
        """Until agentk has said it."""
        process = self.agentk.process
        assert process is not None
        eventually(lambda: text in process.said(), seconds, text)

    def settled(self, commit: str) -> None:
        self.says(f"commit {commit} is in the cluster")


@pytest.fixture
def gitops_settings() -> str:
    """More of the section of kas, for tests that have one."""
    return ""


@pytest.fixture
def stand(
    tmp_path: Path, lone_kas: Kas, control_plane: ControlPlane, gitops_settings: str
) -> Iterator[Stand]:
    """All of it, started."""
    agentk = Agentk(lone_kas, lone_kas.add_agent("main"), control_plane.agent)
    stand = Stand(tmp_path, lone_kas, agentk, control_plane, gitops_settings)
    control_plane.add_namespace(stand.namespace)
    stand.configure()
    lone_kas.start()
    stand.restart()
    yield stand
    if agentk.process is not None:
        agentk.process.kill()
    control_plane.remove_namespace(stand.namespace)


def test_from_git_to_the_cluster(stand: Stand) -> None:
    """Apply, change, prune, a prune guard and its approval, a person who interferes."""
    space = stand.namespace
    first = stand.commit(
        *(config_map(f"m{n}", space, value=str(n)) for n in range(6)),
        config_map("odd", space, yes_="on"),
    )
    stand.settled(first)
    assert stand.config_maps() == {"m0", "m1", "m2", "m3", "m4", "m5", "odd"}

    # A change, and what left Git.
    second = stand.commit(*(config_map(f"m{n}", space, value="new") for n in range(5)))
    stand.settled(second)
    eventually(lambda: stand.config_maps() == {"m0", "m1", "m2", "m3", "m4"})
    assert stand.config_map("m0")["data"] == {"value": "new"}

    # What a branch would change, field by field, before it is merged; nothing is.
    proposed = [
        config_map("m0", space, value="next"),
        config_map("m9", space, value="a"),
    ]
    text = yaml.safe_dump_all(proposed)
    stand.origin.commit({"apps/all.yaml": text}, branch="next")
    shown = stand.kas.ctl(
        "gitops", "preview", "main", stand.repository, "--ref", "next"
    )
    assert "1 change, 1 create" in shown
    assert f"~ ConfigMap {space}/m0  change  apps/all.yaml:1" in shown
    assert '/data/value: "new"' in shown
    assert '-> "next"' in shown
    assert f"! ConfigMap {space}/m4  blocked" in shown
    assert stand.config_map("m0")["data"] == {"value": "new"}
    assert stand.config_map("m9") is None

    # Most of it leaves: nothing goes until a person has said so.
    third = stand.commit(config_map("m0", space, value="new"))
    stand.says("4 of 5 objects would be deleted, more than 50 %")
    stand.settled(third)
    assert stand.config_maps() == {"m0", "m1", "m2", "m3", "m4"}
    stand.says("4 objects wait for an approval")
    shown = stand.kas.ctl("gitops", "status", "main", "--objects")
    assert f"held at {third[:12]}" in shown
    assert f"ConfigMap {space}/m1  blocked" in shown
    found = re.search(r"kasctl (gitops approve main \S+ \w+)", shown)
    assert found is not None
    path = next(
        f"/api/v1/namespaces/{space}/configmaps/{one}" for one in stand.inventories()
    )
    assert len(stand.live(path)["data"]) == 5
    stand.kas.ctl(*found[1].split())
    eventually(lambda: stand.config_maps() == {"m0"})
    eventually(lambda: len(stand.live(path)["data"]) == 1)

    # Another user annotates the inventory, and plants a saved state: neither counts.
    evil = stand.origin.commit(
        {"apps/all.yaml": yaml.safe_dump(config_map("evil", space))},
        branch="merge-request",
        onto=None,
    )
    orders = {"txkas/pinned": evil, "txkas/history": f'[["{evil}", 1.0, ""]]'}
    inventory = stand.live(path)
    inventory["metadata"]["annotations"] |= orders
    stand.cluster.call("PUT", path, inventory)
    synced = stand.kas.ctl("gitops", "sync", "main", stand.repository, "--wait")
    assert f"current at {third[:12]}" in synced
    assert stand.config_maps() == {"m0"}

    # What they were is known, and one of them comes back by hand.
    shown = stand.kas.ctl("gitops", "kept", "main", stand.repository)
    assert f"ConfigMap {space}/m5" in shown
    found = re.search(rf"(?m)^(\w+) .* pruned +ConfigMap {space}/m4$", shown)
    assert found is not None, shown
    text = stand.kas.ctl("gitops", "kept", "main", stand.repository, found[1])
    assert yaml.safe_load(text)["data"] == {"value": "new"}

    # Back to the commit before, which brings what went; then Git rules again.
    shown = stand.kas.ctl("gitops", "undo", "main", stand.repository, second[:12])
    assert f"goes to commit {second[:12]}" in shown
    eventually(lambda: stand.config_maps() == {"m0", "m1", "m2", "m3", "m4"})
    shown = stand.kas.ctl("gitops", "history", "main", stand.repository)
    assert third[:12] in shown
    # What was approved once is asked for again.
    stand.kas.ctl("gitops", "resume", "main", stand.repository)

    def held() -> re.Match[str] | None:
        shown = stand.kas.ctl("gitops", "status", "main")
        return re.search(r"kasctl (gitops approve main \S+ \w+)", shown)

    found = eventually(held, 60, "what is held again")
    assert stand.config_maps() == {"m0", "m1", "m2", "m3", "m4"}
    stand.kas.ctl(*found[1].split())
    eventually(lambda: stand.config_maps() == {"m0"})


def test_entries_that_other_clients_write(stand: Stand) -> None:
    """No delete is released, and no other object deleted, by way of ConfigMaps."""
    space = stand.namespace
    stand.settled(stand.commit(*(config_map(f"m{n}", space) for n in range(6))))
    stand.settled(stand.commit(config_map("m0", space)))
    stand.says("5 of 6 objects would be deleted, more than 50 %")
    (name,) = stand.inventories()
    path = f"/api/v1/namespaces/{space}/configmaps/{name}"
    owner = stand.config_map("m0")["metadata"]["annotations"][OWNER]
    theirs = config_map("theirs", space)
    theirs["metadata"]["annotations"] = {OWNER: owner}
    stand.cluster.call("POST", path.rpartition("/")[0], theirs)

    def change(entries: dict[str, str]) -> None:
        found = stand.live(path)
        found["metadata"].pop("managedFields", None)
        found["data"] = entries
        stand.cluster.call("PUT", path, found)

    eventually(lambda: "held" in stand.live(path)["data"][f"{space}_m1__ConfigMap"])
    before = stand.live(path)["data"]
    own, other = f"{space}_m0__ConfigMap", f"{space}_theirs__ConfigMap"
    change({own: before[own], other: ""})
    stand.settled(stand.commit(config_map("m0", space, value="1")))
    stand.says("the inventory does not prove that this agentk applied it")
    again = {own: before[own]}
    for number in (1, 2):
        key = f"{space}_m{number}__ConfigMap"
        known = json.loads(before[key])
        del known["held"]
        again[key] = json.dumps(known)
    change(again)
    stand.settled(stand.commit(config_map("m0", space, value="2")))
    stand.says("it waited for an approval before")
    assert stand.config_maps() == {*(f"m{n}" for n in range(6)), "theirs"}


def test_a_definition_and_its_objects_at_once(stand: Stand) -> None:
    """Namespace, kind and object of it in one commit: no error is shown."""
    place = f"{stand.namespace}-own"
    thing = {
        "apiVersion": f"{stand.group}/v1",
        "kind": "Thing",
        "metadata": {"name": "one", "namespace": place},
        "spec": {"size": 3},
    }
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}}
    commit = stand.commit(thing, space, definition(stand.group))
    stand.settled(commit)
    path = f"/apis/{stand.group}/v1/namespaces/{place}/things/one"
    assert stand.live(path)["spec"] == {"size": 3}
    process = stand.agentk.process
    assert process is not None
    assert "failed" not in process.said()

    # A person's object in that Namespace, and of that kind, keeps both.
    stand.cluster.call(
        "POST",
        f"/apis/{stand.group}/v1/namespaces/{place}/things",
        {**thing, "metadata": {"name": "theirs"}},
    )
    stand.settled(stand.commit(config_map("rest", stand.namespace)))
    stand.says(f"Thing.{stand.group} {place}/theirs")
    assert stand.live(f"/api/v1/namespaces/{place}") is not None
    for last in (f"/apis/{stand.group}/v1/namespaces/{place}/things/theirs",
                 f"/api/v1/namespaces/{place}",
                 "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
                 f"things.{stand.group}"):  # fmt: skip
        stand.cluster.call("DELETE", last)


def test_objects_that_are_told_of_commits(stand: Stand) -> None:
    """Of a kind that another engine has, by annotation or field; with what they are."""
    call, space = stand.cluster.call, stand.namespace
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    call("POST", path, definition(stand.group))
    things = f"/apis/{stand.group}/v1/namespaces/{space}/things"
    thing = {
        "apiVersion": f"{stand.group}/v1",
        "kind": "Thing",
        "metadata": {"name": "source"},
    }
    eventually(lambda: stand.live(things) is not None, what="the new kind")
    call("POST", things, thing)
    call("POST", things, {**thing, "metadata": {"name": "held"}, "spec": {"size": 1}})
    told = {
        "api_version": f"{stand.group}/v1",
        "kind": "Thing",
        "namespace": space,
        "name": "source",
        "annotation": "example.org/commit",
    }
    held = {**told, "name": "held", "field": "/spec/commit"}
    del held["annotation"]
    section = {"gitops": {"receivers": [{"objects": [held, told]}]}}
    try:
        commit = stand.origin.commit({FILE: yaml.safe_dump(section)})
        for _ in range(2):
            stand.says(f"/source was notified of commit {commit}")
            spec = stand.live(f"{things}/held")["spec"]
            assert spec == {"size": 1, "commit": commit}
            metadata = stand.live(f"{things}/source")["metadata"]
            assert metadata["annotations"] == {"example.org/commit": commit}
            shown = stand.kas.ctl("gitops", "status", "main")
            name = f"Thing.{stand.group} {space}/source"
            assert f"{name}  current  notified of {commit[:12]}" in shown
            commit = stand.origin.commit({"other": commit})
    finally:
        call("DELETE", f"{path}/things.{stand.group}")


def test_from_one_project_to_another(stand: Stand) -> None:
    """A watch sees no object go, whichever way manifests move, and names change."""
    space, name = stand.namespace, stand.repository
    # The same branch by its name, which the first project does not give.
    ref = {"branch": "main"}
    twin = {"id": f"{name}-twin", "ref": ref, "paths": [{"glob": "/more/*.yaml"}]}
    stand.configure(twin, id=name)
    moving = [config_map(f"m{number}", space, n="1") for number in range(10)]
    staying = config_map("s", space), config_map("t", space)

    def commit(apps: list[dict[str, Any]], more: list[dict[str, Any]]) -> str:
        return stand.commit(
            *apps,
            staying[0],
            **{"more/a.yaml": yaml.safe_dump_all([*more, staying[1]])},
        )

    def owners() -> set[str]:
        maps = (stand.config_map(one["metadata"]["name"]) for one in moving)
        return {one["metadata"]["annotations"]["config.k8s.io/owning-inventory"]
                for one in maps}  # fmt: skip

    commit(moving, [])
    eventually(lambda: stand.config_map("t") and stand.config_map("m9"))
    path = f"/api/v1/namespaces/{space}/configmaps"
    version = stand.live(path)["metadata"]["resourceVersion"]
    before = owners()
    commit([], moving)
    eventually(lambda: len(owners()) == 1 and owners() != before, what="all moved")
    after = owners()
    commit(moving[:5], moving[5:])
    eventually(lambda: owners() == before | after, what="half of it is back")
    # The second project under no name but that of the first, and the other way round.
    stand.configure(id=f"{name}-twin", paths=[{"glob": "/{apps,more}/*.yaml"}])
    eventually(lambda: len(owners()) == 1, what="one project has all")
    shown = stand.kas.ctl("gitops", "status", "main")
    assert "failed" not in shown, shown
    events = stand.cluster.events(path, version)
    names = [one["object"]["metadata"]["name"] for one in events]
    assert {"m0", "m9"} <= {*names}
    assert "DELETED" not in {one["type"] for one in events}


@pytest.fixture
def second(stand: Stand) -> Iterator[Agentk]:
    """An agentk of another agent, with a namespace of its own; not started yet."""
    token = stand.kas.add_agent("second")
    agentk = Agentk(stand.kas, token, stand.cluster.agent, name="agentk-second")
    stand.cluster.add_namespace(f"{stand.namespace}-b")
    yield agentk
    if agentk.process is not None:
        agentk.process.kill()
    stand.cluster.remove_namespace(f"{stand.namespace}-b")


def test_from_one_agent_to_another(stand: Stand, second: Agentk) -> None:
    """Both agentk lead, each for itself; no object goes meanwhile, there and back."""
    space, name = stand.namespace, stand.repository
    project = {"id": name, "default_namespace": space}
    stand.configure(**project)
    named = {**project, "ref": {"branch": "main"}}
    section = {"manifest_projects": [{**named, "paths": [{"glob": "/more/*.yaml"}]}]}
    stand.origin.commit(
        {".gitlab/agents/second/config.yaml": yaml.safe_dump({"gitops": section})}
    )
    options = ("--configuration-file", str(stand.options))
    second.start(*options, "--namespace", f"{space}-b")
    moving = [config_map(f"m{number}", space, n="1") for number in range(3)]
    own = {key: config_map(key, space) for key in ("first", "second")}

    def commit(first: list[dict[str, Any]], other: list[dict[str, Any]]) -> str:
        more = yaml.safe_dump_all([*other, own["second"]])
        return stand.commit(*first, own["first"], **{"more/a.yaml": more})

    def metadata() -> list[Any]:
        return [
            found["metadata"]
            for one in moving
            if (found := stand.config_map(one["metadata"]["name"])) is not None
        ]

    def owners() -> set[str]:
        mark = "config.k8s.io/owning-inventory"
        return {one["annotations"].get(mark, "") for one in metadata()}

    def uids() -> list[str]:
        return [one["uid"] for one in metadata()]

    def handed_over(before: set[str]) -> bool:
        # One look: two could see different states, and a test that goes on too early
        # moves the manifests back while no agent has the objects.
        found = owners()
        if len(found) == 1 and "" not in found and found != before:
            return True
        # Agents do not know of each other, and look again after a backoff only.
        for agent in ("main", "second"):
            stand.kas.ctl("gitops", "sync", agent, name)
        return False

    commit(moving, [])
    ready = ("first", "second", "m2")
    eventually(lambda: all(map(stand.config_map, ready)), what="both have applied")
    path = f"/api/v1/namespaces/{space}/configmaps"
    version = stand.live(path)["metadata"]["resourceVersion"]
    before, first = uids(), owners()
    commit([], moving)
    eventually(lambda: handed_over(first), what="the second agent has all")
    assert uids() == before
    then = owners()
    commit(moving, [])
    eventually(lambda: handed_over(then), what="the first agent has all again")
    assert owners() == first
    assert uids() == before
    assert not any("txkas/claimed-by" in one["annotations"] for one in metadata())
    events = stand.cluster.events(path, version)
    names = [one["object"]["metadata"]["name"] for one in events]
    assert {"m0", "m2"} <= {*names}
    assert "DELETED" not in {one["type"] for one in events}


def test_own_namespace(stand: Stand) -> None:
    """A user with agentk's own rights reads no orders, and gives none."""
    space = stand.namespace
    stand.settled(stand.commit(config_map("a", space)))
    stand.kas.add_user("root")
    way = stand.kas.way("root")
    secrets = f"/api/v1/namespaces/{space}/secrets"
    found = stand.cluster.call("GET", secrets)["items"]
    (orders,) = [one for one in found if "orders" in one["metadata"]["name"]]
    one = f"{secrets}/{orders['metadata']['name']}"
    for method, path in (
        ("GET", secrets),
        ("GET", one),
        ("DELETE", one),
        ("DELETE", secrets),
        ("DELETE", f"/api/v1/namespaces/{space}/configmaps"),
        ("DELETE", f"/api/v1/namespaces/{space}"),
    ):
        answer = way.ask(method, path)
        assert answer.status == 403, (method, path)
        assert b"allow_own_namespace" in answer.body
    assert stand.cluster.call("GET", one)["metadata"] == orders["metadata"]
    # Of all Secrets the API server leaves out those; of others none.
    other = {"metadata": {"name": f"of-{space}"}}
    theirs = "/api/v1/namespaces/default/secrets"
    stand.cluster.call("POST", theirs, other)
    try:
        for query in ("", "?limit=2000", "?fieldSelector=type%3DOpaque"):
            answer = way.ask("GET", f"/api/v1/secrets{query}")
            listed = json.loads(answer.body)["items"]
            names = {
                (i["metadata"]["namespace"], i["metadata"]["name"]) for i in listed
            }
            assert ("default", f"of-{space}") in names
            assert space not in {where for where, _ in names}
        watch = way.ask("GET", "/api/v1/secrets?watch=true&timeoutSeconds=1")
        assert f"of-{space}".encode() in watch.body
        assert orders["metadata"]["name"].encode() not in watch.body
        assert way.ask("GET", f"{theirs}/of-{space}").status == 200
        assert way.ask("DELETE", f"{theirs}/of-{space}").status == 200
    finally:
        if stand.live(f"{theirs}/of-{space}"):
            stand.cluster.call("DELETE", f"{theirs}/of-{space}")


def test_odd_characters(stand: Stand) -> None:
    """They come into the cluster as `kubectl apply --server-side` brings them."""
    text = "ship it \U0001f680 東京 \x7f \u2028 \x85 \ufeff end"
    wanted = config_map("odd", stand.namespace, **{"title.json": text})
    wanted["metadata"]["annotations"] = {"note": text}
    stand.settled(stand.commit(wanted))
    live = stand.config_map("odd")
    assert live["data"] == {"title.json": text}
    assert live["metadata"]["annotations"]["note"] == text


def test_one_that_cannot_be_applied(stand: Stand) -> None:
    """Its file, line and field, in the API server's words; all others are there."""
    good = [config_map(f"m{n:02}", stand.namespace) for n in range(40)]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "bad", "namespace": stand.namespace},
        "spec": {"ports": [{"port": 99999999}]},
    }
    commit = stand.commit(*good[:20], service, *good[20:])
    stand.settled(commit)
    line = yaml.safe_dump_all(good[:20]).count("\n") + 2
    stand.says(f"apps/all.yaml:{line}: Service")
    stand.says("spec.ports[0].port")
    assert len(stand.config_maps()) == 40


def test_as_a_service_account(stand: Stand) -> None:
    """What its account may not do the project cannot, whatever agentk may."""
    space, call = stand.namespace, stand.cluster.call
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{space}"
    called = {"metadata": {"name": "deployer"}}
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}
    subject = {"kind": "ServiceAccount", "name": "deployer", "namespace": space}
    role = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": "deployer",
    }
    call("POST", f"/api/v1/namespaces/{space}/serviceaccounts", called)
    call("POST", f"{rights}/roles", {**called, "rules": [rule]})
    binding = {**called, "roleRef": role, "subjects": [subject]}
    call("POST", f"{rights}/rolebindings", binding)
    audit = stand.cluster.audit()
    configured = stand.configure(service_account=f"{space}/deployer")
    # Until then objects would be applied with the rights of agentk.
    stand.says(f"the configuration of commit {configured} is in effect")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": space},
    }
    elsewhere = config_map(f"of-{space}", "default")
    commit = stand.commit(
        *(config_map("stays", space), config_map("goes", space)), secret, elsewhere
    )
    stand.settled(commit)
    account = f"system:serviceaccount:{space}:deployer"
    for what in ("secrets", "configmaps"):
        stand.says(f'User \\"{account}\\" cannot get resource \\"{what}\\"')
    assert stand.config_maps() == {"stays", "goes"}
    assert stand.live(f"/api/v1/namespaces/default/configmaps/of-{space}") is None
    stand.settled(stand.commit(config_map("stays", space)))
    eventually(lambda: stand.config_maps() == {"stays"})
    written = [
        one
        for one in audit.about(f"/namespaces/{space}/configmaps/")
        if one["verb"] in ("patch", "delete", "create")
        and "inventory-" not in one["requestURI"]
    ]
    assert {one["verb"] for one in written} >= {"patch", "delete"}
    by = {one.get("impersonatedUser", one["user"])["username"] for one in written}
    # It ends what is deleted in the foreground.
    by.discard("system:serviceaccount:kube-system:generic-garbage-collector")
    assert by == {account}, [(one["verb"], one["requestURI"]) for one in written]


def test_a_scope(stand: Stand) -> None:
    """agentk reads and changes nothing outside of the namespace of its scope."""
    space = stand.namespace
    stand.options.write_text("modules: {gitops: {}, cluster_data: {}}\n")
    section = {
        "gitops": {"manifest_projects": [{"paths": [{"glob": "/apps/**/*.yaml"}]}]},
        "scope": {"namespaces": [space]},
    }
    stand.origin.commit({FILE: yaml.safe_dump(section)})
    elsewhere = config_map(f"of-{space}", "default")
    stand.commit(config_map("inside", space), elsewhere)
    audit = stand.cluster.audit()
    assert stand.agentk.stop()
    stand.restart()
    stand.says("namespace default is outside of the agent's scope")
    eventually(lambda: stand.config_maps() == {"inside"})
    assert stand.live(f"/api/v1/namespaces/default/configmaps/of-{space}") is None
    watched = eventually(
        lambda: {
            one["objectRef"]["namespace"]
            for one in audit.about(f"/namespaces/{space}/")
            if one["verb"] == "watch" and one["objectRef"]["resource"] == "pods"
        }
    )
    assert watched == {space}
    for path in ("/api/v1/pods", "/api/v1/nodes", "/api/v1/configmaps"):
        watches = [one for one in audit.about(path) if one["verb"] == "watch"]
        # agentk sends no User-Agent; the controllers do.
        assert all("userAgent" in one for one in watches), watches


def immutable(namespace: str, value: str, port: int = 80) -> list[dict[str, Any]]:
    """A Job, Deployments and a Service with *value* where none of it can be changed."""

    def metadata(name: str) -> dict[str, Any]:
        annotations = {"txkas/recreate": "true"} if name != "keeps" else {}
        return {"name": name, "namespace": namespace, "annotations": annotations}

    container = {"name": "main", "image": "example.org/none:1", "args": [value]}
    # No node has it: nothing runs.
    pod = {"containers": [container], "nodeSelector": {"no": "node"}}
    labels = {"app": value}
    template = {"metadata": {"labels": labels}, "spec": pod}
    selected = {"selector": {"matchLabels": labels}, "template": template}
    once = {"template": {"spec": {**pod, "restartPolicy": "Never"}}}
    apps, batch = "apps/v1", "batch/v1"
    ports = {"ports": [{"port": port}], "clusterIP": value}
    return [
        {"apiVersion": batch, "kind": "Job", "metadata": metadata("job"), "spec": once},
        {
            "apiVersion": apps,
            "kind": "Deployment",
            "metadata": metadata("web"),
            "spec": selected,
        },
        {
            "apiVersion": apps,
            "kind": "Deployment",
            "metadata": metadata("keeps"),
            "spec": selected,
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata("web"),
            "spec": {**ports, "clusterIP": "None" if value == "a" else ""},
        },
    ]


def test_what_cannot_be_changed(stand: Stand) -> None:
    """It is made anew where Git allows that, and never where it is only wrong."""
    space = stand.namespace
    paths = {
        "job": f"/apis/batch/v1/namespaces/{space}/jobs/job",
        "web": f"/apis/apps/v1/namespaces/{space}/deployments/web",
        "keeps": f"/apis/apps/v1/namespaces/{space}/deployments/keeps",
        "service": f"/api/v1/namespaces/{space}/services/web",
    }

    def uids() -> dict[str, str]:
        return {name: stand.live(one)["metadata"]["uid"] for name, one in paths.items()}

    stand.settled(stand.commit(*immutable(space, "a")))
    first = uids()
    # Only wrong: nothing is deleted, though Git would allow it.
    stand.commit(*immutable(space, "a", 99999999))
    stand.says("must be between 1 and 65535")
    assert uids() == first
    text = yaml.safe_dump_all(immutable(space, "b"))
    stand.origin.commit({"apps/all.yaml": text}, branch="next")
    # A commit that cannot be applied as a whole.
    shown = kasctl(
        *("gitops", "preview", "main", stand.repository, "--ref", "next"),
        state=stand.kas.state,
        check=False,
    ).stdout
    assert f"-/+ Job.batch {space}/job  recreate" in shown
    assert f"-/+ Deployment.apps {space}/web  recreate" in shown
    assert f"! Deployment.apps {space}/keeps  denied" in shown
    assert uids() == first
    stand.settled(stand.commit(*immutable(space, "b")))
    stand.says("to have agentk delete and recreate it, annotate it with txkas/recreate")
    second = uids()
    assert second["keeps"] == first["keeps"]
    assert {one for one in paths if second[one] != first[one]} >= {"job", "web"}
    live = stand.live(paths["web"])
    assert live["spec"]["selector"]["matchLabels"] == {"app": "b"}
    stand.says("2 recreated")


def test_kustomize_and_helm(stand: Stand) -> None:
    """An overlay, then a chart: rendered by agentk's children, applied, and pruned."""
    space = stand.namespace
    programs = {"kustomize": str(needs.kustomize()), "helm": str(needs.helm())}
    stand.options.write_text(yaml.safe_dump({"modules": {"gitops": programs}}))
    stand.agentk.stop()
    chart = {path: text for path, text in CHART.items() if "/crds/" not in path}
    overlay = {
        "resources": ["settings.yaml"],
        "namespace": space,
        "configMapGenerator": [{"name": "made", "literals": ["a=1"]}],
    }
    files = {
        "here/kustomization.yaml": yaml.safe_dump(overlay),
        "here/settings.yaml": yaml.safe_dump(config_map("settings", "", value="x")),
    }
    stand.origin.commit({**chart, **files})
    stand.configure(paths=[], source={"kind": "kustomize", "path": "here"})
    stand.restart()
    eventually(lambda: "settings" in stand.config_maps(), 60, "the overlay")
    eventually(lambda: len(stand.config_maps()) == 2)
    (made,) = stand.config_maps() - {"settings"}
    assert made.startswith("made-")

    # The names of both stay in the inventory, so what the chart lacks goes.
    stand.configure(
        paths=[],
        source={
            "kind": "helm",
            "path": "web",
            "release_name": "mine",
            "values": "size: 5",
        },
    )
    eventually(lambda: stand.config_maps() == {"sub", "mine-of-lib"})
    data = stand.config_map("mine-of-lib")["data"]
    assert data["size"] == "5"
    assert data["has"] == "true"

    def shown() -> str:
        return stand.kas.ctl("gitops", "status", "main", "--objects")

    # Once it is done: the objects were there before.
    eventually(lambda: "helm template web:" in shown())


def test_sops(stand: Stand, tmp_path: Path) -> None:
    """A Secret that sops encrypted; it waits until its key is there."""
    space = stand.namespace
    programs = {"sops": str(needs.sops())}
    stand.options.write_text(yaml.safe_dump({"modules": {"gitops": programs}}))
    stand.agentk.stop()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "db", "namespace": space},
        "stringData": {"password": "hidden-word"},
    }
    stand.configure(decryption={"secret": f"{space}/age"})
    stand.origin.commit({"apps/all.yaml": encrypted(secret, tmp_path)})
    stand.restart()
    stand.says(f"the Secret {space}/age (decryption.secret) cannot be read")
    secrets = f"/api/v1/namespaces/{space}/secrets"
    keys = {"metadata": {"name": "age"}, "stringData": {"main.agekey": IDENTITY}}
    stand.cluster.call("POST", secrets, keys)
    eventually(lambda: stand.live(f"{secrets}/db"), 60, "the Secret")
    data = stand.live(f"{secrets}/db")["data"]
    assert base64.b64decode(data["password"]) == b"hidden-word"
    stand.settled(stand.commit(secret))
    shown = stand.kas.ctl("gitops", "status", "main", "--objects")
    process = stand.agentk.process
    assert process is not None
    assert "hidden-word" not in shown + process.said()


def test_what_kubectl_applied_before(stand: Stand, tmp_path: Path) -> None:
    """A field that Git lacks goes, and kubectl's annotation; what people set stays."""
    space = stand.namespace
    file = tmp_path / "before.yaml"
    file.write_text(yaml.safe_dump(config_map("old", space, a="1", b="2")))

    def kubectl(*arguments: str | Path) -> None:
        program = (stand.cluster.assets / "kubectl", "--namespace", space)
        login = ("--kubeconfig", stand.cluster.admin)
        subprocess.run([*program, *login, *arguments], check=True, capture_output=True)

    kubectl("apply", "-f", file)
    kubectl("patch", "configmap", "old", "-p", '{"data": {"c": "3"}}')
    stand.configure(inventory_policy="adopt_if_no_inventory")
    stand.settled(stand.commit(config_map("old", space, a="1")))
    found = stand.config_map("old")
    assert found["data"] == {"a": "1", "c": "3"}
    annotations = found["metadata"]["annotations"]
    assert "kubectl.kubernetes.io/last-applied-configuration" not in annotations
    managers = {one["manager"] for one in found["metadata"]["managedFields"]}
    assert managers == {"agentk", "kubectl-patch"}
