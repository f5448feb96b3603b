"""The producer of a stream that may go on with another path."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

__all__ = ["Pacer"]


@implementer(IPushProducer)
class Pacer:
    """
    Stands between a path and the producer of its user.

    A path stops its producer when it ends; the user's goes on with the next path.
    """

    def __init__(self, producer: Any, streaming: bool) -> None:
        self.producer = producer
        self.streaming = streaming
        self.paused = False

    def pauseProducing(self) -> None:
        """The path holds enough, or there is none."""
        if self.streaming and not self.paused:
            self.paused = True
            self.producer.pauseProducing()

    def resumeProducing(self) -> None:
        """The path takes more."""
        if not self.streaming:
            self.producer.resumeProducing()
        elif self.paused:
            self.paused = False
            self.producer.resumeProducing()

    def stopProducing(self) -> None:
        """This path is over; there may be another."""
        self.pauseProducing()
