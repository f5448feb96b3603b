"""
Resolver of refs, which sends one request at a time; callers share requests.

A repository may have hundreds of followed refs, and a push announces all of them.  So
one request finds out which of the waiting refs have changed, and only these need a
request each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, NoReturn

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tunnel.errors import CallError, Status
from tunnel.toolkit.single_flight import SingleFlight

__all__ = ["MAX_TOGETHER", "Known", "RefResolver"]

#: Maximum number of refs of one request: their names are arguments of a program.
MAX_TOGETHER: Final = 200

#: The commits of refs, or the reasons why a ref has none; a ref that is missing here
#: needs a request of its own.
Known = Mapping[str, str | CallError]


class RefResolver:
    """
    Resolver of refs; callers that arrive during a request share the next request.

    :param ask: resolves one ref.
    :param look: compares refs with what `ask` returned before; None if each ref
        needs its own request.  Neither is called before the last call has finished.
    """

    _log = Logger()

    def __init__(
        self,
        ask: Callable[[str], Awaitable[str]],
        look: Callable[[Sequence[str]], Awaitable[Known]] | None = None,
    ) -> None:
        self._ask = ask
        self._look = look
        self._running = False
        #: What the running batch knows without further requests.
        self._known: Known = {}
        self._next: dict[str, SingleFlight[str]] = {}

    def get(self, ref: str) -> Deferred[str]:
        """
        Return the commit of *ref*, which is resolved after this call.

        Cancelling the result does not affect the request for other callers.
        """
        if ref not in self._next:
            self._next[ref] = SingleFlight(partial(self._resolved, ref))
        waiter = self._next[ref].wait()
        self._go_on()
        return waiter.addErrback(_copy_error)

    def _go_on(self) -> None:
        if self._running or not self._next:
            return
        self._running = True
        together = MAX_TOGETHER if self._look is not None else 1
        batch = [
            (ref, self._next.pop(ref)) for ref in tuple(islice(self._next, together))
        ]
        Deferred.fromCoroutine(self._run(dict(batch))).addBoth(self._ended)

    def _ended(self, result: object) -> object:
        self._running = False
        self._go_on()
        return result

    async def _run(self, batch: Mapping[str, SingleFlight[str]]) -> None:
        self._known = {}
        if self._look is not None:
            try:
                self._known = await self._look([*batch])
            except CallError as error:
                # The server would refuse the other requests, too.
                self._known = dict.fromkeys(batch, error)
            except Exception:
                self._log.failure("comparing refs failed")
                self._known = dict.fromkeys(batch, _failed())
        # Refs that need no further request do not wait for the others.
        for ref in sorted(batch, key=lambda one: one not in self._known):
            try:
                await batch[ref].get()
            except (CallError, CancelledError):
                # The callers have the error.
                continue
            except Exception:
                # The next refs must not wait forever.
                self._log.failure("resolving {ref} failed", ref=ref)

    async def _resolved(self, ref: str) -> str:
        known = self._known.get(ref)
        if isinstance(known, CallError):
            raise known
        return known or await self._ask(ref)


def _failed() -> CallError:
    return CallError(Status.INTERNAL, "kas failed to read the ref; see its log")


def _copy_error(failure: Failure) -> NoReturn:
    # Create a new exception for each caller, because raising it adds frames to its
    # traceback.
    error = failure.value
    if isinstance(error, CancelledError):
        raise error
    if not isinstance(error, CallError):
        raise _failed()
    raise CallError(error.status, error.message)
