"""
Errors of a tunnel, as codes on the wire and as exceptions.

    TunnelError
    ├── ProtocolError         the peer broke a rule; contains the code to send
    ├── StreamReset           one stream ended early, by either side
    ├── SessionClosed         the connection under the stream has ended
    ├── AgentUnavailable      the requested agent has no connection
    ├── ConfigurationError    the operator's configuration cannot be used
    └── CallError             a call ended with a status other than OK

Each class that crosses the wire knows its code, so that one ``except`` can respond to
the peer.  docs/protocol.rst defines the receiver's duty for each code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message

__all__ = [
    "NOT_LEADING",
    "AgentUnavailable",
    "CallError",
    "ConfigurationError",
    "ErrorCode",
    "NoApiServer",
    "ProtocolError",
    "SessionClosed",
    "Status",
    "Stopping",
    "StreamReset",
    "TunnelError",
]

#: Text of an agentk's refusal of a stream that only the leader accepts.
NOT_LEADING = "this agentk does not lead"


class ErrorCode(IntEnum):
    """Reason why a stream was reset or a session ended."""

    NONE = 0
    #: The specification does not allow a frame or message here.
    PROTOCOL = 1
    #: The peer sent more bytes than its credit permits, or credit exceeded 2**31 - 1.
    FLOW_CONTROL = 2
    #: A frame exceeded the size that the receiver announced.
    FRAME_SIZE = 3
    #: A stream exceeded the receiver's limit, or the receiver had no room for it.
    REFUSED = 4
    #: The receiver does not need the rest of the stream.
    CANCELLED = 5
    #: The sender of the code failed; its log contains the reason.
    INTERNAL = 6
    #: A budget of frames was used up.
    FLOOD = 7
    #: Both sides have no protocol version in common.
    VERSION = 8
    #: The credential was not accepted, or is not valid any longer.
    UNAUTHENTICATED = 9
    #: A newer connection of the same agent instance took over.
    SUPERSEDED = 10
    #: Nothing arrived for longer than the agreed time.
    DEAD_PEER = 11
    #: The process is stopping; running calls may finish until the deadline.
    SHUTDOWN = 12
    #: The method or the agent that OPEN names does not exist here.
    UNKNOWN_METHOD = 13
    #: The stream named by RESUME is not known any more.
    NOT_RESUMABLE = 14
    #: The call took longer than its timeout.
    DEADLINE = 15
    #: Bytes that were received and not consumed exceeded the limit of the connection.
    MEMORY = 16
    #: The relay lost the connection on its far side.
    PATH_LOST = 17


class Status(IntEnum):
    """Outcome of a call, with gRPC's canonical codes and numbers."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class TunnelError(Exception):
    """Base class of all exceptions that this library raises on purpose."""


class ProtocolError(TunnelError):
    """Raised if the peer broke a rule of the protocol."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class StreamReset(TunnelError):
    """
    Raised if a stream ended early; *by_peer* tells which side ended it.

    :ivar peer_closed: with PATH_LOST: as in `SessionClosed`, for the relay's
        connection.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str = "",
        *,
        by_peer: bool = True,
        peer_closed: bool = False,
    ) -> None:
        super().__init__(message or code.name.lower())
        self.code = code
        self.by_peer = by_peer
        self.peer_closed = peer_closed


class SessionClosed(TunnelError):
    """
    Raised if the connection ended, and with it every stream.

    :ivar peer_closed: whether it was an agent's connection, and the agent's system
        closed it (FIN or RST) although it had not been silent.  Then the agent connects
        again at once, or its process is dead.
    """

    def __init__(
        self,
        code: ErrorCode = ErrorCode.NONE,
        message: str = "",
        *,
        peer_closed: bool = False,
    ) -> None:
        super().__init__(message or "the connection was closed")
        self.code = code
        self.peer_closed = peer_closed


class AgentUnavailable(TunnelError):
    """
    Raised if no connected instance of the agent could take the call in time.

    :param reason: the reason in a form for programs.
    :param waited: whether the caller has already waited for the agent; if not, the
        caller was refused at once, and may try again soon.
    """

    def __init__(
        self,
        agent: str,
        message: str,
        reason: str = "AGENT_NOT_CONNECTED",
        *,
        waited: bool = True,
    ) -> None:
        super().__init__(message)
        self.agent = agent
        self.reason = reason
        self.waited = waited


class ConfigurationError(TunnelError):
    """
    Raised if a part of the configuration cannot be used.

    :param problems: one line each, ``file:line:column: what is wrong, and what to do``.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class CallError(TunnelError):
    """
    Raised if a call ended with *status*; the caller can read the message.

    :param details: details for the caller's programs, see `tunnel.details`.  Details
        that are too large for the trailers of the call are omitted.
    """

    def __init__(
        self, status: Status, message: str = "", details: Iterable[Message] = ()
    ) -> None:
        super().__init__(message or status.name)
        self.status = status
        self.message = message
        self.details = tuple(_packed(one) for one in details)


def _packed(message: Message) -> Any:
    if isinstance(message, Any):
        return message
    packed = Any()
    packed.Pack(message)
    return packed


class NoApiServer(CallError):
    """Raised in agentk because there was no connection to the API server."""


class Stopping(CallError):
    """
    Raised because this kas is stopping; an agent that tries again reaches another kas.
    """

    def __init__(self) -> None:
        super().__init__(Status.UNAVAILABLE, "kas stops")
