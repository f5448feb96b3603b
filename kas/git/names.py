"""Checks that refs, commits and paths are safe to pass to git."""

from __future__ import annotations

import re

from tunnel.errors import CallError, Status

__all__ = ["MAX_NAME", "check_commit", "check_path", "full_ref", "is_commit"]

#: Maximum bytes of a path or a ref: the same as the limit of Linux for paths.
MAX_NAME = 4096

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

#: Characters that git-check-ref-format(1) forbids in a ref; patterns are not refs
#: either.
_NOT_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)|[./]$")

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def full_ref(ref: str) -> str:
    """
    Return the full name of a ref; a bare name becomes the name of a branch.

    The id of a commit is returned unchanged, because branches do not have such names.

    :raises CallError: INVALID_ARGUMENT if no ref can have this name.
    """
    if (
        not ref
        or len(ref.encode(errors="replace")) > MAX_NAME
        or ref[0] in "-./"
        or _NOT_IN_REF.search(ref)
        or not _is_utf8(ref)
    ):
        raise CallError(Status.INVALID_ARGUMENT, f"{ref[:80]!r} cannot be a Git ref")
    if ref == "HEAD" or ref.startswith("refs/") or is_commit(ref):
        return ref
    return f"refs/heads/{ref}"


def is_commit(ref: str) -> bool:
    """Return whether *ref* is the id of a commit."""
    return _COMMIT.fullmatch(ref) is not None


def check_commit(commit: str) -> str:
    """
    Return *commit* if it is the id of a commit.

    :raises CallError: INVALID_ARGUMENT if *commit* is not such an id.
    """
    if not _COMMIT.fullmatch(commit):
        raise CallError(
            Status.INVALID_ARGUMENT, f"{commit[:80]!r} is not the id of a commit"
        )
    return commit


def check_path(path: str, *, empty: bool = False) -> str:
    """
    Return a path inside a tree without a slash at its end.

    :param empty: whether the path may be the root.
    :raises CallError: INVALID_ARGUMENT if a tree cannot contain this path.
    """
    path = path.removesuffix("/")
    if not path and empty:
        return path
    if (
        any(
            part in ("", ".", "..") or part.lower() == ".git"
            for part in path.split("/")
        )
        or len(path.encode(errors="replace")) > MAX_NAME
        or _CONTROL.search(path)
        or not _is_utf8(path)
    ):
        raise CallError(
            Status.INVALID_ARGUMENT, f"{path[:80]!r} is not a path inside a repository"
        )
    return path


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
