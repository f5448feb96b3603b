"""The page in memory, with a browser that keeps cookies."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

from twisted.internet.task import Clock

from modules.web_page.server.module import WebPageServer
from tunnel.api import Access, CredentialRevoked, Reach, ReachableAgent, SignedIn
from tunnel.testing import FakeSignInProvider, ModulePair
from tunnel.testing.web import Answer

HOST = "kas.localhost"
OWN = f"http://{HOST}"

ALICE = Access("user:alice", "1", "prod")
AGENTS = (ReachableAgent("1", "prod", {"env": "prod"}), ReachableAgent("2", "test"))
REACH = Reach("user:alice", "user:alice", AGENTS)

#: Time of day at the beginning.
START = 1_000_000.0


class ClockedPage(WebPageServer):
    """The module with the time of the test."""

    def __init__(self, api: Any) -> None:
        super().__init__(api, lambda: START + api.clock.seconds())


class PageStand:
    """One kas with the page."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Clock()
        self.pair = ModulePair(self.clock)
        self.module: Any = self.pair.server_half(ClockedPage, **settings)
        self.users: Any = self.module._api.users
        self.users.tokens["secret"] = ALICE
        self.users.reaches["secret"] = REACH
        self.users.sign_in_providers = [FakeSignInProvider()]
        self.provider = self.users.sign_in_providers[0]
        self.revoked: list[str] = []
        self.module._api.events.subscribe(
            CredentialRevoked, lambda event: self.revoked.append(event.credential_id)
        )
        self.pair.start()

    @property
    def sessions(self) -> list[Any]:
        return list(self.module._sessions.all())

    def close(self) -> None:
        self.pair.stop()

    def can_sign_in(self, code: str = "code", **changes: Any) -> SignedIn:
        """Let the provider accept a code."""
        given: dict[str, Any] = {
            "kind": "oidc",
            "token": "token-0",
            "refresh_token": "refresh-0",
            "expires_at": START + 600,
            "name": "Bob",
            "subject": "sub-bob",
            "session": "sid-1",
        }
        made = SignedIn(**(given | changes))
        self.provider.codes[code] = made
        bob = Access("oidc_user:bob:1", "1", "prod", owner="oidc_user:bob")
        for token in (made.token, *(f"token-{one}" for one in range(9))):
            self.users.tokens[token] = bob
            self.users.reaches[token] = Reach(bob.credential_id, bob.owner, AGENTS[:1])
        return made


class PageBrowser:
    """A browser, as far as kas sees one."""

    def __init__(self, stand: PageStand) -> None:
        self.stand = stand
        self.cookies: dict[str, str] = {}
        self.answer = Answer(0, {}, b"")

    def _send(self, path: str, method: str, body: bytes, **fields: str) -> Answer:
        fields = {"Host": HOST} | fields
        if self.cookies:
            fields["Cookie"] = "; ".join(f"{k}={v}" for k, v in self.cookies.items())
        self.answer = self.stand.pair.visit(path, method, body, 0.01, fields)
        cookie = self.answer.fields.get("set-cookie", "")
        if cookie:
            assert "; Path=/; Secure; HttpOnly; SameSite=Lax" in cookie
            name, _, value = cookie.partition(";")[0].partition("=")
            if value:
                self.cookies[name] = value
            else:
                self.cookies.pop(name, None)
        return self.answer

    def get(self, path: str, **fields: str) -> Answer:
        return self._send(path, "GET", b"", **fields)

    def post(self, path: str, form: str = "", **fields: str) -> Answer:
        fields = {
            "Origin": OWN,
            "Content-Type": "application/x-www-form-urlencoded",
        } | fields
        return self._send(path, "POST", form.encode(), **fields)

    def notify(self, path: str, form: str) -> Answer:
        """Post a form as a provider does, which is no browser."""
        kind = "application/x-www-form-urlencoded"
        return self._send(path, "POST", form.encode(), **{"Content-Type": kind})

    def json(self, path: str, status: int = 200) -> Any:
        answer = self.get(path)
        assert answer.status == status, answer
        return json.loads(answer.body)

    def sign_in(self, token: str = "secret", after: str = "/ui/fleet") -> Answer:
        return self.post("/ui/sign-in", f"token={quote(token)}&next={quote(after)}")

    def boot(self) -> Any:
        """Return the data for the script."""
        text = self.get("/ui/fleet").body.decode()
        found = re.search(r'<script[^>]*id="boot"[^>]*>([^<]*)</script>', text)
        assert found is not None, text
        return json.loads(found[1])
