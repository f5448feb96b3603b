"""One version of an agent's configuration file, with its problems."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import attrs

from modules.agent_configuration.agentcfg_pb2 import AgentConfiguration
from modules.agent_configuration.schema import ConfigurationFile
from tunnel.api import IRepository
from tunnel.config import as_written, place_in, read
from tunnel.errors import CallError, ConfigurationError, Status
from tunnel.toolkit.texts import clean, json_for_yaml

__all__ = ["SECTIONS", "Document", "path_of", "read_document"]

#: Sections that have a field of their own in the message.
SECTIONS = (
    "gitops",
    "observability",
    "ci_access",
    "container_scanning",
    "remote_development",
    "flux",
)

#: Section that only kas and GitLab use.
NOT_FOR_AGENTK = "user_access"

#: Maximum number of reported problems of one file; further problems are reported once
#: these problems are fixed.
MAX_PROBLEMS = 20

#: Maximum characters of one problem or remark, because the text may quote a key of the
#: file.
MAX_PROBLEM = 1000

#: Maximum bytes of all sections as JSON. agentk and GitLab receive all sections in one
#: message, and a message to agentk may be at most 4 MiB long.  Characters that JSON
#: escapes make the sections larger than the file.
MAX_SECTIONS = 2 * 1024 * 1024

#: Pattern for valid names of agents, which are also names of folders: GitLab permits
#: labels of RFC 1123.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?", re.IGNORECASE)


@attrs.frozen
class Document:
    """
    Configuration file of one agent at one commit.

    :ivar written: the whole file as JSON; None if the file cannot be used.
    :ivar problems: the reasons why the file cannot be used, one line each, with file,
        line and column.
    :ivar remarks: keys without effect, one line each, with file, line and column.
    """

    commit: str
    written: dict[str, Any] | None
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @cached_property
    def message(self) -> AgentConfiguration:
        """
        The sections for agentk, built once for all streams; callers must not change it.
        """
        written = self.written or {}
        message = AgentConfiguration()
        for name in sorted(written.keys() - {NOT_FOR_AGENTK}):
            # Write JSON that is also valid YAML, because agentk parses each section as
            # YAML, like all configuration.
            text = json_for_yaml(written[name], sort_keys=True)
            if name in SECTIONS:
                setattr(message, name, text)
            else:
                message.more[name] = text
        return message

    def says_the_same(self, other: Document | None) -> bool:
        """Return whether both documents are equal apart from the commit."""
        return (
            other is not None
            and self.written == other.written
            and self.problems == other.problems
        )


def path_of(agent_name: str) -> str:
    """
    Return the path of an agent's configuration file.

    :raises CallError: FAILED_PRECONDITION if no folder can have this name.
    """
    if not _NAME.fullmatch(agent_name) or ".." in agent_name:
        text = f"no folder can have the name of the agent {agent_name[:80]!r}"
        raise CallError(Status.FAILED_PRECONDITION, text)
    return f".gitlab/agents/{agent_name}/config.yaml"


async def read_document(
    repository: IRepository, commit: str, agent_name: str, limit: int
) -> Document:
    """
    Read the file of an agent at *commit*; if the file does not exist, all defaults
    apply.

    `Document.problems` contains the problems of the file.

    :raises CallError: if the repository cannot be read now.
    """
    path = path_of(agent_name)
    try:
        data = await repository.read(commit, path, limit=limit)
    except CallError as error:
        if error.status is Status.NOT_FOUND:
            return Document(commit, {})
        if error.status in (Status.FAILED_PRECONDITION, Status.RESOURCE_EXHAUSTED):
            return _refused(commit, [f"{path}: {error.message}"])
        raise
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        what = "not UTF-8; save the file in that encoding"
        return _refused(commit, [f"{path}:{line}:{column}: {what}"])
    remarks: list[str] = []
    try:
        found = read(text, path, ConfigurationFile, remark=remarks.append)
    except ConfigurationError as error:
        return _refused(commit, error.problems)
    written = as_written(found)
    # The parser limits the file after expansion of aliases, so the size of these texts
    # is limited, too.
    sizes = {name: len(json_for_yaml(one).encode()) for name, one in written.items()}
    if sum(sizes.values()) > MAX_SECTIONS:
        largest = max(sizes, key=sizes.__getitem__)
        place = place_in(text, path, largest, as_json=ConfigurationFile.AS_JSON)
        why = (
            f"the sections have more than {MAX_SECTIONS // 1024} KiB as JSON, with "
            "aliases expanded, and this is the largest; shorten it"
        )
        return _refused(commit, [f"{place}: {largest}: {why}"])
    lines = [clean(one, MAX_PROBLEM) for one in remarks[:MAX_PROBLEMS]]
    return Document(commit, written, remarks=tuple(lines))


def _refused(commit: str, problems: Any) -> Document:
    lines = [
        f"commit {commit[:12]}: {clean(one, MAX_PROBLEM)}"
        for one in problems[: MAX_PROBLEMS + 1]
    ]
    more = len(problems) - MAX_PROBLEMS
    if more > 0:
        lines = [*lines[:MAX_PROBLEMS], f"commit {commit[:12]}: and {more} more"]
    return Document(commit, None, tuple(lines))
