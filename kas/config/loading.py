"""Loads a configuration file and its modules, and reports all problems at once."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kas.config.own_address import interface_addresses, own_address, own_names
from kas.config.schema import AgentSection, KasConfiguration, read_configuration_file
from tunnel.config import Listen, PartlyRead, Remark, Section, nearest, place_of
from tunnel.config.listen import ANYWHERE
from tunnel.config.nodes import Mark
from tunnel.config.schema import field_types
from tunnel.errors import ConfigurationError
from tunnel.hosting.modules import Prepared, load_modules
from tunnel.plugin import ServerModule, installed

__all__ = ["listeners", "load"]


def load(
    file: str | Path | None,
    environ: Mapping[str, str] = os.environ,
    addresses: Callable[[], Iterable[str]] = interface_addresses,
    remark: Remark | None = None,
    copy: str | Path | None = None,
) -> tuple[KasConfiguration, list[Prepared]]:
    """
    Read *file* (None for the defaults), and find its modules.

    :param environ: the environment variables, which may contain the address of this kas
        for other kas.
    :param addresses: returns the addresses of this machine.
    :param remark: called with each remark that is not an error, perhaps more than once.
    :param copy: path of an earlier content of *file*, which is read instead.
    :raises ConfigurationError: with all errors of the file and of all modules; errors
        of modules are reported even if the file has other errors.
    """
    problems: tuple[str, ...] = ()
    configuration = KasConfiguration()
    try:
        configuration = read_configuration_file(file, remark, copy)
        below = {"modules": configuration.modules, "agent": configuration.agent.modules}
    except PartlyRead as error:
        problems = error.problems
        below = {path: error.below(path) for path in ("modules", "agent")}
    sections, unknown = _by_module(below["modules"], below["agent"])
    if configuration.private_api is not None:
        try:
            own_address(configuration.private_api.listen, environ, addresses)
        except ConfigurationError as error:
            problems += error.problems
    optional = {
        "api": configuration.api,
        "web": configuration.web,
        "gitlab": configuration.gitlab,
    }
    present = {name for name, section in optional.items() if section is not None}
    try:
        modules = load_modules(ServerModule, sections, (*problems, *unknown), present)
    except ConfigurationError as error:
        raise ConfigurationError(sorted(error.problems, key=_line)) from None
    twice = _same_address(list(listeners(configuration, modules)), file)
    if twice:
        raise ConfigurationError(twice)
    return configuration, modules


def _by_module(
    modules: Mapping[str, Section], agent: Mapping[str, Section]
) -> tuple[dict[str, Section], list[str]]:
    """
    Return the sections by the names of their modules, and a list of problems.

    :param modules: the sections below ``modules``, by the names of modules.
    :param agent: the sections below ``agent``; plugins name their modules.
    """
    sections, problems = dict(modules), []
    claimed = {
        one.section.removeprefix("agent."): one.name
        for one in installed(ServerModule)
        if one.section.startswith("agent.")
    }
    ours = field_types(AgentSection)
    for key, section in agent.items():
        name = claimed.get(key)
        if name in sections:
            there = sections[name].path
            hint = f"is the same as {there}; remove one of them"
            problems.append(f"{section.location}: {section.path}: {hint}")
        elif name is not None:
            sections[name] = section
        elif key not in ours:
            hint = f"unknown key {key!r}; {nearest(key, {*ours, *claimed})}"
            problems.append(f"{section.location}: agent: {hint}")
    return sections, problems


def _line(problem: str) -> tuple[float, int]:
    """
    Return a sort key for a problem, its line and column, so that problems without a
    position come last.
    """
    found = re.match(r".*?:(\d+):(\d+): ", problem)
    return (int(found[1]), int(found[2])) if found else (math.inf, 0)


def listeners(
    configuration: KasConfiguration, modules: Sequence[Prepared]
) -> Iterator[tuple[str, Listen]]:
    """Yield all listeners, with their places in the file."""
    yield "agent.listen", configuration.agent.listen
    yield "observability.listen", configuration.observability.listen
    if configuration.api is not None:
        yield "api.listen", configuration.api.listen
    if configuration.private_api is not None:
        yield "private_api.listen", configuration.private_api.listen
    if configuration.web is not None:
        yield "web.listen", configuration.web.listen
    for module in modules:
        listen = getattr(module.configuration, "listen", None)
        if isinstance(listen, Listen):
            yield f"{module.path}.listen", listen


def certificate_names(
    configuration: KasConfiguration,
    modules: Sequence[Prepared],
    environ: Mapping[str, str],
) -> tuple[str, ...]:
    """Return the names for the certificate that kas creates; see `own_names`."""
    own = None
    if configuration.private_api is not None:
        listen = configuration.private_api.listen
        own = own_address(listen, environ, interface_addresses)
    return own_names((one for _, one in listeners(configuration, modules)), own)


def _same_address(
    listeners: Sequence[tuple[str, Listen]], file: str | Path | None
) -> list[str]:
    """
    Return a problem for each two listeners with the same address, at the line of the
    later listener.
    """
    problems = []
    for pair in itertools.combinations(listeners, 2):
        if not _collide(pair[0][1], pair[1][1]):
            continue
        placed = [(_place(file, key), f"{key}.address", listen) for key, listen in pair]
        # Sort by position; defaults have no position, and come first.
        placed.sort(key=lambda one: (one[0].line, one[0].column))
        (first, other, _), (mark, key, listen) = placed
        line = f", line {first.line}" if first.line else ", by default"
        where = f"{mark}: " if mark.line else ""
        problems.append(
            f"{where}{key}: {listen.address} is also used by {other}{line}; give one "
            "of them another address"
        )
    return problems


def _place(file: str | Path | None, key: str) -> Mark:
    return Mark("") if file is None else place_of(file, f"{key}.address")


def _collide(one: Listen, other: Listen) -> bool:
    if one.endpoint or other.endpoint:
        return False  # only Twisted understands their content
    if one.network == "unix" or other.network == "unix":
        return one.network == other.network and one.address == other.address
    host, _, port = one.address.rpartition(":")
    other_host, _, other_port = other.address.rpartition(":")
    if int(port) != int(other_port) or int(port) == 0:
        return False
    hosts = {host.strip("[]"), other_host.strip("[]")}
    return len(hosts) == 1 or bool(hosts.intersection(ANYWHERE))
