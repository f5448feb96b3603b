"""Roles that a peer announces in ``Hello.role``; each port of kas accepts its own."""

from __future__ import annotations

from typing import Final

__all__ = ["AGENT", "EXTRA_AGENT", "KAS"]

#: The main tunnel of an agentk.
AGENT: Final = "agent"

#: An additional tunnel of the same agentk, to a kas that relays many requests to it.
EXTRA_AGENT: Final = "agent-extra"

#: Another kas.
KAS: Final = "kas"
