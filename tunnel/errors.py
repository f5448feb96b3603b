"""
Errors of a tunnel, as codes on the wire and as exceptions.

TunnelError ├── ProtocolError         the peer broke a rule; has the code to end with
├── StreamReset           one stream ended early, by either side ├── SessionClosed
the connection under the stream has ended ├── AgentUnavailable      the requested agent
has no connection ├── ConfigurationError    the operator's configuration cannot be used
└── CallError             a call ended with a status other than OK

Each class that is sent over the wire has its code, so that one ``except`` can respond
to the peer. docs/protocol.rst defines the receiver's duty for each code.
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
    "ProtocolError",
    "SessionClosed",
    "Status",
    "Stopping",
    "StreamReset",
    "TunnelError",
]

#: The text with which an agentk refuses a stream that only the leader accepts.
NOT_LEADING = "this agentk does not lead"


class ErrorCode(IntEnum):
    """The reason why a stream was reset or a session ended."""

    NONE = 0
    #: A frame or message that the specification does not permit here.
    PROTOCOL = 1
    #: More bytes than credit, or credit beyond 2**31 - 1.
    FLOW_CONTROL = 2
    #: A frame larger than the receiver's limit.
    FRAME_SIZE = 3
    #: A stream beyond the receiver's limit, or without room at the receiver.
    REFUSED = 4
    #: The stream is not needed any more.
    CANCELLED = 5
    #: The sender of the code failed; its log has the reason.
    INTERNAL = 6
    #: A budget of frames was used up.
    FLOOD = 7
    #: The peers have no version in common.
    VERSION = 8
    #: The credential was not accepted, or is no longer valid.
    UNAUTHENTICATED = 9
    #: A newer connection of the same agent instance took over.
    SUPERSEDED = 10
    #: Nothing arrived for longer than the agreed time.
    DEAD_PEER = 11
    #: The process is stopping; running streams may finish until the deadline.
    SHUTDOWN = 12
    #: The method or the agent in OPEN is not served here.
    UNKNOWN_METHOD = 13
    #: The stream in RESUME is not known any more.
    NOT_RESUMABLE = 14
    #: The call exceeded its timeout.
    DEADLINE = 15
    #: Received bytes that were not consumed exceeded the limit of the connection.
    MEMORY = 16
    #: From a relay: its connection to the other end is gone.
    PATH_LOST = 17


class Status(IntEnum):
    """The outcome of a call: the canonical codes of gRPC, with the same numbers."""

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
    """The base class of all errors that this library raises."""


class ProtocolError(TunnelError):
    """Raised if the peer broke a rule of the protocol."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class StreamReset(TunnelError):
    """
    Raised if a stream ended early; *by_peer* tells which side ended it.

    :ivar peer_closed: for PATH_LOST: as in `SessionClosed`, about the relay's
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
    Raised if the connection ended, and every stream on it.

    :ivar peer_closed: whether it was an agent's connection, and its system closed it
        (FIN or RST) without a preceding silence: the agent reconnects at once, or its
        process is dead.
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
    Raised if no connected instance of the agent could accept the call in time.

    :param reason: the reason for programs.
    :param waited: whether the caller has already waited for the agent; if not, it was
        refused at once, and may retry soon.
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
    Raised if the configuration is invalid.

    :param problems: one line each, ``file:line:column: the problem, and the remedy``.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class CallError(TunnelError):
    """
    Raised if a call ended with *status*; the message is shown to the caller.

    :param details: details for programs of the caller, see `tunnel.details`. They are
        hints: details that are too large for the trailers of the call are left out.
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


class Stopping(CallError):
    """Raised if this kas is stopping; an agent that retries reaches another kas."""

    def __init__(self) -> None:
        super().__init__(Status.UNAVAILABLE, "kas stops")
