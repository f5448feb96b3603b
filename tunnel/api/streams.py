"""Raw streams between kas and agentk: bytes and header blocks in both directions.

`IStream` and `IStreamReceiver` are the two faces of one stream: the first is what you
call, the second is what calls you.
"""

from __future__ import annotations

import attrs
from twisted.internet.interfaces import (
    IPullProducer,
    IPushProducer,
)
from zope.interface import Attribute, Interface

from tunnel.api.agents import ConnectedAgent
from tunnel.errors import AgentUnavailable

__all__ = [
    "DEFAULT_OPTIONS",
    "IOpening",
    "IPathReceiver",
    "IStream",
    "IStreamReceiver",
    "IWaitingStream",
    "StreamOptions",
]


class IStream(Interface):
    """
    Our end of one stream: bytes and header blocks, in order, in both directions.

    It also provides Twisted's `IConsumer` (writing) and `IPushProducer` (reading), so
    back-pressure works as everywhere in Twisted: a registered streaming producer is
    paused while what we write cannot leave, and `pauseProducing` stops the peer once
    its credit is used up.
    """

    agent: ConnectedAgent | None = Attribute(
        "In kas: the `ConnectedAgent` at the other end, by its credential, or None "
        "while it is not connected.  In agentk: None."
    )

    def send_headers(block: bytes, fin: bool = False) -> None:
        """Send one header block (at most 64 KiB); with *fin*, nothing follows."""

    def write(data: bytes) -> None:
        """Send bytes.  Never blocks; register a producer for back-pressure."""

    def finish() -> None:
        """No more from this side (half-close).  Repeating it does nothing."""

    def reset(code: int = 5, message: str = "") -> None:
        """Abort both directions.  *code* is an `tunnel.errors.ErrorCode`."""

    def pauseProducing() -> None:
        """Stop calling the receiver; the peer may still use up its credit."""

    def resumeProducing() -> None:
        """Go on; what came meanwhile is delivered first."""

    def registerProducer(
        producer: IPushProducer | IPullProducer, streaming: bool
    ) -> None:
        """See `twisted.internet.interfaces.IConsumer`."""

    def unregisterProducer() -> None:
        """See `twisted.internet.interfaces.IConsumer`."""


class IWaitingStream(IStream):
    """A stream to an agent that may not be connected yet."""

    def absence() -> AgentUnavailable | None:
        """Why it waits for its agent; None: it does not."""


class IStreamReceiver(Interface):
    """
    Receiver of the events of a stream, for the owner of our end.

    An exception from any method resets this one stream with INTERNAL, is logged, and
    does not affect other streams.  Return values are ignored.
    """

    def headers_received(block: bytes) -> object:
        """One header block."""

    def data_received(data: bytes) -> object:
        """Bytes.  Returning means that they are consumed and credit goes back."""

    def fin_received() -> object:
        """Note that the peer sends no more; we still may."""

    def stream_closed(reason: Exception | None) -> object:
        """
        Handle the end of the stream; called exactly once, and nothing after it.

        :param reason: None when both sides finished, else a TunnelError.
        """


class IPathReceiver(IStreamReceiver):
    """A receiver that also follows the path of its stream."""

    def path_in_doubt() -> object:
        """Note that the other end did not answer a ping; it may still be there."""

    def path_missing() -> object:
        """
        Note that the agent's connection was closed, and that the agent has not come
        back within some seconds.  Only resumable streams call this.

        The agent may still come back.  A caller that can start again without a loss,
        such as a watch, should end the stream now.
        """


@attrs.frozen
class StreamOptions:
    """
    Options of a raw stream; create one instance for each kind of stream, and keep it.

    :ivar fin: nothing follows the metadata.
    :ivar timeout: seconds after which the stream is reset; 0: no timeout.
    :ivar idempotent: repeating the request is harmless: if the path breaks before the
        first response, kas sends the request again.  kas always repeats a request that
        the agent *refused*, because the agent did not process it.
    :ivar resumable: if the path breaks, both ends keep the stream and continue it on
        another path.  For long streams: it needs memory, and accepts push producers
        only.
    """

    fin: bool = False
    timeout: float = 0
    idempotent: bool = False
    resumable: bool = False


DEFAULT_OPTIONS = StreamOptions()


class IOpening(Interface):
    """How a raw stream was opened by the other side."""

    method: str = Attribute("``/package.Service/Method``.")
    metadata: bytes = Attribute("The first header block.")
    timeout_ms: int = Attribute("Milliseconds until it is reset; 0: no limit.")
