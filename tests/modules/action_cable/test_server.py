"""Who may connect: origins, subprotocols, and where credentials are."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from twisted.logger import capturedLogs
from zope.interface.verify import verifyObject

from modules.action_cable.credentials import BEARER_PROTOCOL
from modules.action_cable.messages import PROTOCOL
from modules.action_cable.server import MAX_ORIGINS, PATH, ActionCableSettings
from tests.modules.action_cable.world import TOKEN, CableWorld
from tunnel.api import (
    PAGE_COOKIE,
    PAGE_SESSION,
    SESSION_COOKIE,
    ICable,
    IServerModule,
)

PAGE = "https://page.example.com"
OWN = "http://kas"


@pytest.fixture
def world() -> CableWorld:
    return CableWorld()


def bearer(token: str) -> str:
    encoded = base64.urlsafe_b64encode(token.encode()).rstrip(b"=").decode()
    return BEARER_PROTOCOL + encoded


def test_module(world: CableWorld) -> None:
    """It is a module, and offers its capability."""
    verifyObject(IServerModule, world.module)
    verifyObject(ICable, world.cable)


def test_origins(world: CableWorld) -> None:
    """kas' own origin and allowed ones connect; others get 404, as from Rails."""
    assert world.connect(Origin=OWN).status == 101
    for origin in (PAGE, "http://kas:80", "https://kas", "null", f"{OWN}, {OWN}"):
        refused = world.connect(Origin=origin)
        assert refused.status == 404, origin
        assert b"pages of this origin" in refused.text
    world = CableWorld(allowed_origins=(PAGE,))
    assert world.connect(Origin=PAGE).status == 101
    assert world.connect(Origin=PAGE + ".evil.com").status == 404


def test_refused_origins_in_the_log(world: CableWorld) -> None:
    """Each of them once, and a limited number."""
    with capturedLogs() as events:
        for number in range(MAX_ORIGINS + 10):
            for _ in range(2):
                world.connect(Origin=f"https://{number}.example.com").lose()
    lines = [one for one in events if "refused a page" in str(one["log_format"])]
    assert len(lines) == MAX_ORIGINS


@pytest.mark.parametrize("origin", ["page.example.com", "https://a/b", "HTTPS://A"])
def test_wrong_setting(origin: str) -> None:
    """An origin that no browser sends is refused at the start."""
    with pytest.raises(ValueError, match="is not an origin"):
        ActionCableSettings(allowed_origins=(origin,))


def test_subprotocols(world: CableWorld) -> None:
    """The protocol is selected; a script need not offer any."""
    client = world.connect(subprotocols=["actioncable-unsupported", PROTOCOL])
    assert client.core.subprotocol == PROTOCOL
    assert world.connect(subprotocols=["actioncable-unsupported"]).status == 400
    assert world.connect(subprotocols=None).seen() == [{"type": "welcome"}]


def test_path(world: CableWorld) -> None:
    """Nothing is below the path."""
    assert world.connect(path=PATH + "/x").status == 404


def test_token_in_a_subprotocol(world: CableWorld) -> None:
    """The way for pages; the token is not selected."""
    client = world.connect("", subprotocols=[PROTOCOL, bearer(TOKEN)], Origin=OWN)
    assert client.core.subprotocol == PROTOCOL
    assert client.seen() == [{"type": "welcome"}]


@pytest.mark.parametrize(
    "offered", [["x" * 5], ["_w"], [bearer(TOKEN)[len(BEARER_PROTOCOL) :]] * 2]
)
def test_malformed_token(world: CableWorld, offered: list[str]) -> None:
    """A page learns it as ActionCable says it; a script by the status."""
    subprotocols = [PROTOCOL, *(BEARER_PROTOCOL + one for one in offered)]
    client = world.connect("", subprotocols=subprotocols, Origin=OWN)
    assert client.seen()[0]["reason"] == "unauthorized"
    assert world.connect("", subprotocols=subprotocols).status == 401


@pytest.mark.parametrize("value", ["Basic x", "Bearer", "Bearer a b", "x"])
def test_malformed_header(world: CableWorld, value: str) -> None:
    """Scripts get 401."""
    client = world.connect("", Authorization=value)
    assert client.status == 401
    assert b"WWW-Authenticate: Bearer" in client.text


def test_session_of_gitlab() -> None:
    """Cookie and CSRF token together are a credential, for pages only."""
    world = CableWorld(allowed_origins=(PAGE,))
    path = PATH + "?gitlab-csrf-token=a%2Bb"
    cookie = "other=1; _gitlab_kas=x%3D%3D"
    client = world.connect("", path=path, Origin=PAGE, Cookie=cookie)
    assert client.seen() == [{"type": "welcome"}]
    (connection,) = world.hub.connections
    caller: Any = connection._caller
    assert caller.credential.kind == SESSION_COOKIE
    assert caller.credential.token == "a+b x=="
    for more in (
        {"path": PATH, "Origin": PAGE, "Cookie": cookie},
        {"path": path, "Origin": PAGE, "Cookie": cookie + "; " + cookie},
    ):
        refused = world.connect("", **more)
        assert refused.seen()[0]["reason"] == "unauthorized"
    assert world.connect("", path=path, Cookie=cookie).status == 401


def test_secrets(world: CableWorld) -> None:
    """No token is in a representation."""
    world.connect()
    (connection,) = world.hub.connections
    caller: Any = connection._caller
    assert "secret" not in repr(caller.credential)


COOKIES = f"_gitlab_kas=x; {PAGE_COOKIE}={TOKEN}"


def test_session_of_the_own_page(world: CableWorld) -> None:
    """The cookie is enough, and no other page can use it."""
    client = world.connect("", Origin=OWN, Cookie=COOKIES)
    assert client.seen() == [{"type": "welcome"}]
    (connection,) = world.hub.connections
    caller: Any = connection._caller
    assert (caller.credential.kind, caller.credential.token) == (PAGE_SESSION, TOKEN)
    world = CableWorld(allowed_origins=(PAGE,))
    other = world.connect("", Origin=PAGE, Cookie=COOKIES)
    assert other.seen()[0]["reason"] == "unauthorized"
