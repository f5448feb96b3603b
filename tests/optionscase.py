"""The options of a program, as an operator meets them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, ClassVar

from twisted.trial.unittest import SynchronousTestCase


class OptionsCase(SynchronousTestCase):
    """Has a folder, and parses command lines of one program."""

    #: The `usage.Options` of the program.
    options: ClassVar[Any]

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def file(self, name: str, text: str) -> str:
        """A file in the folder."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def parse(self, *arguments: str) -> Any:
        """A command line that is as it should be."""
        options = self.options()
        options.parseOptions(list(arguments))
        return options

    def refused(self, *arguments: str) -> list[str]:
        """What is said about one that is not; nothing but that is printed."""
        error = self.assertRaises(SystemExit, self.parse, *arguments)
        # Python prints the text, and ends with 1.
        assert isinstance(error.code, str)
        self.assertNotIn("s3cret", error.code)
        return error.code.splitlines()
