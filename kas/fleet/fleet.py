"""
The other kas: the directory, sessions with them, and their requests to this kas.

Without ``redis``, the other kas are only the other workers of this kas.  Without
``redis`` and workers, the directory is empty, and the classes in this file do nothing.
"""

from __future__ import annotations

import itertools
import ssl
from collections.abc import (
    AsyncGenerator,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
from google.protobuf.descriptor import ServiceDescriptor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import Logger

from kas.agents.registry import Registry
from kas.config.own_address import OwnAddress, own_address, parse_peer_url
from kas.config.schema import KasConfiguration, PrivateApiListen
from kas.directory.directory import Directory
from kas.directory.records import AgentRecord, KasRecord
from kas.directory.sibling_store import SiblingStore
from kas.directory.store import Store
from kas.fleet.credentials import (
    CHECK_INTERVAL,
    SessionCredentials,
    watched_authorities,
)
from kas.fleet.gateway import Gateway, GatewayFactory
from kas.fleet.peers import Peer, Peers
from kas.fleet.tokens import PeerTokens
from kas.identity import jwt
from kas.pb import directory_pb2
from kas.state.pki import ServerFiles
from kas.state.process_socket import worker_at
from tunnel import __version__
from tunnel.api import (
    AgentChanged,
    AgentConnected,
    AgentDisconnected,
    ConnectedAgent,
    IStream,
    IStreamReceiver,
)
from tunnel.errors import CallError, ConfigurationError, Status, TunnelError
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.listening import Listening
from tunnel.program.runtime import Runtime
from tunnel.rpc.client import ServiceClient
from tunnel.rpc.dispatch import Dispatcher
from tunnel.toolkit.repeated import Repeated
from tunnel.toolkit.until import until
from tunnel.transport.address import KasAddress, client_endpoint
from tunnel.transport.tls import ALPN_TUNNEL, client_context, identity_files

if TYPE_CHECKING:
    from kas.redis import RedisClient

__all__ = ["Fleet"]

#: Timeout of a query to a peer about its agents, in seconds.
ASK_TIMEOUT = 2.0

#: Maximum number of connections in one page of a response: about 300 KiB.
PAGE = 1000

_DIRECTORY = directory_pb2.DESCRIPTOR.services_by_name["Directory"]


@attrs.define(eq=False)
class Fleet:
    """
    Parts of a kas that belongs to a fleet: the directory, the peers and the gateway,
    and the service that answers queries of other kas.

    :param addresses: returns the addresses of this machine's interfaces.
    """

    configuration: KasConfiguration
    registry: Registry
    runtime: Runtime
    addresses: Callable[[], Iterable[str]]
    #: Function that returns the development certificate, and creates the certificate if
    #: necessary.
    development: Callable[[], ServerFiles]
    #: Addresses of the other workers of this kas.
    sibling_urls: Sequence[str] = ()
    directory: Directory = attrs.field(init=False)
    peers: Peers | None = attrs.field(init=False, default=None)
    gateway: Gateway | None = attrs.field(init=False, default=None)
    redis: RedisClient | None = attrs.field(init=False, default=None)
    #: State that the workers of one kas share without Redis.
    siblings: SiblingStore | None = attrs.field(init=False, default=None)
    #: The secrets of ``private_api``; None without a private API.
    secrets: jwt.Secrets | None = attrs.field(init=False, default=None)
    #: Handlers of the calls of other kas to this kas; None without a private API.
    dispatcher: Dispatcher | None = attrs.field(init=False, default=None)
    _me: KasRecord = attrs.field(init=False)
    _own: OwnAddress = attrs.field(init=False, default=OwnAddress(""))
    _tokens: PeerTokens | None = attrs.field(init=False, default=None)
    #: Repeated check of the open sessions; None without a private API.
    _checks: Repeated | None = attrs.field(init=False, default=None)
    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._me = KasRecord(self.runtime.instance_id, "", version=__version__)
        self.directory = Directory(self._me, None, self.runtime)
        if self.configuration.private_api is None:
            return
        listen = self.configuration.private_api.listen
        self._own = own_address(listen, self.runtime.environ, self.addresses)
        self._me = attrs.evolve(self._me, url=self._own.url)
        self.secrets = secrets = _secrets(listen, self.runtime.reactor)
        self._tokens = PeerTokens(secrets, self._me.url, lambda: self.runtime.now())
        if listen.tls or self._own.scheme == "tls":
            self._tls_context()  # Report errors in the files now.
        dispatcher = Dispatcher(self.runtime.reactor, tracer=self.runtime.tracer)
        dispatcher.handle("kas", _DIRECTORY, self)
        self.dispatcher = dispatcher
        dialling, dialled = (
            watched_authorities(path, self.runtime.reactor) if path else None
            for path in (listen.ca_certificate_file, listen.client_ca_certificate_file)
        )
        tokens = self._tokens
        credentials = SessionCredentials(lambda: tokens.accepted, dialling, dialled)
        self.gateway = Gateway(
            self._tokens.verify,
            self.registry,
            dispatcher,
            self.runtime,
            credentials,
        )
        self.peers = Peers(
            endpoint=self._endpoint,
            sign=self._tokens.sign,
            runtime=self.runtime,
            credentials=credentials,
        )
        self._checks = Repeated(
            self.runtime.reactor,
            "checking the credentials of other kas",
            credentials.check,
        )
        store: Store | None = None
        redis = self.configuration.redis
        if redis is not None:
            # Import the class here, because importing it installs a reactor.
            from kas.directory.redis_store import RedisStore

            in_redis = RedisStore(self._me, redis, self.runtime)
            store, self.redis = in_redis, in_redis.client
        elif self.sibling_urls:
            store = self.siblings = SiblingStore(
                self._me, self.sibling_urls, self, self.runtime
            )
        if store is not None:
            self.directory = Directory(
                self._me,
                store,
                self.runtime,
                sessions=self,
                siblings=self.sibling_urls,
                on_superseded=self._superseded,
                on_connected=lambda record: self.registry.replaced(record.agent),
            )

    async def start(self, listening: Listening) -> None:
        """Listen for other kas, and announce this kas to them."""
        if self.gateway is not None and self.configuration.private_api is not None:
            listen = self.configuration.private_api.listen
            await listening.listen(
                listen,
                GatewayFactory(self.gateway),
                what="other kas",
                setting="private_api.listen.address",
                alpn=(ALPN_TUNNEL,),
            )
            if not listen.tls and listen.network != "unix":
                self._log.warn(
                    "other kas connect without TLS: their traffic can be read in "
                    "transit; set certificate_file and key_file in private_api.listen"
                )
            if self.siblings is None:
                self._log.info("other kas reach this one at {url}", url=self._own.url)
        if self._checks is not None:
            self._checks.start(CHECK_INTERVAL)
        self.runtime.bus.subscribe("kas", AgentConnected, self._connected)
        self.runtime.bus.subscribe("kas", AgentDisconnected, self._disconnected)
        self.runtime.bus.subscribe("kas", AgentChanged, self._connected)
        await self.directory.start()

    def update(self, *, draining: bool | None = None) -> None:
        """Update this kas' record: its number of agents, and whether it is leaving."""
        self._me = attrs.evolve(
            self._me,
            agents=len(self.registry),
            draining=self._me.draining if draining is None else draining,
        )
        self.directory.update(self._me)

    def leave(self) -> None:
        """Ask other kas to take the agents from now on, because this kas stops."""
        self.update(draining=True)
        if self.peers is not None:
            self.peers.leaving = True

    def others(self) -> list[KasRecord]:
        """Return the other living kas; workers of this kas do not count."""
        siblings = self.sibling_urls
        return [one for one in self.directory.living() if one.url not in siblings]

    async def stop(self) -> None:
        """Remove this kas' records from the directory, and close the sessions."""
        if self._checks is not None:
            self._checks.stop()
        await self.directory.stop()
        if self.gateway is not None:
            self.gateway.end()
        if self.peers is not None:
            self.peers.stop()

    # Methods that record agents of this kas in the directory.

    def _record(self, agent: ConnectedAgent) -> AgentRecord:
        return AgentRecord(agent, self.runtime.instance_id, self._me.url)

    def _connected(self, event: AgentConnected | AgentChanged) -> None:
        self.update()
        self.directory.connected(self._record(event.agent))

    def _disconnected(self, event: AgentDisconnected) -> None:
        self.update()
        self.directory.disconnected(self._record(event.agent))

    def _superseded(self, record: AgentRecord) -> None:
        self.registry.superseded(record.agent)
        self.directory.disconnected(record)

    # Methods that answer queries of peers.

    async def find(
        self, request: directory_pb2.FindRequest, call: object
    ) -> directory_pb2.FindResponse:
        """See ``directory.proto``."""
        return directory_pb2.FindResponse(
            agents=self._found(request), kas=self._me.to_message()
        )

    async def find_all(
        self, request: directory_pb2.FindRequest, call: object
    ) -> AsyncGenerator[directory_pb2.FindResponse, None]:
        """See ``directory.proto``."""
        found = self._found(request)
        while page := list(itertools.islice(found, PAGE)):
            yield directory_pb2.FindResponse(agents=page)

    def _found(
        self, request: directory_pb2.FindRequest
    ) -> Iterator[directory_pb2.AgentRecord]:
        # Copy the table, because agents connect and disconnect while pages are sent.
        for connection in tuple(self.registry):
            agent = connection.agent
            if (
                not connection.retired
                and request.agent_id in ("", agent.agent_id)
                and request.project_id in (0, agent.project_id)
            ):
                yield self._record(agent).to_message()

    async def watch(
        self, request: directory_pb2.WatchRequest, call: object
    ) -> AsyncGenerator[directory_pb2.WatchResponse, None]:
        """See ``directory.proto``."""
        if self.siblings is None or self.gateway is None:
            raise CallError(
                Status.UNIMPLEMENTED, "only workers of one kas may call this"
            )
        self.gateway.watches += 1
        try:
            async for change in self.siblings.changes():
                yield change
        finally:
            self.gateway.watches -= 1

    # Methods of kas.directory.known_kas.Sessions, which query peers.

    def answers(self, kas: KasRecord) -> bool:
        """
        Return whether this kas has a session with another kas, and has received data
        from it recently.
        """
        return self.peers is not None and self.peers.at(kas.url).alive

    def dial(self, kas: KasRecord, callback: Callable[[], None]) -> None:
        """
        Open a session; call *callback* when the session is open, or could not be
        opened.
        """
        assert self.peers is not None
        self.peers.at(kas.url).connect(callback)

    async def dial_all(self, patience: float) -> None:
        """
        Dial every other kas without a session, to find out which can be reached.

        :param patience: maximum seconds to wait for all sessions.
        """
        if self.peers is None:
            return
        peers = [self.peers.at(one.url) for one in self.directory.living()]
        asked = [peer for peer in peers if not peer.alive]
        for peer in asked:
            peer.prepare()
        await until(
            lambda: not any(peer.dialling for peer in asked),
            self.runtime.reactor,
            patience,
        )

    async def ask(self, agent_id: str, peers: Sequence[KasRecord]) -> list[AgentRecord]:
        """
        Query *peers* about an agent; a peer that fails counts as a peer without the
        agent.
        """
        asking = [Deferred.fromCoroutine(self._ask_one(kas, agent_id)) for kas in peers]
        answers = await gatherResults(asking)
        return [record for answer in answers for record in answer]

    async def _ask_one(self, kas: KasRecord, agent_id: str) -> list[AgentRecord]:
        assert self.peers is not None
        try:
            client = await self.client(kas.url, _DIRECTORY)
            answer = await client.call(
                "Find",
                directory_pb2.FindRequest(agent_id=agent_id),
                timeout=ASK_TIMEOUT,
            )
        except TunnelError as error:
            self._log.debug(
                "{kas} did not answer a query: {reason}",
                kas=worker_at(kas.url),
                reason=error,
            )
            return []
        self.directory.seen(KasRecord.from_message(answer.kas))
        return [AgentRecord.from_message(one) for one in answer.agents]

    async def client(self, url: str, service: ServiceDescriptor) -> ServiceClient:
        """
        Return a client of a service at another kas, after connecting to it.

        :raises CallError: UNAVAILABLE if the other kas cannot be reached, or could not
            be reached a moment ago.
        """
        assert self.peers is not None
        peer = self.peers.at(url)
        if not peer.worth_trying:
            raise CallError(Status.UNAVAILABLE, peer.problem or "no response")
        return await self._client(peer, service)

    async def _client(self, peer: Peer, service: ServiceDescriptor) -> ServiceClient:
        if not peer.alive:
            up: Deferred[None] = Deferred()
            peer.connect(lambda: up.callback(None))
            await up
        tunnel = peer.tunnel
        if tunnel is None:
            raise CallError(Status.UNAVAILABLE, peer.problem or "no session")

        def opener(
            method: str,
            receiver: IStreamReceiver,
            *,
            metadata: bytes = b"",
            timeout: float = 0,
        ) -> IStream:
            open_ = pb.Open(
                method=method, metadata=metadata, timeout_ms=round(timeout * 1000)
            )
            stream: IStream = tunnel.open_stream(open_, receiver)
            return stream

        return ServiceClient(service, opener, self.runtime.reactor)

    # Methods of kas.directory.sibling_store.SiblingCalls, which call the other workers
    # of one kas.

    async def find_all_at(
        self, url: str, request: directory_pb2.FindRequest
    ) -> Sequence[directory_pb2.AgentRecord]:
        """
        Return the agents of another kas.

        :raises TunnelError: if that kas does not respond.
        """
        client = await self._sibling(url)
        return [
            agent
            async for page in client.stream("FindAll", request, timeout=ASK_TIMEOUT)
            for agent in page.agents
        ]

    async def watch_at(
        self, url: str
    ) -> AsyncGenerator[directory_pb2.WatchResponse, None]:
        """
        Yield the changes at a sibling.

        :raises TunnelError: if the call ended.
        """
        client = await self._sibling(url)
        async for message in client.stream("Watch", directory_pb2.WatchRequest()):
            yield message

    async def _sibling(self, url: str) -> ServiceClient:
        """Return a client of a sibling, after waiting for its backoff."""
        assert self.peers is not None
        return await self._client(self.peers.at(url), _DIRECTORY)

    def _endpoint(self, url: str) -> IStreamClientEndpoint:
        address, own = parse_peer_url(url), self._own.scheme
        # A program that can write to Redis must not choose a path without TLS.
        if own == "tls" and address.scheme == "tcp":
            raise ConfigurationError(["its address has no TLS, but ours has"])
        if address.scheme == "unix" and own != "unix" and url not in self.sibling_urls:
            raise ConfigurationError(
                ["its address is a socket, but it is not a worker of this kas"]
            )
        return client_endpoint(
            self.runtime.reactor,
            KasAddress(
                address.scheme,
                address.host,
                address.port,
                address.path,
                address.scheme == "tls",
            ),
            tls_context_source=self._tls_context,
            server_name=self._own.tls_server_name,
            environ={},
            any_name_source=partial(self._tls_context, any_name=True),
        )

    def _tls_context(self, *, any_name: bool = False) -> ssl.SSLContext:
        """
        Return a new TLS context for a dial.  The files are read for each dial, because
        they may have been replaced; dials are rare.

        :param any_name: whether to accept any name in the certificate; only for
            examining the certificate of a peer.
        :raises ConfigurationError: if one of the files is invalid.
        """
        assert self.configuration.private_api is not None
        listen = self.configuration.private_api.listen
        authorities = listen.ca_certificate_file
        certificate, key = listen.certificate_file, listen.key_file
        if listen.own_certificate:
            own = self.development()
            certificate, key = own.certificate_file, own.key_file
            authorities = authorities or own.ca_file
        # Present a client certificate only if this kas requires one from its peers,
        # too.
        mutual = listen.client_ca_certificate_file is not None and certificate
        return client_context(
            ca_file=str(authorities) if authorities else None,
            any_name=any_name,
            identity=identity_files(certificate, key) if mutual else None,
            # Trust only the CAs of the operator, because the addresses of other kas
            # come from Redis.
            system_pool=authorities is None,
        )


def _secrets(listen: PrivateApiListen, reactor: Any) -> jwt.Secrets:
    assert listen.authentication_secret_file is not None
    try:
        return jwt.Secrets(
            listen.authentication_secret_file,
            listen.accepted_secret_files,
            clock=reactor,
        )
    except ValueError as error:
        raise ConfigurationError([f"private_api.listen: {error}"]) from None
