"""
Refs that each agent follows.

A copy of a repository on a Git server holds a limited number of followed refs (see
``kas/git/live_refs.py``), which all agents share.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tunnel.api import GitAddress, GitalyAddress
from tunnel.errors import CallError, Status
from tunnel.toolkit.counts import one_less

__all__ = ["MAX_REFS", "AgentRefs"]

#: Maximum number of refs and commits of one repository that an agent requests at the
#: same time: one for each project, and a hundred for previews.  A new copy gets three
#: times as many.
MAX_REFS: Final = 600


class AgentRefs:
    """Table of the refs and commits that agents request, by agent and repository."""

    def __init__(self) -> None:
        #: Numbers of streams, by ref.
        self._refs: dict[tuple[str, GitAddress | GitalyAddress], dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self._refs)

    @contextmanager
    def using(
        self, agent_id: str, address: GitAddress | GitalyAddress, ref: str
    ) -> Iterator[None]:
        """
        Count a stream of an agent for *ref* inside the block.

        :raises CallError: RESOURCE_EXHAUSTED if the agent already uses too many refs.
        """
        key = agent_id, address
        counts = self._refs.get(key, {})
        if ref not in counts and len(counts) >= MAX_REFS:
            raise CallError(
                Status.RESOURCE_EXHAUSTED,
                f"an agent may use at most {MAX_REFS} branches, tags and commits of "
                "one repository at the same time: remove projects of this repository, "
                "or let several projects follow the same branch",
            )
        self._refs[key] = counts
        counts[ref] = counts.get(ref, 0) + 1
        try:
            yield
        finally:
            one_less(counts, ref)
            if not counts:
                del self._refs[key]
