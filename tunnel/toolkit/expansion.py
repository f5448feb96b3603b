"""Limits of the values of a YAML text, counted with its aliases expanded."""

from __future__ import annotations

import attrs

__all__ = ["Expansion", "Spent"]


class Spent(Exception):
    """
    Raised if a text exceeds a limit.

    :ivar what: ``values`` or ``characters``.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"too many {what}, with aliases expanded")
        self.what = what


@attrs.define(eq=False)
class Expansion:
    """
    The numbers of values and characters that may still be read.

    An alias counts as often as it is used, with its whole content: a small file whose
    aliases name each other, or a long text, would otherwise fill the memory.

    :ivar values: keys, scalars, lists and mappings.
    :ivar characters: of all keys and scalars.
    """

    values: int
    characters: int

    @property
    def is_spent(self) -> bool:
        """Whether a limit was exceeded."""
        return self.values < 0 or self.characters < 0

    def take(self, values: int, characters: int) -> None:
        """
        Count *values*, and their *characters*.

        :raises Spent: a limit is exceeded.
        """
        self.values -= values
        self.characters -= characters
        if self.values < 0:
            raise Spent("values")
        if self.characters < 0:
            raise Spent("characters")
