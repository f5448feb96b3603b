"""Addresses of kas, and what is stacked up to reach them."""

from __future__ import annotations

import ssl
from typing import Any

from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from tunnel.errors import ConfigurationError
from tunnel.transport.address import KasAddress, client_endpoint, parse_kas_address
from tunnel.transport.proxy import HTTPConnectEndpoint
from tunnel.transport.tlsio import TLSClientEndpoint
from tunnel.transport.websocket import WebSocketClientEndpoint


class ParseTests(SynchronousTestCase):
    def test_accepted(self) -> None:
        """Schemes, default ports, IPv6, paths; the text form leads back."""
        for text, expected, shown in (
            (
                "tls://kas.example:8150",
                KasAddress("tls", "kas.example", 8150, "", True),
                "tls://kas.example:8150",
            ),
            (
                "TLS://Kas.Example/",
                KasAddress("tls", "kas.example", 8150, "", True),
                "tls://kas.example:8150",
            ),
            (
                " tcp://10.0.0.1:99 ",
                KasAddress("tcp", "10.0.0.1", 99, "", False),
                "tcp://10.0.0.1:99",
            ),
            (
                "tls://[2001:db8::1]",
                KasAddress("tls", "2001:db8::1", 8150, "", True),
                "tls://[2001:db8::1]:8150",
            ),
            (
                "wss://gitlab.example/-/kubernetes-agent/",
                KasAddress("wss", "gitlab.example", 443, "/-/kubernetes-agent/", True),
                "wss://gitlab.example/-/kubernetes-agent/",
            ),
            (
                "wss://k:444/a?b=c",
                KasAddress("wss", "k", 444, "/a?b=c", True),
                "wss://k:444/a?b=c",
            ),
            ("ws://k", KasAddress("ws", "k", 80, "/", False), "ws://k"),
            (
                "unix:/run/kas.sock",
                KasAddress("unix", "", 0, "/run/kas.sock", True),
                "unix:/run/kas.sock",
            ),
            (
                "unix:///run/kas.sock",
                KasAddress("unix", "", 0, "/run/kas.sock", True),
                "unix:/run/kas.sock",
            ),
        ):
            address = parse_kas_address(text)
            self.assertEqual(address, expected)
            self.assertEqual(str(address), shown)
            self.assertEqual(parse_kas_address(shown), address)

    def test_refused(self) -> None:
        """The message says what would be right."""
        for text, words in (
            ("grpcs://kas.example", "use tls://kas.example:8150 or wss://kas.example"),
            ("grpcs://kas.example", "grpcs:// is GitLab's agent protocol"),
            ("grpc://kas.example:1", "use tcp://kas.example:8150 or ws://kas.example"),
            ("grpcs://[::1]:1", "tls://[::1]:8150"),
            ("https://gitlab.example/x", "use wss://gitlab.example"),
            ("http://gitlab.example", "use ws://gitlab.example"),
            ("https://192.0.2.2:8150", "use tls://192.0.2.2:8150"),
            ("http://k:8150", "use tcp://k:8150"),
            ("ssl://k", "use tls://k:8150"),
            ("kas.example:8150", "write tls://kas.example:8150"),
            ("kas.example", "write tls://kas.example"),
            ("", "write tls://kas.example"),
            ("ftp://x", "unknown scheme; use tls://kas.example:8150"),
            ("tls://", "no host"),
            ("tls://k:port", "its port is not a number"),
            ("tls://k:70000", "ort"),
            ("tls://k:0", "port 0"),
            ("tls://[::1", "IPv6"),
            ("tls://k/path", "does not permit a path"),
            ("wss://k/#x", "#"),
            ("wss://k/a b", "percent-encoded"),
            ("unix:relative", "complete path"),
        ):
            error = self.assertRaises(ConfigurationError, parse_kas_address, text)
            self.assertIn(words, str(error))

    def test_password(self) -> None:
        """One that was put where it does not belong is not shown."""
        error = self.assertRaises(
            ConfigurationError, parse_kas_address, "wss://me:hunter2@kas.example/"
        )
        self.assertNotIn("hunter2", str(error))


class EndpointTests(SynchronousTestCase):
    def stack(self, text: str, environ: Any = None, **options: Any) -> list[Any]:
        """The endpoints for *text*, from the top."""
        reactor = MemoryReactorClock()
        endpoint: Any = client_endpoint(
            reactor,
            parse_kas_address(text),
            tls_context_source=lambda: ssl.create_default_context(),
            environ=environ or {},
            clock=Clock(),
            **options,
        )
        layers = [endpoint]
        while True:
            below = getattr(endpoint, "endpoint", None) or getattr(
                endpoint, "proxy_endpoint", None
            )
            if below is None:
                return layers
            layers.append(below)
            endpoint = below

    def kinds(self, text: str, environ: Any = None) -> list[type[Any]]:
        return [type(layer) for layer in self.stack(text, environ)]

    def test_direct(self) -> None:
        tcp, tls, web = HostnameEndpoint, TLSClientEndpoint, WebSocketClientEndpoint
        self.assertEqual(self.kinds("tcp://k"), [tcp])
        self.assertEqual(self.kinds("tls://k"), [tls, tcp])
        self.assertEqual(self.kinds("ws://k"), [web, tcp])
        self.assertEqual(self.kinds("wss://k"), [web, tls, tcp])
        self.assertEqual(self.kinds("unix:/x"), [UNIXClientEndpoint])

    def test_proxied(self) -> None:
        """The proxy is below TLS, so that it sees nothing."""
        environ = {"https_proxy": "http://me:pw@proxy:3128", "no_proxy": "inside"}
        tcp, tls, web = HostnameEndpoint, TLSClientEndpoint, WebSocketClientEndpoint
        connect = HTTPConnectEndpoint
        self.assertEqual(self.kinds("wss://k", environ), [web, tls, connect, tcp])
        self.assertEqual(self.kinds("tls://inside", environ), [tls, tcp])
        self.assertEqual(self.kinds("ws://k", environ), [web, tcp])
        via = self.stack("tls://k:1", environ)[1]
        self.assertEqual((via.host, via.port), ("k", 1))
        self.assertEqual(via.credentials, ("me", "pw"))
        self.assertEqual(via.proxy_name, "proxy:3128")
        environ = {"https_proxy": "https://proxy"}
        self.assertEqual(self.kinds("tls://k", environ), [tls, connect, tls, tcp])
        self.assertNotIn("pw", repr(via))

    def test_unix_is_never_proxied(self) -> None:
        environ = {"https_proxy": "http://p", "http_proxy": "http://p"}
        self.assertEqual(self.kinds("unix:/x", environ), [UNIXClientEndpoint])

    def test_names(self) -> None:
        """What is verified, and what the WebSocket's request says."""
        web, tls, _ = self.stack("wss://[::1]:444/p", server_name="other.example")
        self.assertEqual(tls.server_hostname, "other.example")
        self.assertEqual(web.url, "wss://[::1]:444/p")
        self.assertEqual(self.stack("tls://k")[0].server_hostname, "k")
        self.assertEqual(parse_kas_address("tls://k").alpn, ("txkas/1",))
        self.assertEqual(parse_kas_address("wss://k").alpn, ("http/1.1",))
