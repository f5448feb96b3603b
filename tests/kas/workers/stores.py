"""Stores of modules that nothing is kept in."""

from __future__ import annotations

from twisted.internet.task import Clock

from tunnel.hosting.stores import Stores


def stores() -> Stores:
    """For limits, which need none."""

    def none() -> object:
        raise AssertionError("nothing is stored here")

    return Stores(none, Clock())  # type: ignore[arg-type]
