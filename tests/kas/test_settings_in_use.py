"""Each key of the configuration has a reader."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred

from kas.config.schema import KasConfiguration, read_configuration
from kas.service import KasService
from kas.state.directory import StateDirectory
from tests.kas.test_service import Reactor
from tunnel.config.schema import NO_EFFECT
from tunnel.program import sdnotify

#: Readers outside of the start and the end of `KasService`, by the keys' beginning.
ELSEWHERE = {
    "workers": "kas.tap chooses between KasService and the supervisor",
    "modules": "kas.tap prepares the modules",
    "agent.modules": "kas.tap prepares the modules",
    "observability.logging": "kas.tap starts the log",
    "oidc.": "kas.oidc.authenticator, for each token",
    # Read together with certificate_file, which this configuration does not have.
    "agent.listen.key_file": "tunnel.program.listening",
    "api.listen.key_file": "tunnel.program.listening",
    "web.listen.key_file": "tunnel.program.listening",
    "observability.listen.key_file": "tunnel.program.listening",
    "private_api.listen.key_file": "tunnel.program.listening",
    "agent.listen.client_ca_certificate_file": "tunnel.program.listening",
    "api.listen.client_ca_certificate_file": "tunnel.program.listening",
    "web.listen.client_ca_certificate_file": "tunnel.program.listening",
    "observability.listen.client_ca_certificate_file": "tunnel.program.listening",
    # With a development certificate.
    "agent.listen.development_certificate_names": "kas.config.loading",
    "api.listen.development_certificate_names": "kas.config.loading",
    "web.listen.development_certificate_names": "kas.config.loading",
    "observability.listen.development_certificate_names": "kas.config.loading",
    "private_api.listen.development_certificate_names": "kas.config.loading",
    "observability.sentry.environment": "tunnel.program.sentry, with a DSN",
    "agent.listen.listen_grace_period": "kas.fleet.part, if other kas exist",
    # For files of GitLab's kas: the port always speaks both.
    "agent.listen.websocket": "no reader, as its doc says",
}


def _follow(settings: Any, path: str, reads: set[str]) -> Iterator[str]:
    """Record reads of *settings* from now on; iterate over its keys."""
    schema = type(settings)
    names = {one.name: one.metadata for one in attrs.fields(schema)}
    for name, metadata in names.items():
        value = getattr(settings, name)
        if attrs.has(type(value)):
            yield from _follow(value, f"{path}{name}.", reads)
        if NO_EFFECT not in metadata:
            yield f"{path}{name}"

    def read(self: Any, name: str) -> Any:
        if name in names:
            reads.add(f"{path}{name}")
        return object.__getattribute__(self, name)

    followed = type(
        schema.__name__, (schema,), {"__slots__": (), "__getattribute__": read}
    )
    object.__setattr__(settings, "__class__", followed)


def _configuration(folder: Path) -> KasConfiguration:
    secret = folder / "secret"
    secret.write_bytes(base64.b64encode(b"x" * 32))
    listen = "address: 127.0.0.1:{}, authentication_secret_file: " + str(secret)
    return read_configuration(
        f"""\
agent:
  listen: {{address: "127.0.0.1:8150", development_certificate: false}}
observability: {{audit: {{file: {folder / "audit.jsonl"}}}, profile: {{enabled: true}}}}
api: {{listen: {{{listen.format(8153)}}}}}
web: {{listen: {{address: "127.0.0.1:8156"}}}}
private_api: {{listen: {{{listen.format(8155)}}}}}
gitlab: {{address: "http://gitlab.example.com", authentication_secret_file: {secret}}}
oidc: {{issuer: "https://id.example.com", client_id: x, access: []}}
""",
        str(folder / "kas.yaml"),
    )


def test_each_key_has_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A key that no part reads would be a promise without effect.

    Some keys are read elsewhere; the table names the reader of each.
    """
    monkeypatch.setattr(sdnotify, "notify", lambda text: None)
    configuration = _configuration(tmp_path)
    reads: set[str] = set()
    keys = set(_follow(configuration, "", reads))
    reads.clear()
    reactor = Reactor()
    # Reports of usage need a store, which needs threads.
    monkeypatch.setattr(reactor, "getThreadPool", lambda: None, raising=False)
    state = StateDirectory.open(tmp_path / "state")
    service = KasService(configuration, [], state, reactor)
    service._tree._parts = [
        one for one in service._tree._parts if one.name not in ("gitlab", "stores")
    ]
    service.startService()
    stopped: Deferred[None] = service.stopService()
    for _ in range(400):
        reactor.advance(0.1)
    assert stopped.called
    unread = {
        one
        for one in keys - reads
        if not any(one == known or one.startswith(known) for known in ELSEWHERE)
    }
    assert unread == set()
    # The table has no key that the start or the end reads.
    assert {
        known
        for known in ELSEWHERE
        if known in reads or not any(one.startswith(known) for one in keys)
    } == set()
