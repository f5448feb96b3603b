"""Which proxy the environment names, and for which destinations none."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tunnel.errors import ConfigurationError
from tunnel.transport.proxies import ProxyURL, proxy_for


class ProxyForTests(SynchronousTestCase):
    def proxy(self, scheme: str, host: str, port: int, **environ: str) -> Any:
        return proxy_for(scheme, host, port, environ)

    def test_variables(self) -> None:
        """By scheme; lower case first; empty means none."""
        both = {"https_proxy": "http://low:1", "HTTPS_PROXY": "http://up:2"}
        self.assertEqual(self.proxy("https", "k", 1, **both).host, "low")
        self.assertEqual(self.proxy("wss", "k", 1, **both).host, "low")
        self.assertIsNone(self.proxy("http", "k", 1, **both))
        self.assertEqual(self.proxy("https", "k", 1, HTTPS_PROXY="http://up:2").port, 2)
        self.assertEqual(self.proxy("ws", "k", 1, http_proxy="h").host, "h")
        self.assertIsNone(self.proxy("https", "k", 1, https_proxy=" "))
        self.assertIsNone(self.proxy("https", "k", 1))

    def test_urls(self) -> None:
        for value, expected in (
            ("http://proxy:3128", ProxyURL("http", "proxy", 3128)),
            ("proxy:3128", ProxyURL("http", "proxy", 3128)),
            ("http://proxy/", ProxyURL("http", "proxy", 80)),
            ("https://proxy", ProxyURL("https", "proxy", 443)),
            ("http://[::1]:8", ProxyURL("http", "::1", 8)),
            ("http://me:a%40b@p:1", ProxyURL("http", "p", 1, ("me", "a@b"))),
            ("http://me@p:1", ProxyURL("http", "p", 1, ("me", ""))),
        ):
            self.assertEqual(self.proxy("https", "k", 1, https_proxy=value), expected)
        shown = repr(self.proxy("https", "k", 1, https_proxy="http://me:hunter2@p:1"))
        self.assertNotIn("hunter2", shown)

    def test_bad_urls(self) -> None:
        """Named by the variable, and without the value: it may hold a password."""
        for value, words in (
            ("socks5://me:hunter2@p:1080", "not supported"),
            ("http://me:hunter2@p:port", "no URL"),
            ("http://me:hunter2@", "no host"),
        ):
            error = self.assertRaises(
                ConfigurationError, self.proxy, "https", "k", 1, HTTPS_PROXY=value
            )
            self.assertIn("$HTTPS_PROXY", str(error))
            self.assertIn(words, str(error))
            self.assertNotIn("hunter2", str(error))

    def test_exceptions(self) -> None:
        for host, no_proxy, excepted in (
            ("kas.example", "kas.example", True),
            ("a.kas.example", "kas.example", True),
            ("a.kas.example", ".kas.example", True),
            ("kas.example", ".kas.example", True),
            ("a.kas.example", "*.kas.example", True),
            ("xkas.example", "kas.example", False),
            ("kas.example.evil", "kas.example", False),
            ("KAS.example.", "kas.EXAMPLE", True),
            ("kas.example", "*", True),
            ("kas.example", "a, b kas.example", True),
            ("kas.example", "kas.example:8150", True),
            ("kas.example", "kas.example:443", False),
            ("kas.example", "", False),
            ("kas.example", ", ,", False),
            ("kas.example", ".", False),
            ("10.1.2.3", "10.0.0.0/8", True),
            ("11.1.2.3", "10.0.0.0/8", False),
            ("10.1.2.3", "10.1.2.3", True),
            ("10.1.2.3", "10.1.2.3:8150", True),
            ("10.1.2.3", "10.1.2.3:1", False),
            ("10.1.2.3", ".3", False),
            ("2001:db8::5", "2001:db8::/32", True),
            ("2001:db8::5", "[2001:db8::5]:8150", True),
            ("2001:db8::5", "[2001:db8::5]:1", False),
            ("2001:db8::5", "10.0.0.0/8", False),
            ("localhost", "", True),
            ("LOCALHOST.", "", True),
            ("127.0.0.9", "", True),
            ("::1", "", True),
        ):
            found = self.proxy(
                "https", host, 8150, https_proxy="http://p:1", no_proxy=no_proxy
            )
            self.assertEqual(found is None, excepted, (host, no_proxy))
        self.assertIsNone(
            self.proxy("https", "k", 1, https_proxy="http://p:1", NO_PROXY="k")
        )
