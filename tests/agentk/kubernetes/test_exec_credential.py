"""Credentials that a program prints, and that they stay fresh."""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import pytest_twisted
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessTerminated
from twisted.python.failure import Failure

from agentk.kubernetes import exec_credential
from agentk.kubernetes.cluster import MIN_REFRESH, RETRY_FIRST, ClusterAccess
from agentk.kubernetes.exec_credential import MAX_OUTPUT, PluginFailed, run_plugin
from agentk.kubernetes.kubeconfig import ExecPlugin, Target
from tests.agentk.credentials import (
    NOW,
    PLAIN,
    V1,
    Process,
    World,
    certificate,
    credential,
    failed,
    later,
)


class TestPlugin:
    """When a plugin runs, and what it is told."""

    def test_what_it_is_told(self) -> None:
        world = World(args=("--cluster", "c"), provide_cluster_info=True)
        world.start()
        assert world.process.arguments[1:] == ["--cluster", "c"]
        assert world.process.env["A"] == "b"
        assert json.loads(world.process.env["KUBERNETES_EXEC_INFO"]) == {
            "apiVersion": V1,
            "kind": "ExecCredential",
            "spec": {"interactive": False, "cluster": {"server": "http://h:80"}},
        }

    def test_not_run_before_the_start(self) -> None:
        assert World().reactor.processes == []

    def test_what_is_written_down_goes_first(self) -> None:
        world = World()
        target = attrs.evolve(world.target, token="abc")
        access = ClusterAccess(target, world.reactor, lambda: NOW, {})
        Deferred.fromCoroutine(access.start())
        assert world.reactor.processes == []
        assert access.authorization() == b"Bearer abc"

    def test_without_expiry_it_runs_once(self) -> None:
        world = World()
        world.started(token="one")
        assert world.token() == b"Bearer one"
        assert world.reactor.getDelayedCalls() == []

    def test_refreshed_before_it_expires(self) -> None:
        world = World()
        world.started(token="one", expirationTimestamp=later(1000))
        world.reactor.advance(799)
        assert len(world.reactor.processes) == 1
        world.reactor.advance(1)
        assert len(world.reactor.processes) == 2
        assert world.token() == b"Bearer one"
        world.process.prints(
            credential(token="two", expirationTimestamp=later(800 + 1000))
        )
        assert world.token() == b"Bearer two"
        world.reactor.advance(800)
        assert len(world.reactor.processes) == 3

    def test_a_token_that_has_expired_already_is_no_loop(self) -> None:
        world = World()
        world.started(token="one", expirationTimestamp=later(-5))
        world.reactor.advance(MIN_REFRESH - 1)
        assert len(world.reactor.processes) == 1
        world.reactor.advance(1)
        assert len(world.reactor.processes) == 2

    def test_a_failed_refresh_keeps_the_old_and_tries_again(self) -> None:
        world = World()
        world.started(token="one", expirationTimestamp=later(100))
        world.reactor.advance(80)
        world.process.fails(b"no network\n")
        assert world.token() == b"Bearer one"
        for delay in (RETRY_FIRST, 2 * RETRY_FIRST, 4 * RETRY_FIRST):
            count = len(world.reactor.processes)
            world.reactor.advance(delay - 0.1)
            assert len(world.reactor.processes) == count
            world.reactor.advance(0.1)
            assert len(world.reactor.processes) == count + 1
            world.process.fails(b"no network\n")

    def test_refused_by_the_api_server(self) -> None:
        world = World()
        world.started(token="one")
        world.reactor.advance(3600)
        for _ in range(5):
            world.access.rejected()
        world.reactor.advance(0)
        assert len(world.reactor.processes) == 2
        world.access.rejected()
        world.process.prints(credential(token="two"))
        # not at once again, however often it is refused
        for _ in range(5):
            world.access.rejected()
            world.reactor.advance(1)
        assert len(world.reactor.processes) == 2
        world.reactor.advance(MIN_REFRESH)
        assert len(world.reactor.processes) == 3

    def test_stopped(self) -> None:
        world = World()
        world.started(token="one", expirationTimestamp=later(100))
        world.access.stop()
        assert world.reactor.getDelayedCalls() == []

    def test_stopped_while_it_runs(self) -> None:
        world = World()
        world.started(token="one", expirationTimestamp=later(100))
        world.reactor.advance(80)
        world.access.stop()
        assert world.process.signals == ["KILL"]
        world.process.protocol.processEnded(Failure(ProcessTerminated(signal=9)))
        assert world.reactor.getDelayedCalls() == []

    def test_certificate(self) -> None:
        pem, key = certificate("a")
        world = World()
        target = attrs.evolve(world.target, tls=True, ca_data=pem)
        access = ClusterAccess(target, world.reactor, lambda: NOW, {})
        done = Deferred.fromCoroutine(access.start())
        status = {
            "clientCertificateData": pem.decode(),
            "clientKeyData": key.decode(),
        }
        world.process.prints(credential(**status))
        assert done.called
        first = access.tls_context()
        assert access.tls_context() is first
        assert access.authorization() is None
        access.rejected()
        world.reactor.advance(MIN_REFRESH)
        pem2, key2 = certificate("b")
        status = {
            "clientCertificateData": pem2.decode(),
            "clientKeyData": key2.decode(),
        }
        world.process.prints(credential(**status))
        assert access.tls_context() is not first

    @pytest.mark.parametrize(
        ("play", "says"),
        [
            (lambda p: p.prints(b"nonsense"), "did not print JSON"),
            (lambda p: p.prints(b"[" * 100_000), "did not print JSON"),
            (lambda p: p.prints(b"{}"), "did not print an ExecCredential"),
            (lambda p: p.prints(credential()), "neither token nor"),
            (lambda p: p.prints(credential(token=5)), "of the wrong types"),
            (lambda p: p.prints(credential(token="a\r\nb")), "special characters"),
            (
                lambda p: p.prints(credential(clientCertificateData="x")),
                "only one of",
            ),
            (
                lambda p: p.prints(credential(token="x", expirationTimestamp="soon")),
                "is not a time",
            ),
            (
                lambda p: p.prints(credential(token="x").replace(b"/v1", b"/v2")),
                "another apiVersion",
            ),
            (lambda p: p.fails(b"please log in\n"), "failed: please log in"),
            (lambda p: p.protocol.outReceived(b"x" * (MAX_OUTPUT + 1)), "more than"),
        ],
    )
    def test_what_is_no_credential(
        self, play: Callable[[Process], None], says: str
    ) -> None:
        world = World(install_hint="see https://example.org")
        done = world.start()
        play(world.process)
        said = failed(done)
        assert says in said
        assert said.startswith("here: the credential plugin ")
        assert said.endswith("; see https://example.org")
        assert world.reactor.getDelayedCalls() == []

    def test_too_slow(self) -> None:
        world = World()
        done = world.start()
        world.reactor.advance(exec_credential.TIMEOUT)
        assert world.process.signals == ["KILL"]
        # a grandchild may hold the pipe: nothing waits for its end
        assert world.process.closed
        assert "took longer than 60 s" in failed(done)

    def test_long_complaints_are_cut(self) -> None:
        world = World()
        done = world.start()
        world.process.fails(b"x" * 100_000 + b"the reason")
        said = failed(done)
        assert len(said) < 1500
        assert said.endswith("the reason")

    def test_not_installed(self) -> None:
        world = World(command="no-such-plugin", install_hint="install it")
        assert "not on the PATH of agentk; install it" in failed(world.start())


class TestRealProcess:
    """The same with processes that are."""

    def target(self, tmp_path: Path, script: str) -> Target:
        plugin = tmp_path / "plugin"
        program = tmp_path / "plugin.py"
        program.write_text(script)
        # A first line with "#!" has no place for a path that contains a space.
        command = shlex.join([sys.executable, str(program)])
        plugin.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        plugin.chmod(stat.S_IRWXU)
        return attrs.evolve(
            PLAIN,
            plugin=ExecPlugin(api_version=V1, command="./plugin", args=("a",)),
            plugin_folder=tmp_path,
        )

    @pytest_twisted.ensureDeferred
    async def test_prints_a_token(self, tmp_path: Path) -> None:
        from twisted.internet import reactor

        script = (
            "import sys, os, json\n"
            "assert sys.stdin.read() == ''\n"
            "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
            "info['status'] = {'token': sys.argv[1] + os.environ['X']}\n"
            "json.dump(info, sys.stdout)\n"
        )
        target = self.target(tmp_path, script)
        got = await run_plugin(reactor, target, {**os.environ, "X": "z"})
        assert got.token == "az"

    @pytest_twisted.ensureDeferred
    async def test_fails(self, tmp_path: Path) -> None:
        from twisted.internet import reactor

        target = self.target(tmp_path, "import sys\nsys.exit('log in first')")
        with pytest.raises(PluginFailed, match="failed: log in first"):
            await run_plugin(reactor, target, os.environ)
