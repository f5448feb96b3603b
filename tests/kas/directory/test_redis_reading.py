"""What stands in Redis as kas reads it; tests/integration has the rest."""

from __future__ import annotations

from kas.directory.redis_reading import MAX_RECORD, read_lease, read_record
from kas.pb import store_pb2
from kas.redis import RedisRefused
from tests.kas.directory.memory import kas, record


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
