"""Limits that the workers of one kas share, for one module."""

from __future__ import annotations

from collections.abc import Callable

from zope.interface import implementer

from tunnel.api import ISharedCount, IWorkers
from tunnel.hosting.scope import ModuleScope

__all__ = ["ModuleWorkers"]


@implementer(IWorkers)
class ModuleWorkers:
    """
    See `IWorkers`.

    :param count: makes a counter from a limit's name and its maximum; None if this
        process is the whole kas.
    """

    def __init__(
        self, scope: ModuleScope, count: Callable[[str, int], ISharedCount] | None
    ) -> None:
        self._name = scope.name
        self._count = count

    def count_together(self, limit: str, most: int) -> ISharedCount | None:
        """Return a counter that the workers of this kas share."""
        count = self._count
        return None if count is None else count(f"{self._name}/{limit}", most)
