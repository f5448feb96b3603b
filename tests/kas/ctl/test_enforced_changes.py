"""Changes by kasctl that need an event on disk before they are made."""

from __future__ import annotations

import http.server
import json
import os
import socketserver
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from kas.audit import holds
from kas.identity.file import FILE_NAME
from kas.identity.store import IdentityStore
from kas.state import running
from kas.state.directory import StateDirectory
from kas.state.process_socket import path_of
from tests.kas.ctl.kasctl import Kasctl


class _Socket(socketserver.ThreadingUnixStreamServer):
    """The control socket of a kas."""

    daemon_threads = True
    answer: Callable[[dict[str, str]], tuple[int, str]]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Socket

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status, text = self.server.answer(sent)
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def address_string(self) -> str:
        return ""


@attrs.define
class Recorder:
    """A kas that records changes, with the identity file at each of them."""

    kasctl: Kasctl
    refuses: str = ""
    changes: list[dict[str, str]] = attrs.field(factory=list)
    files: list[bytes] = attrs.field(factory=list)

    def answer(self, change: dict[str, str]) -> tuple[int, str]:
        self.changes.append(change)
        file = self.kasctl.state / FILE_NAME
        self.files.append(file.read_bytes() if file.exists() else b"")
        if self.refuses:
            return 503, self.refuses
        return 200, json.dumps({"id": "e1"} if change.get("stage") == "begun" else {})


@pytest.fixture
def kasctl(tmp_path_factory: pytest.TempPathFactory) -> Kasctl:
    """With a short path, because the socket is in its folder."""
    return Kasctl(tmp_path_factory.mktemp("k"))


@pytest.fixture
def recorder(kasctl: Kasctl) -> Iterator[Recorder]:
    """A kas that enforces events of changes."""
    found = Recorder(kasctl)
    state = StateDirectory.open(kasctl.state)
    running.tell(state, [], enforces_changes=True)
    path = path_of(state, os.getpid())
    with _Socket(str(path), _Handler) as server:
        server.answer = found.answer
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join(10)
            path.unlink()


def test_an_event_before_the_change(kasctl: Kasctl, recorder: Recorder) -> None:
    kasctl.ok("agent", "add", "prod")
    kasctl.ok("agent", "label", "prod", "stage=live", "id=7")
    add, added, label, labelled = recorder.changes
    assert (add["action"], add["name"], add["stage"]) == ("agent.add", "prod", "begun")
    assert "id" not in add
    assert added == {**add, "stage": "ended", "id": "e1"}
    assert label["labels"] == "stage=live, id=7"
    assert labelled["stage"] == "ended"
    before, after = recorder.files[:2]
    assert b"prod" not in before
    assert b"prod" in after


@pytest.mark.parametrize(
    "command",
    [
        "agent add test",
        "agent rotate prod",
        "agent label prod env=prod",
        "user add bob --agent prod --as-agent",
        "user grant alice --agent *",
        "user revoke alice",
        "environment set all env",
        "audit hold --reason 7",
    ],
    ids=lambda command: "-".join(command.split()[:2]),
)
def test_no_change_without_an_event(
    kasctl: Kasctl, recorder: Recorder, command: str
) -> None:
    kasctl.ok("agent", "add", "prod")
    kasctl.ok("user", "add", "alice", "--agent", "prod", "--as-agent")
    before = (kasctl.state / FILE_NAME).read_bytes()
    recorder.refuses = "the audit log of kas cannot be written: No space left on device"
    said = kasctl.fails(*command.split())
    assert "nothing was changed: " in said
    assert "No space left on device" in said
    assert (kasctl.state / FILE_NAME).read_bytes() == before
    assert not (kasctl.state / holds.FILE).exists()


def test_a_change_that_fails(
    kasctl: Kasctl, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log says that nothing was changed."""

    def write(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(IdentityStore, "_write", write)
    assert "No space left" in kasctl.fails("agent", "add", "prod")
    begun, ended = recorder.changes
    assert begun["stage"] == "begun"
    assert (ended["stage"], ended["failed"], ended["id"]) == ("ended", "true", "e1")


def test_an_invalid_change(kasctl: Kasctl, recorder: Recorder) -> None:
    """Nothing begins, so nothing is recorded."""
    kasctl.fails("user", "revoke", "bob")
    assert recorder.changes == []


def test_kas_that_does_not_respond(kasctl: Kasctl, recorder: Recorder) -> None:
    path = path_of(StateDirectory.open(kasctl.state), os.getpid())
    path.rename(path.with_name("away"))
    try:
        assert "nothing was changed: " in kasctl.fails("agent", "add", "prod")
    finally:
        path.with_name("away").rename(path)
    assert kasctl.store().load().agents == ()


def test_kas_that_does_not_enforce(kasctl: Kasctl, recorder: Recorder) -> None:
    """The event follows the change, which is made even if kas refuses the event."""
    running.tell(StateDirectory.open(kasctl.state), [])
    recorder.refuses = "no worker responds"
    result = kasctl.run("agent", "add", "prod")
    assert result.exit_code == 0
    assert "the audit log has no entry for this change" in result.stderr
    (change,) = recorder.changes
    assert "stage" not in change
    assert b"prod" in recorder.files[0]
