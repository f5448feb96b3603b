"""Objects of a source, each with its place in a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import attrs

from modules.gitops.agent.objects.control_plane import without_owned
from modules.gitops.agent.objects.documents import (
    Budget,
    TextDocument,
    UnreadableText,
    read_json,
    read_yaml,
)
from tunnel.toolkit.texts import DNS_LABEL

__all__ = [
    "Definition",
    "Manifest",
    "ObjectKey",
    "Origin",
    "Source",
    "SourceProblem",
    "definition_of",
    "read_source",
]

#: Maximum number of documents of a source, including empty ones: twice as many as the
#: largest sources need (Config Sync is tested with 5,000).
MAX_DOCUMENTS = 10_000

#: Maximum number of values of all objects of a source together, with aliases expanded:
#: 5,000 objects of two hundred values each.  Reading that many values takes a hundred
#: megabytes.
MAX_VALUES = 1_000_000

#: Maximum characters of all texts, with aliases expanded: applied objects are not
#: larger than these texts.
MAX_CHARACTERS = 64 * 1024**2

#: Maximum number of reported problems of one source; the first ones show the cause.
MAX_PROBLEMS = 100

#: Fields that the API server sets, and that appear in the output of ``kubectl get -o
#: yaml``.
_OF_THE_SERVER = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)

_API_VERSION = re.compile(r"(?:[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[a-z0-9]{1,63}")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")
#: Explanation of the API server's rule for a valid path segment, which applies to names
#: of every kind.
_NAME_HINT = "up to 253 ASCII characters other than spaces, / and %"
_NAME = re.compile(r"[!-$&-.0-~]{1,253}")
_NAMESPACE = re.compile(DNS_LABEL)


@attrs.frozen
class Origin:
    """
    Position of a text in the files of a source.

    :ivar line: counted from 1; 0 for the file as a whole.
    :ivar column: counted from 1, for text that cannot be read; 0 for the line as a
        whole.
    """

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        numbers = (self.file, self.line, self.column)
        return ":".join(str(one) for one in numbers if one)


@attrs.frozen
class SourceProblem:
    """Problem at a position, with its remedy."""

    origin: Origin
    message: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.message}"


class ObjectKey(NamedTuple):
    """
    Identity of an object, independent of the version of its kind.

    It is a tuple, because agentk sorts and looks up thousands of keys.

    :ivar group: empty for the core group.
    :ivar namespace: empty for cluster-wide objects, and if the manifest does not name
        one.
    """

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        kind = f"{self.kind}.{self.group}" if self.group else self.kind
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{kind} {place}"


@attrs.frozen(eq=False)
class Manifest:
    """
    One object as described in the repository.

    :ivar object: the object without the fields that only the API server or the control
        plane sets.
    :ivar ciphertext: a digest of the object before its decryption; empty if it was not
        encrypted.
    """

    key: ObjectKey
    object: dict[str, Any]
    origin: Origin
    ciphertext: str = ""

    def is_as(self, other: Manifest) -> bool:
        """
        Return whether another manifest of the object is the same.

        Decrypted manifests are the same only if their ciphertexts are: otherwise the
        author of a merge request could guess the content of a Secret.
        """
        return (self.object, self.ciphertext) == (other.object, other.ciphertext)

    @property
    def api_version(self) -> str:
        """The API version, such as ``v1`` or ``apps/v1``."""
        version: str = self.object["apiVersion"]
        return version

    @property
    def is_encrypted(self) -> bool:
        """Whether SOPS encrypted the manifest."""
        return _is_encrypted(self.object)

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations in the metadata; empty without any."""
        found: dict[str, str] = self.object["metadata"].get("annotations") or {}
        return found


@attrs.frozen(eq=False)
class Source:
    """
    Contents of a set of files.

    :ivar problems: if it is not empty, *manifests* is incomplete: a missing object may
        still be in the files.
    """

    manifests: tuple[Manifest, ...]
    problems: tuple[SourceProblem, ...] = ()


@attrs.frozen
class Definition:
    """Kind that a CustomResourceDefinition defines."""

    group: str
    kind: str
    namespaced: bool


def definition_of(found: Mapping[str, Any]) -> Definition | None:
    """Return the kind that an object defines; None if it is not a valid definition."""
    if found.get("kind") != "CustomResourceDefinition" or not str(
        found.get("apiVersion")
    ).startswith("apiextensions.k8s.io/"):
        return None
    spec = found.get("spec")
    names = spec.get("names") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(names, dict):
        return None
    group, kind = spec.get("group"), names.get("kind")
    if not (isinstance(group, str) and isinstance(kind, str)):
        return None
    return Definition(group, kind, spec.get("scope") != "Cluster")


def read_source(files: Iterable[tuple[str, bytes]]) -> Source:
    """
    Return the objects of all files, in the order of files and documents.

    :param files: paths from the root of the source, and contents; ``.json`` files are
        read as JSON, all others as YAML.
    """
    budget = Budget(MAX_VALUES, MAX_CHARACTERS, documents=MAX_DOCUMENTS)
    reader = _Reader()
    for path, data in files:
        read = read_json if path.endswith(".json") else read_yaml
        try:
            for document in read(data, budget):
                reader.take(document, path)
        except UnreadableText as error:
            origin = Origin(path, error.line, error.column)
            reader.complain(origin, error.message)
            if budget.is_spent:
                break
        except Exception as error:
            # A defect of agentk must affect only this file, and not the whole project.
            name = type(error).__name__
            reader.complain(Origin(path), f"agentk cannot read it ({name})")
    return reader.source()


class _Reader:
    """A reader that takes documents one by one."""

    def __init__(self) -> None:
        self._found: dict[ObjectKey, Manifest] = {}
        self._problems: list[SourceProblem] = []
        self._unsaid = 0

    def source(self) -> Source:
        """Return the objects that were read."""
        problems = self._problems
        if self._unsaid:
            more = SourceProblem(
                problems[-1].origin, f"and {self._unsaid} more problems"
            )
            problems = [*problems, more]
        return Source(tuple(self._found.values()), tuple(problems))

    def complain(self, origin: Origin, message: str) -> None:
        """Record a problem at *origin*."""
        if len(self._problems) >= MAX_PROBLEMS:
            self._unsaid += 1
        else:
            self._problems.append(SourceProblem(origin, message))

    def take(self, document: TextDocument, path: str) -> None:
        """Record each object in a document."""
        origin = Origin(path, document.line)
        for value in _flattened(document.value):
            # The document contains only comments, or ``null`` from a template that
            # rendered nothing.
            if value is None:
                continue
            try:
                manifest = _manifest(value, origin)
            except ValueError as error:
                self.complain(origin, str(error))
                continue
            twin = self._found.setdefault(manifest.key, manifest)
            if twin is not manifest:
                self.complain(
                    origin,
                    f"{manifest.key} is also at {twin.origin}; remove one of the two",
                )


def _flattened(value: Any) -> Iterator[Any]:
    """Iterate over the objects in a ``List``, and in lists within it."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if _is_list(one):
            waiting += reversed(one["items"] or [])
        else:
            yield one


def _is_list(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("kind"), str)
        and value["kind"].endswith("List")
        and isinstance(value.get("items", ""), list | None)
    )


def _manifest(value: Any, origin: Origin) -> Manifest:
    """
    Return the manifest in *value*.

    :raises ValueError: if *value* is not an object that can be applied.
    """
    if not isinstance(value, dict):
        raise ValueError(
            "this is not an object: an object begins with apiVersion and kind"
        )
    of_secret = (value.get("apiVersion"), value.get("kind")) == ("v1", "Secret")
    if _is_encrypted(value) and not of_secret:
        # Do not show the value, because messages mask only Secrets, and a kind of
        # another group may also be named Secret.
        raise ValueError(
            "this is encrypted with SOPS, but is not a Secret: agentk decrypts only "
            "Secrets, and only their data and stringData may be encrypted "
            "(encrypted_regex: ^(data|stringData)$)"
        )
    api_version = _text(
        value, "apiVersion", _API_VERSION, "a version such as v1 or apps/v1"
    )
    kind = _text(value, "kind", _KIND, "a kind such as ConfigMap")
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        raise ValueError(f"this {kind} has no metadata: write metadata.name")
    if "name" not in metadata and "generateName" in metadata:
        raise ValueError(
            f"this {kind} has generateName, which would create another object each "
            "time: write metadata.name"
        )
    name = _text(metadata, "name", _NAME, _NAME_HINT, "metadata.")
    namespace = ""
    if metadata.get("namespace") not in (None, ""):
        hint = "up to 63 lower-case letters a-z, digits and -"
        namespace = _text(metadata, "namespace", _NAMESPACE, hint, "metadata.")
    for field in ("labels", "annotations"):
        _check_texts(metadata.get(field), f"{kind} {name}: metadata.{field}")
    kept = {key: one for key, one in metadata.items() if key not in _OF_THE_SERVER}
    if not namespace:
        kept.pop("namespace", None)
    group = api_version.rpartition("/")[0]
    key = ObjectKey(group, kind, namespace, name)
    return Manifest(key, without_owned({**value, "metadata": kept}), origin)


def _is_encrypted(found: dict[str, Any]) -> bool:
    return isinstance(found.get("sops"), dict) and "mac" in found["sops"]


def _text(
    where: dict[str, Any],
    field: str,
    pattern: re.Pattern[str],
    hint: str,
    prefix: str = "",
) -> str:
    value = where.get(field)
    if value is None or value == "":
        raise ValueError(f"{prefix}{field} is missing")
    if not isinstance(value, str):
        raise ValueError(f"{prefix}{field} is not text; put quotes around it")
    if pattern.fullmatch(value) is None or value in (".", ".."):
        shown = f"{prefix}{field} {value[:100]!r}"
        raise ValueError(f"{shown} is not valid: write {hint}")
    return value


def _check_texts(found: Any, what: str) -> None:
    """
    Check that labels or annotations are text, because a number is the most common
    mistake.
    """
    if found is None:
        return
    if not isinstance(found, dict):
        raise ValueError(f"{what} is not a mapping")
    for key, value in found.items():
        if not isinstance(value, str | None):
            raise ValueError(f"{what}: the value of {key!r} is not text; quote it")
