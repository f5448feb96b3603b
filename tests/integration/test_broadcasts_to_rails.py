"""Rows of a real cluster, in a browser that is subscribed at a real Rails server."""

from __future__ import annotations

import contextlib
import secrets
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.integration import chromium, needs
from tests.integration.cluster import ControlPlane
from tests.integration.page_reports import Reports, rails_scripts
from tests.integration.processes import Process
from tests.integration.redisserver import RedisServer
from tests.integration.stack import Agentk, Kas
from tools.ports import free_port

#: Two workers: the one that has the agent broadcasts, and the other one does not.
_SETTINGS = """\
workers: 2
modules:
  cluster_data: {{}}
  notifications:
    action_cable:
      redis:
        network: unix
        server: {{address: "{redis}"}}
      channel_prefix: gitlab_production
      broadcasting: kas:{{view}}:{{agent_id}}
      views: [summary, nodes]
"""

_INSTALL = "apt-get install ruby-actioncable ruby-redis puma"


class Rails:
    """ActionCable of Rails on puma, with its Redis adapter."""

    def __init__(self, folder: Path, redis: RedisServer) -> None:
        puma = needs.program("puma", _INSTALL)
        self.port = free_port()
        source = Path(__file__).parent / "action_cable" / "rails.ru"
        address = f"tcp://127.0.0.1:{self.port}"
        self.process = Process(
            "puma",
            [puma, "--environment", "production", "--bind", address, source],
            folder / "puma.log",
            environment={"CABLE_REDIS": f"unix://{redis.socket}"},
        )
        self.process.wait_for("Listening on")


class BroadcastStand:
    """All of it, and a browser with a page."""

    def __init__(self, folder: Path, kas: Kas, cluster: ControlPlane) -> None:
        self.cluster = cluster
        self.redis = RedisServer(folder)
        self.rails = Rails(folder, self.redis)
        self.reports = Reports(rails_scripts("rails_page.js"), "rails_page.js")
        kas.settings = _SETTINGS.format(redis=self.redis.socket)
        agentk = Agentk(kas, kas.add_agent("main"), cluster.agent)
        kas.start()
        options = folder / "agentk.yaml"
        options.write_text("modules:\n  cluster_data: {}\n")
        query = {"cable": f"ws://127.0.0.1:{self.rails.port}/", "agent": "1"}
        url = f"{self.reports.url}?{urlencode(query)}"
        self._end = contextlib.ExitStack()
        self._end.enter_context(
            chromium.browsing(chromium.found(), url, folder, "rails")
        )
        self.reports.next("connected")
        # What was before a subscription does not matter.
        agentk.start("--configuration-file", str(options))
        self.agentk = agentk
        #: The latest message by view.
        self.last: dict[str, dict[str, Any]] = {}

    def until(self, view: str, node: str) -> dict[str, Any]:
        """Read messages until one of *view* has a row whose key ends so."""
        while True:
            message: dict[str, Any] = self.reports.next("received")["message"]
            before = self.last.get(message["view"])
            self.last[message["view"]] = message
            if before is not None:
                # One process broadcasts, and nothing is lost.
                assert message["e"] == before["e"]
                assert message["s"] == before["s"] + 1
            rows: dict[str, Any] = message.get("put", message.get("snapshot", {}))
            found = [row for key, row in rows.items() if key.endswith(node)]
            if message["view"] == view and found:
                row: dict[str, Any] = found[0]
                return row

    def close(self) -> None:
        self._end.close()
        for one in (self.agentk.process, self.rails.process):
            if one is not None:
                one.kill()
        self.redis.stop()


@pytest.fixture
def stand(
    tmp_path: Path, lone_kas: Kas, control_plane: ControlPlane
) -> Iterator[BroadcastStand]:
    stand = BroadcastStand(tmp_path, lone_kas, control_plane)
    yield stand
    stand.close()


def test_nodes_in_a_browser(stand: BroadcastStand) -> None:
    """The number of nodes, and each node; also after the connection to Redis broke."""
    first = stand.until("summary", "/Node///")
    names = [f"rails-{secrets.token_hex(4)}" for _ in range(2)]
    try:
        began = time.monotonic()
        stand.cluster.call("POST", "/api/v1/nodes", {"metadata": {"name": names[0]}})
        more = stand.until("summary", "/Node///")
        took = time.monotonic() - began
        print(f"a node appeared in the browser after {took:.2f} s")
        # Other tests have nodes, too.
        assert more["total"] != first["total"]
        # Without the pauses of a busy machine it takes less than one second.
        assert took < 10

        stand.redis("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        stand.cluster.call("POST", "/api/v1/nodes", {"metadata": {"name": names[1]}})
        row = stand.until("nodes", f"/{names[1]}/")
        assert row["cluster"] == "main"
    finally:
        for name in names:
            with contextlib.suppress(urllib.error.HTTPError):
                stand.cluster.call("DELETE", f"/api/v1/nodes/{name}")
