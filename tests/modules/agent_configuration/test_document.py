"""What a configuration file may say, and what is told of one that cannot be used."""

from __future__ import annotations

import json
import re
from typing import Any

import attrs
import pytest
import yaml
from twisted.internet.defer import Deferred

from modules.agent_configuration import document
from modules.agent_configuration.document import (
    MAX_PROBLEM,
    MAX_PROBLEMS,
    SECTIONS,
    Document,
    path_of,
    read_document,
)
from modules.agent_configuration.schema import (
    MAX_ENTRIES,
    ConfigurationFile,
    file_schema,
)
from tunnel.config import as_written, field, json_schema
from tunnel.config import read as config_read
from tunnel.errors import CallError, ConfigurationError, Status
from tunnel.plugin import GitSection
from tunnel.testing import FakeRepository

PATH = ".gitlab/agents/prod/config.yaml"

EVERYTHING = """\
scope: {namespaces: [apps]}
prometheus:
  service: {namespace: monitoring, name: prometheus}
gitops:
  manifest_projects:
    - id: group/manifests
      ref: {branch: main}
      default_namespace: apps
      paths:
        - glob: /prod/**/*.yaml
      reconcile_timeout: 300s
      dry_run_strategy: client
      prune: false
      inventory_policy: adopt_all
observability:
  logging: {level: debug, grpc_level: warn}
ci_access:
  projects:
    - id: group/app
      default_namespace: app
      access_as:
        impersonate:
          username: ci
          groups: [g]
          extra:
            - {key: k, val: [v]}
      environments: [review/*]
  groups:
    - id: group
      access_as: {ci_job: {}}
      protected_branches_only: true
user_access:
  access_as: {user: {}}
  projects: [{id: group/app}]
container_scanning:
  cadence: '0 0 * * *'
  report_max_size: 100000
  resource_requirements: {limits: {cpu: 500m}}
remote_development:
  enabled: true
  dns_zone: example.org
flux:
  webhook_receiver_url: http://flux
webhooks:
  targets:
    - name: flux
      service: flux-system/webhook-receiver:80
      path: /hook/1234
      format: github
      secret: flux-system/webhook-token/token
      repository: apps
      repository_url: https://git.example.org/group/apps
      refs: [main]
"""


def read(content: bytes | str, limit: int = 1 << 17) -> Document:
    repository = FakeRepository()
    commit = repository.commit({PATH: content})
    found: list[Any] = []
    coroutine = read_document(repository, commit, "prod", limit)
    Deferred.fromCoroutine(coroutine).addBoth(found.append)
    assert isinstance(found[0], Document), found[0]
    return found[0]


def refused(content: bytes | str, limit: int = 1 << 17) -> list[str]:
    document = read(content, limit)
    assert document.written is None
    begin = f"commit {document.commit[:12]}: "
    assert all(one.startswith(begin) for one in document.problems)
    return [one.removeprefix(begin) for one in document.problems]


def test_everything() -> None:
    """Every section arrives, as its file has it; defaults are left out."""
    document = read(EVERYTHING)
    assert document.problems == ()
    assert document.written is not None
    assert document.written["gitops"]["manifest_projects"] == [
        {
            "id": "group/manifests",
            "ref": {"branch": "main"},
            "default_namespace": "apps",
            "paths": [{"glob": "/prod/**/*.yaml"}],
            "reconcile_timeout": "300s",
            "dry_run_strategy": "client",
            "prune": False,
            "inventory_policy": "adopt_all",
        }
    ]
    access = document.written["ci_access"]
    assert access["groups"] == [
        {"id": "group", "access_as": {"ci_job": {}}, "protected_branches_only": True}
    ]
    assert document.written["user_access"]["access_as"] == {"user": {}}
    # What no module here knows is passed on, typed as JSON has it.
    scanning = json.loads(document.message.container_scanning)
    assert scanning["report_max_size"] == 100000
    assert scanning["cadence"] == "0 0 * * *"


def test_characters_of_sections() -> None:
    """agentk reads a section as YAML: each character comes as the file has it."""
    text = 'container_scanning: {note: "\\U0001F680 \\x7F \\u2028 \\x85"}\n'
    section = read(text).message.container_scanning
    assert yaml.load(section, yaml.CSafeLoader) == {
        "note": "\U0001f680 \x7f \u2028 \x85"
    }


def test_as_gitlab_reads_it() -> None:
    """Merge keys, null, booleans of YAML 1.1 and camelCase, as protojson has them."""
    document = read("""\
ciAccess:
  projects:
    - &common
      id: group/app
      default_namespace: ~
      accessAs:
        ci_job: {}
        agent:
      protectedBranchesOnly: yes
      environments: null
    - <<: *common
      id: group/other
      protectedBranchesOnly: off
    - {<<: [{id: group/third}, *common], accessAs: null}
  groups:
user_access: ~
container_scanning: {vulnerability_report: {namespaces: [yes, "yes"], other: null}}
observability: {logging: {grpcLevel: warn}}
""")
    assert document.problems == ()
    written = document.written
    assert written is not None
    assert written == {
        "ci_access": {
            "projects": [
                {
                    "id": "group/app",
                    "access_as": {"ci_job": {}},
                    "protected_branches_only": True,
                },
                {
                    "id": "group/other",
                    "access_as": {"ci_job": {}},
                },
                {
                    "id": "group/third",
                    "protected_branches_only": True,
                },
            ]
        },
        "container_scanning": {"vulnerability_report": {"namespaces": [True, "yes"]}},
        "observability": {"logging": {"grpc_level": "warn"}},
    }


def test_keys_without_effect() -> None:
    """They go to GitLab as they are, and kas says that nothing follows here."""
    document = read(
        "ci_access: {projects: [{id: a, resource_management: {enabled: true}}]}\n"
        "observability: {logging: {grpc_level: debug}, google_profiler: {}}\n"
    )
    assert document.written is not None
    (project,) = document.written["ci_access"]["projects"]
    assert project["resource_management"] == {"enabled": True}
    assert [one.split(": ", 2)[2].split("'")[1] for one in document.remarks] == [
        "enabled",
        "grpc_level",
        "google_profiler",
    ]
    assert read("ci_access: {projects: [{id: a}]}").remarks == ()
    off = "ci_access: {projects: [{id: a, resource_management: {enabled: false}}]}"
    assert read(off).remarks == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ci_access: {projects: [{id: null}]}", "the key 'id' is missing"),
        ("ci_access: {projects: [{id: yes}]}", "expected text"),
        ("ci_access: {}\nciAccess: {}", "is duplicated"),
        ("ci_access: {projects: [{id: a, access_as: {agent: }}]}", "one of agent"),
        ("ci_access: {<<: 1}", "'<<' needs a mapping"),
        ("ci_access: {<<: [1]}", "'<<' needs a mapping"),
        (
            "ci_access: {projects: [{id: a, protectedBranchesonly: true}]}",
            "unknown key",
        ),
        ("ci_access: {projects: [{id: a, protectedBranchesOnly: 'yes'}]}", "in quotes"),
    ],
)
def test_as_gitlab_refuses_it(text: str, says: str) -> None:
    assert says in " ".join(refused(text))


def test_message_is_built_once() -> None:
    document = read("remote_development: {enabled: true}\n")
    assert document.message is document.message


def test_message() -> None:
    """Each section has its field, and what is for GitLab alone has none."""
    document = read(EVERYTHING)
    message = document.message
    fields = {field.name for field, _ in message.ListFields()}
    assert fields == {*SECTIONS, "more"}
    assert set(message.more) == {"prometheus", "scope", "webhooks"}
    assert "user_access" not in message.DESCRIPTOR.fields_by_name
    numbers = {field.name: field.number for field in message.DESCRIPTOR.fields}
    assert numbers == {
        "gitops": 1,
        "observability": 2,
        "agent_id": 4,
        "project_id": 5,
        "ci_access": 6,
        "container_scanning": 7,
        "project_path": 8,
        "remote_development": 9,
        "flux": 10,
        "gitlab_external_url": 11,
        "more": 1000,
    }


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}", "gitops:\n"])
def test_nothing(text: str) -> None:
    """A file that says nothing is one with all defaults."""
    document = read(text)
    assert document.written in ({}, {"gitops": {}})
    assert document.problems == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\n", f"{PATH}:1:1: unknown key 'a'"),
        ("gitops: [\n", f"{PATH}:2:1: not YAML"),
        ("ci_access:\n\tprojects: []\n", f"{PATH}:2:1: not YAML"),
        ("gitops: {}\ngitops: {}\n", f"{PATH}:2:1: gitops: is duplicated"),
        ("x: !!python/object:os.system {}\n", f"{PATH}:1:4: tags such as"),
        ("---\n{}\n---\n{}\n", f"{PATH}:3:1: only one YAML document"),
        (b"a: \xff\n", f"{PATH}:1:4: not UTF-8"),
        ("flux: {webhook_receiver_url: 1e308}", f"{PATH}:1:30: flux.webhook"),
        (
            "ci_access:\n  projects:\n    - id: no\n      environments: [yes, 010]\n",
            f"{PATH}:3:11: ci_access.projects[0].id: expected text",
        ),
        (
            "ci_access:\n  projects:\n    - id: a\n      environments: [a, 010]\n",
            f"{PATH}:4:25: ci_access.projects[0].environments[1]: expected text",
        ),
        (
            "ci_access: {projects: [{id: a, access_as: {agent: {}, ci_job: {}}}]}",
            f"{PATH}:1:55: ci_access.projects[0].access_as.ci_job: only one of agent",
        ),
        (
            "ci_access: {projects: [{id: a, access_as: {}}]}",
            f"{PATH}:1:43: ci_access.projects[0].access_as: one of agent",
        ),
        ("ci_access: {projects: [{}]}", f"{PATH}:1:24: ci_access.projects[0]: the key"),
        (
            "gitops: {manifest_projects: [{id: a}, {id: a}]}",
            f"{PATH}:1:10: gitops.manifest_projects: two projects are called 'a'",
        ),
        (
            "gitops: {manifest_projects: [{prune_timeout: 300}]}",
            f"{PATH}:1:46: gitops.manifest_projects[0].prune_timeout: expected a time",
        ),
        (
            "gitops: {manifest_projects: [{default_namespace: Web_1}]}",
            f"{PATH}:1:50: gitops.manifest_projects[0].default_namespace: must be the",
        ),
        (
            "gitops: {manifest_projects: [{ref: {commit: 4f0c9e1}}]}",
            f"{PATH}:1:45: gitops.manifest_projects[0].ref.commit: must be a full",
        ),
        ("cilium: {}\n", f"{PATH}:1:1: 'cilium' is a key of old versions"),
        ("observability: {logging: {level: loud}}", f"{PATH}:1:34: observability."),
    ],
)
def test_what_is_wrong(text: bytes | str, told: str) -> None:
    """File, line, column and commit, and what to do about it."""
    problems = refused(text)
    assert problems[0].startswith(told), problems


def test_bombs() -> None:
    """Aliases, depth, numbers of entries and sizes all have an end."""
    laughs = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert "aliases expanded" in refused(laughs)[0]
    assert "nested deeper" in refused("[" * 1000 + "]" * 1000)[0]
    many = "\n".join(f"    - id: p{n}" for n in range(MAX_ENTRIES + 1))
    assert "at most 500" in refused(f"ci_access:\n  projects:\n{many}\n")[0]
    assert "more than 1000 bytes" in refused("#" * 1001, limit=1000)[0]
    documents = "---\n" * 10_000
    assert "only one YAML document" in refused(documents)[0]
    assert "duplicated" in refused("gitops: {}\n" * 3)[0]


@pytest.mark.parametrize(
    "section",
    [
        "remote_development:\n  a: &a {}\n  b: [{}]\n",
        "container_scanning:\n  a: &a {}\n  b: [{}]\n",
        "observability:\n  google_profiler:\n    a: &a {}\n    b: [{}]\n",
        "ci_access:\n  projects:\n  - id: &a {}\n    environments: [{}]\n",
        "user_access:\n  projects:\n  - id: &a {}\n  x: [{}]\n",
        "gitops:\n  manifest_projects:\n  - id: &a {}\n    paths: [{}]\n",
        "flux:\n  webhook_receiver_url: &a {}\n  x: [{}]\n",
        "unknown:\n  x: &a {}\n  y: [{}]\n",
    ],
)
def test_long_text_again_and_again(section: str) -> None:
    """Refuse 67 KB that would be a message of 360 MB, in each section."""
    (problem,) = refused(section.format("x" * 40_000, ",".join(["*a"] * 9000)))
    assert "characters, aliases expanded" in problem
    place = re.fullmatch(r"(.*):(\d+):(\d+): .*", problem)
    assert place is not None
    assert (place[1], int(place[2])) in [(PATH, line) for line in (3, 4, 5)]


@pytest.mark.parametrize("name", ["remote_development", "remoteDevelopment"])
def test_sections_are_limited(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JSON of all sections goes into one message; the largest is named."""
    monkeypatch.setattr(document, "MAX_SECTIONS", 200)
    text = f'flux: {{webhook_receiver_url: http://flux}}\n{name}: {{a: "%s"}}\n'
    assert read(text % ("x" * 100)).written
    (problem,) = refused(text % (r"\x01" * 40))
    assert problem.startswith(f"{PATH}:2:1: remote_development: the sections have")


def test_long_problems() -> None:
    """A key that is as long as the file does not make a problem that is."""
    (problem,) = refused(f"? {'k' * 100_000}\n: 1\n")
    assert problem.startswith(f"{PATH}:1:3: ")
    assert len(problem) < MAX_PROBLEM + 100


def test_many_problems() -> None:
    """As many as fit a screen, and how many more there are."""
    problems = refused("".join(f"key{n}: 1\n" for n in range(100)))
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1] == "and 80 more"


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "", ".", "..", "a..b", "a\n", "x" * 99]
)
def test_names_that_lead_elsewhere(name: str) -> None:
    """The name of an agent never leaves the folder of agents."""
    with pytest.raises(CallError) as caught:
        path_of(name)
    assert caught.value.status is Status.FAILED_PRECONDITION


def test_json_schema() -> None:
    """Editors are given every key that the file may have, and nothing else."""
    schema = json_schema(ConfigurationFile)
    assert schema["additionalProperties"] is False
    written = read(EVERYTHING).written
    assert written is not None
    assert set(written) == set(schema["properties"])
    json.dumps(schema)
    (project, _) = schema["properties"]["ci_access"]["anyOf"]
    entry = project["properties"]["projects"]["items"]
    assert entry["required"] == ["id"]
    assert entry["properties"]["id"]["type"] == "string"
    (gitops, _) = schema["properties"]["gitops"]["anyOf"]
    manifest = gitops["properties"]["manifest_projects"]["items"]["properties"]
    assert manifest["reconcile_timeout"]["default"] == "3600s"
    assert manifest["dry_run_strategy"]["enum"] == ["none", "client", "server"]


@attrs.frozen(kw_only=True)
class SectionOfThirdParty:
    """A section that a package of others declares."""

    size: int = field(default=1, doc="how much")


def section(name: str, schema: str = f"{__name__}.SectionOfThirdParty") -> GitSection:
    return GitSection(name, schema, "things of others")


def test_sections_of_modules() -> None:
    """kas checks them, and sends them to agentk under their names."""
    schema = file_schema([section("acme")])
    found = config_read("acme: {size: 3}\n", "config.yaml", schema)
    message = Document("c1", as_written(found)).message
    assert dict(message.more) == {"acme": '{"size": 3}'}
    with pytest.raises(ConfigurationError) as caught:
        config_read("acme: {size: x}\n", "config.yaml", schema)
    assert caught.value.problems[0].startswith("config.yaml:1:14: acme.size: ")


def test_sections_that_cannot_be() -> None:
    """All of them are reported together."""
    sections = [
        section("acme"),
        section("acme"),
        section("observability"),
        section("other", "no_such_package.Section"),
    ]
    with pytest.raises(ConfigurationError) as caught:
        file_schema(sections)
    first, second, third = caught.value.problems
    assert first == "two modules define the section acme"
    assert second == (
        "a module defines the section observability, which GitLab's file has"
    )
    assert third.startswith("section other: importing no_such_package.Section: ")
