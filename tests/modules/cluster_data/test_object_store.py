"""The objects of one kind: compressed, and with their changes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from modules.cluster_data.agent.objects import store as store_module
from modules.cluster_data.agent.objects.packing import Packer
from modules.cluster_data.agent.objects.store import KeptKey, ObjectStore
from tests.modules.cluster_data.pair import deployment
from tunnel.api import KubernetesResource, PrintedObject

MAPS = KubernetesResource("", "v1", "ConfigMap", "configmaps", True)


def printed(name: str, version: str, **more: Any) -> PrintedObject:
    metadata = {"name": name, "resourceVersion": version, "managedFields": [{"a": 1}]}
    text = json.dumps({"metadata": metadata} | more).encode()
    return PrintedObject(msgspec.Raw(text))


class Kind:
    """A store, and the events of its watch."""

    def __init__(self) -> None:
        self.store = ObjectStore(MAPS, 0.0)

    def put(self, name: str, version: str, **more: Any) -> None:
        found = printed(name, version, **more)
        self.store.put(KeptKey("a", name), version, found)

    def delete(self, name: str, version: str) -> None:
        self.store.delete(KeptKey("a", name), version, printed(name, version))

    def read(self, version: str, **objects: str) -> None:
        """Read all objects, with their versions."""
        self.store.begin()
        for name, own in objects.items():
            self.put(name, own)
        self.store.complete(version, b"")

    def names(self) -> list[str]:
        return [key.name for key, _ in self.store.select("", "")]

    def changes(self, version: str) -> list[str] | None:
        position = self.store.position_at(version)
        if position is None:
            return None
        return [
            f"{one.key.name}@{one.version}" + ("" if one.after else "!")
            for one in self.store.since(position, 100) or ()
        ]


def test_order() -> None:
    """The order is that of the keys in etcd: a minus sorts before a slash."""
    store, keys = ObjectStore(MAPS, 0.0), [("shop", "b"), ("shop-test", "a")]
    store.begin()
    for key in [*keys, ("shop", "a"), ("a", "z")]:
        store.put(KeptKey(*key), "1", printed(key[1], "1"))
    store.complete("1", b"")
    found = [f"{key.namespace}/{key.name}" for key, _ in store.select("", "")]
    assert found == ["a/z", "shop-test/a", "shop/a", "shop/b"]


def test_changes_since_a_version() -> None:
    kind = Kind()
    kind.read("10", one="3", two="7")
    kind.put("three", "11")
    kind.put("one", "12")
    kind.delete("two", "13")
    assert kind.names() == ["one", "three"]
    assert kind.changes("10") == ["three@11", "one@12", "two@13!"]
    assert kind.changes("11") == ["one@12", "two@13!"]
    assert kind.changes("13") == []
    assert kind.changes("9") is None
    assert kind.changes("text") is None
    kind.store.reached("20")
    assert kind.changes("15") == [] and kind.store.version == "20"
    assert kind.store.is_ahead("21") and not kind.store.is_ahead("20")


def test_differences_after_reading_again() -> None:
    """Readers see the previous objects until all have arrived."""
    kind = Kind()
    kind.read("10", one="3", two="7", three="8")
    kind.store.begin()
    kind.put("four", "15")
    kind.put("one", "12")
    kind.put("three", "8")
    assert (kind.names(), kind.store.version) == (["one", "three", "two"], "10")
    kind.store.complete("20", b"")
    assert (kind.names(), kind.store.version) == (["four", "one", "three"], "20")
    assert kind.changes("10") == ["one@12", "four@15", "two@20!"]


@pytest.mark.parametrize(
    ("version", "own"), [("5", "4"), ("20", "8"), ("x", "y"), ("20", "30")]
)
def test_versions_in_no_order(version: str, own: str) -> None:
    """After etcd was restored, every reader reads the list again."""
    kind = Kind()
    kind.read("10", one="3", two="7")
    position = kind.store.position
    kind.read(version, one=own)
    assert kind.names() == ["one"] and kind.store.version == version
    assert kind.store.since(position, 10) is None
    assert kind.changes("10") is None or version == "5"
    assert kind.store.count == 1


def test_limits_of_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_CHANGES", 3)
    kind = Kind()
    kind.read("10")
    size = kind.store.size
    for number in range(11, 16):
        kind.put("one", str(number))
    assert kind.changes("12") == ["one@13", "one@14", "one@15"]
    assert kind.changes("11") is None
    monkeypatch.setattr(store_module, "MAX_CHANGES_SIZE", 0)
    kind.delete("one", "16")
    assert kind.changes("16") == [] and kind.changes("15") is None
    assert kind.store.size == size == 0


def test_packed_objects_are_small() -> None:
    packer = Packer(KubernetesResource("apps", "v1", "Deployment", "x", True))
    sizes = []
    for number in range(10):
        found = deployment(f"web-{number}", image=f"registry.example.org/web:{number}")
        found["metadata"]["managedFields"] = [{"fieldsV1": {"f:a": {}}}]
        raw = msgspec.Raw(json.dumps(found).encode())
        cells = msgspec.Raw(b'["web", 1]')
        packed = packer.pack(PrintedObject(raw, cells))
        sizes.append(len(packed) / len(bytes(raw)))
        back = packer.unpack(packed)
        del found["metadata"]["managedFields"]
        assert json.loads(back.text) == found
        assert back.cells == b'["web",1]'
    assert max(sizes) < 0.2


def test_an_object_without_metadata() -> None:
    kind = Kind()
    kind.store.put(KeptKey("a", "x"), "1", PrintedObject(msgspec.Raw(b"{}")))
    kind.store.put(KeptKey("a", "x"), "1", PrintedObject(msgspec.Raw(b"nothing")))
    assert kind.names() == []
