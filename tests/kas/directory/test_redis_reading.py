"""What stands in Redis as kas reads it; tests/integration has the rest."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from kas.directory.redis_layout import Layout
from kas.directory.redis_reading import (
    MAX_BYTES,
    MAX_DEAD_FIELDS,
    MAX_FIELDS,
    MAX_KAS,
    MAX_RECORD,
    PAGE_FIELDS,
    StoreReader,
    read_lease,
    read_record,
)
from kas.directory.store import StoreDown
from kas.pb import store_pb2
from kas.redis import RedisRefused
from tests.kas.directory.memory import kas, record

LAYOUT = Layout("kas")


class FakeClient:
    """A Redis with hashes, one set and leases, which counts the pages that it sends."""

    def __init__(self) -> None:
        self.hashes: dict[bytes, dict[bytes, bytes]] = {}
        self.leases: dict[bytes, bytes] = {}
        self.foreigners: list[bytes] = []
        self.sent: list[Any] = []
        self.fields = 0

    def hold(self, number: int, values: list[bytes]) -> None:
        """Let a living kas have *values*."""
        holder = kas(number)
        lease = store_pb2.Lease(kas=holder.to_message())
        self.leases[LAYOUT.lease(holder.kas_id)] = lease.SerializeToString()
        self.hashes[LAYOUT.held(holder.kas_id)] = {
            b"%d" % index: value for index, value in enumerate(values)
        }

    def call(self, name: str, *arguments: Any) -> Deferred[Any]:
        if name == "SMEMBERS":
            return succeed([kas(n).kas_id for n in range(2, len(self.hashes) + 2)])
        if name == "MGET":
            return succeed([self.leases.get(key) for key in arguments])
        key, cursor = arguments[0], int(arguments[1])
        there = list(self.hashes.get(key, {}).items())
        page = there[cursor : cursor + PAGE_FIELDS]
        self.fields += len(page)
        after = cursor + PAGE_FIELDS
        following = b"%d" % after if after < len(there) else b"0"
        return succeed([following, [part for pair in page for part in pair]])

    def foreign(self, key: bytes) -> None:
        self.foreigners.append(key)

    def transaction(self, commands: list[Any]) -> Deferred[Any]:
        self.sent.append(commands)
        return succeed([])


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


@pytest.fixture
def reader(client: FakeClient) -> StoreReader:
    """The reader of kas number 1."""
    fake: Any = client
    return StoreReader(fake, LAYOUT, kas(1).kas_id)


def result_of(coroutine: Any) -> Any:
    found: list[Any] = []
    Deferred.fromCoroutine(coroutine).addBoth(found.append)
    (result,) = found
    return result


def values(count: int, at: int, text: str = "", **options: Any) -> list[bytes]:
    one = record(at=at, **options).to_message()
    one.pod_name = text
    return [one.SerializeToString()] * count


def test_the_agents_of_a_large_installation(
    client: FakeClient, reader: StoreReader
) -> None:
    """10,000 agents with two replicas at five kas, twice while they move."""
    for number in range(2, 7):
        client.hold(number, values(8_000, number, "x" * 300))
    assert len(result_of(reader.listed())) == 40_000
    (held, *_) = client.hashes.values()
    assert 350 < len(held[b"0"]) < 500


@pytest.mark.parametrize("limit", ["fields", "bytes"])
def test_too_much_in_all(client: FakeClient, reader: StoreReader, limit: str) -> None:
    """No hash is too large, so kas removes none, and it reads no further one."""
    text, count = ("", MAX_FIELDS // 4) if limit == "fields" else ("x" * 30_000, 300)
    for number in range(2, 14):
        client.hold(number, values(count, number, text))
    result = result_of(reader.listed())
    assert isinstance(result, Failure)
    problem = str(result.value)
    assert result.check(StoreDown)
    assert problem == (
        "the agents of all kas in Redis have more than 50000 fields or 32 MiB: "
        "check which other program writes below kas"
    )
    if limit == "fields":
        assert client.fields == MAX_FIELDS + count
    else:
        assert MAX_BYTES < client.fields * len(values(1, 2, text)[0])
        assert client.fields <= 4 * 300
    assert client.foreigners == []
    # The limits apply to each call.
    assert result_of(reader.find("x")) == []


def test_too_much_in_one_hash(client: FakeClient, reader: StoreReader) -> None:
    client.hold(2, values(10, 2))
    client.hold(3, values(MAX_FIELDS + 1, 3))
    result = result_of(reader.listed())
    assert result.check(StoreDown)
    assert "held" in str(result.value)
    # kas removes this hash only, although its last fields follow the limit of the call.
    assert client.foreigners == [LAYOUT.held(kas(3).kas_id)]


def test_very_many_dead_kas(client: FakeClient, reader: StoreReader) -> None:
    """One transaction removes a part of their records, and the leases of this part."""
    every = {}
    for number in range(2 * MAX_DEAD_FIELDS):
        one = record("a", at=1).to_message()
        one.kas_id = number.to_bytes(16, "big")
        every[number.to_bytes(2, "big")] = one.SerializeToString()
    client.hashes[LAYOUT.agent("a")] = every
    assert result_of(reader.find("a")) == []
    ((*leases, removed),) = client.sent
    assert len(leases) == MAX_DEAD_FIELDS
    assert removed[:2] == ("HDEL", LAYOUT.agent("a"))
    assert len(removed) == MAX_DEAD_FIELDS + 2


def test_very_many_living_kas(client: FakeClient, reader: StoreReader) -> None:
    """kas uses their records, but does not keep all their leases."""
    every = {}
    for number in range(MAX_KAS):
        one = record("a", at=2).to_message()
        one.kas_id = number.to_bytes(16, "big")
        every[number.to_bytes(2, "big")] = one.SerializeToString()
        holder = kas(2).to_message()
        holder.kas_id = one.kas_id
        lease = store_pb2.Lease(kas=holder)
        client.leases[LAYOUT.lease(one.kas_id)] = lease.SerializeToString()
    client.hashes[LAYOUT.agent("a")] = every
    reader.leases = {kas(number).kas_id: kas(number) for number in range(2, 12)}
    assert len(result_of(reader.find("a"))) == MAX_KAS
    assert len(reader.leases) == MAX_KAS


def test_what_is_stored() -> None:
    """Neither nothing, nor what another program wrote, is a lease or a connection."""
    lease = store_pb2.Lease(kas=kas(2).to_message(), sequence=3)
    assert read_lease(lease.SerializeToString()) == lease
    there = record()
    assert read_record(there.to_message().SerializeToString()) == there
    refused = RedisRefused("WRONGTYPE", "GET")
    for nothing in (None, b"\xff\xff", refused):
        assert read_lease(nothing) is None
    for nothing in (None, b"\xff\xff", bytes(MAX_RECORD + 1)):
        assert read_record(nothing) is None
