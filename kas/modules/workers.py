"""Access of one module to the limits that the workers of one kas share."""

from __future__ import annotations

from collections.abc import Callable

from zope.interface import implementer

from tunnel.api import ISharedCount, IWorkers
from tunnel.hosting.scope import ModuleScope

__all__ = ["ModuleWorkers"]


@implementer(IWorkers)
class ModuleWorkers:
    """
    Implementation of `IWorkers` for one module.

    :param count: function that returns a counter for the name of a limit and its
        maximum; None if kas has no other process.
    """

    def __init__(
        self, scope: ModuleScope, count: Callable[[str, int], ISharedCount] | None
    ) -> None:
        self._name = scope.name
        self._count = count

    def count_together(self, limit: str, most: int) -> ISharedCount | None:
        """
        Return a counter that the workers of this kas share; None if kas has no other
        process.
        """
        count = self._count
        return None if count is None else count(f"{self._name}/{limit}", most)
