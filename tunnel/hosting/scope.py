"""The registrations of one module with its program, from its creation to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from tunnel.toolkit.for_each import for_each

__all__ = ["ModuleScope"]


@attrs.define(eq=False)
class ModuleScope:
    """
    One life of a module, from its creation to its end; a module that restarts gets
    another scope.

    :ivar configuration: the parsed section of the module.
    :ivar path: position of the section: ``modules.echo``.
    :ivar fail: reports that the module cannot continue.
    """

    name: str
    configuration: Any
    fail: Callable[[Exception], None]
    path: str = ""
    _releases: list[Callable[[], object]] = attrs.field(
        factory=list, init=False, repr=False
    )

    def on_release(self, release: Callable[[], object]) -> None:
        """Call *release* when the module ends."""
        self._releases.append(release)

    def release(self) -> None:
        """Remove everything that the module registered; repeating it does nothing."""
        releases, self._releases = self._releases, []
        for_each(
            releases,
            lambda release: release(),
            "releasing a registration of module {name}",
            name=self.name,
        )
