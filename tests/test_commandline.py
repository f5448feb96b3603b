"""The page about the command line, and the options that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from twisted.python import usage

from agentk.tap import Options as AgentkOptions
from kas.ctl.cli import cli
from kas.tap import Options as KasOptions

PAGE = (Path(__file__).parents[1] / "docs" / "commandline.rst").read_text()
OPTION = re.compile(r"``(--[a-z-]+)``")

#: Every command has these.
COMMON = {"--help", "--output", "--state-directory"}


def section(title: str) -> str:
    """What stands below a title."""
    found = re.search(rf"^{title}\n=+\n(.*?)(?=^\S[^\n]*\n===|\Z)", PAGE, re.M | re.S)
    assert found is not None, title
    return found[1]


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, set[str]]]:
    """Each command as it is written, with its own options."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, f"{path}{name} ")
            continue
        options: set[str] = set()
        arguments = ""
        for one in found.params:
            if isinstance(one, click.Argument):
                arguments += f" {one.human_readable_name}"
            else:
                options.update(name for name in one.opts if name.startswith("--"))
        yield f"{path}{name}{arguments}", options - COMMON


@pytest.mark.parametrize(
    ("program", "options"), [("kas", KasOptions()), ("agentk", AgentkOptions())]
)
def test_programs(program: str, options: usage.Options) -> None:
    """Every option has its line, and every line its option."""
    known = {f"--{name.rstrip('=')}" for name in options.longOpt}
    known -= {"--help"}
    assert set(OPTION.findall(section(f"twistd {program}"))) == known


def test_kasctl() -> None:
    """So has every command, with its options."""
    text = section("kasctl")
    entries = re.findall(r"^``([a-z].*?)``\n((?:    .*\n|\n)+)", text, re.M)
    written = {name: set(OPTION.findall(body)) for name, body in entries}
    # options of other commands are named where one explains the other
    assert written == dict(commands(cli))
    assert set(re.findall(r"^``(--[a-z-]+)``$", text, re.M)) == COMMON
