"""Real Git repositories for tests and measurements, filled by ``git fast-import``."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import attrs

__all__ = ["GitRepository"]

#: Modes of a plain file, a symbolic link and a submodule in ``git fast-import``.
FILE, LINK, SUBMODULE = "100644", "120000", "160000"

#: Environment in which Git reads no configuration of the machine or of its user.
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "LC_ALL": "C",
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "Test"), ("EMAIL", "test@example.org"))
    },
}


@attrs.frozen
class GitRepository:
    """A bare repository whose default branch is ``main``."""

    path: Path

    @classmethod
    def make(cls, path: Path) -> GitRepository:
        """Create an empty repository that also supports smart HTTP."""
        self = cls(path)
        git("init", "--quiet", "--bare", "--initial-branch=main", str(path))
        self.run("config", "http.receivepack", "true")
        self.run("config", "uploadpack.allowFilter", "true")
        return self

    def run(self, *arguments: str, data: bytes = b"") -> str:
        """Run git in this repository, and return its output."""
        return git("-C", str(self.path), *arguments, data=data).strip()

    def commit(
        self,
        files: Mapping[str, str | bytes | None],
        *,
        branch: str = "main",
        links: Mapping[str, str] | None = None,
        submodules: Mapping[str, str] | None = None,
        onto: str | None = "",
        time: int = 1_800_000_000,
    ) -> str:
        """
        Commit files and return the commit's id; a content of None deletes a file.

        :param onto: the parent commit; empty for the branch's last commit, None for no
            parent.
        """
        parts: list[bytes] = []

        def line(text: str) -> None:
            parts.append(text.encode() + b"\n")

        def content(value: str | bytes) -> None:
            raw = value.encode() if isinstance(value, str) else value
            line(f"data {len(raw)}")
            parts.append(raw + b"\n")

        line(f"commit refs/heads/{branch}")
        line(f"committer Test <test@example.org> {time} +0000")
        content("a change")
        if onto == "" and self.has(branch):
            line(f"from refs/heads/{branch}^0")
        elif onto:
            line(f"from {onto}")
        if onto is None:
            line("deleteall")
        for name, value in files.items():
            if value is None:
                line(f'D "{name}"')
            else:
                line(f'M {FILE} inline "{name}"')
                content(value)
        for name, target in (links or {}).items():
            line(f'M {LINK} inline "{name}"')
            content(target)
        for name, commit in (submodules or {}).items():
            line(f'M {SUBMODULE} {commit} "{name}"')
        self.run("fast-import", "--quiet", "--force", data=b"".join(parts))
        return self.run("rev-parse", f"refs/heads/{branch}")

    def has(self, branch: str) -> bool:
        """Tell whether a branch of this name exists."""
        return bool(self.run("for-each-ref", f"refs/heads/{branch}"))


def git(*arguments: str, data: bytes = b"") -> str:
    """Run the git program, and return its output."""
    done = subprocess.run(
        ["git", *arguments], input=data, capture_output=True, env=ENVIRONMENT
    )
    if done.returncode:
        raise RuntimeError(f"git {arguments}: {done.stderr.decode(errors='replace')}")
    return done.stdout.decode()
