"""Roles that a peer announces in ``Hello.role``; each port of kas accepts its own."""

from __future__ import annotations

from typing import Final

__all__ = ["AGENT", "EXTRA_AGENT", "KAS"]

#: agentk, in service from now on.
AGENT: Final = "agent"

#: The same agentk with a further tunnel, to a kas that relays many requests to it.
EXTRA_AGENT: Final = "agent-extra"

#: Another kas.
KAS: Final = "kas"
