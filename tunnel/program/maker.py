"""Our programs as plugins of twistd."""

from __future__ import annotations

import select
import sys
from typing import Any

from twisted.application.service import ServiceMaker

__all__ = ["ProgramMaker"]


class ProgramMaker(ServiceMaker):
    """Makes kas or agentk, in a reactor of ours unless another one was chosen."""

    def __init__(self, name: str, description: str) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            name, f"{name}.tap", description, name
        )

    @property
    def options(self) -> Any:
        """Its options; twistd asks for them when it has read its own."""
        # First, because much of what a program imports installs the default one.
        if "twisted.internet.reactor" not in sys.modules and hasattr(select, "epoll"):
            from tunnel.program.reactor import install

            install()
        return super().options
