"""
Errors of a tunnel, as codes on the wire and as exceptions.

    TunnelError
    ├── ProtocolError         the peer broke a rule; carries the code to end with
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
    "ProtocolError",
    "SessionClosed",
    "Status",
    "Stopping",
    "StreamReset",
    "TunnelError",
]

#: The text with which an agentk refuses a stream that only the leader takes.
NOT_LEADING = "this agentk does not lead"


class ErrorCode(IntEnum):
    """Why a stream was reset or a session ended."""

    NONE = 0
    #: A frame or message that the specification does not allow here.
    PROTOCOL = 1
    #: More bytes than credit, or credit beyond 2**31 - 1.
    FLOW_CONTROL = 2
    #: A frame larger than the receiver said it takes.
    FRAME_SIZE = 3
    #: A stream beyond the receiver's limit, or one it had no room for.
    REFUSED = 4
    #: The receiver needs no more of the stream.
    CANCELLED = 5
    #: The sender of the code failed; its log says how.
    INTERNAL = 6
    #: A budget of frames was used up.
    FLOOD = 7
    #: No version in common.
    VERSION = 8
    #: The credential was not accepted, or not any longer.
    UNAUTHENTICATED = 9
    #: A newer connection of the same agent instance took over.
    SUPERSEDED = 10
    #: Nothing arrived for longer than the agreed time.
    DEAD_PEER = 11
    #: The process is leaving; what runs may finish until the deadline.
    SHUTDOWN = 12
    #: The method or the agent that OPEN names is not served here.
    UNKNOWN_METHOD = 13
    #: The stream named by RESUME is not known any more.
    NOT_RESUMABLE = 14
    #: The call took longer than the time it was given.
    DEADLINE = 15
    #: Received and not consumed bytes passed the cap of the connection.
    MEMORY = 16
    #: A relay: the connection on the far side of it is gone.
    PATH_LOST = 17


class Status(IntEnum):
    """Outcome of a call: the canonical codes of gRPC, same numbers."""

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
    """Anything that this library raises on purpose."""


class ProtocolError(TunnelError):
    """The peer broke a rule of the protocol."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class StreamReset(TunnelError):
    """
    A stream ended early; *by_peer* tells which side gave up.

    :ivar peer_closed: of PATH_LOST: as in `SessionClosed`, of the relay's connection.
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
    The connection ended, and every stream on it.

    :ivar peer_closed: it was an agent's, and its system closed it (FIN or RST) though
        it was not silent: the agent connects again at once, or its process is dead.
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
    No connected instance of the agent could take the call in time.

    :param reason: the same for programs.
    :param waited: the caller waited for the agent already; False: it was refused at
        once, and may try again soon.
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
    Something in the configuration cannot be used.

    :param problems: one line each, ``file:line:column: what is wrong, and what to do``.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class CallError(TunnelError):
    """
    A call ended with *status*; the message is for the caller's eyes.

    :param details: what programs of the caller may read, as `tunnel.details` says.  A
        hint: what is too large for the trailers of the call is left out.
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
    """This kas stops; an agent that asks again reaches another one."""

    def __init__(self) -> None:
        super().__init__(Status.UNAVAILABLE, "kas stops")
