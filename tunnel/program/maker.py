"""The programs as plugins of twistd."""

from __future__ import annotations

import select
import sys
from typing import Any

from twisted.application.service import ServiceMaker

__all__ = ["ProgramMaker"]


class ProgramMaker(ServiceMaker):
    """
    Maker of the service of kas or agentk, with our reactor unless another one was
    chosen.
    """

    def __init__(self, name: str, description: str) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            name, f"{name}.tap", description, name
        )

    @property
    def options(self) -> Any:
        """
        Return the program's options; twistd calls this method after it has parsed its
        own options.
        """
        # The reactor is installed first, because many imports of a program install the
        # default reactor.
        if "twisted.internet.reactor" not in sys.modules and hasattr(select, "epoll"):
            from tunnel.program.reactor import install

            install()
        return super().options
