"""The agent's configuration, section by section, for the modules that follow it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs

from tunnel.config import read
from tunnel.errors import ConfigurationError
from tunnel.toolkit.for_each import for_each

__all__ = ["Sections"]


@attrs.define(eq=False)
class _Following:
    owner: str
    section: str
    schema: type[Any]
    apply: Callable[[Any], None]


class Sections:
    """All or nothing: each section is read before the first one takes effect."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._following: list[_Following] = []

    def follow(
        self,
        owner: str,
        section: str,
        schema: type[Any],
        apply: Callable[[Any], None],
    ) -> None:
        """
        See `IAgentModuleApi.follow_section`.

        :raises ConfigurationError: what is known does not fit the schema.
        """
        following = _Following(owner, section, schema, apply)
        if section in self._texts:
            apply(_read(following, self._texts))
        self._following.append(following)

    def withdraw(self, owner: str) -> None:
        """Tell *owner* nothing any more."""
        self._following = [one for one in self._following if one.owner != owner]

    def apply(self, texts: Mapping[str, str]) -> None:
        """See `IAgentModuleApi.apply_sections`."""
        new = {name: text for name, text in texts.items() if text}
        problems: list[str] = []
        steps: list[Callable[[], None]] = []
        for one in self._following:
            if new.get(one.section) == self._texts.get(one.section):
                continue
            try:
                steps.append(partial(one.apply, _read(one, new)))
            except ConfigurationError as error:
                problems += error.problems
        if problems:
            raise ConfigurationError(problems)
        self._texts = new
        for_each(steps, lambda step: step(), "applying a section of the configuration")


def _read(following: _Following, texts: Mapping[str, str]) -> Any:
    text = texts.get(following.section, "")
    # kas may be newer, and has refused what it does not know itself.
    return read(text, following.section, following.schema, unknown_keys="skip")
