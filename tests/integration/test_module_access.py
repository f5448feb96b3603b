"""A module that follows docs/modules.rst: a user gets what the user may see."""

from __future__ import annotations

import http.client
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import ControlPlane
from tests.integration.processes import ROOT
from tests.integration.stack import Agentk, Kas

#: The module of the guide.
GREETER = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "examples/greeter")])}

_KAS = "modules:\n  greeter:\n    listen: {address: '127.0.0.1:0'}\n"


class Greeter:
    """kas and agentk with the module of the guide."""

    def __init__(self, folder: Path, control_plane: ControlPlane) -> None:
        self.kas = Kas(folder / "kas", settings=_KAS)
        kas = self.kas.start(environment=GREETER)
        found = kas.wait_for(r"listening for greeter on 127\.0\.0\.1:(\d+)")
        self.port = int(found[1])
        self.agentk = Agentk(self.kas, self.kas.add_agent("main"), control_plane.agent)
        configuration = folder / "agentk.yaml"
        configuration.write_text("modules:\n  greeter: {}\n")
        self.agentk.start(
            "--configuration-file", str(configuration), environment=GREETER
        )

    def get(self, path: str, token: str) -> tuple[int, Any]:
        """What the module's HTTP API answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def token(self, user: str, *access: str) -> str:
        """Of a new user."""
        said = self.kas.ctl("user", "add", user, "--agent", "main", *access)
        found = re.search(r"\S{40,}", said)
        assert found is not None, said
        return found[0]


@pytest.fixture
def greeter(tmp_path: Path, control_plane: ControlPlane) -> Iterator[Greeter]:
    greeter = Greeter(tmp_path, control_plane)
    yield greeter
    greeter.agentk.stop()
    greeter.kas.stop()


def test_a_user_has_the_users_rights(
    greeter: Greeter, control_plane: ControlPlane, namespace: str
) -> None:
    """agentk may read everything, the user nothing: 403, by the API server itself."""
    control_plane.call(
        "POST",
        f"/api/v1/namespaces/{namespace}/configmaps",
        {"metadata": {"name": "x"}},
    )
    audit = control_plane.audit()
    path = f"/pods/main/{namespace}"
    status, answer = greeter.get(path, greeter.token("stranger", "--as", "stranger"))
    assert status == 403
    assert 'User "stranger" cannot list resource "pods"' in answer["error"]
    (event,) = audit.wait_for(f"/{namespace}/pods")
    assert event["impersonatedUser"]["username"] == "stranger"
    assert event["responseStatus"]["code"] == 403
    status, answer = greeter.get(path, greeter.token("root", "--as-agent"))
    assert (status, answer) == (200, {"names": []})
