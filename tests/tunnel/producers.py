"""A producer for tests of whoever pauses one."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer


@implementer(IPushProducer)
class Producer:
    """
    Notes what it is told.

    :ivar resumed: fires when it is resumed for the first time.
    """

    def __init__(self) -> None:
        self.told: list[str] = []
        self.resumed: Deferred[None] = Deferred()

    def pauseProducing(self) -> None:
        self.told.append("pause")

    def resumeProducing(self) -> None:
        self.told.append("resume")
        if not self.resumed.called:
            self.resumed.callback(None)

    def stopProducing(self) -> None:
        self.told.append("stop")
