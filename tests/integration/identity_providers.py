"""A certified identity provider: oidc-provider of npm."""

from __future__ import annotations

from pathlib import Path

from tests.integration import node
from tests.integration.processes import Process
from tools.ports import free_port

__all__ = ["NodeProvider"]

_PROVIDER = Path(__file__).parent / "identity_provider"


class NodeProvider:
    """
    One that runs; each start has other keys, and knows no token.

    :param page: the port of the page that is a confidential client; 0 for none.
    """

    def __init__(self, folder: Path, page: int = 0) -> None:
        self._libraries = node.installed(_PROVIDER, "oidc-provider", "provider.js")
        self._log = folder / "provider.log"
        self._port = free_port()
        self._page = [str(page)] if page else []
        self.issuer = f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        """Run it."""
        program = self._libraries / "provider.js"
        command: list[str | Path] = ["node", program, str(self._port), *self._page]
        self.process = Process("the provider", command, self._log)
        self.process.wait_for(f"listening at {self.issuer}")

    def granted(self, kind: str) -> int:
        """How often this process gave tokens for it."""
        return self.process.said().count(f"granted {kind}\n")
