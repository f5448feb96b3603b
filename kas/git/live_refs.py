"""
Refs that callers follow, so that a new copy of a repository gets all of them.

A fetch of many refs brings all or none, and authors of branches can make a fetch of
their branch fail: the branch may be too large, or the server too slow.  So a group that
cannot be fetched is halved, and a ref whose own last fetch failed is left out of
groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from kas.git.ref_resolver import MAX_TOGETHER
from tunnel.errors import CallError
from tunnel.toolkit.recent import Recent

__all__ = ["MAX_LIVE", "LiveRefs"]

#: Maximum number of refs that a new copy gets, as ten groups: together with the halves
#: of groups that fail, these are fewer packs than `GitLimits.packs`.
MAX_LIVE: Final = 2000

#: Seconds after the last request for a ref until new copies leave it out: callers
#: repeat their requests in each ``poll_period``, which is minutes.
FOLLOWED: Final = 3600.0

#: Maximum number of failed fetches of groups at a time, because each may take the whole
#: timeout.  They reduce a group of 200 refs with a bad one to 13 refs, which are then
#: fetched alone.
MAX_FAILURES: Final = 6


class LiveRefs:
    """
    Table of the refs of one repository that callers follow.

    :param seconds: returns the time.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        #: The times of the last requests.
        self._asked: Recent[str, float] = Recent(MAX_LIVE)
        #: The refs whose own last fetch failed.
        self._failed: Recent[str, None] = Recent(MAX_LIVE)

    def asked(self, refs: Collection[str], there: Collection[str]) -> None:
        """
        Note a request for *refs*.

        :param there: the refs that the server has.  Others take no place here.
        """
        now = self._seconds()
        for ref in refs:
            if ref in there:
                self._asked[ref] = now
            else:
                self._asked.pop(ref, None)
                self._failed.pop(ref, None)

    def fetched(self, ref: str, *, failed: bool) -> None:
        """Note the result of a fetch of one ref alone."""
        if failed:
            self._failed[ref] = None
        else:
            self._failed.pop(ref, None)

    def good(self, refs: Sequence[str]) -> list[str]:
        """Return those refs of *refs* that may be fetched together."""
        return [ref for ref in refs if ref not in self._failed]

    def followed(self) -> list[str]:
        """
        Return the refs that a new copy needs, the most recently requested first; forget
        refs that no caller follows any more.
        """
        oldest = self._seconds() - FOLLOWED
        for ref in [ref for ref, at in self._asked.items() if at < oldest]:
            del self._asked[ref]
        return self.good([*reversed(self._asked)])

    async def fetch(
        self,
        refs: Sequence[str],
        fetch: Callable[[Sequence[str]], Awaitable[object]],
        has_room: Callable[[], bool],
    ) -> dict[str, CallError]:
        """
        Fetch refs in groups, and as many as possible if some cannot be fetched.

        :param fetch: fetches all refs of a group, or fails.
        :param has_room: tells whether another group may be fetched.
        :returns: the errors of refs that were fetched alone and failed.  Other refs may
            be missing, too.
        """
        groups = deque(
            refs[begin : begin + MAX_TOGETHER]
            for begin in range(0, len(refs), MAX_TOGETHER)
        )
        errors: dict[str, CallError] = {}
        failures = 0
        # Halves come last, so that a bad group does not stop the others.
        while groups and failures < MAX_FAILURES and has_room():
            group = groups.popleft()
            try:
                await fetch(group)
            except CallError as error:
                failures += 1
                middle = len(group) // 2
                if middle:
                    groups += (group[:middle], group[middle:])
                else:
                    errors[group[0]] = error
                    self.fetched(group[0], failed=True)
        return errors
