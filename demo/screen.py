"""Output of the demo: numbered steps, each with its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from demo.stopping import Stopping

__all__ = ["Screen", "Step", "milliseconds"]

_TITLE_WIDTH = 34


def milliseconds(seconds: float) -> str:
    """Return a time as text in milliseconds, with a decimal below 10 ms."""
    value = seconds * 1000
    return f"{value:.1f} ms" if value < 10 else f"{value:.0f} ms"


class Step:
    """A running step."""

    def __init__(self) -> None:
        #: Seconds to show instead of the measured time; None to show the measured time.
        self.took: float | None = None
        self.notes: list[str] = []
        self.left_out = ""

    def note(self, text: str) -> None:
        """Add a line below the title of the step."""
        self.notes.append(text)

    def leave_out(self, reason: str) -> None:
        """Skip the step, and show the reason."""
        self.left_out = reason


class Screen:
    """
    Writer to a terminal, or to a file as plain text.

    :param seconds: returns the time of a clock.
    """

    def __init__(
        self, out: TextIO, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._out = out
        self._seconds = seconds
        self._is_terminal = out.isatty()
        self._number = 0

    def say(self, text: str = "", style: str = "") -> None:
        """Print a line."""
        print(self._styled(text, style), file=self._out, flush=True)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Number the step that runs in the context, and print its duration."""
        Stopping.check()
        self._number += 1
        head = f"{self._number:2}  {title.ljust(_TITLE_WIDTH)}"
        if self._is_terminal:
            print(f"{head}   ...", end="", file=self._out, flush=True)
        began = self._seconds()
        step = Step()
        try:
            yield step
        except BaseException as error:
            self._erase()
            how = "failed" if isinstance(error, Exception) else "stopped"
            self.say(f"{head}{how:>10}", "31")
            self._show(step)
            raise
        self._erase()
        if step.left_out:
            self.say(f"{head}{'left out':>10}", "33")
            step.note(step.left_out)
        else:
            passed = self._seconds() - began
            took = milliseconds(passed if step.took is None else step.took)
            self.say(f"{head}{self._styled(f'{took:>10}', '32')}")
        self._show(step)

    def _show(self, step: Step) -> None:
        for text in step.notes:
            self.say(f"    {text}", "2")

    def _erase(self) -> None:
        if self._is_terminal:
            print("\r\x1b[K", end="", file=self._out)

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if style and self._is_terminal else text
