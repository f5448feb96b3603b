"""
Calls the external API with grpcio, in a process of its own: grpcio has threads.

    python -m tests.integration.grpc_client TARGET TOKEN SCENARIO [CA]

Prints what it saw as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from kas.pb import health_pb2, server_info_pb2
from modules.agent_tracker import rpc_pb2
from tests.proto import echo_pb2
from tests.proto.echo_pb2 import Text
from tunnel.pb import status_pb2

TRACKER = rpc_pb2.DESCRIPTOR.services_by_name["AgentTracker"]
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
SERVER_INFO = server_info_pb2.DESCRIPTOR.services_by_name["ServerInfo"]
ECHO = echo_pb2.DESCRIPTOR.services_by_name["Echo"]


def stub(channel: Any, service: Any, name: str) -> Callable[..., Any]:
    """One method of a service, as grpcio's generated code would make it."""
    method = service.methods_by_name[name]
    kind = "stream" if method.client_streaming else "unary"
    kind += "_stream" if method.server_streaming else "_unary"
    made: Callable[..., Any] = getattr(channel, kind)(
        f"/{service.full_name}/{name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    return made


class Scenarios:
    """Each method is one scenario, and returns what it saw."""

    def __init__(self, channel: Any, token: str) -> None:
        self.channel = channel
        self.metadata = [("authorization", f"BEARER {token}")]

    def call(self, service: Any, name: str, request: Any, **more: Any) -> Any:
        more = {"metadata": self.metadata, "timeout": 20, **more}
        return stub(self.channel, service, name)(request, **more)

    def failed(self, function: Callable[[], object]) -> list[str]:
        """Code and text of the error that a call ends with."""
        try:
            return ["OK", repr(function())]
        except grpc.RpcError as error:
            found: Any = error
            return [found.code().name, found.details()]

    def agents(self) -> Any:
        """Which agents are connected."""
        request = rpc_pb2.GetConnectedAgentsRequest(agent_id=1)
        found = self.call(TRACKER, "GetConnectedAgents", request)
        several = rpc_pb2.GetConnectedAgentsByAgentIDsRequest(agent_ids=[1, 2, 1])
        also = self.call(TRACKER, "GetConnectedAgentsByAgentIDs", several)
        return {"one": MessageToDict(found), "several": MessageToDict(also)}

    def about(self) -> Any:
        """The version of kas, and its health as a probe without a token asks."""
        info = self.call(
            SERVER_INFO, "GetServerInfo", server_info_pb2.GetServerInfoRequest()
        )
        refused = self.failed(
            lambda: self.call(
                SERVER_INFO,
                "GetServerInfo",
                server_info_pb2.GetServerInfoRequest(),
                metadata=[],
            )
        )

        def health(service: str) -> Any:
            request = health_pb2.HealthCheckRequest(service=service)
            return MessageToDict(self.call(HEALTH, "Check", request, metadata=[]))

        request = health_pb2.HealthCheckRequest()
        watch = self.channel.unary_stream(
            f"/{HEALTH.full_name}/Watch",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        watched = watch(request, metadata=self.metadata, timeout=60)
        first = MessageToDict(next(iter(watched)))
        watched.cancel()
        return {
            "info": MessageToDict(info),
            "without token": refused,
            "health": health(""),
            "of a service": health(SERVER_INFO.full_name),
            "of another": self.failed(lambda: health("no.Such")),
            "watch": first,
            "watch without token": self.failed(
                lambda: list(watch(request, metadata=[], timeout=60))
            ),
        }

    def refusals(self) -> Any:
        """What is not answered."""
        request = rpc_pb2.GetConnectedAgentsRequest(agent_id=1)

        def tried(metadata: Any) -> list[str]:
            return self.failed(
                lambda: self.call(
                    TRACKER, "GetConnectedAgents", request, metadata=metadata
                )
            )

        nothing = rpc_pb2.GetConnectedAgentsRequest()
        unknown = self.channel.unary_unary("/no.Such/Method")
        return {
            "none": tried([]),
            "wrong": tried([("authorization", "Bearer x.y.z")]),
            "basic": tried([("authorization", "Basic eDp5")]),
            "large": tried([("authorization", "Bearer " + "x" * 10_000)]),
            "empty": self.failed(
                lambda: self.call(TRACKER, "GetConnectedAgents", nothing)
            ),
            "unknown": self.failed(
                lambda: unknown(b"", metadata=self.metadata, timeout=60)
            ),
            "unknown without token": self.failed(lambda: unknown(b"", timeout=60)),
        }

    def echo(self) -> Any:
        """All four kinds of calls."""

        def letters() -> Iterator[Text]:
            for letter in "abc":
                yield Text(text=letter)

        spelled = self.call(ECHO, "Spell", Text(text="xyz"))
        return {
            "say": self.call(ECHO, "Say", Text(text="hello")).text,
            "spell": [one.text for one in spelled],
            "join": self.call(ECHO, "Join", letters()).text,
            "chat": self._chat(),
        }

    def _chat(self) -> list[str]:
        """Each request waits for the answer to the one before."""
        answered = threading.Semaphore(1)

        def requests() -> Iterator[Text]:
            for word in ("one", "two", "bye"):
                answered.acquire()
                yield Text(text=word)

        heard = []
        for response in self.call(ECHO, "Chat", requests()):
            heard.append(response.text)
            answered.release()
        return heard

    def explained(self) -> Any:
        """What is said to programs: little, just so much as we take, and more."""

        def said(text: str) -> Any:
            try:
                self.call(ECHO, "Say", Text(text=text))
            except grpc.RpcError as error:
                found: Any = error
                trailers = dict(found.trailing_metadata())
                status = status_pb2.Status.FromString(
                    trailers.get("grpc-status-details-bin", b"")
                )
                kinds = [one.type_url for one in status.details]
                return [found.code().name, len(found.details()), status.code, kinds]

        sizes = ("1 1", "3900 1000", "3900 1500")
        return [said(f"explain {one}") for one in sizes]

    def errors(self) -> Any:
        """What handlers say, and what they do not."""

        def said(text: str, **more: Any) -> list[str]:
            return self.failed(lambda: self.call(ECHO, "Say", Text(text=text), **more))

        with_metadata = [*self.metadata, ("from", "here")]
        answer, call = stub(self.channel, ECHO, "Say").with_call(  # type: ignore[attr-defined]
            Text(text="metadata"), metadata=with_metadata, timeout=60
        )
        begun = time.monotonic()
        late = said("wait", timeout=0.3)
        large = Text(text="x" * (4 * 1024 * 1024 - 100))
        return {
            "refuse": said("refuse"),
            "crash": said("crash"),
            "late": late,
            "soon": time.monotonic() - begun < 60,
            "metadata": [answer.text, dict(call.initial_metadata()).get("server-said")],
            "large": len(self.call(ECHO, "Say", large).text),
            "too large": said("x" * (4 * 1024 * 1024)),
            "gzip": said("x" * 1000, compression=grpc.Compression.Gzip),
        }

    def cancel(self) -> Any:
        """A stream that is given up; the handler counts."""
        flood = self.call(ECHO, "Spell", Text(text="flood"))
        first = [len(next(flood).text) for _ in range(3)]
        flood.cancel()
        return {"first": first, "after": self.call(ECHO, "Say", Text(text="a")).text}

    def many(self) -> Any:
        """A thousand calls, fifty at a time, on one connection."""
        say = stub(self.channel, ECHO, "Say")
        right = 0
        for _ in range(20):
            futures = [
                say.future(Text(text=f"n{i}"), metadata=self.metadata, timeout=30)  # type: ignore[attr-defined]
                for i in range(50)
            ]
            right += sum(f.result().text == f"N{i}" for i, f in enumerate(futures))
        return right

    def bulk(self) -> Any:
        """Ten megabytes in each direction."""

        def requests() -> Iterator[Text]:
            for _ in range(160):
                yield Text(text="x" * 65536)

        return sum(len(one.text) for one in self.call(ECHO, "Chat", requests()))

    def drain(self) -> Any:
        """One call runs while kas is told to stop."""
        waiting = stub(self.channel, ECHO, "Say").future(  # type: ignore[attr-defined]
            Text(text="slow"), metadata=self.metadata, timeout=60
        )
        print("running", flush=True)
        return waiting.result().text


def main() -> None:
    """Run one scenario."""
    target, token, name, *authority = sys.argv[1:]
    options = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
    ]
    if authority:
        credentials = grpc.ssl_channel_credentials(Path(authority[0]).read_bytes())
        channel = grpc.secure_channel(target, credentials, options)
    else:
        channel = grpc.insecure_channel(target, options)
    with channel:
        print(json.dumps(getattr(Scenarios(channel, token), name)()), flush=True)


if __name__ == "__main__":
    main()
