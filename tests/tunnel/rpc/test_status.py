"""How a call ended, as the other side reads it."""

from __future__ import annotations

import pytest
from twisted.trial.unittest import SynchronousTestCase

from tests.proto.echo_pb2 import Text
from tunnel.details import bad_request
from tunnel.errors import AgentUnavailable, CallError, Status
from tunnel.pb import status_pb2
from tunnel.rpc.fields import decode_fields, encode_fields
from tunnel.rpc.status import (
    MAX_DETAILS,
    MAX_TEXT,
    error_from_end,
    error_from_trailers,
    trailers,
)
from tunnel.wire.limits import MAX_HEADERS


class DetailsTests(SynchronousTestCase):
    """What the end of a call says to programs."""

    def carried(self, error: CallError) -> CallError:
        """As the other side sees it."""
        seen = error_from_trailers(trailers(error))
        assert seen is not None
        self.assertEqual((seen.status, seen.message), (error.status, error.message))
        return seen

    def test_absent_agent(self) -> None:
        """Which agent, and when to try again."""
        absent = AgentUnavailable("7", "agent 7 is not connected")
        info, retry = self.carried(error_from_end(absent)).details
        why = status_pb2.ErrorInfo.FromString(info.value)
        self.assertEqual(why.reason, "AGENT_NOT_CONNECTED")
        self.assertEqual((why.domain, dict(why.metadata)), ("txkas", {"agent_id": "7"}))
        self.assertEqual(retry.type_url, "type.googleapis.com/google.rpc.RetryInfo")
        delay = status_pb2.RetryInfo.FromString(retry.value).retry_delay
        self.assertEqual(delay.ToTimedelta().total_seconds(), 5)

    def test_any_message(self) -> None:
        """A module may send its own; what is packed already stays as it is."""
        packed = bad_request({"size": "is odd"})
        error = CallError(Status.ABORTED, "", [Text(text="mine"), packed])
        mine, other = self.carried(error).details
        text = Text()
        self.assertTrue(mine.Unpack(text))
        self.assertEqual((text.text, other), ("mine", packed))

    def test_too_large(self) -> None:
        """Rather no details than no status."""
        for size, left in ((MAX_DETAILS - 200, 1), (MAX_DETAILS, 0)):
            error = CallError(Status.ABORTED, "why", [Text(text="x" * size)])
            self.assertEqual(len(self.carried(error).details), left)

    def test_bad_details(self) -> None:
        """What nobody can read does not hide the status; padding may be missing."""
        good = trailers(CallError(Status.ABORTED, "", [Text(text="a")]))
        bare = decode_fields(good)["details"].rstrip("=")
        for text, count in ((bare, 1), ("A", 0), ("\xff", 0), ("////", 0), ("", 0)):
            seen = error_from_trailers(encode_fields({"status": "10", "details": text}))
            assert seen is not None
            self.assertEqual((seen.status, len(seen.details)), (Status.ABORTED, count))


@pytest.mark.parametrize("letter", ["x", "😀", "%", "\n"])
def test_a_long_message(letter: str) -> None:
    """Its beginning arrives: the block has room for it, whatever its characters."""
    block = trailers(CallError(Status.ABORTED, letter * 1_000_000))
    assert len(block) <= MAX_HEADERS
    seen = error_from_trailers(block)
    assert seen is not None
    assert seen.message.startswith(letter.replace("\n", " ") * 10)
    assert len(seen.message) <= MAX_TEXT
