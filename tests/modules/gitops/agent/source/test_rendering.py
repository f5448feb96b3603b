"""Kustomize and Helm: the real programs, in the child processes that agentk starts."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import pytest_twisted
import yaml
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from zope.interface import provider

from modules.gitops.agent.source import (
    child_processes,
    helm_versions,
    launcher,
    rendering,
)
from modules.gitops.agent.source.child_processes import ChildProcesses
from modules.gitops.agent.source.folder import TemporaryFolder, remove_leftovers
from modules.gitops.agent.source.loader import read_snapshot
from modules.gitops.agent.source.rendering import (
    _FIELDS,
    Capabilities,
    Renderer,
    _kustomize_problems,
    _lookups,
)
from modules.gitops.agent.source.snapshot import Snapshot
from modules.gitops.wire.settings import ManifestProject, SourceKind
from tests.integration import needs
from tunnel.errors import CallError, Status
from tunnel.toolkit.until import until

_reactor: Any = reactor
async_test = pytest_twisted.ensureDeferred

CAPABILITIES = Capabilities("v1.36.3", ("apps/v1", "apps/v1/Deployment", "v1"))

OVERLAY = {
    "base/kustomization.yaml": "resources: [web.yaml]\n",
    "base/web.yaml": yaml.safe_dump(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {"replicas": 1, "template": {"spec": {"containers": []}}},
        }
    ),
    "prod/kustomization.yaml": yaml.safe_dump(
        {
            "namespace": "prod",
            "resources": ["../base"],
            "configMapGenerator": [{"name": "settings", "files": ["app.conf"]}],
            "patches": [{"path": "more.yaml"}],
        }
    ),
    "prod/app.conf": "a = 1\n",
    "prod/more.yaml": yaml.safe_dump(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {"replicas": 3},
        }
    ),
}

CHART = {
    "web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n",
    "web/values.yaml": "size: 1\n",
    "web/crds/things.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: crd}\n",
    "web/charts/lib/Chart.yaml": (
        "apiVersion: v2\nname: lib\nversion: 1.0.0\ntype: library\n"
    ),
    "web/charts/lib/templates/_names.tpl": (
        '{{- define "lib.name" }}{{ .Release.Name }}-of-lib{{ end }}\n'
    ),
    "web/charts/sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 1.0.0\n",
    "web/charts/sub/templates/one.yaml": (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: sub}\n"
    ),
    "web/templates/one.yaml": (
        "apiVersion: v1\nkind: ConfigMap\n"
        'metadata: {name: {{ include "lib.name" . }}, '
        "namespace: {{ .Release.Namespace }}}\n"
        'data: {size: "{{ .Values.size }}", kube: "{{ .Capabilities.KubeVersion }}", '
        'has: "{{ .Capabilities.APIVersions.Has "apps/v1/Deployment" }}"}\n'
    ),
    "prod.yaml": "size: 7\n",
}


def renderer() -> Renderer:
    return Renderer(ChildProcesses(_reactor), str(needs.kustomize()), str(needs.helm()))


def encoded(files: Mapping[str, str]) -> dict[str, bytes]:
    """As kas sends them."""
    return {path: text.encode() for path, text in files.items()}


async def rendered(files: Mapping[str, str], **kind: Any) -> str:
    """What comes of *files*."""
    whole = list(encoded(files).items())
    _, text = await renderer().render(SourceKind(**kind), "here", whole, CAPABILITIES)
    return text.decode()


async def refused(files: Mapping[str, str], **kind: Any) -> str:
    """Why nothing comes of *files*."""
    with pytest.raises(CallError) as caught:
        await rendered(files, **kind)
    assert caught.value.status is Status.FAILED_PRECONDITION
    assert "/tmp" not in caught.value.message
    return caught.value.message


def by_hand(folder: Path, files: Mapping[str, str], *command: str | Path) -> str:
    """What the program makes of them without us."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    done = subprocess.run(command, cwd=folder, capture_output=True, check=True)
    return done.stdout.decode()


@async_test
async def test_an_overlay(tmp_path: Path) -> None:
    """As kustomize itself has it, to the byte."""
    expected = by_hand(tmp_path, OVERLAY, needs.kustomize(), "build", "prod")
    found = await rendered(OVERLAY, kind="kustomize", path="prod")
    assert found == expected
    assert "replicas: 3" in found
    assert "namespace: prod" in found


@async_test
async def test_a_chart(tmp_path: Path) -> None:
    """As helm itself has it, with a subchart, a library, and what the cluster has."""
    expected = by_hand(
        tmp_path,
        CHART,
        needs.helm(),
        *("template", "mine", "web", "--namespace", "here", "--include-crds"),
        *("--kube-version", "v1.36.3", "--api-versions", "apps/v1/Deployment"),
        *("--values", "prod.yaml"),
    )
    found = await rendered(
        CHART, kind="helm", path="web", release_name="mine", values_files=("prod.yaml",)
    )
    assert found == expected
    assert "mine-of-lib" in found
    assert 'size: "7"' in found
    assert 'has: "true"' in found
    inline = await rendered(
        CHART,
        kind="helm",
        path="web",
        values_files=("prod.yaml",),
        values="size: 9\n",
    )
    assert 'size: "9"' in inline
    assert "web-of-lib" in inline


@async_test
async def test_objects_of_a_chart() -> None:
    """From the files of a commit to objects, and hooks are refused or left out."""
    hook = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: h, "
        "annotations: {helm.sh/hook: pre-install}}\n"
    )
    test = hook.replace("pre-install", "test").replace("name: h", "name: t")
    files = {**CHART, "web/templates/h.yaml": hook, "web/templates/t.yaml": test}

    async def read(**kind: Any) -> Any:
        settings = ManifestProject(source=SourceKind(kind="helm", path="web", **kind))
        content = tuple((path, text.encode()) for path, text in files.items())
        snapshot = Snapshot("c" * 40, 0, "apps", content)
        return await read_snapshot(snapshot, settings, renderer(), cluster)

    cluster: Any = Cluster()
    (problem,) = (await read()).problems
    assert "ConfigMap h is a hook (pre-install)" in str(problem)
    source = await read(hooks="skip")
    assert source.problems == ()
    assert [one.key.name for one in source.manifests] == ["crd", "sub", "web-of-lib"]


@async_test
async def test_all_that_is_wrong_with_a_chart() -> None:
    """Lookups, hooks and random values come in one answer."""
    files = {
        **CHART,
        "web/templates/h.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: h, "
        "annotations: {helm.sh/hook: pre-install}}\n",
        "web/templates/l.yaml": 'a: {{ lookup "v1" "Secret" "a" "b" | len }}\n'
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: l}\n",
        "web/templates/m.yaml": '{{ with lookup "v1" "Secret" "" "" }}{{ end }}\n',
        "web/templates/r.yaml": "apiVersion: v1\nkind: ConfigMap\n"
        "metadata: {name: r}\ndata: {r: {{ randAlphaNum 9 | quote }}}\n",
    }

    async def problems() -> list[str]:
        settings = ManifestProject(source=SourceKind(kind="helm", path="web"))
        snapshot = Snapshot("c" * 40, 0, "apps", tuple(encoded(files).items()))
        cluster: Any = Cluster()
        source = await read_snapshot(snapshot, settings, renderer(), cluster)
        assert source.manifests == ()
        return [one.message for one in source.problems]

    first, second, random, hook = await problems()
    assert first.startswith("web/templates/l.yaml:1: ")
    assert second.startswith("web/templates/m.yaml:1: ")
    assert "renders web/templates/r.yaml differently each time" in random
    assert "ConfigMap h is a hook" in hook
    # Where helm fails, perhaps for want of what is looked up, that is told as well.
    files["web/templates/l.yaml"] = '{{ (lookup "v1" "Secret" "a" "b").data.x.y }}\n'
    first, second, failed = await problems()
    assert "lookup" in first and "lookup" in second
    assert failed.startswith("helm template web: ")
    # Nothing is rendered that cannot be.
    del files["web/Chart.yaml"]
    nothing, *looks = await problems()
    assert "Chart.yaml is missing in web" in nothing
    assert len(looks) == 2


class Cluster:
    """What a chart asks of."""

    async def json(self, method: str, path: str) -> Any:
        assert (method, path) == ("GET", "/version")
        return {"gitVersion": "v1.36.3"}

    async def resources(self) -> Any:
        return ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"resources": ["https://example.org/base"]}, "fetched from elsewhere"),
        ({"resources": ["github.com/org/repo//base?ref=v1"]}, "fetched from elsewhere"),
        ({"resources": ["../../etc"]}, "is outside of the repository"),
        ({"resources": ["/etc"]}, "is outside of the repository"),
        ({"components": ["../../x"]}, "is outside of the repository"),
        (
            {"configMapGenerator": [{"name": "a", "files": ["x=/etc/passwd"]}]},
            "is outside of",
        ),
        ({"configMapGenerator": [{"name": "a", "envs": ["../../x"]}]}, "is outside"),
        ({"configMapGenerator": [{"name": "a", "envs": ["../../x=y"]}]}, "is outside"),
        (
            {"configMapGenerator": [{"name": "a", "env": "http://127.0.0.1/x?a=b"}]},
            "fetched from elsewhere",
        ),
        ({"patches": [{"path": "/etc/passwd"}]}, "is outside of the repository"),
        ({"openapi": {"path": "../../x"}}, "is outside of the repository"),
        ({"helmCharts": [{"name": "a"}]}, "helmCharts is not supported"),
        ({"resources": ["missing.yaml"]}, "missing.yaml"),
        ({"transformers": ["plugin.yaml"]}, "plugin"),
    ],
)
@async_test
async def test_what_a_kustomization_may_not(change: dict[str, Any], says: str) -> None:
    """Each refused, before anything runs or by kustomize itself."""
    plugin = yaml.safe_dump(
        {
            "apiVersion": "example.org/v1",
            "kind": "Plugin",
            "metadata": {
                "name": "p",
                "annotations": {
                    "config.kubernetes.io/function": "exec: {path: ./run.sh}"
                },
            },
        }
    )
    files = {
        "prod/kustomization.yaml": yaml.safe_dump(change),
        "prod/plugin.yaml": plugin,
        "prod/run.sh": "#!/bin/sh\ntouch /tmp/run-by-kustomize\n",
    }
    assert says in await refused(files, kind="kustomize", path="prod")
    assert not Path("/tmp/run-by-kustomize").exists()


@async_test
async def test_a_base_that_leads_out() -> None:
    """Also where it is reached over another one."""
    files = {
        "prod/kustomization.yaml": "resources: [../base]\n",
        "base/kustomization.yaml": "resources: ['https://example.org/x']\n",
    }
    said = await refused(files, kind="kustomize", path="prod")
    assert said.startswith("base/kustomization.yaml: ")


@async_test
async def test_what_a_chart_may_not() -> None:
    """Looking into the cluster, what is not vendored, and what is not there."""
    looks = {
        **CHART,
        "web/templates/z.yaml": 'a: 1\nb: {{ lookup "v1" "Secret" "a" "b" }}\n',
    }
    said = await refused(looks, kind="helm", path="web")
    assert said.startswith("web/templates/z.yaml:2: ")
    assert "lookup" in said
    packed = {**CHART, "web/charts/far.tgz": ""}
    said = await refused(packed, kind="helm", path="web")
    assert said.startswith("web/charts/far.tgz: ")
    assert "unpack it" in said
    needs_more = {
        **CHART,
        "web/Chart.yaml": CHART["web/Chart.yaml"]
        + "dependencies: [{name: far, version: 1.0.0, repository: 'https://x.example'}]\n",
    }
    assert "far" in await refused(needs_more, kind="helm", path="web")
    assert "Chart.yaml" in await refused(CHART, kind="helm", path="none")
    said = await refused(CHART, kind="helm", path="web", values_files=("none.yaml",))
    assert "none.yaml" in said


@async_test
async def test_a_chart_that_is_another_one_each_time() -> None:
    """It is refused, and named: a password that changes with each look helps nobody."""
    files = {
        **CHART,
        "web/templates/p.yaml": (
            "apiVersion: v1\nkind: Secret\nmetadata: {name: p}\n"
            "stringData: {p: {{ randAlphaNum 20 }}}\n"
        ),
    }
    said = await refused(files, kind="helm", path="web")
    assert "renders web/templates/p.yaml differently each time" in said


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ('a: 1\nb: {{ lookup "v1" "Secret" "a" "b" }}', 2),
        ('{{- $x := (lookup\n"v1" ) }}', 1),
        ('{{ "}}" | quote }}{{ printf "{{" | lookup }}', 1),
        ("{{ $q := '\"' }}{{ lookup }}", 1),
        ('{{ `}} " ` | lookup }}', 1),
        ('{{/* lookup */}}{{ .Values.lookup }} lookup {{ "lookup" }}', 0),
        ("lookup {{ $lookups }} {{/* lookup", 0),
        ('a: 1\nb: {{ tpl `{{ lookup "v1" "Secret" "a" "b" }}` . }}', 2),
        ('{{ $t := "{{ lookup \\"v1\\" }}" }}{{ tpl $t . }}', 1),
        ('{{ $t := "{{ lookup }}" }}{{ .Values.tpl }}', 0),
        ("{{ tpl `{{ .Values.lookup }}` . }}", 0),
        ("{{ tpl `lookup` . }}", 0),
    ],
)
@async_test
async def test_lookup_in_templates(template: str, line: int) -> None:
    """A call is told from text, comments and values of that name."""
    files = {**CHART, "web/templates/z.yaml": template}
    found = list(_lookups(SourceKind(kind="helm", path="web"), encoded(files)))
    assert [one.split(" ")[0] for one in found] == [
        f"web/templates/z.yaml:{line}:" for _ in range(min(line, 1))
    ]


@pytest.mark.parametrize(
    "part", ["{{ ", '{{ "', "{{ `", '{{ \\"', "{{ '", "{{/*", "{{ lookups ", "}}{{"]
)
@async_test
async def test_a_template_that_is_made_to_be_slow(part: str) -> None:
    """A megabyte takes far less than a second, and two twice that."""
    text = part * (2**20 // len(part))
    begun = time.process_time()
    files = encoded({"web/Chart.yaml": "", "web/templates/z.yaml": text})
    list(_lookups(SourceKind(kind="helm", path="web"), files))
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x: " + "[" * 100_000, "more than 100 nested levels"),
        ("a: &a [1, 2, 3]\nb: &b [" + "*a," * 9000 + "]\nc: [*b, *b, *b, *b]", "many"),
        ("resources: []\n---\nresources: []\n", "it is not a mapping"),
        ("#" * (256 * 1024 + 1), "more than 262144 bytes"),
    ],
)
@async_test
async def test_a_kustomization_that_is_made_to_be_slow(text: str, says: str) -> None:
    """It is refused before it costs anything."""
    begun = time.process_time()
    said = await refused({"a/kustomization.yaml": text}, kind="kustomize", path="a")
    assert says in said
    assert time.process_time() - begun < 5


class CountedFiles(dict[str, bytes]):
    """Files, and how many of them were looked at."""

    looked = 0

    def __iter__(self) -> Iterator[str]:
        for one in super().__iter__():
            self.looked += 1
            yield one


def test_a_kustomization_with_many_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its fields nor the files are looked through once for each."""
    lists = 0

    def listed(found: Any) -> list[Any]:
        nonlocal lists
        lists += 1
        return listed_before(found)

    listed_before = rendering._list
    monkeypatch.setattr(rendering, "_list", listed)
    many = "resources:\n" + "- d\n" * 20_000
    below = {f"e/{number}": b"" for number in range(500)}
    files = CountedFiles(
        {"kustomization.yaml": many.encode(), "d/kustomization.yaml": b"{}", **below}
    )
    kind = SourceKind(kind="kustomize", path="")
    assert list(_kustomize_problems(kind, files)) == []
    assert lists < 100
    assert files.looked < 10 * len(files)


@async_test
async def test_templates_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chart is refused, and the file is named."""
    monkeypatch.setattr(helm_versions, "MAX_TOKENS_OF_ACTION", 20)
    template = "{{ .Capabilities.APIVersions.Has " + "(" * 20
    files = {**CHART, "web/templates/asks.yaml": template}
    said = await refused(files, kind="helm", path="web")
    assert said == "web/templates/asks.yaml: an action has more than 20 tokens"


def test_files_with_values_that_helm_would_split() -> None:
    """``a,/etc/passwd`` is two files to helm, one of them not of the repository."""
    for path in ("a,/etc/passwd", '"a"'):
        with pytest.raises(ValueError, match="which helm splits"):
            SourceKind(kind="helm", path="web", values_files=(path,))


@async_test
async def test_secrets_in_what_a_program_says() -> None:
    """What kustomize quotes of a patch when it fails is not told."""
    patch = "apiVersion: v1\nkind: Secret\nstringData: {password: hunter2\n"
    content = yaml.safe_dump({"resources": ["s.yaml"], "patches": [{"patch": patch}]})
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"
    files = {"prod/kustomization.yaml": content, "prod/s.yaml": secret}
    said = await refused(files, kind="kustomize", path="prod")
    assert "its error output is left out" in said
    assert "hunter2" not in said
    literals = {"secretGenerator": [{"name": "s", "literals": ["a=hunter2", "broken"]}]}
    files = {"prod/kustomization.yaml": yaml.safe_dump(literals)}
    said = await refused(files, kind="kustomize", path="prod")
    assert "hunter2" not in said
    fails = {**CHART, "web/templates/f.yaml": "{{ fail .Values.size }}\n"}
    said = await refused(fails, kind="helm", path="web", values="size: hunter2\n")
    assert "hunter2" not in said
    assert "web/templates/f.yaml:1" in said


def test_folders() -> None:
    """However they are written."""
    for path in ("", ".", "./", "/."[1:]):
        assert SourceKind(kind="helm", path=path).path == ""
    for path in ("a/b", "./a/b", "a//b/", "a/./b"):
        assert SourceKind(kind="helm", path=path).path == "a/b"


@async_test
async def test_no_place_to_render_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again, and not taken for a fault of the commit."""

    def full(**_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    with pytest.raises(CallError, match="No space left") as caught:
        await rendered(OVERLAY, kind="kustomize", path="prod")
    assert caught.value.status is Status.UNAVAILABLE


def without_namespaces(children_: ChildProcesses) -> Any:
    """As on a kernel that gives no network namespace."""
    started: Any = children_._started

    def start(command: Any, folder: Path, *, network: bool) -> Any:
        if network:
            return started(command, folder, network=True)
        return succeed(child_processes._Ended(launcher.NO_NAMESPACE, b"", b"", ""))

    return start


@async_test
async def test_a_network_namespace_that_is_not_given_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the kernel gave one before nothing runs with agentk's network."""
    made = renderer()
    kind = SourceKind(kind="kustomize", path="prod")
    whole = list(encoded(OVERLAY).items())
    started = made.children._started
    monkeypatch.setattr(made.children, "_started", without_namespaces(made.children))
    assert await made.render(kind, "here", whole, None)
    monkeypatch.setattr(made.children, "_started", started)
    await made.render(kind, "here", whole, None)
    if not made.children._has_namespaces:
        needs.missing("a network namespace", "run as root, or allow user namespaces")
    monkeypatch.setattr(made.children, "_started", without_namespaces(made.children))
    with pytest.raises(CallError, match="no network namespace now") as caught:
        await made.render(kind, "here", whole, None)
    assert caught.value.status is Status.UNAVAILABLE
    monkeypatch.setattr(made.children, "_started", started)
    assert await made.render(kind, "here", whole, None)


def test_what_a_killed_agentk_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes at the next start; what another process renders in stays."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "import os, signal, sys\n"
        "from modules.gitops.agent.source.folder import TemporaryFolder\n"
        "folder = TemporaryFolder()\n"
        "folder.write([('a/b', b'x')])\n"
        "print(folder.path, flush=True)\n"
        "sys.stdin.read()\n"
    )
    ran = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        text=True,
    )
    assert ran.stdout is not None
    folder = Path(ran.stdout.readline().strip())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "agentk-gitops-link").symlink_to(elsewhere)
    remove_leftovers()
    assert (folder / "files" / "a" / "b").exists()
    ran.kill()
    ran.communicate()
    remove_leftovers()
    assert not folder.exists()
    assert elsewhere.exists()


def test_a_folder_that_another_agentk_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new folder has no lock for a moment, and may be taken for a leftover."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = tempfile.mkdtemp
    removed: list[str] = []

    def mkdtemp(prefix: str) -> str:
        path = made(prefix=prefix)
        if len(removed) < 2:
            remove_leftovers()
            removed.append(path)
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    folder = TemporaryFolder()
    folder.write([("a", b"x")])
    assert str(folder.path) not in removed
    folder.remove()
    assert list(tmp_path.iterdir()) == []


@async_test
async def test_an_object_of_kustomize_that_names_a_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is fetched, also where the kernel gives no network namespace."""
    generator = {
        "apiVersion": "builtin",
        "kind": "ConfigMapGenerator",
        "metadata": {"name": "g"},
        "files": ["x=http://198.51.100.1/thing"],
    }
    files = {
        "prod/kustomization.yaml": "generators: [g.yaml]\n",
        "prod/g.yaml": yaml.safe_dump(generator),
    }
    made = renderer()
    monkeypatch.setattr(made.children, "_started", without_namespaces(made.children))
    whole = list(encoded(files).items())
    with pytest.raises(CallError, match=r"127\.0\.0\.1:9"):
        await made.render(
            SourceKind(kind="kustomize", path="prod"), "here", whole, None
        )


@async_test
async def test_a_url_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which no proxy is asked for: nobody is connected to."""
    if not Path("/proc/sys/kernel/seccomp").is_dir():
        needs.missing("seccomp", "a kernel with it")
    connections: list[Any] = []

    class Loopback(Protocol):
        def connectionMade(self) -> None:
            connections.append(self)

    port = _reactor.listenTCP(0, Factory.forProtocol(Loopback), interface="127.0.0.1")
    url = f"http://127.0.0.1:{port.getHost().port}/x"
    files = {
        "prod/kustomization.yaml": "generators: [g.yaml]\n",
        "prod/g.yaml": "apiVersion: builtin\nkind: ConfigMapGenerator\n"
        f"metadata: {{name: g}}\nfiles: ['x={url}']\n",
    }
    made = renderer()
    monkeypatch.setattr(made.children, "_started", without_namespaces(made.children))
    monkeypatch.setattr(child_processes, "SECONDS", 20.0)
    kind = SourceKind(kind="kustomize", path="prod")
    try:
        with pytest.raises(CallError, match="permission denied"):
            await made.render(kind, "here", list(encoded(files).items()), None)
    finally:
        await port.stopListening()
    assert connections == []


@async_test
async def test_bombs() -> None:
    """A template that is endless, one that needs all memory: each ends by itself."""
    loop = '{{ define "x" }}{{ include "x" . }}{{ end }}{{ include "x" . }}\n'
    large = (
        "{{ range until 100000 }}{{ range until 100000 }}aaaaaaaaaa{{ end }}{{ end }}\n"
    )
    for bomb in loop, large:
        files = {**CHART, "web/templates/x.yaml": bomb}
        said = await refused(files, kind="helm", path="web")
        # The limit of its memory, and not of its time.
        assert said and "it took longer" not in said


@pytest.mark.parametrize(("used", "is_starved"), [(0.1, True), (0.4, False)])
@async_test
async def test_too_late(
    used: float, is_starved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the machine had no time for it, it is tried again."""
    assert child_processes._cpu_seconds(os.getpid()) > 0
    monkeypatch.setattr(child_processes, "SECONDS", 0.5)
    monkeypatch.setattr(child_processes, "_cpu_seconds", lambda pid: used)
    script = tmp_path / "slow"
    script.write_text("#!/bin/sh\n/bin/sleep 600\n")
    script.chmod(0o755)
    made = Renderer(ChildProcesses(_reactor), str(script), "")
    kind = SourceKind(kind="kustomize", path="prod")
    with pytest.raises(CallError, match="kustomize build prod: it took") as caught:
        await made.render(kind, "here", list(encoded(OVERLAY).items()), None)
    wanted = Status.UNAVAILABLE if is_starved else Status.FAILED_PRECONDITION
    assert caught.value.status is wanted


@async_test
async def test_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """What prints too much is ended."""
    monkeypatch.setattr(child_processes, "OUTPUT", 100)
    said = await refused(OVERLAY, kind="kustomize", path="prod")
    assert "prints more than 100 bytes" in said


@async_test
async def test_cancelled(tmp_path: Path) -> None:
    """With the next commit it ends at once, and what it started as well."""
    script = tmp_path / "slow"
    script.write_text("#!/bin/sh\n/bin/sleep 600 & echo $! > pid\nwait\n")
    script.chmod(0o755)
    running = Deferred.fromCoroutine(
        ChildProcesses(_reactor).run(str(script), (), tmp_path)
    )
    failed: list[Any] = []
    running.addErrback(failed.append)
    pid = tmp_path / "pid"
    await until(lambda: pid.exists() and bool(pid.read_text().strip()), _reactor, 10)
    number = int(pid.read_text())
    running.cancel()
    await until(lambda: not _is_alive(number), _reactor, 10)
    assert not _is_alive(number)
    assert failed[0].check(CancelledError)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@async_test
async def test_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of a commit go with its rendering, whenever that is cancelled."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    prepared = renderer()
    many = [(f"prod/{number}", b"x" * 1000) for number in range(2000)]
    whole = [("prod/kustomization.yaml", b"resources: []\n"), *many]
    kind = SourceKind(kind="kustomize", path="prod")
    running = Deferred.fromCoroutine(prepared.render(kind, "here", whole, None))
    failed: list[Any] = []
    running.addErrback(failed.append)
    await until(lambda: any(tmp_path.glob("*/files/prod/*")), _reactor, 10)
    running.cancel()
    await until(lambda: not any(tmp_path.iterdir()), _reactor, 10)
    assert not any(tmp_path.iterdir())
    assert failed[0].check(CancelledError)


@async_test
async def test_surroundings(tmp_path: Path) -> None:
    """
    No network, no descriptors and no environment of agentk's, and limits.

    As on a kernel without Landlock, because the script looks into /proc.
    """
    os.environ["SECRET_OF_AGENTK"] = "s3cret"
    script = tmp_path / "look"
    script.write_text(
        "#!/bin/sh\n/usr/bin/env\n/bin/cat /proc/net/dev\n/bin/ls -l /proc/self/fd\n"
        "ulimit -a\n"
    )
    script.chmod(0o755)
    children = ChildProcesses(_reactor)
    children._landlock = 0
    try:
        ended = await children.run(str(script), (), tmp_path)
    finally:
        del os.environ["SECRET_OF_AGENTK"]
    said = ended.output.decode()
    assert ended.problem == ""
    assert "s3cret" not in said
    assert "PATH=\n" in said
    devices = [one.split(":")[0].strip() for one in said.splitlines() if ":" in one]
    assert "eth0" not in devices
    assert "socket:" not in said
    assert "core file size              (blocks, -c) 0" in said or "coredump" in said


def with_landlock() -> ChildProcesses:
    """Renderers on a kernel that confines them."""
    if not launcher.landlock_version():
        needs.missing("Landlock", "a kernel with it (5.13 or newer)")
    return ChildProcesses(_reactor)


@async_test
async def test_files_of_others(tmp_path: Path) -> None:
    """A program opens what is in its folder, and nothing else of the machine."""
    folder, beside = tmp_path / "own", tmp_path / "beside"
    folder.mkdir()
    beside.write_text("s3cret")
    with beside.open() as held:
        script = folder / "look"
        script.write_text(
            "#!/bin/sh\n"
            f"/bin/cat {beside} /etc/passwd /proc/{os.getpid()}/environ\n"
            f"/bin/cat /proc/{os.getpid()}/fd/{held.fileno()} /proc/self/environ\n"
            f"/bin/ls / /proc /etc {tmp_path}\n"
            f"echo x > {tmp_path}/new; echo y > own; /bin/cat own < /dev/null\n"
        )
        script.chmod(0o755)
        ended = await with_landlock().run(str(script), (), folder)
    assert ended == child_processes.Rendered(b"y\n")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["beside", "own"]


@async_test
async def test_a_kernel_without_landlock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log says so, once; the programs run."""
    said: list[str] = []
    monkeypatch.setattr(child_processes, "landlock_version", lambda: 0)
    made = renderer()

    @provider(ILogObserver)
    def observer(event: LogEvent) -> None:
        said.append(formatEvent(event))

    globalLogPublisher.addObserver(observer)
    try:
        for _ in range(2):
            kind = SourceKind(kind="kustomize", path="prod")
            whole = list(encoded(OVERLAY).items())
            assert await made.render(kind, "here", whole, None)
    finally:
        globalLogPublisher.removeObserver(observer)
    assert sum("has no Landlock" in one for one in said) == 1


def test_landlock_that_fails() -> None:
    """Nothing runs unconfined on a kernel that can confine, and it is tried again."""
    with pytest.raises(CallError, match="Landlock") as caught:
        child_processes._Ended(launcher.NOT_CONFINED, b"", b"", "").result()
    assert caught.value.status is Status.UNAVAILABLE


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            {"Resources": ["../../x"]},
            "'Resources' is not a field of a kustomization; write",
        ),
        (
            {"re\u017fources": ["/x"]},
            "is not a field of a kustomization; write resources",
        ),
        ({"BASES": ["/x"]}, "; write bases"),
        ({"whatever": 1}, "'whatever' is not a field of a kustomization"),
        ({"patches": [{"Path": "/x"}]}, "patches: 'Path' is not a field of a "),
        ({"patchesJson6902": [{"Path": "/x"}]}, "patchesJson6902: 'Path'"),
        ({"replacements": [{"PATH": "/x"}]}, "replacements: 'PATH'"),
        ({"configMapGenerator": [{"Files": ["/x"]}]}, "configMapGenerator: 'Files'"),
        ({"secretGenerator": [{"ENVS": ["/x"]}]}, "secretGenerator: 'ENVS'"),
    ],
)
def test_fields_in_other_letters(content: dict[str, Any], says: str) -> None:
    """Kustomize takes them as the field that they are alike."""
    files = encoded({"kustomization.yaml": yaml.safe_dump(content)})
    (said, *_) = _kustomize_problems(SourceKind(kind="kustomize"), files)
    assert says in said


def test_fields_of_kustomize_itself() -> None:
    """None that it has is unknown here."""
    folders = Path(os.environ.get("GOMODCACHE", Path.home() / "go/pkg/mod"))
    found = sorted(folders.glob("sigs.k8s.io/kustomize/api@*/types/kustomization.go"))
    if not found:
        needs.missing("the source of kustomize", "make kube")
    fields = re.findall(r'json:"(\w+)', found[-1].read_text())
    assert set(fields) <= _FIELDS
    assert len(fields) > 25


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/nonexistent", "/proc/1", "/etc", "/proc/self/fd/0"]
)
@async_test
async def test_what_the_machine_has(path: str) -> None:
    """No message tells which paths there are, whichever way a source names them."""
    generator = "apiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: g}\n"
    transformer = (
        "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: t}\n"
        f"path: {path}\ntarget: {{kind: ConfigMap}}\n"
    )
    said = {
        await refused(
            {
                "prod/kustomization.yaml": "generators: [g.yaml]\n",
                "prod/g.yaml": f"{generator}files: ['x={one}']\n",
            },
            kind="kustomize",
            path="prod",
        )
        for one in (path, f"../../../..{path}")
    }
    said.add(
        await refused(
            {
                "prod/kustomization.yaml": "resources: [a.yaml]\n"
                "transformers: [t.yaml]\n",
                "prod/a.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}",
                "prod/t.yaml": transformer,
            },
            kind="kustomize",
            path="prod",
        )
    )
    (words,) = said
    assert "a path outside of the repository" in words


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ('.Capabilities.APIVersions.Has "policy/v1beta1"', "false"),
        ("$.Capabilities.APIVersions.Has `policy/v1beta1`", "false"),
        ('.Capabilities.APIVersions.Has (printf "%s/%s" "policy" "v1beta1")', "false"),
        ("(.Capabilities.APIVersions).Has (first .Values.all)", "false"),
        ("(.Capabilities.APIVersions).Has (index .Values.all 0)", "false"),
        (".Capabilities.APIVersions.Has (dict `a` `policy/v1beta1`).a", "false"),
        ('"policy/v1beta1" | .Capabilities.APIVersions.Has', "false"),
        ('has "policy/v1beta1" .Capabilities.APIVersions', "false"),
        ('$a := .Capabilities.APIVersions }}{{ $a.Has "policy/v1beta1"', "false"),
        ('with .Capabilities.APIVersions}}{{.Has "policy/v1beta1"}}{{ end', "false"),
        ('.Capabilities.APIVersions.Has "apps/v1" -}}{{ ""', "true"),
        ('has "apps/v1" .Capabilities.APIVersions', "true"),
        ('.Capabilities.APIVersions.Has "policy/v1beta1" | not', "true"),
        ('not (.Capabilities.APIVersions.Has "policy/v1beta1")', "true"),
        ('.Values.Has | default ".Has \\"x\\"" | quote | len | eq 12', "true"),
    ],
)
@async_test
async def test_versions_that_the_cluster_lacks(asked: str, found: str) -> None:
    """Charts see none of them, however they ask, and those within a chart neither."""
    template = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: asks}\n"
        f"data: {{there: '{{{{ {asked} }}}}'}}\n"
    )
    for folder in ("web", "web/charts/sub"):
        files = {
            **CHART,
            "web/values.yaml": "size: 1\nglobal: {}\nall: [policy/v1beta1]\n"
            "sub: {all: [policy/v1beta1]}\n",
            f"{folder}/templates/asks.yaml": template,
            f"{folder}/templates/_txkas_versions.tpl": "",
        }
        assert f"there: '{found}'" in await rendered(files, kind="helm", path="web")


@async_test
async def test_a_base_that_is_no_file_of_the_project() -> None:
    """The message says where to look."""
    files = {"prod/kustomization.yaml": "resources: [../.base]\n"}
    said = await refused(files, kind="kustomize", path="prod")
    assert "'../.base' is not among the files of the project" in said
    assert "paths" in said


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "file:///etc/passwd"},
        {"properties": {"a": {"allOf": [{"$ref": "other.json"}]}}},
        {"$ref": "https://example.org/x.json"},
        {"$id": "FILE:///etc/", "$ref": "#/x"},
        {"$schema": "file:///etc/passwd"},
        {"$dynamicRef": "file:///x"},
    ],
)
@async_test
async def test_schemas_that_lead_elsewhere(schema: dict[str, Any]) -> None:
    """In the chart and in a chart within it."""
    for folder in ("web", "web/charts/sub"):
        files = {**CHART, f"{folder}/values.schema.json": json.dumps(schema)}
        said = await refused(files, kind="helm", path="web")
        assert said.startswith(f"{folder}/values.schema.json: $")


@pytest.mark.parametrize(
    "around",
    [(b'{"title": "\xff", ', b"}"), (b'{"a": ' * 100_000 + b"{", b"}" * 100_001)],
)
def test_schemas_that_only_helm_reads(around: tuple[bytes, bytes]) -> None:
    """Python does not read them, so nobody has looked where they lead."""
    begin, end = around
    files = {
        **{path: one.encode() for path, one in CHART.items()},
        "web/values.schema.json": begin + b'"$ref": "file:///etc/passwd"' + end,
    }
    (said,) = rendering._helm_problems(SourceKind(kind="helm", path="web"), files)
    assert "agentk cannot read this schema" in said


@async_test
async def test_a_schema() -> None:
    """One that stays within itself is used."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$defs": {"size": {"type": "integer", "minimum": 5}},
        "properties": {"size": {"$ref": "#/$defs/size"}},
    }
    files = {**CHART, "web/values.schema.json": json.dumps(schema)}
    assert "/size" in await refused(files, kind="helm", path="web")
    files["web/values.yaml"] = "size: 5\n"
    assert 'size: "5"' in await rendered(files, kind="helm", path="web")


@async_test
async def test_a_program_that_is_missing() -> None:
    missing = attrs.evolve(renderer(), kustomize="no-such-kustomize")
    files = [(path, text.encode()) for path, text in OVERLAY.items()]
    with pytest.raises(CallError, match="cannot find the program 'no-such-kustomize'"):
        await missing.render(
            SourceKind(kind="kustomize", path="prod"), "here", files, None
        )


def packed_chart(files: Mapping[str, str]) -> bytes:
    """A chart as ``helm package`` writes it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


@async_test
async def test_a_packed_schema_without_landlock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helm opens no schema in a packed subchart when the kernel cannot confine it."""
    outside = tmp_path / "outside.json"
    outside.write_text('{"required": ["s3cret"]}')
    schema = json.dumps({"$ref": outside.as_uri()})
    packed = packed_chart(
        {
            "far/Chart.yaml": "apiVersion: v2\nname: far\nversion: 1.0.0\n",
            "far/values.schema.json": schema,
        }
    )
    files = [*encoded(CHART).items(), ("web/charts/far-1.0.0.tgz", packed)]
    kind = SourceKind(kind="helm", path="web", lookup="empty")
    with pytest.raises(CallError):
        await renderer().render(kind, "here", files, CAPABILITIES)
    monkeypatch.setattr(child_processes, "landlock_version", lambda: 0)
    what, text = await renderer().render(kind, "here", files, CAPABILITIES)
    assert what == "helm template web"
    assert text
