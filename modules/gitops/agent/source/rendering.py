"""
Rendering of the files of a commit to manifests with kustomize or Helm.

agentk checks a source before it runs a program, and writes the files to a separate
folder: only regular files, and none outside of it.  In addition, the child process has
no network, no other files, and none of agentk's environment.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.threads import deferToThread

from modules.gitops.agent.objects.documents import Budget, UnreadableText, read_yaml
from modules.gitops.agent.source import helm_versions
from modules.gitops.agent.source.child_processes import ChildProcesses, Rendered
from modules.gitops.agent.source.folder import TemporaryFolder
from modules.gitops.agent.source.threads import COMMIT_THREADS, TextThreads
from modules.gitops.wire.settings import SourceKind
from tunnel.api import IKubernetesClient
from tunnel.errors import CallError, Status
from tunnel.toolkit.quoted import quoted_end
from tunnel.toolkit.texts import clean

__all__ = ["Capabilities", "Renderer", "RenderingRefused", "capabilities_of"]

#: Names of the file that defines a kustomization.
_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")

#: Fields of a kustomization that name files or folders.
_PATHS = (
    *("bases", "components", "configurations", "crds", "generators", "resources"),
    *("patchesStrategicMerge", "transformers", "validators"),
)

#: All fields of a kustomization. Source: kustomize 5.8, api/types/kustomization.go.
_FIELDS = frozenset(
    (
        *("apiVersion", "bases", "buildMetadata", "commonAnnotations", "commonLabels"),
        *("components", "configMapGenerator", "configurations", "crds"),
        *("generatorOptions", "generators", "helmChartInflationGenerator"),
        *("helmCharts", "helmGlobals", "imageTags", "images", "kind", "labels"),
        *("metadata", "namePrefix", "nameSuffix", "namespace", "openapi", "patches"),
        *("patchesJson6902", "patchesStrategicMerge", "replacements", "replicas"),
        *("resources", "secretGenerator", "sortOptions", "transformers"),
        *("validators", "vars"),
    )
)

#: Keys of an item in ``patches``, whose values may name files.
_PATCH = frozenset(("options", "patch", "path", "target"))
_GENERATOR = frozenset(
    ("behavior", "env", "envs", "files", "literals", "name", "namespace", "options")
)
_FIELDS_OF_ITEMS: Mapping[str, Collection[str]] = {
    "patches": _PATCH,
    "patchesJson6902": _PATCH,
    "replacements": frozenset(("path", "source", "sourceValue", "targets")),
    "configMapGenerator": _GENERATOR,
    "secretGenerator": _GENERATOR | {"type"},
}

#: Fields that make kustomize start other programs or fetch files.
_REFUSED = ("helmChartInflationGenerator", "helmCharts", "helmGlobals")

#: Texts that refer to remote files instead of paths in a repository.
_REMOTE = re.compile(
    r"://|^git::|^git@|^[\w.-]+\.\w+[:/].*//|[?&](ref|version)=|^github\.com/"
)

#: Maximum bytes of a kustomization; handwritten files are smaller.
MAX_KUSTOMIZATION = 256 * 1024

#: Maximum number of reported reasons of one source; the first ones show the cause.
MAX_REASONS = 20

#: Maximum number of values and characters of all kustomizations of a source; large ones
#: have thousands.
MAX_VALUES, MAX_CHARACTERS = 100_000, 4 * 1024**2

#: Beginnings of tokens within ``{{`` that end or hide text, or call ``lookup``.
_TOKEN = re.compile(rb"""/\*|\}\}|["'`]|(?<![.\w])lookup\b""")

_QUOTES = (b'"', b"'", b"`")

#: Pattern for a call of ``tpl``; and pattern for a call of ``lookup`` in a literal that
#: may be passed to ``tpl``.
_TPL = re.compile(rb"(?<![.\w])tpl\b")
_LITERAL_LOOKUP = re.compile(rb"(?<![.\w])lookup\b")

#: Words that indicate secrets: if a file contains one, the error output may quote a
#: Secret.
_SECRETS = re.compile(rb"secret|password|token|credential", re.IGNORECASE)

#: Keywords of a JSON schema that refer to other schemas.
_REFERENCES = ("$dynamicRef", "$id", "$recursiveRef", "$ref", "$schema", "id")

#: Patterns for words in error output that describe the object at a path, and for an
#: absolute path.
_LOOKED = re.compile(
    r"\b(?:open|l?stat|read\w*|evalsymlinks?|director\w+|file)\b|denied", re.IGNORECASE
)
_ABSOLUTE = re.compile(r"file:/|(?<![\w.:/-])/[\w.]")

#: Pattern for a file that the program names, optionally with line and column.
_PLACE = re.compile(
    r"(?<![\w.-])[\w.-]+(?:/[\w.-]+)*\.(?:ya?ml|json|tpl|env)(?::\d+){0,2}"
)

#: Names of hooks that only ``helm test`` runs.
_TESTS = ("test", "test-success", "test-failure")


@attrs.frozen
class Capabilities:
    """
    Versions of the API server, for charts that query them.

    :ivar api_versions: names such as ``apps/v1`` and ``apps/v1/Deployment``.
    """

    version: str
    api_versions: tuple[str, ...]


class RenderingRefused(CallError):
    """
    Error for a source that must not be rendered.

    :ivar reasons: all reasons why the source must not be rendered.
    :ivar made: the result of `Renderer.render` if the source was rendered in spite of
        these reasons; None otherwise.
    """

    def __init__(
        self, reasons: Sequence[str], made: tuple[str, bytes] | None = None
    ) -> None:
        super().__init__(Status.FAILED_PRECONDITION, "; ".join(reasons))
        self.reasons = tuple(reasons)
        self.made = made


async def capabilities_of(client: IKubernetesClient) -> Capabilities:
    """
    Return the capabilities of the cluster now.

    :raises CallError: if the API server is unavailable.
    """
    said = await client.json("GET", "/version")
    found: set[str] = set()
    for one in await client.resources():
        found |= {one.api_version, f"{one.api_version}/{one.kind}"}
    return Capabilities(str(said.get("gitVersion", "")), tuple(sorted(found)))


@attrs.frozen
class Renderer:
    """
    Renderer of manifests.

    :param kustomize: the path of kustomize; *helm* is the path of Helm.
    :param threads: the threads that process texts of repositories.
    """

    children: ChildProcesses
    kustomize: str = "kustomize"
    helm: str = "helm"
    threads: TextThreads = attrs.field(
        factory=lambda: TextThreads(COMMIT_THREADS), kw_only=True
    )

    async def render(
        self,
        kind: SourceKind,
        namespace: str,
        files: Sequence[tuple[str, bytes]],
        capabilities: Capabilities | None,
    ) -> tuple[str, bytes]:
        """
        Return a file name for messages about the rendered text, and the text.

        :param namespace: the Namespace of a Helm release that does not name one.
        :raises RenderingRefused: if the source may not be rendered; with all reasons.
        :raises CallError: FAILED_PRECONDITION if the source cannot be rendered, with
            the reason; UNAVAILABLE if a retry may succeed.
        """
        # Run the check in a thread, because the files are untrusted.
        if kind.kind == "kustomize":
            checked = dict(files)
            why = await self.threads.run(
                lambda: next(_kustomize_problems(kind, checked), "")
            )
            if why:
                raise RenderingRefused([why])
            looks: list[str] = []
        else:
            looks = await self.threads.run(_checked_chart, kind, dict(files))
        place = TemporaryFolder()
        folder = place.path
        # Assume that the error output may quote a secret if the source has Helm values,
        # which may be secret and are not in the files.
        quotes = bool(kind.values) or await self.threads.run(_has_secrets, files)
        try:
            if kind.kind == "helm":
                assert capabilities is not None
                files = await self._of_cluster(kind, files, capabilities)
            await self.threads.run(place.write, files)
            if kind.kind == "kustomize":
                what = f"kustomize build {kind.path or '.'}"
                arguments = ["build", "--", str(folder / "files" / kind.path)]
                made = await self._made(self.kustomize, arguments, folder, what, quotes)
                return what, made
            assert capabilities is not None
            what = f"helm template {kind.path or '.'}"
            arguments = _helm_arguments(kind, namespace, folder, capabilities)
            if not self.children.is_confined:
                # Skip the validation of values, because a packaged subchart may contain
                # a schema that refers to any file.
                arguments.insert(1, "--skip-schema-validation")
            try:
                first = await self._made(self.helm, arguments, folder, what, quotes)
                second = await self._made(self.helm, arguments, folder, what, quotes)
            except CallError as error:
                if error.status is Status.UNAVAILABLE or not looks:
                    raise
                # The program may have failed because lookups return no data.
                raise RenderingRefused([*looks, error.message]) from None
            differing = await self.threads.run(_differing, first, second)
            if differing:
                looks.append(
                    f"{what}: it renders {differing} differently each time, so "
                    "agentk would change these objects again and again: set the "
                    "random values explicitly"
                )
            if looks:
                raise RenderingRefused(looks, (what, first))
            return what, first
        finally:
            await deferToThread(place.remove)

    async def _of_cluster(
        self,
        kind: SourceKind,
        files: Sequence[tuple[str, bytes]],
        capabilities: Capabilities,
    ) -> Sequence[tuple[str, bytes]]:
        """
        Return files whose tests for API versions fail if the cluster lacks the version.
        """
        if not await self.threads.run(lambda: helm_versions.asks(dict(files))):
            return files
        place = TemporaryFolder()
        try:
            await self.threads.run(place.write, helm_versions.ask.items())
            arguments = ["template", "versions", str(place.path / "files")]
            what = "helm template of a chart that prints Helm's API versions"
            said = await self._made(self.helm, arguments, place.path, what, False)
        finally:
            await deferToThread(place.remove)
        try:
            names = helm_versions.hidden(said, capabilities.api_versions)
        except ValueError:
            raise CallError(
                Status.FAILED_PRECONDITION, f"{what}: unexpected output"
            ) from None
        try:
            return await self.threads.run(
                helm_versions.with_hidden, files, kind.path, names
            )
        except ValueError as error:
            raise CallError(Status.FAILED_PRECONDITION, str(error)) from None

    async def _made(
        self,
        program: str,
        arguments: Sequence[str],
        folder: Path,
        what: str,
        quotes: bool,
    ) -> bytes:
        try:
            made: Rendered = await self.children.run(program, arguments, folder)
        except CallError as error:
            raise CallError(error.status, f"{what}: {error.message}") from None
        if made.problem:
            # The message contains the path of the folder, which is useless to readers.
            said = made.problem
            for own in (os.path.realpath(folder), str(folder)):
                said = said.replace(f"{own}/files/", "").replace(own, "")
            if made.is_said and _LOOKED.search(said) and _ABSOLUTE.search(said):
                # Do not show such a message, because authors in Git need not know the
                # files of agentk's machine.
                said = (
                    "it tried to read a path outside of the repository; run it by "
                    "hand to see its error output, which may name files of agentk's "
                    "machine"
                )
            elif quotes and made.is_said:
                places = ", ".join(dict.fromkeys(_PLACE.findall(said)))[:500]
                said = (
                    f"it fails{f' ({places})' if places else ''}; its error output "
                    "is left out, because it may quote a Secret or values: run it by "
                    "hand to see it"
                )
            raise CallError(Status.FAILED_PRECONDITION, f"{what}: {said}")
        return made.output


def _has_secrets(files: Iterable[tuple[str, bytes]]) -> bool:
    return any(_SECRETS.search(path.encode() + b"\n" + data) for path, data in files)


# Checks for kustomize.


def _kustomize_problems(kind: SourceKind, files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield the problems of `kind.path` and of all files that it uses."""
    waiting, seen = [kind.path], {kind.path}
    budget = Budget(MAX_VALUES, MAX_CHARACTERS, documents=len(files) + 1)
    there = _files_and_folders(files)
    while waiting:
        folder = waiting.pop()
        names = [posixpath.join(folder, one) for one in _KUSTOMIZATIONS]
        found = [one for one in names if one in files]
        if len(found) != 1:
            what = "no kustomization.yaml" if not found else "several kustomizations"
            yield f"there is {what} in {folder or 'the root of the repository'}"
            return
        (file,) = found
        try:
            content = _read(files[file], budget)
        except ValueError as error:
            yield f"{file}: {error}"
            return
        if unknown := next(_unknown_fields(content), ""):
            yield f"{file}: {unknown}"
            return
        for key in _REFUSED:
            if content.get(key):
                yield f"{file}: {key} is not supported: use a source of kind helm"
                return
        bases = _bases(content)
        for path in _named_paths(content):
            where = posixpath.normpath(posixpath.join(folder, path))
            if _REMOTE.search(path):
                yield f"{file}: {path!r} is fetched from elsewhere: copy it into Git"
                return
            if path.startswith("/") or where.startswith("../") or where == "..":
                yield f"{file}: {path!r} is outside of the repository"
                return
            where = "" if where == "." else where
            if path in bases and where not in there:
                yield (
                    f"{file}: {path!r} is not among the files of the project: it "
                    "does not exist, or no glob of its 'paths' matches it"
                )
                return
            is_folder = any(
                posixpath.join(where, one) in files for one in _KUSTOMIZATIONS
            )
            if is_folder and where not in seen:
                seen.add(where)
                waiting.append(where)


def _read(data: bytes, budget: Budget) -> dict[str, Any]:
    """
    Return the mapping in *data*.

    :raises ValueError: if *data* is not a mapping that can be read safely.
    """
    if len(data) > MAX_KUSTOMIZATION:
        raise ValueError(f"it has more than {MAX_KUSTOMIZATION} bytes")
    try:
        found = [one.value for one in read_yaml(data, budget)]
    except UnreadableText as error:
        where = f"line {error.line}: " if error.line else ""
        raise ValueError(f"{where}{error.message}") from None
    if len(found) != 1 or not isinstance(found[0], dict):
        raise ValueError("it is not a mapping")
    return found[0]


def _bases(content: Mapping[str, Any]) -> set[str]:
    """Return the texts that must be files or folders, and never inline YAML."""
    return {
        one
        for field in ("bases", "components", "resources")
        for one in _list(content.get(field))
        if isinstance(one, str)
    }


def _files_and_folders(files: Iterable[str]) -> set[str]:
    """Return all paths of files and their folders; the root is empty."""
    found: set[str] = {""}
    for path in files:
        # If the folder is known, its parent folders are known, too.
        while path not in found:
            found.add(path)
            path = posixpath.dirname(path)
    return found


def _unknown_fields(content: Mapping[str, Any]) -> Iterator[str]:
    """
    Yield fields that kustomizations do not have.

    Kustomize accepts ``Resources`` as ``resources``, so agentk would miss its paths.
    """
    places: list[tuple[str, Any, Collection[str]]] = [("", content, _FIELDS)]
    for field, known in _FIELDS_OF_ITEMS.items():
        places += [(f"{field}: ", one, known) for one in _list(content.get(field))]
    for place, found, known in places:
        for key in found if isinstance(found, dict) else ():
            if key not in known:
                alike = [one for one in known if one.casefold() == key.casefold()]
                hint = f"; write {alike[0]}" if alike else ""
                yield f"{place}{key[:100]!r} is not a field of a kustomization{hint}"


def _named_paths(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a kustomization that may be paths, but not inline YAML."""
    for key in _PATHS:
        for one in _list(content.get(key)):
            if isinstance(one, str) and "\n" not in one:
                yield one
    for key in ("patches", "patchesJson6902", "replacements"):
        for one in _list(content.get(key)):
            if isinstance(one, dict) and isinstance(one.get("path"), str):
                yield one["path"]
    for key in ("configMapGenerator", "secretGenerator"):
        for one in _list(content.get(key)):
            if isinstance(one, dict):
                for name in ("env", "envs", "files"):
                    for each in _list(one.get(name)):
                        if isinstance(each, str):
                            # Only the path of a file can follow a key and ``=``.
                            is_file = name == "files"
                            yield each.rpartition("=")[2] if is_file else each
    openapi = content.get("openapi")
    if isinstance(openapi, dict) and isinstance(openapi.get("path"), str):
        yield openapi["path"]


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [] if found is None else [found]


# Checks for Helm.


def _checked_chart(kind: SourceKind, files: Mapping[str, bytes]) -> list[str]:
    """
    Check a chart.

    :returns: the places where the chart reads from the cluster; the chart can be
        rendered anyway.
    :raises RenderingRefused: if the chart must not be rendered.
    """
    if problems := [*_helm_problems(kind, files)]:
        raise RenderingRefused([*problems, *_lookups(kind, files)][:MAX_REASONS])
    return [*_lookups(kind, files)][:MAX_REASONS]


def _helm_problems(kind: SourceKind, files: Mapping[str, bytes]) -> Iterator[str]:
    if posixpath.join(kind.path, "Chart.yaml") not in files:
        yield f"Chart.yaml is missing in {kind.path or 'the root of the repository'}"
    for path in kind.values_files:
        if posixpath.normpath(path) not in files:
            yield f"the file {path!r} does not exist (values_files)"
    below = f"{kind.path}/" if kind.path else ""
    for path, data in files.items():
        if path.startswith(below) and posixpath.basename(path) == "values.schema.json":
            if leads := _schema_leads_to(data):
                yield f"{path}: {leads}"


def _lookups(kind: SourceKind, files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield the places where a chart reads from the cluster, or may do so."""
    below = f"{kind.path}/" if kind.path else ""
    for path, data in files.items():
        if kind.lookup != "refuse" or not path.startswith(below):
            continue
        if path.endswith(".tgz") and "/charts/" in f"/{path}":
            yield (
                f"{path}: a packed chart is not searched for 'lookup': unpack it, "
                "or allow it with 'lookup: empty'"
            )
        if "/templates/" not in f"/{path}":
            continue
        found = _lookup_in(data)
        if found is not None:
            line = data.count(b"\n", 0, found) + 1
            yield (
                f"{path}:{line}: charts are rendered without access to the cluster, "
                "so lookup would return nothing; 'lookup: empty' allows that"
            )


def _schema_leads_to(data: bytes) -> str:
    """
    Return why a schema of values cannot be used; empty if it can be used, because it
    does not refer to other schemas.
    """
    try:
        waiting = [json.loads(data)]
    except (ValueError, RecursionError):
        # Python cannot read everything that Helm accepts: bytes that are not UTF-8, and
        # deeper nesting.
        return "agentk cannot read this schema: write it as JSON in UTF-8"
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            waiting += one.values()
            for key in _REFERENCES:
                to = one.get(key)
                if not isinstance(to, str) or not to:
                    continue
                is_file = to.strip().casefold().startswith("file:")
                if is_file or (
                    key.casefold().endswith("ref") and not to.startswith("#")
                ):
                    return (
                        f"{key} refers to {clean(to, 100)!r}: agentk does not resolve "
                        "references to other schemas; copy the needed parts into "
                        "$defs"
                    )
    return ""


def _lookup_in(template: bytes) -> int | None:
    """
    Return the offset of the first call of ``lookup``; None if no call was found.

    If the template calls ``tpl``, the literals in the template count as templates, too.
    Templates from values, and templates that are composed, cannot be detected.
    """
    place = 0
    has_tpl = _TPL.search(template) is not None
    while (begin := template.find(b"{{", place)) >= 0:
        place = begin + 2
        while (token := _TOKEN.search(template, place)) is not None:
            place = token.end()
            if token[0] == b"lookup":
                return token.start()
            if token[0] in _QUOTES:
                place = _literal_end(template, place, token[0])
                literal = template[token.start() : place]
                if has_tpl and b"{{" in literal and _LITERAL_LOOKUP.search(literal):
                    return token.start()
            if token[0] == b"}}":
                break
            if token[0] == b"/*":
                place = template.find(b"*/", place)
                if place < 0:
                    return None
                place += 2
        else:
            return None
    return None


def _literal_end(template: bytes, place: int, quote: bytes) -> int:
    """Return the end of a literal, also of one that is not closed."""
    if quote != b"`":
        return quoted_end(template, place, quote, one_line=True)
    end = template.find(quote, place)
    return len(template) if end < 0 else end + 1


def _helm_arguments(
    kind: SourceKind, namespace: str, folder: Path, capabilities: Capabilities
) -> list[str]:
    given = [folder / "files" / posixpath.normpath(one) for one in kind.values_files]
    if kind.values:
        own = folder / "values.yaml"
        own.write_text(kind.values, "utf-8")
        given.append(own)
    return [
        "template",
        *(f"--values={one}" for one in given),
        f"--namespace={kind.namespace or namespace}",
        f"--kube-version={capabilities.version}",
        *(f"--api-versions={one}" for one in capabilities.api_versions),
        "--include-crds",
        "--skip-tests",
        *(("--no-hooks",) if kind.hooks == "skip" else ()),
        "--",
        kind.release_name or posixpath.basename(kind.path) or "release",
        str(folder / "files" / kind.path),
    ]


def _differing(first: bytes, second: bytes) -> str:
    """
    Return the names of templates whose results differ in the two outputs; empty if none
    do.
    """
    if first == second:
        return ""
    parts = [_by_template(one) for one in (first, second)]
    names = sorted({*parts[0], *parts[1]})
    found = [one for one in names if parts[0].get(one) != parts[1].get(one)]
    return ", ".join(found[:5]) or "it"


def _by_template(text: bytes) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for part in text.split(b"\n---\n"):
        source = re.search(rb"^# Source: (\S+)", part, re.M)
        name = source[1].decode("utf-8", "replace") if source else "it"
        found.setdefault(name, []).append(part)
    return found
