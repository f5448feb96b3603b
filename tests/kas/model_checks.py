"""What has to hold between processes of the model check, whatever happened."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from kas.routing.router import AgentPath
from tests.kas.many import Kas
from tests.kas.model import ModelAgent


class GatewayGuard:
    """
    Sees to it that a gateway follows, and looks for no path by itself.

    :param problems: takes what is found, where an exception would only end a stream.
    """

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems
        self._in_gateway = 0
        self._open, self._resume = AgentPath.open, AgentPath.resume
        AgentPath.open = self._guarded(AgentPath.open)  # type: ignore[method-assign]
        AgentPath.resume = self._guarded(AgentPath.resume)  # type: ignore[method-assign]

    def _guarded(self, real: Any) -> Any:
        def call(path: AgentPath, *args: Any, **kwargs: Any) -> Any:
            if self._in_gateway:
                self._problems.append("a gateway looked for another path")
            return real(path, *args, **kwargs)

        return call

    def watch(self, kas: Kas) -> None:
        """Guard the gateway of a kas."""
        for name in ("stream_opened", "stream_resumed"):
            setattr(kas.gateway, name, self._inside(getattr(kas.gateway, name)))

    def _inside(self, real: Any) -> Any:
        def call(*args: Any) -> Any:
            self._in_gateway += 1
            try:
                return real(*args)
            finally:
                self._in_gateway -= 1

        return call

    def end(self) -> None:
        """Leave everything as it was."""
        AgentPath.open, AgentPath.resume = self._open, self._resume  # type: ignore[method-assign]


def knows_enough(kas: Kas, all_kas: Iterable[Kas]) -> bool:
    """It heard of everyone whom Redis does not tell it of, or of it."""
    known = {one.kas_id for one in kas.directory.peers()}
    return all(
        other is kas
        or other.me.kas_id in known
        or not (kas.store.cut or other.store.cut)
        for other in all_kas
    )


def check_routes(all_kas: Collection[Kas], ids: Iterable[str]) -> None:
    """All that is known of these agents is right."""
    here = {kas.me.kas_id: kas for kas in all_kas}
    for id_ in sorted(ids):
        for kas in all_kas:
            for record in kas.directory.routes(id_):
                holder = here.get(record.kas_id)
                assert holder is not None, "a kas that is dead"
                agent = record.agent
                held = holder.registry.instance(id_, agent.instance_id)
                assert held is not None, "an instance that is dead"
                assert held.agent == agent, "a connection that is dead"


def check_nothing_left(all_kas: Iterable[Kas], live: Collection[ModelAgent]) -> None:
    """What was added was taken away again."""
    here = sum(len(kas.registry) for kas in all_kas)
    assert here == len(live), f"{here} connections of {len(live)} agents"
    for kas in all_kas:
        router = kas.router
        left = {
            "waiting": router.waiting,
            "remote": router.remote,
            "relayed": kas.gateway.load,
            "kept": router.keeper.held,
            "watchers": len(kas.directory._waiters.waiting),
            "waiters": kas.registry.waiting,
            "look": router._look is not None,
            "streams": sum(one.tunnel.load for one in kas.registry),
        }
        assert not any(left.values()), f"kas {kas.number}: {left}"
    for agent in live:
        keeper = agent.dialer.keeper
        assert (keeper.held, len(keeper)) == (0, 0), "agentk keeps it"
