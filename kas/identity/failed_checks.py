"""How many credentials were refused to one address."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address

from twisted.internet.interfaces import IAddress, IReactorTime

from tunnel.util.recent import Recent
from tunnel.util.token_bucket import TokenBucket

__all__ = ["FailedChecks", "address_of"]

#: Addresses that are counted at once; beyond that, the oldest is forgotten, which can
#: only permit a check.  150 bytes each.
MAX_ADDRESSES = 10_000

#: Seconds for which a check waits if too many failed: a client with a good credential
#: is not refused because of a short burst of bad ones.
MAX_WAIT = 4.0

#: Bits of an IPv6 address that are one customer's.
_NETWORK = 64


class FailedChecks:
    """
    Token bucket for each address, of checks that are refused, cancelled by the client,
    or not answered yet.

    An accepted check costs nothing, and neither does one without an answer: a flood of
    invented tokens uses up the limit of its own address, not the time of the server.

    :param per_minute: checks that may fail, at once or over a minute.
    """

    def __init__(self, per_minute: int, clock: IReactorTime) -> None:
        self._size = per_minute
        self._clock = clock
        #: Tells other workers of this kas of checks that began (1) or succeeded (-1);
        #: None: there are none.
        self.tell: Callable[[str, int], None] | None = None
        self._buckets: Recent[str, TokenBucket] = Recent(MAX_ADDRESSES)

    def __len__(self) -> int:
        return len(self._buckets)

    def begin(self, address: str) -> float | None:
        """
        Count a check that begins.

        :return: seconds for which it has to wait first; None: too many failed.
        """
        seconds = self._begin(address)
        if seconds is not None and self.tell is not None:
            self.tell(address, 1)
        return seconds

    def count(self, address: str, amount: int) -> None:
        """Count another worker's failed checks."""
        if amount > 0:
            self._begin(address)
        else:
            self._succeeded(address)

    def _begin(self, address: str) -> float | None:
        now = self._clock.seconds()
        bucket = self._buckets.get(address)
        if bucket is None:
            bucket = TokenBucket(self._size, self._size / 60, now)
        self._buckets[address] = bucket
        return bucket.borrow(now, MAX_WAIT)

    def succeeded(self, address: str) -> None:
        """Note that a check did not fail."""
        self._succeeded(address)
        if self.tell is not None:
            self.tell(address, -1)

    def _succeeded(self, address: str) -> None:
        bucket = self._buckets.get(address)
        if bucket is not None:
            bucket.earn()
            if bucket.fill(self._clock.seconds()) >= self._size:
                del self._buckets[address]


def address_of(peer: IAddress) -> str:
    """
    Return the part of a client's address that is limited: a host, or an IPv6 network.
    """
    host = getattr(peer, "host", "")
    try:
        address = ip_address(host)
    except ValueError:
        return "local"  # a Unix socket
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        return str(mapped)
    if address.version == 4:
        return str(address)
    return str(int(address) >> (128 - _NETWORK))
