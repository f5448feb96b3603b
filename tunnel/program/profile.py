"""
Profiles of the process as a page: stacks of the reactor's thread.

A timer of CPU time interrupts the thread and records its stack. A profiler that traces
each call, such as `cProfile`, would make calls several times slower.
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

#: Number of samples per second of CPU time: a prime, to avoid synchronization with
#: other timers.
RATE = 97

#: Maximum number of recorded frames of a stack; outer frames are omitted.
MAX_DEPTH = 100

#: Maximum number of different stacks; a busy kas has some hundred.  Further stacks are
#: counted as one.
MAX_STACKS = 5_000

#: Number of displayed parts of a file's path.
_SHOWN = 3

_Stack = tuple[CodeType, ...]


def _set_timer(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds, seconds)


class Profiler:
    """
    Creator of pages with profiles, one profile at a time.

    :param seconds: the duration of a profile.
    :param set_timer: starts signals with a period in seconds; 0 stops them.
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
        """
        Record one profile, and return it as folded stacks, the input of flame graphs.
        """
        if self._stacks is not None:
            return plain("another profile is in progress; try again later", 409)
        stacks: Counter[_Stack] = Counter()
        self._stacks = stacks
        # The handler stays installed, because a late signal would end the process.
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
        """Record the thread's current stack; called as the handler of the signal."""
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
    Return the frames of a stack, outermost first, without characters that are
    separators.
    """
    return ";".join(_shown(code) for code in reversed(stack)) or "(other stacks)"


def _shown(code: Any) -> str:
    place = "/".join(Path(code.co_filename).parts[-_SHOWN:])
    return f"{place}:{code.co_qualname}".replace(";", ",")
