"""Description of an open port, for its own process and others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

__all__ = ["Opened"]


@attrs.frozen
class Opened:
    """A port that is open."""

    #: Purpose of the listener.
    what: str
    #: ``host:port``, or the path of a unix socket.
    address: str
    #: None: no TLS.
    certificate_file: Path | None = None
    #: Prefix of every path there, such as ``/k8s-proxy``.
    path: str = ""

    def to_json(self) -> dict[str, str | None]:
        """For other processes: see `from_json`."""
        file = self.certificate_file
        return {
            "for": self.what,
            "address": self.address,
            "certificate_file": None if file is None else str(file),
            "path": self.path,
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Opened:
        """
        Read the description from another process.

        :raises KeyError, TypeError: it is not a description.
        """
        file = said["certificate_file"]
        return cls(
            str(said["for"]),
            str(said["address"]),
            Path(file) if file else None,
            # One of before an upgrade says none.
            str(said.get("path", "")),
        )
