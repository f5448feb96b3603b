"""Limits that the workers of one kas share."""

from __future__ import annotations

from collections import Counter

from zope.interface import Attribute, Interface

__all__ = [
    "ISharedCount",
    "IWorkers",
]


class ISharedCount(Interface):
    """Counter, by key, of amounts in progress at all workers of one kas."""

    elsewhere: Counter[str] = Attribute(
        "Amounts in progress at other workers, accurate to a small step per worker."
    )

    def here(key: str, amount: int) -> None:
        """
        Set the amount that is in progress at this worker.

        A call is cheap, because kas informs the other workers only when the amount
        crosses a step.
        """


class IWorkers(Interface):
    """The other workers of this kas: `IServerModuleApi.workers`."""

    def count_together(limit: str, most: int) -> ISharedCount | None:
        """
        Return a counter that all workers of this kas share.

        :param limit: name of the limit within this module.
        :param most: the limit.
        :return: None if this kas has only one process.
        """
