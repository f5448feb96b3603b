"""The agent's configuration, section by section: all modules' or nobody's."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from twisted.trial.unittest import SynchronousTestCase

from tunnel.config import field
from tunnel.errors import ConfigurationError
from tunnel.hosting.sections import Sections


@attrs.frozen
class _Section:
    colour: str = "none"
    size: int = field(default=1, doc="how large")


class SectionsTests(SynchronousTestCase):
    """Two modules, and what they are told."""

    def setUp(self) -> None:
        self.sections = Sections()
        self.told: list[tuple[str, str]] = []
        for owner in ("one", "two"):
            self.follow(owner, owner)

    def follow(self, owner: str, section: str) -> None:
        def apply(value: Any) -> None:
            self.told.append((owner, value.colour))

        self.sections.follow(owner, section, _Section, apply)

    def test_changes(self) -> None:
        """Each hears of its own section, when that has changed."""
        self.sections.apply({"one": '{"colour": "red"}', "other": "{}"})
        self.sections.apply({"one": '{"colour": "red"}', "two": ""})
        self.assertEqual(self.told, [("one", "red")])
        self.sections.apply({"two": '{"colour": "blue"}'})
        self.assertEqual(self.told[1:], [("one", "none"), ("two", "blue")])

    def test_newer_kas(self) -> None:
        """What an older schema does not know is no error."""
        self.sections.apply({"one": '{"colour": "red", "shape": {"round": true}}'})
        self.assertEqual(self.told, [("one", "red")])

    def test_all_or_nothing(self) -> None:
        """The problems of all, and no effect; what is right then has one."""
        with pytest.raises(ConfigurationError) as caught:
            self.sections.apply({"one": '{"size": "x"}', "two": '{"size": {}}'})
        self.assertEqual(
            [one.partition(": ")[0] for one in caught.value.problems],
            ["one:1:10", "two:1:10"],
        )
        self.assertEqual(self.told, [])
        self.sections.apply({"one": '{"colour": "red"}'})
        self.assertEqual(self.told, [("one", "red")])

    def test_module_that_comes_later(self) -> None:
        """It is told what is in effect; one that left is told nothing more."""
        self.sections.apply({"three": '{"colour": "red"}'})
        self.follow("three", "three")
        self.assertEqual(self.told, [("three", "red")])
        self.sections.withdraw("three")
        self.sections.apply({})
        self.assertEqual(self.told, [("three", "red")])

    def test_module_that_fails(self) -> None:
        """The others are told all the same."""

        def apply(value: Any) -> None:
            raise ZeroDivisionError

        self.sections.follow("bad", "one", _Section, apply)
        self.follow("after", "one")
        self.sections.apply({"one": '{"colour": "red"}'})
        self.assertEqual(self.told, [("one", "red"), ("after", "red")])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
