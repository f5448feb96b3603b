"""The schedule of attempts, and the result of each attempt."""

from __future__ import annotations

import attrs

from modules.webhooks.wire.webhooks_pb2 import (
    DELIVERED,
    DISABLED,
    FAILED,
    PENDING,
    State,
)

__all__ = ["PAUSES", "NextStep", "next_step"]

#: Seconds before each attempt; the schedule that Standard Webhooks recommends.
PAUSES = (0, 5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)

#: Status of a receiver that wants no further requests.
GONE = 410

#: Statuses of an overloaded receiver, and the minimum number of seconds until the next
#: request to it.
SLOW, SLOW_PAUSE = (429, 502, 504), 60.0

#: Maximum number of seconds that ``Retry-After`` can delay a request: the longest pause
#: of the schedule.  A receiver must not stop deliveries for years.
MAX_RETRY_AFTER = float(PAUSES[-1])


@attrs.frozen
class NextStep:
    """
    The result of an attempt.

    :ivar next_attempt: the time of the next attempt; 0 if none follows.
    :ivar slow_until: the time until which the target gets no request; 0 for no pause.
    """

    state: State
    next_attempt: float = 0.0
    slow_until: float = 0.0


def next_step(attempts: int, status: int, retry_after: int, now: float) -> NextStep:
    """
    Return what follows an attempt.

    Only 2xx is a success: redirects are not followed.

    :param attempts: the number of attempts so far, including this one.
    :param status: status of the response; 0 without a response.
    :param retry_after: seconds in ``Retry-After``; 0 without this field.
    :param now: the time in seconds since 1970.
    """
    if 200 <= status < 300:
        return NextStep(DELIVERED)
    if status == GONE:
        return NextStep(DISABLED)
    slow_until = 0.0
    if status in SLOW or retry_after:
        pause = min(max(float(retry_after), SLOW_PAUSE), MAX_RETRY_AFTER)
        slow_until = now + pause
    if attempts >= len(PAUSES):
        return NextStep(FAILED, slow_until=slow_until)
    return NextStep(PENDING, max(now + PAUSES[attempts], slow_until), slow_until)
