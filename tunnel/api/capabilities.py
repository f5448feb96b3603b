"""Capabilities that modules of one program offer to each other."""

from __future__ import annotations

from typing import Any

from zope.interface import Interface

__all__ = ["ICapabilities"]


class ICapabilities(Interface):
    """
    Objects of other modules, found by their interface: ``api.capabilities``.

    A module that offers an object declares a zope interface for it, in a package that
    both modules may import, and provides the object in its constructor.
    """

    def provide(interface: Any, implementation: object) -> None:
        """
        Offer *implementation* to other modules, until this module stops.

        :raises ValueError: *implementation* does not provide *interface*, or another
            module already offers this interface.
        """

    def get(interface: Any) -> Any:
        """
        Return the implementation of *interface*; None if no module offers one now.

        Call this method for each use, because the other module may restart.
        """
