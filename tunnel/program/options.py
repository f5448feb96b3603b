"""The common parts of both command lines."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import ClassVar, NoReturn

from twisted.python import usage

from tunnel import __version__
from tunnel.compiled import build_name
from tunnel.config.problems import likely
from tunnel.hosting.modules import Prepared
from tunnel.program.startup import refuse_unless

__all__ = ["ProgramOptions"]

#: The message of Python's getopt for an unknown option.
_UNKNOWN = re.compile(r"option --(\S+) not recognized")


class ProgramOptions(usage.Options):
    """
    The options of `twistd`, with ``--version`` and ``--check``.

    :ivar choices: the permitted values of options.
    """

    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "log-format": ("auto", "json", "text")
    }

    modules: Sequence[Prepared]

    def opt_version(self) -> NoReturn:
        """Show the version of txkas and the build, and exit."""
        print(f"txkas {__version__} ({build_name()})")
        sys.exit(0)

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """
        Parse options as Twisted does, and suggest a known option for an unknown one.
        """
        try:
            super().parseOptions(options)  # type: ignore[no-untyped-call]
        except usage.UsageError as error:
            unknown = _UNKNOWN.fullmatch(str(error))
            names = (name.rstrip("=") for name in self.longOpt)
            close = likely(unknown[1], names) if unknown else []
            meant = f"; did you mean --{close[0]}?" if close else ""
            raise usage.UsageError(f"{error}{meant}") from None

    def parseArgs(self, *rest: str) -> None:
        """
        Refuse positional arguments: usually, the option before a file name is missing.

        :raises usage.UsageError: there is at least one.
        """
        if rest:
            raise usage.UsageError(f"'{rest[0]}' does not follow an option")

    def postOptions(self) -> None:
        """Read the configuration, and report all problems at once."""
        problems = [
            f"--{name}: choose {', '.join(words[:-1])} or {words[-1]}"
            for name, words in self.choices.items()
            if self[name] not in words
        ]
        refuse_unless(problems, self.steps())
        if self["check"]:
            names = ", ".join(module.name for module in self.modules) or "none"
            print(f"{self.usable()}; modules: {names}")
            sys.exit(0)

    def steps(self) -> Sequence[Callable[[], None]]:
        """
        Return functions that read the configuration; each raises `ConfigurationError`
        with all its errors.
        """
        raise NotImplementedError

    def usable(self) -> str:
        """Return the output of ``--check`` if the configuration has no errors."""
        raise NotImplementedError
