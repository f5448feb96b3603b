"""Ids of traces."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tunnel.toolkit.traces import (
    new_trace_id,
    new_traceparent,
    trace_id_in,
    trace_id_of,
)

ID = "0af7651916cd43dd8448eb211c80319c"
VALUE = f"00-{ID}-b7ad6b7169203331-01"


class TraceTests(SynchronousTestCase):
    """What W3C's Trace Context says of ``traceparent``."""

    def test_valid(self) -> None:
        """Later versions may say more."""
        for value in (VALUE, f" {VALUE}\t", "cc" + VALUE[2:], f"01{VALUE[2:]}-more"):
            self.assertEqual(trace_id_of(value), ID, value)

    def test_invalid(self) -> None:
        """It is as if none had come."""
        for value in (
            None,
            "",
            ID,
            "ff" + VALUE[2:],
            VALUE.upper(),
            VALUE + "-more",
            VALUE + "0",
            VALUE[:-1],
            VALUE.replace(ID, "0" * 32),
            VALUE.replace("b7ad6b7169203331", "0" * 16),
            f"01{VALUE[2:]}-" + "x" * 200,
            VALUE + "\n",
        ):
            self.assertIsNone(trace_id_of(value), value)

    def test_fields(self) -> None:
        """In any case; of two of them neither counts."""
        line = b"\r\nTraceParent: " + VALUE.encode()
        self.assertEqual(trace_id_in(b"\r\nA: b" + line + b"\r\nC: d"), ID)
        for fields in (b"", line + line, line.replace(b"Trace", b"X-Trace")):
            self.assertIsNone(trace_id_in(fields), fields)

    def test_made(self) -> None:
        """Each is another one, and valid."""
        made = {new_trace_id() for _ in range(3)}
        self.assertEqual(len(made), 3)
        for one in made:
            self.assertEqual(trace_id_of(new_traceparent(one)), one)
