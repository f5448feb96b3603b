"""In whose name kas makes a call, on its way to the agent half."""

from __future__ import annotations

import base64
import json
import secrets
from typing import Any

import attrs
import pytest
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.proto.echo_pb2 import DESCRIPTOR, Text
from tunnel.api import Access, Impersonation
from tunnel.errors import CallError, Status
from tunnel.rpc.access import access_fields, take_access
from tunnel.rpc.client import ServiceClient
from tunnel.testing import ModulePair
from tunnel.toolkit.packing import pack
from tunnel.wire.limits import MAX_HEADERS

ECHO = DESCRIPTOR.services_by_name["Echo"]

ALICE = Access(
    "user:alice",
    "1",
    "agent-1",
    Impersonation("alice ü", ("dev", "a,b"), "7", {"k": ("1", "")}),
    read_only=True,
)


@pytest.mark.parametrize(
    "access",
    [
        ALICE,
        attrs.evolve(ALICE, secrets=True),
        Access("user:root", "1", "agent-1"),
        Access("ci_job:5:1:x", "1", "a", owner="ci_job:5", budget_owner="ci_project:2"),
    ],
)
def test_round_trip(access: Access) -> None:
    metadata = {"a": "b", **access_fields(access)}
    assert take_access(metadata, trusted=True) == access
    assert metadata == {"a": "b"}


def test_an_earlier_kas() -> None:
    """Without an owner, each credential counts for itself."""
    fields = json.loads(access_fields(ALICE)["txkas-access"])
    del fields["owner"], fields["budget_owner"]
    metadata = {"txkas-access": json.dumps(fields)}
    assert take_access(metadata, trusted=True) == ALICE


CROWDED = Access(
    "user:many",
    "1",
    "agent-1",
    Impersonation(
        "many",
        tuple(
            f"gitlab:group_role:{10_000_000 + number}:{role}"
            for number in range(1_000)
            for role in ("developer", "maintainer", "owner")
        ),
    ),
)


def test_as_many_groups_as_gitlab_gives() -> None:
    """They leave room in the one frame that all metadata has to fit into."""
    metadata = access_fields(CROWDED)
    assert sum(map(len, metadata.values())) < MAX_HEADERS // 2
    assert take_access(dict(metadata), trusted=False) is None
    assert take_access(metadata, trusted=True) == CROWDED
    assert not metadata


def test_too_many_groups() -> None:
    groups = tuple(secrets.token_hex(16) for _ in range(3_000))
    access = Access("user:many", "1", "a", Impersonation("many", groups))
    with pytest.raises(CallError, match="3000") as caught:
        access_fields(access)
    assert caught.value.status is Status.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    "text", ["", "!", "QUJD", base64.b64encode(pack(b"{")).decode()]
)
def test_unreadable_packed(text: str) -> None:
    with pytest.raises(CallError) as caught:
        take_access({"txkas-access-packed": text}, trusted=True)
    assert caught.value.status is Status.INVALID_ARGUMENT


def test_only_kas_is_believed() -> None:
    metadata = {"txkas-other": "x", **access_fields(ALICE)}
    assert take_access(metadata, trusted=False) is None
    assert not metadata


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "1", "{}", '{"impersonation": {}}', '{"impersonation": null}'],
)
def test_unreadable(text: str) -> None:
    with pytest.raises(CallError) as caught:
        take_access({"txkas-access": text}, trusted=True)
    assert caught.value.status is Status.INVALID_ARGUMENT


class Half:
    """Notes in whose name it is called."""

    configuration = dict

    def __init__(self, api: Any) -> None:
        self.api = api
        self.calls: list[tuple[Access | None, dict[str, str]]] = []
        api.calls.handle(ECHO, self)

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def say(self, request: Text, call: Any) -> Text:
        self.calls.append((call.access, call.metadata))
        return request

    spell = join = chat = say


class AccessTests(SynchronousTestCase):
    """Both directions of a tunnel."""

    def setUp(self) -> None:
        self.pair = ModulePair(Clock())
        self.agent = self.pair.agent_half(Half)
        self.server = self.pair.server_half(Half)

    def say(self, client: ServiceClient, **metadata: str) -> None:
        self.pair.run(client.call("Say", Text(text="x"), metadata=metadata))

    def test_of_a_user(self) -> None:
        """The agent half sees it; modules do not see how it came."""
        self.say(self.server.api.calls.client(ECHO, "1", access=ALICE), more="1")
        self.assertEqual(self.agent.calls, [(ALICE, {"more": "1"})])

    def test_of_a_user_with_many_groups(self) -> None:
        """The access crosses a real tunnel, whose frames have a limit."""
        self.say(self.server.api.calls.client(ECHO, "1", access=CROWDED))
        self.assertEqual(self.agent.calls, [(CROWDED, {})])

    def test_of_nobody(self) -> None:
        """Metadata that a module passes on for a client gives no access."""
        forged = access_fields(Access("user:root", "1", "agent-1"))
        self.say(self.server.api.calls.client(ECHO, "1"), **forged)
        self.assertEqual(self.agent.calls, [(None, {})])

    def test_name_that_is_two_lines(self) -> None:
        """A name of metadata cannot hold a field of ours."""
        name = "x: y\r\ntxkas-access"
        with self.assertRaises(ValueError):
            self.say(self.server.api.calls.client(ECHO, "1"), **{name: "{}"})
        self.assertEqual(self.agent.calls, [])

    def test_of_an_agent(self) -> None:
        """What an agent says about users is dropped."""
        self.say(ServiceClient(ECHO, self.pair.agent.open_stream, Clock(), ALICE))
        self.assertEqual(self.server.calls, [(None, {})])

    def test_for_another_agent(self) -> None:
        """An access opens its own agent only."""
        with self.assertRaises(ValueError):
            self.server.api.calls.client(ECHO, "2", access=ALICE)
