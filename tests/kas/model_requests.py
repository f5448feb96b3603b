"""Requests of the model check, and what has to hold for each of them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kas.routing.stream import RoutedStream
from tests.kas.many import Kas
from tests.kas.model import Execution
from tunnel.api import StreamOptions
from tunnel.errors import ErrorCode, StreamReset
from tunnel.testing import RecordingReceiver

#: No client may see one of these, whatever happens.
FAULTS = (ErrorCode.PROTOCOL, ErrorCode.INTERNAL, ErrorCode.FLOW_CONTROL)


class Request:
    """One request of a client, and what it may expect."""

    def __init__(self, id_: bytes, kas: Kas, idempotent: bool, resumable: bool) -> None:
        self.id = id_
        self.kas = kas
        self.idempotent = idempotent
        self.resumable = resumable
        self.stream: Any = None
        self.client = RecordingReceiver()
        self.sent = bytearray()
        self.finished = False

    @property
    def runs(self) -> bool:
        return not self.client.closed

    def write(self, size: int) -> None:
        """Send so much more of the body, each byte of which is known by its place."""
        if size and not self.finished:
            at = len(self.sent)
            data = bytes((at + one) % 241 for one in range(size))
            self.sent += data
            self.stream.write(data)

    def finish(self) -> None:
        """Send no more."""
        if not self.finished:
            self.finished = True
            self.stream.finish()


class Requests:
    """
    What clients asked, and what became of it.

    :ivar problems: found where an exception would only end a stream.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        #: Those whose clients are still there to be told.
        self._told: list[Request] = []
        self._by_id: dict[bytes, Request] = {}
        self._executions: dict[bytes, list[Execution]] = defaultdict(list)

    @property
    def running(self) -> list[Request]:
        return [one for one in self._told if one.runs]

    def executions(self, request: Request) -> list[Execution]:
        """Everybody who was asked to do it."""
        return self._executions[request.id]

    def executed(self, execution: Execution) -> None:
        """An agent was asked to do one."""
        mine = self._executions[execution.request_id]
        mine.append(execution)
        if len(mine) > 1 and not self._by_id[execution.request_id].idempotent:
            self.problems.append("a request was executed twice")

    def open(
        self, kas: Kas, agent_id: str, fin: bool, idempotent: bool, resumable: bool
    ) -> Request:
        """A client asks a kas."""
        request = Request(b"%d" % len(self._by_id), kas, idempotent, resumable)
        request.finished = fin
        self._by_id[request.id] = request
        self._told.append(request)
        request.stream = RoutedStream.open(
            kas.router,
            agent_id,
            "/test",
            request.client,
            request.id,
            StreamOptions(fin=fin, idempotent=idempotent, resumable=resumable),
        )
        return request

    def forget(self, kas: Kas) -> None:
        """Its clients lost their connections."""
        self._told = [one for one in self._told if one.kas is not kas]

    def check(self) -> None:
        """Nothing is done twice, or fails by a fault of ours."""
        assert not self.problems, self.problems
        for request in self._told:
            for reason in request.client.closed:
                if isinstance(reason, StreamReset):
                    assert reason.code not in FAULTS, str(reason)

    def check_bytes(self) -> None:
        """No byte is lost, repeated or changed, in either direction."""
        for request in self._by_id.values():
            mine = self._executions[request.id]
            got = bytes(request.client.data)
            if got:
                wrote = [bytes(one.wrote) for one in mine]
                assert any(one.startswith(got) for one in wrote), "other bytes came"
                if request.client.finished:
                    assert got in wrote, "bytes are missing at the end"
            for execution in mine:
                received = bytes(execution.received.data)
                assert bytes(request.sent).startswith(received), "other bytes came"
                if execution.received.finished:
                    assert received == request.sent, "bytes are missing at the end"
