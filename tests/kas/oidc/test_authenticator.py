"""People whom an identity provider signs in."""

from __future__ import annotations

import base64
import json
import string
from typing import Any

import attrs
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from twisted.internet.address import IPv4Address
from twisted.internet.defer import CancelledError, Deferred

from kas.config.oidc import OidcAccess
from kas.identity.authenticators import FAILED_CHECKS_PER_MINUTE, Authenticators
from kas.identity.failed_checks import FailedChecks
from kas.oidc import authenticator as module
from kas.oidc.authenticator import (
    LOOK_INTERVAL,
    MAX_GROUPS,
    TOKEN_PREFIX,
    OidcAuthenticator,
)
from kas.oidc.code_flow import MAX_TOKEN
from kas.oidc.keys import MIN_INTERVAL
from tests.fakes.identity_provider import CLIENT_ID, make_key
from tests.kas.oidc.cases import EVERYONE, FewAgents, OidcCase
from tunnel.api import Access, Impersonation
from tunnel.errors import CallError, Status
from tunnel.program.runtime import Runtime

PROD, TEST = ("1", "prod"), ("2", "test")
AGENTS = {**dict.fromkeys(PROD, PROD), **dict.fromkeys(TEST, TEST)}


class _Client:
    peer_address = IPv4Address("TCP", "203.0.113.7", 4711)


class OidcAuthenticatorTests(OidcCase):
    """Tokens, what they are, and when they end."""

    def make(self, **more: Any) -> OidcAuthenticator:
        settings = self.settings(**more)
        self.in_use: set[str] = set()
        self.agents = FewAgents(AGENTS)
        self.ended: list[str] = []
        self.keys = self.make_keys(**more)
        authenticator = OidcAuthenticator(
            settings,
            self.keys,
            self.agents,
            lambda: self.in_use,
            Runtime(reactor=self.clock, now=self.now),
        )
        authenticator.on_revoked(self.ended.append)
        authenticator.start()
        self.addCleanup(authenticator.stop)
        self.settle()
        return authenticator

    def ask(
        self, authenticator: OidcAuthenticator, token: str, agent: str = "prod"
    ) -> Access:
        answer = authenticator.authorize_user(agent, token)
        if isinstance(answer, Deferred):
            answer = self.successResultOf(self.settled(answer))
        return answer

    def assert_refused(
        self,
        authenticator: OidcAuthenticator,
        token: str,
        expected: str = "",
        *,
        status: Status = Status.UNAUTHENTICATED,
        agent: str = "prod",
    ) -> None:
        def asked() -> Any:
            return authenticator.authorize_user(agent, token)

        answer = Deferred.fromCoroutine(_awaited(asked))
        error = self.failureResultOf(self.settled(answer), CallError).value
        self.assertEqual(error.status, status, error)
        self.assertIn(expected, error.message)
        for part in token.split("."):
            if len(part) > 8:
                self.assertNotIn(part, error.message)

    def test_reach(self) -> None:
        """The agents that the entries of the user name, if kas knows the agents."""
        named = OidcAccess(users=("oidc:alice",), agents=("test",))
        for entry, names in ((EVERYONE, ["prod", "test"]), (named, ["test"])):
            authenticator = self.make(access=(entry,))
            token = self.provider.token()
            first: Any = authenticator.reach_of(token)
            found = self.successResultOf(self.settled(first))
            self.assertEqual([one.agent_name for one in found.agents], names)
            self.assertEqual(found.owner, "oidc_user:oidc:alice")
            self.assertTrue(found.is_complete)
            # The token is verified once.
            self.assertEqual(authenticator.reach_of(token), found)
            access = self.ask(authenticator, token, "test")
            self.assertEqual(access.credential_id, found.credential_id)
        authenticator, token = self.make(), self.provider.token()
        self.ask(authenticator, token)
        self.agents.is_listed = False
        unknown: Any = authenticator.reach_of(token)
        self.assertEqual((unknown.agents, unknown.is_complete), ((), False))
        refused: Any = authenticator.reach_of(token + "x")
        error = self.failureResultOf(self.settled(refused), CallError).value
        self.assertEqual(error.status, Status.UNAUTHENTICATED)

    def test_user(self) -> None:
        """Prefixed, and verified once."""
        authenticator = self.make()
        token = self.provider.token(groups=["platform", "oncall"])
        access = self.ask(authenticator, token)
        user = Impersonation("oidc:alice", ("oidc:platform", "oidc:oncall"))
        self.assertEqual(access.impersonation, user)
        self.assertEqual((access.agent_id, access.agent_name), ("1", "prod"))
        self.assertFalse(access.read_only)
        self.assertRegex(access.credential_id, "^oidc_user:oidc:alice:[0-9a-f]{8}$")
        for agent in ("1", "prod"):
            self.assertIs(authenticator.authorize_user(agent, token), access)
        other = self.ask(authenticator, token, "test")
        self.assertEqual(other.agent_id, "2")
        self.assertEqual(other.credential_id, access.credential_id)
        # The next token of the same person has no share of its own.
        self.clock.advance(1)
        renewed = self.ask(authenticator, self.provider.token())
        self.assertNotEqual(renewed.credential_id, access.credential_id)
        self.assertEqual(renewed.owner, access.owner)

    def test_no_agents_token(self) -> None:
        with self.assertRaises(CallError):
            self.make().authenticate_agent(b"x")

    def test_claims(self) -> None:
        """Where the operator says they are."""
        authenticator = self.make(
            username_claim="email",
            username_prefix="",
            groups_claim="roles",
            groups_prefix="corp/",
            access=(OidcAccess(groups=("corp/a",), agents=("prod",)),),
        )
        claims: dict[str, Any] = {
            "email": "a@example.com",
            "roles": "a",
            "groups": ["b"],
        }
        token = self.provider.token(**claims, email_verified=True)
        self.assertEqual(
            self.ask(authenticator, token).impersonation,
            Impersonation("a@example.com", ("corp/a",)),
        )
        for verified in (None, False, "true"):
            token = self.provider.token(**claims, email_verified=verified)
            self.assert_refused(authenticator, token, "e-mail")

    def test_no_groups(self) -> None:
        authenticator = self.make(groups_claim="")
        user = self.ask(authenticator, self.provider.token(groups=["a"])).impersonation
        self.assertEqual(user, Impersonation("oidc:alice"))

    def test_system_names(self) -> None:
        """Kubernetes' own are for nobody, unless the operator says so."""
        plain = {
            "username_prefix": "",
            "groups_prefix": "",
            "access": (OidcAccess(users=("alice", "system:admin"), agents=("*",)),),
        }
        authenticator = self.make(**plain)
        root = self.provider.token(sub="system:admin")
        masters = self.provider.token(groups=["system:masters", "ok"])
        self.assert_refused(authenticator, root, "Kubernetes' own")
        got = self.ask(authenticator, masters).impersonation
        self.assertEqual(got, Impersonation("alice", ("ok",)))
        authenticator = self.make(**plain, allow_system_names=True)
        self.ask(authenticator, root)
        got = self.ask(authenticator, masters).impersonation
        self.assertEqual(got, Impersonation("alice", ("system:masters", "ok")))

    def test_unusable_names(self) -> None:
        authenticator = self.make()
        injected = "al\r\nImpersonate-Group: x"
        for name in (None, "", 7, ["alice"], injected, "\u202ee", "a ", "x" * 300):
            self.assert_refused(authenticator, self.provider.token(sub=name), "'sub'")
        groups = ["a\r\nb", "", "\u202ee", "x" * 300, "good", "good"]
        user = self.ask(authenticator, self.provider.token(groups=groups)).impersonation
        self.assertEqual(user, Impersonation("oidc:alice", ("oidc:good",)))
        other = self.provider.token(sub="jürgen ødegård", groups=["team:ж/é"])
        access = (OidcAccess(users=("oidc:jürgen ødegård",), agents=("*",)),)
        user = self.ask(self.make(access=access), other).impersonation
        self.assertEqual(user, Impersonation("oidc:jürgen ødegård", ("oidc:team:ж/é",)))
        authenticator = self.make()
        for wrong in (7, [7], {"a": "b"}):
            self.assert_refused(
                authenticator, self.provider.token(groups=wrong), "not a list of texts"
            )

    def test_too_many_groups(self) -> None:
        authenticator = self.make()
        groups = [f"{number:x}" for number in range(MAX_GROUPS)]
        self.ask(authenticator, self.provider.token(groups=groups))
        token = self.provider.token(groups=[*groups, "x"])
        self.assert_refused(authenticator, token, f"{MAX_GROUPS}")

    def test_required_claims(self) -> None:
        authenticator = self.make(required_claims={"hd": "example.com"})
        self.ask(authenticator, self.provider.token(hd="example.com"))
        for wrong in (None, "example.org", ["example.com"]):
            self.assert_refused(authenticator, self.provider.token(hd=wrong), "'hd'")

    def test_secrets(self) -> None:
        """Who is read-only reads Secrets where one of the entries says so."""
        looker = OidcAccess(groups=("oidc:dev",), agents=("*",), read_only=True)
        more = attrs.evolve(looker, agents=("test",), secrets=True)
        authenticator = self.make(access=(looker, more))
        dev = self.provider.token(groups=["dev"])
        for agent, secrets in (("prod", False), ("test", True)):
            access = self.ask(authenticator, dev, agent)
            self.assertEqual((access.read_only, access.secrets), (True, secrets))

    def test_authorized_party(self) -> None:
        """A token that another client was given is none for kas."""
        authenticator = self.make()
        self.ask(authenticator, self.provider.token(azp=CLIENT_ID))
        both = [CLIENT_ID, "other"]
        for wrong in ("other", 7, ["other"], ""):
            token = self.provider.token(aud=both, azp=wrong)
            self.assert_refused(authenticator, token, "azp")
        authenticator = self.make(authorized_parties=("other",))
        self.ask(authenticator, self.provider.token(aud=both, azp="other"))
        self.assert_refused(authenticator, self.provider.token(azp="third"), "azp")

    def test_one_spelling(self) -> None:
        """One token is one credential, however its parts are written."""
        authenticator = self.make()
        token = self.provider.token()
        self.ask(authenticator, token)
        alphabet = (
            string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
        )
        last = alphabet.index(token[-1])
        # The last bits of 64 bytes in base64 decode to nothing.
        others = [token[:-1] + alphabet[last ^ bits] for bits in range(1, 4)]
        head, body, signature = token.split(".")
        for other in (
            *others,
            f"{token}=",
            f"{token}==",
            f"{head}=.{body}.{signature}",
            f"{head}.{body}=.{signature}",
            token + "\n",
        ):
            self.assert_refused(authenticator, other)

    def test_another_signature(self) -> None:
        """Of an elliptic curve there are two for each text: one credential as well."""
        key = ec.generate_private_key(ec.SECP256R1())
        self.provider.keys["curve"] = ("ES256", key)
        authenticator = self.make()
        token = self.provider.token("curve")
        head, _, signature = token.rpartition(".")
        raw = base64.urlsafe_b64decode(signature + "==")
        order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
        flipped = order - int.from_bytes(raw[32:], "big")
        other = base64.urlsafe_b64encode(raw[:32] + flipped.to_bytes(32, "big"))
        found = self.ask(authenticator, token)
        again = self.ask(authenticator, f"{head}.{other.decode().rstrip('=')}")
        self.assertEqual(found.credential_id, again.credential_id)

    def test_access(self) -> None:
        """Agents by users and groups; more beats read-only."""
        authenticator = self.make(
            access=(
                OidcAccess(groups=("oidc:dev",), agents=("test",)),
                OidcAccess(groups=("oidc:dev",), agents=("*",), read_only=True),
                OidcAccess(users=("oidc:bob",), agents=("1",)),
            )
        )
        dev = self.provider.token(groups=["dev"])
        self.assertFalse(self.ask(authenticator, dev, "test").read_only)
        self.assertTrue(self.ask(authenticator, dev, "prod").read_only)
        bob = self.provider.token(sub="bob")
        self.assertEqual(self.ask(authenticator, bob, "prod").agent_name, "prod")
        nobody = self.provider.token(groups=["other", "oidc:dev"])
        for token, agent in ((bob, "test"), (nobody, "prod"), (dev, "none")):
            self.assert_refused(
                authenticator,
                token,
                "has no access to an agent",
                status=Status.PERMISSION_DENIED,
                agent=agent,
            )

    def test_no_groups_in_the_token(self) -> None:
        """The refusal says how to request them, if an entry has groups."""
        entry = OidcAccess(groups=("oidc:dev",), agents=("test",))
        with_groups = self.make(access=(entry,))
        without = self.make(access=(entry,), groups_claim="")
        only_users = self.make(
            access=(OidcAccess(users=("oidc:bob",), agents=("test",)),)
        )
        plain = self.provider.token(sub="eve")
        other = self.provider.token(sub="eve", groups=["other"])
        request = "no groups (claim 'groups'); request them with --oidc-scope groups"
        for authenticator, token, says in (
            (with_groups, plain, request),
            (without, plain, "oidc.groups_claim is empty"),
            (only_users, plain, "this user or its groups"),
            (with_groups, other, "this user or its groups"),
        ):
            asked = authenticator.authorize_user("test", token)
            assert isinstance(asked, Deferred)
            refused = self.failureResultOf(self.settled(asked), CallError)
            message = refused.value.message
            self.assertIn(says, message)
            if says.endswith("its groups"):
                self.assertTrue(message.endswith(says))

    def test_wrong_tokens(self) -> None:
        """Each is refused, with what is wrong and nothing of the token."""
        authenticator = self.make(clock_skew=30.0)
        token, now = self.provider.token, int(self.now())
        public = json.dumps({"k": 1}).encode()
        good = token()
        head, body, signature = good.split(".")
        none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
        for wrong, expected in (
            (token(aud="another"), "audience"),
            (token(aud=["another", "third"]), "audience"),
            (token(aud=None), "audience"),
            (token(iss="https://evil.example.com"), "issuer"),
            (token(iss=None), "issuer"),
            (token(exp=now - 31), "expired"),
            (token(exp=None), "exp"),
            (token(exp=now + 86400 + 31), "more than"),
            (token(nbf=now + 31), "nbf"),
            (token(iat=now + 31), "iat"),
            (token(events={"logout": {}}), "events"),
            (token(header={"typ": "at+jwt"}), "typ"),
            (token(header={"typ": "logout+jwt"}), "typ"),
            (token(header={"crit": ["x"], "x": 1}), "JWT"),
            (f"{none}.{body}.", "algorithm"),
            (
                jwt.encode({"sub": "alice"}, public * 8, "HS256", {"kid": "one"}),
                "algorithm",
            ),
            (token(signed_with=("ES256", make_key("ES256", 9))), "signature"),
            (token(signed_with=("RS256", make_key("RS256"))), "no key"),
            (f"{head}.{body}.{signature[:-8]}AAAAAAAA", "signature"),
            (token(sub="x" * MAX_TOKEN), "characters"),
            (f"{TOKEN_PREFIX}x", "not a token"),
            (f"{TOKEN_PREFIX}\udcff", "ASCII"),
        ):
            self.assert_refused(authenticator, wrong, expected)
        for right in (
            token(exp=now - 29),
            token(nbf=now + 29),
            token(aud=["another", "kubernetes"]),
            token(kid=None),
            token(header={"typ": None}),
        ):
            self.ask(authenticator, right)

    def test_expiry(self) -> None:
        """An expired token is refused at once, and what it opened ends soon."""
        authenticator = self.make(clock_skew=0.0)
        token = self.provider.token()
        access = self.ask(authenticator, token)
        self.in_use.add(access.credential_id)
        self.wait(599)
        self.assertIs(authenticator.authorize_user("prod", token), access)
        self.clock.advance(1)
        self.assert_refused(authenticator, token, "expired")
        self.wait(LOOK_INTERVAL)
        self.assertEqual(self.ended, [access.credential_id])
        self.wait(LOOK_INTERVAL * 2)
        self.assertEqual(len(self.ended), 1)

    def test_not_in_use(self) -> None:
        """What holds nothing open need not be ended."""
        authenticator = self.make()
        self.ask(authenticator, self.provider.token())
        self.wait(700)
        self.assertEqual(self.ended, [])

    def test_key_taken_back(self) -> None:
        """It ends what its tokens opened, and they are refused."""
        authenticator = self.make(keys_ttl=60.0)
        token = self.provider.token()
        access = self.ask(authenticator, token)
        self.in_use.add(access.credential_id)
        self.provider.keys = {"two": ("ES256", make_key("ES256", 2))}
        self.wait(60 + 2 * LOOK_INTERVAL)
        self.assertEqual(self.ended, [access.credential_id])
        self.wait(MIN_INTERVAL)
        self.assert_refused(authenticator, token, "no key")
        self.ask(authenticator, self.provider.token("two"))

    def test_provider_down(self) -> None:
        """New and known tokens are good with the last keys, up to a bound."""
        authenticator = self.make(keys_ttl=60.0, keys_outage_ttl=120.0)
        known = self.provider.token()
        self.ask(authenticator, known)
        self.provider.down = True
        self.wait(115)
        self.ask(authenticator, known)
        self.ask(authenticator, self.provider.token())
        self.wait(10)
        self.assert_refused(authenticator, known, status=Status.UNAVAILABLE)

    def test_bounds(self) -> None:
        """Tokens that are remembered, and answers for each."""
        self.patch(module, "MAX_VERIFIED", 2)
        self.patch(module, "MAX_ANSWERS", 1)
        authenticator = self.make()
        tokens = [self.provider.token(jti=str(number)) for number in range(3)]
        for token in tokens:
            self.ask(authenticator, token)
        again = [authenticator.authorize_user("prod", token) for token in tokens]
        kept = [not isinstance(one, Deferred) for one in again]
        self.assertEqual(kept, [False, True, True])
        self.settle()
        first = self.ask(authenticator, tokens[2])
        self.ask(authenticator, tokens[2], "test")
        self.assertIsNot(self.ask(authenticator, tokens[2]), first)

    def test_left(self) -> None:
        """A check that is cancelled at once costs nothing."""
        authenticator = self.make()
        self.provider.asked.clear()
        answer = authenticator.authorize_user("prod", self.provider.token("one"))
        assert isinstance(answer, Deferred)
        answer.cancel()
        self.failureResultOf(answer, CancelledError)

    def test_failed_checks(self) -> None:
        """Refusals of one address are limited; a raw token needs no kind."""
        # With equal lots, the first requests wait and the others are refused.
        failed = FailedChecks(FAILED_CHECKS_PER_MINUTE, self.clock, lambda: 0.5)
        authenticators = Authenticators(self.clock, failed)
        authenticators.add(self.make(), TOKEN_PREFIX)
        known = self.provider.token()

        def ask(token: str) -> Deferred[Access]:
            return Deferred.fromCoroutine(
                _awaited(
                    lambda: authenticators.authorize_user("", "prod", token, _Client())
                )
            )

        self.successResultOf(self.settled(ask(known)))
        for number in range(FAILED_CHECKS_PER_MINUTE):
            wrong = self.provider.token(aud="another", jti=str(number))
            self.failureResultOf(self.settled(ask(wrong)), CallError)
        # A few more wait for their turn, and no others.
        more = [ask(self.provider.token(aud=f"{number}")) for number in range(20)]
        self.assertNoResult(self.settled(more[0]))
        refused = self.failureResultOf(self.settled(more[-1]), CallError).value
        self.assertEqual(refused.status, Status.RESOURCE_EXHAUSTED)
        for one in more:
            one.addErrback(lambda _: None)
        self.successResultOf(self.settled(ask(known)))


async def _awaited(ask: Any) -> Any:
    answer = ask()
    return await answer if isinstance(answer, Deferred) else answer
