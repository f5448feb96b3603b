"""What tests share: one control plane, one kas, one agentk; and a Redis for each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.logger import LogEvent, globalLogPublisher

from tests.integration import needs
from tests.integration.cluster import ControlPlane
from tests.integration.kubectl import Kubectl
from tests.integration.rawhttp import Way
from tests.integration.redisserver import RedisServer
from tests.integration.stack import Agentk, Kas


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For everything that lives as long as the tests."""
    return tmp_path_factory.mktemp("kas")


@pytest.fixture(scope="session")
def kas(folder: Path) -> Iterator[Kas]:
    """A kas that no test stops."""
    kas = Kas(folder / "shared")
    kas.start()
    yield kas
    kas.stop()


@pytest.fixture(scope="session")
def agentk(kas: Kas, control_plane: ControlPlane) -> Iterator[Agentk]:
    """An agentk that no test stops; its name is ``main``."""
    agentk = Agentk(kas, kas.add_agent("main"), control_plane.agent)
    agentk.start()
    yield agentk
    agentk.stop()


@pytest.fixture
def lone_kas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kas]:
    """A kas for one test, not yet started.  Its workers need a short path."""
    kas = Kas(tmp_path_factory.mktemp("k") / "lone")
    kas.folder.mkdir()
    yield kas
    if kas.process is not None:
        kas.process.kill()


@pytest.fixture
def lone_agentk(lone_kas: Kas, tmp_path: Path) -> Iterator[Agentk]:
    """An agentk that reaches `lone_kas`, once that runs; its cluster is nowhere."""
    nowhere = {
        "clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "x", "user": {"token": "no-secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "current-context": "x",
    }
    kubeconfig = tmp_path / "nowhere.kubeconfig"
    kubeconfig.write_text(json.dumps(nowhere))
    agentk = Agentk(lone_kas, lone_kas.add_agent("main"), kubeconfig)
    yield agentk
    if agentk.process is not None:
        agentk.process.kill()


@pytest.fixture(scope="session")
def kubeconfigs(
    kas: Kas, agentk: Agentk, control_plane: ControlPlane
) -> dict[str, Path]:
    """The two ways to the API server; on both one has the rights of agentk."""
    return {"direct": control_plane.agent, "proxied": kas.add_user("kubectl")}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of a test's own."""
    server = RedisServer(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def events() -> Iterator[list[LogEvent]]:
    """What this process logs meanwhile."""
    found: list[LogEvent] = []
    observer: Any = found.append
    globalLogPublisher.addObserver(observer)
    yield found
    globalLogPublisher.removeObserver(observer)


@pytest.fixture(scope="session")
def kubectl_programs(control_plane: ControlPlane) -> dict[str, Path]:
    """Those of the control plane's version and of the machine."""
    found = {"own": control_plane.assets / "kubectl"}
    if (other := shutil.which("kubectl")) is not None:
        found["machine"] = Path(other)
    return found


@pytest.fixture(scope="session")
def make_kubectl(
    kubectl_programs: dict[str, Path], kubeconfigs: dict[str, Path], folder: Path
) -> Callable[..., Kubectl]:
    """``make_kubectl(way, version, namespace, transport)``."""

    def make(
        way: str,
        version: str = "own",
        namespace: str = "default",
        transport: str = "websocket",
    ) -> Kubectl:
        if version not in kubectl_programs:
            needs.missing(
                "a kubectl of another version",
                "put one on $PATH, from https://kubernetes.io/docs/tasks/tools/",
            )
        return Kubectl(
            kubectl_programs[version],
            kubeconfigs[way],
            namespace,
            transport,
            # Discovery is asked once; each version and way on its own.
            folder / f"cache-{way}-{version}",
            ours=version == "own",
        )

    return make


@pytest.fixture(scope="session")
def ways(
    kas: Kas, kubeconfigs: dict[str, Path], control_plane: ControlPlane, folder: Path
) -> dict[str, Way]:
    """The two ways, for requests that are written by hand."""
    authority = folder / "api-server-ca.crt"
    authority.write_bytes(control_plane.authority)
    return {
        "direct": Way("direct", control_plane.port, authority, control_plane.token),
        "proxied": attrs.evolve(kas.way("kubectl"), name="proxied"),
    }


@pytest.fixture(params=["direct", "proxied"])
def way(request: pytest.FixtureRequest, ways: dict[str, Way]) -> Way:
    """One way after the other."""
    return ways[request.param]
