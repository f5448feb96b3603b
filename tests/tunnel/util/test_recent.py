"""A table with a limit."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tunnel.toolkit.recent import Recent


class RecentTests(SynchronousTestCase):
    """`Recent`."""

    def setUp(self) -> None:
        self.recent: Recent[str, int] = Recent(2)
        self.recent["a"] = 1
        self.recent["b"] = 2

    def test_one_too_many(self) -> None:
        self.recent["c"] = 3
        self.assertEqual(dict(self.recent), {"b": 2, "c": 3})

    def test_set_again(self) -> None:
        """It counts as new, and nothing goes for it."""
        self.recent["a"] = 4
        self.assertEqual(list(self.recent.items()), [("b", 2), ("a", 4)])
        self.recent["c"] = 3
        self.assertEqual(dict(self.recent), {"a": 4, "c": 3})

    def test_read(self) -> None:
        """That does not make it any newer."""
        self.assertEqual((self.recent["a"], self.recent.get("a")), (1, 1))
        self.recent["c"] = 3
        self.assertNotIn("a", self.recent)

    def test_taken_out(self) -> None:
        self.assertEqual(self.recent.pop("a"), 1)
        self.recent["c"] = 3
        self.assertEqual(dict(self.recent), {"b": 2, "c": 3})
