"""
Where the process spends its time, as a page: stacks of the reactor's thread.

A timer of CPU time interrupts the thread and notes what it is in.  A profiler that
hears of each call, as `cProfile`, makes calls several times as slow while it runs.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from tunnel.program.site import Page, plain

__all__ = ["Profiler"]

#: Samples in a second of CPU time: prime, to be in step with nothing.
RATE = 97

#: Callers of a function that are noted; what is beyond is cut at the outer end.
MAX_DEPTH = 100

#: Different stacks; a busy kas has some hundred.  More are counted as one.
MAX_STACKS = 5_000

#: Parts of a file's path that are shown.
_SHOWN = 3

_Stack = tuple[CodeType, ...]


def _set_timer(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds, seconds)


class Profiler:
    """
    Makes a page with one profile, and one at a time.

    :param seconds: how long one takes.
    :param set_timer: begins the signals, with the seconds between two; 0 ends them.
    """

    def __init__(
        self,
        clock: IReactorTime,
        seconds: float,
        set_timer: Callable[[float], object] = _set_timer,
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._set_timer = set_timer
        self._stacks: Counter[_Stack] | None = None

    async def page(self) -> Page:
        """One profile, as folded stacks: what flame graphs are drawn from."""
        if self._stacks is not None:
            return plain("another profile is being made; one at a time", 409)
        stacks: Counter[_Stack] = Counter()
        self._stacks = stacks
        # Stays, as a late signal would end the process.
        signal.signal(signal.SIGPROF, self.sample)
        signal.siginterrupt(signal.SIGPROF, False)
        self._set_timer(1 / RATE)
        try:
            done: Deferred[None] = Deferred()
            self._clock.callLater(self._seconds, done.callback, None)
            await done
        finally:
            self._set_timer(0)
            self._stacks = None
        lines = (f"{_folded(one)} {count}\n" for one, count in stacks.most_common())
        return Page("".join(lines).encode())

    def sample(self, _: int, frame: FrameType | None) -> None:
        """Record the thread's current stack: the handler of the signal."""
        stacks = self._stacks
        if stacks is None:
            return
        codes: list[CodeType] = []
        while frame is not None and len(codes) < MAX_DEPTH:
            codes.append(frame.f_code)
            frame = frame.f_back
        stack = tuple(codes)
        if len(stacks) >= MAX_STACKS and stack not in stacks:
            stack = ()
        stacks[stack] += 1


def _folded(stack: _Stack) -> str:
    """
    Return the frames of a stack, outermost first, without characters that could end
    them.
    """
    return ";".join(_shown(code) for code in reversed(stack)) or "(other stacks)"


def _shown(code: Any) -> str:
    place = "/".join(Path(code.co_filename).parts[-_SHOWN:])
    return f"{place}:{code.co_qualname}".replace(";", ",")
