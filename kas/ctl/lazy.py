"""Command groups that load only the commands that are needed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

__all__ = ["LazyGroup"]


class LazyGroup(click.Group):
    """
    Group that loads the file of a command on demand: loading all files takes a third of
    a second.

    :param files: for each command, the file in this package whose ``declare`` adds it.
    """

    def __init__(self, *arguments: Any, files: Mapping[str, str], **rest: Any) -> None:
        super().__init__(*arguments, **rest)
        self._files = files

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, loaded or not."""
        return sorted({*self.commands, *self._files})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; load its file if necessary."""
        if cmd_name in self._files and cmd_name not in self.commands:
            file: Any = import_module(f"kas.ctl.{self._files[cmd_name]}")
            file.declare(self)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """
        Return the requested command; if it does not exist, load all commands to list
        their names.
        """
        if args[0] not in self.list_commands(ctx):
            for name in self._files:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)
