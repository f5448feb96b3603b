"""Capabilities that modules offer to each other."""

from __future__ import annotations

from typing import Any

from zope.interface import implementer
from zope.interface.exceptions import Invalid
from zope.interface.verify import verifyObject

from tunnel.api import ICapabilities
from tunnel.hosting.scope import ModuleScope

__all__ = ["CapabilityTable", "ModuleCapabilities"]


class CapabilityTable:
    """All capabilities of one program: their modules and objects, by interface."""

    def __init__(self) -> None:
        self._provided: dict[Any, tuple[str, object]] = {}

    def provide(self, owner: str, interface: Any, implementation: object) -> None:
        """
        Offer *implementation*.

        :raises ValueError: see `ICapabilities.provide`.
        """
        try:
            verifyObject(interface, implementation)
        except Invalid as error:
            raise ValueError(
                f"{type(implementation).__name__} does not provide "
                f"{interface.__name__}: {error}"
            ) from None
        taken = self._provided.get(interface)
        if taken is not None and taken[0] != owner:
            raise ValueError(f"module {taken[0]} already provides {interface.__name__}")
        self._provided[interface] = (owner, implementation)

    def get(self, interface: Any) -> Any:
        """Return the implementation; None if no module offers one."""
        _, implementation = self._provided.get(interface, ("", None))
        return implementation

    def withdraw(self, owner: str) -> None:
        """Remove everything that *owner* offers."""
        self._provided = {
            interface: entry
            for interface, entry in self._provided.items()
            if entry[0] != owner
        }


@implementer(ICapabilities)
class ModuleCapabilities:
    """Access of one module to the capabilities."""

    def __init__(self, scope: ModuleScope, capabilities: CapabilityTable) -> None:
        self._scope = scope
        self._capabilities = capabilities
        #: Returns the capability of a module: see `CapabilityTable.get`.
        self.get = capabilities.get
        scope.on_release(lambda: capabilities.withdraw(scope.name))

    def provide(self, interface: Any, implementation: object) -> None:
        """Offer *implementation* to other modules."""
        self._capabilities.provide(self._scope.name, interface, implementation)
