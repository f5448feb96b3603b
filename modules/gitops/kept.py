"""
What objects were before agentk deleted them or took their fields from others.

    ConfigMap kept-ID    binaryData, one key for each: <seconds>-<which one>

It is written before what it is about is done.  Git does not have these states, so that
nothing else could bring them back.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from hashlib import sha256
from typing import Any, Literal

import attrs
from twisted.internet.threads import deferToThread

from modules.gitops.brakes import OWNER, owner_of
from modules.gitops.manifests import ObjectKey
from modules.gitops.recreate import restorable
from tunnel.errors import CallError, Status
from tunnel.interfaces import IKubernetesClient, KubernetesObject, KubernetesResource

__all__ = ["KEPT_LABEL", "KeptState", "KeptStates", "Replaced"]

#: States of one source that are kept, the newest ones; and for how many seconds.
MAX_STATES, MAX_AGE = 200, 30 * 24 * 3600.0

#: Bytes of all of them, as they stand there: a ConfigMap has room for a megabyte.
MAX_BYTES = 700 * 1024

#: Bytes of one, compressed; what is larger is not kept.
MAX_ONE = 100 * 1024

#: Bytes of all that are read, unpacked: people may write there.
MAX_READ = 32 * 1024**2

#: Seconds that another agentk's clock may be ahead, and the last one of any time.
AHEAD, MAX_TIME = 24 * 3600.0, 253_402_300_799

#: Characters of a part of a key, as API servers take them.
MAX_NAME = 253

#: Tries where another agentk writes at the same time.
TRIES = 3

_CONFIG_MAPS = KubernetesResource("", "v1", "ConfigMap", "configmaps", True)

#: On the ConfigMap, of which inventory it is.
KEPT_LABEL = "txkas/kept-of"


class Replaced(Enum):
    """What was about to happen to it."""

    PRUNED = "pruned"
    ADOPTED = "adopted"
    RECREATED = "recreated"
    REPAIRED = "repaired"


@attrs.frozen
class KeptState:
    """
    One object as it was.

    :ivar state_id: how people name it.
    :ivar at: seconds since 1970.
    :ivar uid: that it had; empty: it is not known.
    :ivar object: as it can be made again.
    """

    state_id: str
    at: float
    why: str
    key: ObjectKey
    uid: str
    object: KubernetesObject = attrs.field(repr=False)


class KeptStates:
    """
    Those of one source.

    :param namespace: that of the inventory.
    :param now: seconds since 1970.
    :param what: ``without_secrets``, ``all`` or ``none``.
    """

    def __init__(
        self,
        client: IKubernetesClient,
        inventory_id: str,
        namespace: Callable[[], str],
        now: Callable[[], float],
        what: Literal["without_secrets", "all", "none"],
    ) -> None:
        self._client = client
        self._id = inventory_id
        self._namespace = namespace
        self._now = now
        self._what = what

    async def read(self) -> list[KeptState]:
        """
        All of them, the newest last.

        :raises CallError: the cluster cannot be asked now.
        """
        there = await self._get()
        data = (there or {}).get("binaryData") or {}
        return await deferToThread(_read_all, data)

    async def replaced(self, key: ObjectKey, uid: str) -> KubernetesObject | None:
        """
        What an object was that was deleted to be made anew; None: it is not known.

        :param uid: that it had.
        :raises CallError: the cluster cannot be asked now.
        """
        for one in await self.read() if uid else ():
            if (one.why, one.key, one.uid) == (Replaced.RECREATED.value, key, uid):
                return one.object
        return None

    async def keep(self, why: Replaced, objects: Iterable[KubernetesObject]) -> None:
        """
        Write down what *objects* are now.

        :raises CallError: it cannot be written, and they should stay as they are.
        """
        # Beside the reactor: they may be large, and many.
        new = await deferToThread(lambda: dict(self._written(why, objects)))
        for _ in range(TRIES if new else 0):
            there = await self._get()
            before = (there or {}).get("binaryData") or {}
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
                await self._put(there, data)
                return
            except CallError as error:
                if error.status is not Status.ABORTED:
                    raise
        if new:
            text = "others write what objects were at the same time"
            raise CallError(Status.UNAVAILABLE, text)

    def _written(
        self, why: Replaced, objects: Iterable[KubernetesObject]
    ) -> Iterator[tuple[str, str]]:
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
            names = (uid, metadata.get("resourceVersion", ""))
            digest = sha256("\0".join(names).encode()).hexdigest()[:12]
            yield f"{self._now():.0f}-{digest}", base64.b64encode(packed).decode()

    def _limited(self, data: dict[str, str]) -> dict[str, str]:
        """
        The newest ones.

        Those that are of the future come last: where a clock was wrong once, they would
        else keep all others out until then.
        """
        kept: dict[str, str] = {}
        now, size = self._now(), 0

        def rank(name: str) -> tuple[bool, float]:
            time = _time_in(name)
            return time <= now + AHEAD, time

        for name in sorted(data, key=rank, reverse=True):
            if _time_in(name) < now - MAX_AGE:
                continue
            size += len(name) + len(data[name])
            if len(kept) == MAX_STATES or size > MAX_BYTES:
                break
            kept[name] = data[name]
        return kept

    @property
    def _name(self) -> str:
        return f"kept-{self._id}"

    async def _get(self) -> dict[str, Any] | None:
        try:
            found = await self._client.get(_CONFIG_MAPS, self._name, self._namespace())
        except CallError as error:
            if error.status is Status.NOT_FOUND:
                return None
            raise
        labels = found["metadata"].get("labels") or {}
        if owner_of(found) or labels.get(KEPT_LABEL) != self._id:
            # People apply what stands there, and take it for what was in the cluster.
            raise CallError(
                Status.FAILED_PRECONDITION,
                f"the ConfigMap {self._namespace()}/{self._name} is not agentk's own: "
                "look who wrote it, and remove it",
            )
        return found

    async def _put(self, there: dict[str, Any] | None, data: dict[str, str]) -> None:
        path = f"/api/v1/namespaces/{self._namespace()}/configmaps"
        metadata = {"name": self._name, "labels": {KEPT_LABEL: self._id}}
        object_ = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "binaryData": data,
        }
        if there is None:
            await self._client.json("POST", path, object_)
            return
        metadata["resourceVersion"] = there["metadata"]["resourceVersion"]
        await self._client.json("PUT", f"{path}/{self._name}", object_)


def _time_in(name: str) -> float:
    text = name.partition("-")[0]
    time = float(text) if text.isdecimal() and len(text) < 20 else 0.0
    return time if time <= MAX_TIME else 0.0


def _read_all(data: Mapping[str, str]) -> list[KeptState]:
    """The newest last; without what nobody but a person wrote."""
    found: list[KeptState] = []
    left = MAX_READ
    for name in sorted(data, key=_time_in, reverse=True):
        try:
            packed = base64.b64decode(data[name], validate=True)
            text = zlib.decompressobj().decompress(packed, left)
        except (ValueError, zlib.error):
            continue
        left -= len(text)
        if left <= 0 or len(found) == MAX_STATES:
            break
        state = _read(name, text)
        if state is not None:
            found.append(state)
    return sorted(found, key=lambda one: one.at)


def _read(name: str, text: bytes) -> KeptState | None:
    """None: nobody but a person wrote that."""
    try:
        found = json.loads(text)
        live = found["object"]
        metadata = live["metadata"]
        group, _, _ = live["apiVersion"].rpartition("/")
        key = ObjectKey(
            group, live["kind"], metadata.get("namespace", ""), metadata["name"]
        )
        why, uid = Replaced(found["why"]).value, str(found.get("uid", ""))
        # Halves of characters, too: what is not Unicode goes into no message.
        is_key = all(len(one.encode()) <= MAX_NAME for one in key)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not is_key:
        return None
    return KeptState(name.partition("-")[2], _time_in(name), why, key, uid, live)
