"""
Raw streams between kas and agentk: bytes and header blocks in both directions.

The owner of a stream calls `IStream`, and the stream calls the owner's
`IStreamReceiver`.
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
    One end of a stream: bytes and header blocks, in order, in both directions.

    It also provides Twisted's `IConsumer` (writing) and `IPushProducer` (reading), so
    back-pressure works as everywhere in Twisted: a registered streaming producer is
    paused while written data cannot be sent, and `pauseProducing` stops the peer once
    its credit is used up.
    """

    agent: ConnectedAgent | None = Attribute(
        "In kas, the `ConnectedAgent` at the other end, according to its credential, "
        "or None while it is not connected.  In agentk, None."
    )

    def send_headers(block: bytes, fin: bool = False) -> None:
        """Send one header block (at most 64 KiB); with *fin*, nothing follows."""

    def write(data: bytes) -> None:
        """Send bytes.  Never blocks; register a producer for back-pressure."""

    def finish() -> None:
        """
        Announce the end of our data to the other side (half-close); repeated calls do
        nothing.
        """

    def reset(code: int = 5, message: str = "") -> None:
        """Abort both directions.  *code* is a `tunnel.errors.ErrorCode`."""

    def pauseProducing() -> None:
        """Stop calling the receiver; the peer may still use up its credit."""

    def resumeProducing() -> None:
        """
        Continue to call the receiver, first with the data that arrived in the meantime.
        """

    def registerProducer(
        producer: IPushProducer | IPullProducer, streaming: bool
    ) -> None:
        """See `twisted.internet.interfaces.IConsumer`."""

    def unregisterProducer() -> None:
        """See `twisted.internet.interfaces.IConsumer`."""


class IWaitingStream(IStream):
    """A stream to an agent that may not be connected yet."""

    def absence() -> AgentUnavailable | None:
        """Return why the stream waits for its agent; None if it does not wait."""


class IStreamReceiver(Interface):
    """
    Receiver of the events of one end of a stream.

    An exception from any method is logged, resets this stream with INTERNAL, and does
    not affect other streams.  Return values are ignored.
    """

    def headers_received(block: bytes) -> object:
        """Handle one header block."""

    def data_received(data: bytes) -> object:
        """
        Handle bytes.

        The bytes count as consumed when this method returns, and the peer regains their
        credit.
        """

    def fin_received() -> object:
        """Handle the end of the peer's data; this end may still send."""

    def stream_closed(reason: Exception | None) -> object:
        """
        Handle the end of the stream; called exactly once, and the receiver's last call.

        :param reason: None if both sides finished, otherwise a TunnelError.
        """


class IPathReceiver(IStreamReceiver):
    """A receiver that also follows the path of its stream."""

    def path_in_doubt() -> object:
        """
        Handle a silent path: the other end did not answer a ping, but may still be
        connected.
        """

    def path_missing() -> object:
        """
        Handle a missing path: the agent's connection was closed, and the agent has not
        come back within some seconds.  Only resumable streams call this method.

        The agent may still come back.  A receiver that can start again without a loss,
        such as a watch, should end the stream now.
        """


@attrs.frozen
class StreamOptions:
    """
    Options of a raw stream; create one instance for each kind of stream, and keep it.

    :ivar fin: whether nothing follows the metadata.
    :ivar timeout: seconds after which the stream is reset; 0: no timeout.
    :ivar idempotent: whether repeating the request is harmless.  If so, and the path
        breaks before the first response, kas sends the request again.  kas always
        repeats a request that the agent *refused*, because the agent did not process
        it.
    :ivar resumable: whether both ends keep the stream if the path breaks, and continue
        it on another path.  Use this option for long streams only, because a resumable
        stream needs memory.  A resumable stream accepts push producers only.
    """

    fin: bool = False
    timeout: float = 0
    idempotent: bool = False
    resumable: bool = False


DEFAULT_OPTIONS = StreamOptions()


class IOpening(Interface):
    """Metadata and origin of a raw stream that the other side opened."""

    method: str = Attribute("``/package.Service/Method``.")
    metadata: bytes = Attribute("The first header block.")
    timeout_ms: int = Attribute(
        "Milliseconds until the stream is reset; 0: no timeout."
    )
