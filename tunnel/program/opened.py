"""
The description of an open port, for the process that opened it and for other processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

__all__ = ["Opened"]


@attrs.frozen
class Opened:
    """An open port."""

    #: The purpose of the listener.
    what: str
    #: ``host:port``, or the path of a Unix socket.
    address: str
    #: The certificate; None without TLS.
    certificate_file: Path | None = None
    #: The prefix of every path at this port, such as ``/k8s-proxy``.
    path: str = ""

    def to_json(self) -> dict[str, str | None]:
        """Return the description for other processes; see `from_json`."""
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
        Parse the description that another process created with `to_json`.

        :raises KeyError, TypeError: if *said* is not a description.
        """
        file = said["certificate_file"]
        return cls(
            str(said["for"]),
            str(said["address"]),
            Path(file) if file else None,
            # Descriptions from earlier versions do not contain a path.
            str(said.get("path", "")),
        )
