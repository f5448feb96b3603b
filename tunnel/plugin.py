"""
Modules as plugins: the content of a dropin in ``twisted/plugins``, and its discovery.

    # twisted/plugins/acme_kas_modules.py
    from tunnel.plugin import AgentModule, ServerModule

    greeter_server = ServerModule("greeter", "acme_kas.server.Greeter")
    greeter_agent = AgentModule("greeter", "acme_kas.agent.Greeter")

A dropin contains only names, so a module is imported when it is enabled, and not by
``twistd --help``.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Container, Iterable, Mapping
from typing import Any, TypeVar, cast

import attrs
from twisted.plugin import IPlugin, getPlugins
from twisted.python.reflect import namedAny
from zope.interface import Attribute, Interface, implementer
from zope.interface.exceptions import Invalid
from zope.interface.interface import InterfaceClass
from zope.interface.verify import verifyObject

from tunnel.api import IAgentModuleFactory, IServerModuleFactory
from tunnel.config import Section
from tunnel.errors import ConfigurationError

__all__ = ["AgentModule", "GitSection", "ServerModule", "find_modules", "installed"]


class IModulePlugin(Interface):
    """A module that can be enabled by its name."""

    name = Attribute("Name of the module in the configuration.")
    target = Attribute("Full name of the factory, as a string.")
    section = Attribute(
        "Path of the configuration section; ``modules.<name>`` if empty."
    )
    default = Attribute(
        "Whether the module runs if the configuration does not name it: True, False, "
        "or the configuration sections that enable it, such as ``api``."
    )
    document = Attribute(
        "Full name of the schema of files that users of the module write, for "
        "``kasctl config schema NAME``; empty if there are none."
    )
    requires = Attribute(
        "Requirement for pip that makes the factory importable: ``acme-kas[server]``."
    )


class IServerModulePlugin(IModulePlugin):
    """A server half."""


class IAgentModulePlugin(IModulePlugin):
    """An agent half."""


@attrs.frozen
class GitSection:
    """
    A section of agents' configuration files in Git.

    kas checks the files with the schemas of all installed modules, whether or not they
    are enabled, and does not import their agent halves: keep the schema in a file that
    kas can import.

    :ivar name: the section's key in the file.
    :ivar schema: full name of an attrs class in which every attribute has a default.
    :ivar doc: description of the section, for the JSON Schema of the file.
    """

    name: str
    schema: str
    doc: str


@attrs.frozen
class _ModulePlugin:
    """
    The declaration of a module's half.

    :ivar target: ``package.module.Factory``.
    :ivar default: True to enable the module by default; or the configuration sections
        that enable it, such as ``api``.
    :ivar section: a second path of its configuration, in addition to
        ``modules.<name>``.
    :ivar requires: the requirement to install if an import fails.
    :ivar document: the schema of a file that users of the module write.
    """

    name: str
    target: str
    default: bool | str | tuple[str, ...] = False
    section: str = ""
    requires: str = ""
    document: str = ""
    #: The interface that the target must provide.
    interface: InterfaceClass = attrs.field(init=False, repr=False)

    def load(self) -> Any:
        """
        Import the factory.

        :raises ConfigurationError: if the factory cannot be imported or called.
        """
        try:
            factory = namedAny(self.target)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            advice = "correct it or disable it"
            if self.requires and isinstance(error, ModuleNotFoundError):
                advice = f"pip install '{self.requires}'"
            raise ConfigurationError(
                [
                    f"module {self.name}: importing {self.target} failed: "
                    f"{type(error).__name__}: {error} "
                    f"({where.filename}:{where.lineno}); {advice}"
                ]
            ) from error
        try:
            verifyObject(self.interface, factory)
        except Invalid as error:
            raise ConfigurationError(
                [
                    f"module {self.name}: {self.target} does not provide "
                    f"{self.interface.__name__}: {_first_line(error)}"
                ]
            ) from None
        return factory


@implementer(IPlugin, IServerModulePlugin)
@attrs.frozen
class ServerModule(_ModulePlugin):
    """The server half of a module, for a dropin."""

    interface: InterfaceClass = attrs.field(
        init=False, repr=False, default=IServerModuleFactory
    )


@implementer(IPlugin, IAgentModulePlugin)
@attrs.frozen
class AgentModule(_ModulePlugin):
    """
    The agent half of a module, for a dropin.

    :ivar sections: sections of agents' files in Git that the module follows.
    """

    sections: tuple[GitSection, ...] = ()
    interface: InterfaceClass = attrs.field(
        init=False, repr=False, default=IAgentModuleFactory
    )


_P = TypeVar("_P", ServerModule, AgentModule)


def installed(kind: type[_P]) -> list[_P]:
    """Return all declarations of *kind* in the dropins of this Python environment."""
    interface = IServerModulePlugin if kind is ServerModule else IAgentModulePlugin
    return list(cast(Iterable[_P], getPlugins(interface)))


def find_modules(
    kind: type[_P],
    wanted: Iterable[str] | Mapping[str, Section] = (),
    *,
    present: Container[str] = (),
    found: Iterable[_P] | None = None,
    problems: list[str] | None = None,
) -> list[_P]:
    """
    Return the modules that run: the default ones, and the *wanted* ones.

    :param wanted: names with their sections, which provide the positions of errors.
    :param present: configuration sections that the file contains; see `default`.
    :param found: used instead of the installed plugins.
    :param problems: receives errors instead of an exception, for callers that continue.
    :raises ConfigurationError: a wanted module is not installed, or two have one name;
        one line for each.
    """
    if found is None:
        found = installed(kind)
    wrong: list[str] = [] if problems is None else problems
    by_name: dict[str, _P] = {}
    for plugin in found:
        other = by_name.get(plugin.name)
        if other is not None and other.target != plugin.target:
            wrong.append(
                f"module {plugin.name}: both {other.target} and {plugin.target} have "
                f"this name; uninstall one of them"
            )
        by_name[plugin.name] = plugin
    sections = wanted if isinstance(wanted, Mapping) else {}
    names = set(wanted)
    for name in sorted(names - set(by_name)):
        section = sections.get(name)
        where = f"{section.location}: {section.path}: " if section is not None else ""
        near = difflib.get_close_matches(name, by_name, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        known = ", ".join(sorted(by_name)) or "none"
        wrong.append(
            f"{where}module {name} is not installed{hint} (installed: {known}; a "
            f"plugin that fails to import is skipped by Twisted, which logs why)"
        )
    if problems is None and wrong:
        raise ConfigurationError(wrong)
    return [
        plugin
        for name, plugin in sorted(by_name.items())
        if name in names or _runs(plugin.default, present)
    ]


def _runs(default: bool | str | tuple[str, ...], present: Container[str]) -> bool:
    if isinstance(default, bool):
        return default
    sections = (default,) if isinstance(default, str) else default
    return any(section in present for section in sections)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1].strip() if str(error) else repr(error)
