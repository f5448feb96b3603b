"""
States of objects before agentk deleted them or took over their fields.

    Secret gitops-kept-ID    data, one key for each state: <seconds>-<digest>

agentk writes a state before it changes the object.  Git does not contain these states,
so they could not be restored from another source.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from hashlib import sha256
from typing import Literal

import attrs
from twisted.internet.defer import DeferredLock
from twisted.internet.threads import deferToThread

from modules.gitops.agent.inventory.own_secret import OwnSecret
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.objects.owner_annotations import OWNER
from modules.gitops.agent.plan.recreate import restorable
from tunnel.api import IKubernetesClient, KubernetesObject
from tunnel.errors import CallError, Status
from tunnel.toolkit.single_object import object_name

__all__ = ["KeptState", "KeptStates", "Replaced"]

#: Maximum number of states of one source that are kept, and their maximum age in
#: seconds.
MAX_STATES, MAX_AGE = 200, 30 * 24 * 3600.0

#: Maximum number of states of one object: an object that changes all the time must not
#: displace the states of other objects.
MAX_OF_OBJECT = 10

#: Maximum bytes of all states, compressed: a Secret has room for a megabyte.
MAX_BYTES = 700 * 1024

#: Maximum bytes of one state, compressed; larger states are not kept.
MAX_ONE = 100 * 1024

#: Maximum bytes of all states, decompressed: enough for 200 objects of the largest
#: size.
MAX_READ = 32 * 1024**2

#: Maximum seconds that another agentk's clock may be ahead, and maximum valid time.
AHEAD, MAX_TIME = 24 * 3600.0, 253_402_300_799

#: Maximum number of attempts to write, because another agentk may write at the same
#: time.
TRIES = 3


class Replaced(Enum):
    """Kind of change that replaced a state of an object."""

    PRUNED = "pruned"
    ADOPTED = "adopted"
    RECREATED = "recreated"
    REPAIRED = "repaired"


@attrs.frozen
class KeptState:
    """
    Earlier state of one object.

    :ivar state_id: the name of the state in commands.
    :ivar at: when the state was kept, in seconds since 1970.
    :ivar uid: the uid of the object; empty if unknown.
    :ivar object: the object in a form that can be created again.
    """

    state_id: str
    at: float
    why: str
    key: ObjectKey
    uid: str
    object: KubernetesObject = attrs.field(repr=False)


class KeptStates:
    """
    Earlier states of one project's objects.

    :param namespace: agentk's own Namespace.
    :param now: returns the time in seconds since 1970.
    :param what: ``without_secrets``, ``all`` or ``none``.
    """

    def __init__(
        self,
        client: IKubernetesClient,
        inventory_id: str,
        namespace: str,
        now: Callable[[], float],
        what: Literal["without_secrets", "all", "none"],
    ) -> None:
        self._secret = OwnSecret(
            client, namespace, f"gitops-kept-{inventory_id}", inventory_id
        )
        self._now = now
        self._what = what
        #: Lock of `keep`, because objects are changed at the same time.
        self._keeping = DeferredLock()

    async def read(self) -> list[KeptState]:
        """
        Return all states, the newest last.

        :raises CallError: if the API server is unavailable.
        """
        return await deferToThread(_read_all, await self._secret.read())

    async def replaced(self, key: ObjectKey, uid: str) -> KubernetesObject | None:
        """
        Return an object that agentk deleted to recreate it; None if no such state is
        known.

        :param uid: the uid of the deleted object.
        :raises CallError: if the API server is unavailable.
        """
        for one in await self.read() if uid else ():
            if (one.why, one.key, one.uid) == (Replaced.RECREATED.value, key, uid):
                return one.object
        return None

    async def keep(self, why: Replaced, objects: Iterable[KubernetesObject]) -> None:
        """
        Keep the current states of *objects*.

        :raises CallError: if the states cannot be written, so that the objects should
            not be changed.
        """
        # Compress the states in a thread, because the objects may be large and many.
        new = await deferToThread(lambda: dict(self._written(why, objects)))
        async with self._keeping:
            await self._add(new)

    async def _add(self, new: Mapping[str, bytes]) -> None:
        for _ in range(TRIES if new else 0):
            before = await self._secret.read()
            known = {name.partition("-")[2] for name in before}
            data = before | {
                name: value
                for name, value in new.items()
                if name.partition("-")[2] not in known
            }
            data = self._limited(data)
            if data == before:
                return
            try:
                await self._secret.write(data)
                return
            except CallError as error:
                if error.status is not Status.ABORTED:
                    raise
        if new:
            text = "another agentk is keeping states at the same time"
            raise CallError(Status.UNAVAILABLE, text)

    def _written(
        self, why: Replaced, objects: Iterable[KubernetesObject]
    ) -> Iterator[tuple[str, bytes]]:
        if self._what == "none":
            return
        for live in deque(objects, MAX_STATES):
            secret = (live.get("apiVersion"), live.get("kind")) == ("v1", "Secret")
            if secret and self._what != "all":
                continue
            found = restorable(live)
            annotations = found["metadata"].get("annotations") or {}
            annotations.pop(OWNER, None)
            metadata = live["metadata"]
            uid = metadata.get("uid", "")
            text = json.dumps({"why": why.value, "uid": uid, "object": found})
            packed = zlib.compress(text.encode())
            if len(packed) > MAX_ONE:
                continue
            version = metadata.get("resourceVersion", "")
            yield f"{self._now():.0f}-{_state_id(uid, version)}", packed

    def _limited(self, data: Mapping[str, bytes]) -> dict[str, bytes]:
        """
        Return the newest states.

        States with a time in the future are ranked last: otherwise states from an
        agentk whose clock was wrong would displace all other states until that time.
        """
        kept: dict[str, bytes] = {}
        now, size = self._now(), 0

        def rank(name: str) -> tuple[bool, float]:
            time = _time_in(name)
            return time <= now + AHEAD, time

        of_object: Counter[str] = Counter()
        for name in sorted(data, key=rank, reverse=True):
            of_object[_object_in(name)] += 1
            is_old = _time_in(name) < now - MAX_AGE
            if is_old or of_object[_object_in(name)] > MAX_OF_OBJECT:
                continue
            size += len(name) + len(data[name])
            if len(kept) == MAX_STATES or size > MAX_BYTES:
                break
            kept[name] = data[name]
        return kept


def _state_id(uid: str, version: str) -> str:
    """Return the id of a state, whose first half is the same for all of its object."""
    whole = f"{uid}\0{version}"
    halves = (sha256(one.encode()).hexdigest()[:8] for one in (uid, whole))
    return "".join(halves)


def _object_in(name: str) -> str:
    return name.partition("-")[2][:8]


def _time_in(name: str) -> float:
    text = name.partition("-")[0]
    time = float(text) if text.isdecimal() and len(text) < 20 else 0.0
    return time if time <= MAX_TIME else 0.0


def _read_all(data: Mapping[str, bytes]) -> list[KeptState]:
    """Return the states that agentk wrote, the newest last."""
    found: list[KeptState] = []
    left = MAX_READ
    for name in sorted(data, key=_time_in, reverse=True):
        try:
            text = zlib.decompressobj().decompress(data[name], left)
        except zlib.error:
            continue
        left -= len(text)
        if left <= 0 or len(found) == MAX_STATES:
            break
        state = _read(name, text)
        if state is not None:
            found.append(state)
    return sorted(found, key=lambda one: one.at)


def _read(name: str, text: bytes) -> KeptState | None:
    """Return one state; None if agentk did not write it."""
    try:
        found = json.loads(text)
        live = found["object"]
        key = ObjectKey(*object_name(live))
        why, uid = Replaced(found["why"]).value, str(found.get("uid", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return KeptState(name.partition("-")[2], _time_in(name), why, key, uid, live)
