"""The agent's configuration, section by section, for the modules that follow it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs
from zope.interface import implementer

from tunnel.api import ISections
from tunnel.config import read
from tunnel.errors import ConfigurationError
from tunnel.hosting.scope import ModuleScope
from tunnel.toolkit.for_each import for_each

__all__ = ["ModuleSections", "Sections"]


@attrs.define(eq=False)
class _Following:
    owner: str
    section: str
    schema: type[Any]
    apply: Callable[[Any], None]


class Sections:
    """
    The sections of a configuration, and the modules that follow them.

    A configuration takes effect as a whole: all sections are parsed before the first
    one is applied.
    """

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
        See `ISections.follow`.

        :raises ConfigurationError: the current configuration does not fit the schema.
        """
        following = _Following(owner, section, schema, apply)
        if section in self._texts:
            apply(_read(following, self._texts))
        self._following.append(following)

    def withdraw(self, owner: str) -> None:
        """Stop notifying *owner*."""
        self._following = [one for one in self._following if one.owner != owner]

    def apply(self, texts: Mapping[str, str]) -> None:
        """See `ISections.apply`."""
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


@implementer(ISections)
class ModuleSections:
    """Access of one module to the agent's configuration."""

    def __init__(self, scope: ModuleScope, sections: Sections) -> None:
        self._name = scope.name
        self._sections = sections
        #: Puts a configuration from Git into effect.
        self.apply = sections.apply
        scope.on_release(lambda: sections.withdraw(scope.name))

    def follow(
        self, section: str, schema: type[Any], apply: Callable[[Any], None]
    ) -> None:
        """Call *apply* with a section of the agent's configuration."""
        self._sections.follow(self._name, section, schema, apply)


def _read(following: _Following, texts: Mapping[str, str]) -> Any:
    text = texts.get(following.section, "")
    # Unknown keys are not an error, because kas may be newer than agentk, and has
    # already refused keys that kas itself does not know.
    return read(text, following.section, following.schema, unknown_keys="skip")
