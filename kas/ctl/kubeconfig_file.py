"""Access to an existing kubeconfig, and merging of a kubeconfig into it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tunnel.errors import ConfigurationError, TunnelError
from tunnel.toolkit.files import replace_file

__all__ = [
    "NameTaken",
    "back_up",
    "default_path",
    "locked",
    "merge",
    "moved",
    "read",
]

# Maximum bytes of a kubeconfig; users have hundreds of clusters, and client-go has no
# limit.
MAX_FILE = 16 * 1024 * 1024


class NameTaken(TunnelError):
    """
    Error if every name for a context is in use for another target; the text tells the
    user what to do.
    """


_LISTS = {"clusters": "cluster", "users": "user", "contexts": "context"}


def default_path(environ: Mapping[str, str]) -> Path:
    """
    Return the file that kubectl changes.

    :raises ConfigurationError: if ``$KUBECONFIG`` names several files.
    """
    named = [part for part in environ.get("KUBECONFIG", "").split(":") if part]
    if len(named) > 1:
        raise ConfigurationError(
            ["$KUBECONFIG names several files; select one with --output-file"]
        )
    return Path(named[0]) if named else Path.home() / ".kube" / "config"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """
    Hold kubectl's own lock, so that kubectl does not write the file in the meantime.

    :raises ConfigurationError: if another process holds the lock.
    """
    lock = Path(f"{path}.lock")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise ConfigurationError(
            [
                f"{lock} exists: another program is changing {path}; wait for it, or "
                "remove the lock if no such program runs"
            ]
        ) from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def read(path: Path) -> dict[str, Any]:
    """
    Read the file; return an empty kubeconfig if the file does not exist.

    :raises ConfigurationError: if the file is not a kubeconfig; the file is not
        changed.
    """
    try:
        with path.open("rb") as source:
            data = source.read(MAX_FILE + 1)
    except FileNotFoundError:
        return {}
    problem = "is not a kubeconfig"
    content: object = None
    try:
        if len(data) > MAX_FILE:
            raise ValueError
        content = yaml.safe_load(data)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        problem = f"is not YAML{where}"
    except (ValueError, RecursionError):
        pass
    if content is None and not data.strip():
        return {}
    if not isinstance(content, dict) or not _is_kubeconfig(content):
        raise ConfigurationError(
            [f"{path}: {problem}; correct it, or pass another file with --output-file"]
        )
    return content


def _is_kubeconfig(content: dict[str, Any]) -> bool:
    return all(
        isinstance(content.get(key) or [], list)
        and all(isinstance(one, dict) for one in content.get(key) or [])
        for key in _LISTS
    )


def merge(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """
    Merge the kubeconfig *new*, which kasctl made, into *old*; return the names of its
    contexts.

    Clusters and users with these names are replaced, because no other program uses such
    names.  An existing context of the same name is kept if it leads to another cluster
    or user.  The new context then gets the name of its cluster, or ``USER@AGENT`` if
    the name of the cluster is also in use.

    :raises NameTaken: if all three names are in use; *old* must then be discarded.
    """
    old.setdefault("apiVersion", "v1")
    old.setdefault("kind", "Config")
    there = {one.get("name"): _leads(one) for one in old.get("contexts") or []}
    names = []
    for one in new["contexts"]:
        cluster, user = _leads(one)
        short = f"{user.partition('@kas-')[0]}@{one['name']}"
        choices = (one["name"], cluster, short)
        for name in choices:
            if there.get(name, (cluster, user)) == (cluster, user):
                break
        else:
            raise NameTaken(
                f"the contexts {', '.join(choices)} exist and lead elsewhere; rename "
                "one of them with 'kubectl config rename-context', or pass another "
                "file with --output-file"
            )
        one = {**one, "name": name}
        names.append(name)
        _replace(old, "contexts", one)
    for key in ("clusters", "users"):
        for one in new[key]:
            _replace(old, key, one)
    if not old.get("current-context"):
        old["current-context"] = names[0]
    return names


def _leads(entry: dict[str, Any]) -> tuple[Any, Any]:
    """Return the cluster and user of a context."""
    context = entry.get("context") or {}
    return context.get("cluster"), context.get("user")


def moved(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return warnings about clusters of *old* whose URL `merge` changed."""
    there = {
        one.get("name"): (one.get("cluster") or {}).get("server")
        for one in old.get("clusters") or []
    }
    return [
        f"the cluster {one['name']} now leads to {one['cluster']['server']} for all "
        f"its contexts; before, it led to {there[one['name']]}"
        for one in new["clusters"]
        if there.get(one["name"], one["cluster"]["server"]) != one["cluster"]["server"]
    ]


def _replace(content: dict[str, Any], key: str, entry: dict[str, Any]) -> None:
    entries = content.get(key) or []
    for index, one in enumerate(entries):
        if one.get("name") == entry["name"]:
            entries[index] = entry
            break
    else:
        entries = [*entries, entry]
    content[key] = entries


def back_up(path: Path) -> Path | None:
    """
    Copy the file to ``FILE.bak``, and return the copy's path; None if the file does not
    exist.
    """
    try:
        before = path.read_bytes()
    except FileNotFoundError:
        return None
    backup = path.with_name(f"{path.name}.bak")
    replace_file(backup, before)
    return backup
