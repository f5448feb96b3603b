"""Commands of `kasctl` for a running kas: see `ProcessSocket`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.interfaces import IReactorTime

from tunnel.program.site import Page, Site, as_json

__all__ = ["Controlled", "control_site"]


class Controlled(Protocol):
    """Methods of kas that `kasctl` calls."""

    def drain(self) -> None:
        """Send every agent elsewhere, take no new ones, and be not ready."""

    def undrain(self) -> None:
        """Take agents again."""

    def rebalance(self) -> int:
        """Send away what is above the mean; how many were asked."""

    async def agents(self) -> dict[str, Any]:
        """Every agent: whether, where and since when it is connected, or last was."""

    async def peers(self) -> dict[str, Any]:
        """Return the state of the other kas, after dialling those without a session."""

    def progress(self) -> dict[str, Any]:
        """How far it is: what is still here."""


def control_site(kas: Controlled, clock: IReactorTime) -> Site:
    """JSON: ``POST /drain``, ``/undrain``, ``/rebalance``; ``GET`` of what is known."""

    def rebalance() -> Page:
        asked = kas.rebalance()
        return as_json(kas.progress() | ({"asked": asked} if asked else {}))

    def then_progress(act: Callable[[], None]) -> Callable[[], Page]:
        def handle() -> Page:
            act()
            return as_json(kas.progress())

        return handle

    async def agents() -> Page:
        return as_json(await kas.agents())

    async def peers() -> Page:
        return as_json(await kas.peers())

    return Site(
        {
            "/": lambda: as_json(kas.progress()),
            "/agents": agents,
            "/peers": peers,
        },
        clock,
        {
            "/drain": then_progress(kas.drain),
            "/undrain": then_progress(kas.undrain),
            "/rebalance": rebalance,
        },
    )
