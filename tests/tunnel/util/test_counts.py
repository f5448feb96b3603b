"""Counts that leave nothing behind."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tunnel.toolkit.counts import one_less


class OneLessTests(SynchronousTestCase):
    """`one_less`."""

    def test_to_nothing(self) -> None:
        counts = {"a": 2, "b": 1}
        self.assertEqual((one_less(counts, "a"), counts), (1, {"a": 1, "b": 1}))
        self.assertEqual((one_less(counts, "a"), counts), (0, {"b": 1}))

    def test_what_was_never_counted(self) -> None:
        """It leaves nothing, not even a debt."""
        counts: dict[str, int] = {}
        self.assertEqual((one_less(counts, "a"), counts), (0, {}))
