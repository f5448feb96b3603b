"""Call a function for each item; log exceptions and continue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from twisted.logger import Logger

__all__ = ["for_each"]

_T = TypeVar("_T")
_log = Logger()


def for_each(
    members: Iterable[_T], action: Callable[[_T], object], what: str, **fields: Any
) -> None:
    """
    Call *action* for each item; log an exception and continue with the others.

    :param what: the name of the action for the log, such as "the flush of
        {connection}".
    :param fields: the values of the fields in *what*.
    """
    for member in members:
        try:
            action(member)
        except BaseException:
            # The other items are independent.
            _log.failure(f"{what} failed", **fields)
