"""Requests of operators: the state of deliveries, and another attempt."""

from __future__ import annotations

import time
from typing import Any

import attrs

from modules.webhooks.server.stored import StoredDeliveries, StoredDelivery
from modules.webhooks.wire import webhooks_pb2 as wire
from tunnel.api import CLIENT_ADDRESS, OPERATOR, AuditEvent, IAudit
from tunnel.errors import CallError, Status

__all__ = ["CONTROL", "WebhookControlServer"]

CONTROL = wire.DESCRIPTOR.services_by_name["WebhooksControl"]

#: Maximum number of names of agents or targets in an error, and maximum characters of
#: a name and of a detail in the audit log.
MAX_NAMES, MAX_TEXT = 10, 200

#: Number of attempts to change a value that another kas changes at the same time.
TRIES = 5


@attrs.frozen
class WebhookControlServer:
    """
    Implementation of `WebhooksControl` on the external API.

    The store answers, so an operator sees the deliveries of agents that are away or
    connected to another kas.
    """

    stored: StoredDeliveries
    audit: IAudit

    async def list_deliveries(
        self, request: wire.ListDeliveriesRequest, call: Any
    ) -> wire.ListDeliveriesResponse:
        """Return the state of an agent's deliveries, sorted by target and ref."""
        found = await self._of_agent(request.agent)
        return wire.ListDeliveriesResponse(
            deliveries=[one.state for one in _sorted(found)]
        )

    async def resend(
        self, request: wire.ResendRequest, call: Any
    ) -> wire.ResendResponse:
        """Plan an attempt now, and record the request in the audit log."""
        outcome = Status.CANCELLED
        try:
            response = await self._resend(request)
            outcome = Status.OK
        except CallError as error:
            outcome = error.status
            raise
        finally:
            details = {
                "agent": request.agent,
                "target": request.target,
                "ref": request.ref,
                "operator": call.metadata.get(OPERATOR, ""),
                "client": call.metadata.get(CLIENT_ADDRESS, ""),
                "user_agent": call.metadata.get("user-agent", ""),
            }
            said = {name: text[:MAX_TEXT] for name, text in details.items() if text}
            self.audit.record(AuditEvent("webhooks.resend", None, outcome.name, said))
        return response

    async def _resend(self, request: wire.ResendRequest) -> wire.ResendResponse:
        every = await self._of_agent(request.agent)
        chosen = [
            one
            for one in every
            if one.state.target == request.target and request.ref in ("", one.state.ref)
        ]
        if not chosen:
            known = sorted({f"{one.state.target} {one.state.ref}" for one in every})
            what = f"{request.target[:MAX_TEXT]!r}"
            if request.ref:
                what += f" with the ref {request.ref[:MAX_TEXT]!r}"
            raise CallError(
                Status.NOT_FOUND,
                f"the agent has no target {what}; it has: {_named(known)}",
            )
        if not any(one.state.after for one in chosen):
            raise CallError(
                Status.FAILED_PRECONDITION,
                "kas has not read a commit of this target yet; see "
                "'kasctl webhooks list'",
            )
        sent = [await self._again(one) for one in _sorted(chosen) if one.state.after]
        return wire.ResendResponse(deliveries=sent)

    async def _again(self, delivery: StoredDelivery) -> wire.DeliveryState:
        for _ in range(TRIES):
            state = delivery.state
            state.state, state.attempts = wire.PENDING, 0
            state.next_attempt.FromMicroseconds(int(time.time() * 1e6))
            try:
                await self.stored.write(delivery)
            except CallError as error:
                if error.status is not Status.ABORTED:
                    raise
                found = await self.stored.read(delivery.key)
                if found is None:
                    break
                delivery = found
            else:
                return state
        text = "the delivery changes all the time; try again"
        raise CallError(Status.UNAVAILABLE, text)

    async def _of_agent(self, wanted: str) -> list[StoredDelivery]:
        """
        Return the deliveries of an agent by its id, its name, or ``project:name``.

        :raises CallError: NOT_FOUND if the agent has none; FAILED_PRECONDITION if
            several agents have this name.
        """
        if not wanted:
            raise CallError(Status.INVALID_ARGUMENT, "agent has to name an agent")
        keys: dict[str, list[str]] = {}
        async for key in self.stored.keys():
            keys.setdefault(self.stored.agent_of(key), []).append(key)
        chosen, names = [wanted] if wanted in keys else [], []
        for agent_id, of_agent in keys.items() if not chosen else ():
            # Each value names the agent, so one value suffices.
            first = await self.stored.read(of_agent[0])
            if first is None:
                continue
            name, project = first.state.agent_name, first.state.project
            whole = f"{project}:{name}" if project else name
            names.append(whole)
            if wanted in (name, whole):
                chosen.append(agent_id)
        if len(chosen) > 1:
            text = (
                f"several agents are called {wanted[:MAX_TEXT]!r}: give one of these "
                f"ids: {_named(sorted(chosen))}"
            )
            raise CallError(Status.FAILED_PRECONDITION, text)
        if not chosen:
            raise CallError(
                Status.NOT_FOUND,
                f"kas knows no webhooks of an agent {wanted[:MAX_TEXT]!r}; agents with "
                f"webhooks: {_named(sorted(names))}",
            )
        found = [await self.stored.read(key) for key in keys[chosen[0]]]
        return [one for one in found if one is not None]


def _sorted(deliveries: list[StoredDelivery]) -> list[StoredDelivery]:
    return sorted(deliveries, key=lambda one: (one.state.target, one.state.ref))


def _named(names: list[str]) -> str:
    shown = ", ".join(one[:MAX_TEXT] for one in names[:MAX_NAMES]) or "none"
    more = len(names) - MAX_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
