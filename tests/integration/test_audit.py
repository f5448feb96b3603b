"""The audit log of kas, beside that of the API server."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

from kas.ctl.operator import operator_name
from tests.faults.stand import Fleet
from tests.integration import pods
from tests.integration.cluster import ControlPlane
from tests.integration.kubectl import Kubectl
from tests.integration.objects import config_maps
from tests.integration.processes import eventually, kasctl
from tests.integration.rawhttp import Way
from tests.integration.stack import Agentk, Kas


class AuditedKas(Kas):
    """One with the section in its file."""

    @property
    def configuration(self) -> Path:
        path = super().configuration
        section = "observability:\n  audit: {file: audit.jsonl}\n"
        path.write_text(path.read_text().replace("observability:\n", section))
        return path


def events(kas: Kas) -> list[str]:
    """
    Return the lines of the log, without the lines of the chain itself and sign-ins.
    """
    lines = (kas.folder / "audit.jsonl").read_text().splitlines()
    left_out = ('"action":"audit.', '"action":"sign_in"')
    return [one for one in lines if not any(part in one for part in left_out)]


def sign_ins(kas: Kas) -> list[dict[str, Any]]:
    """Return the events of sign-ins."""
    lines = (kas.folder / "audit.jsonl").read_text().splitlines()
    found = [json.loads(one) for one in lines]
    return [one for one in found if one["action"] == "sign_in"]


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short name: sockets are in it."""
    return tmp_path_factory.mktemp("k")


@pytest.fixture
def audited(tmp_path: Path, control_plane: ControlPlane) -> Iterator[AuditedKas]:
    kas = AuditedKas(tmp_path / "kas")
    kas.start()
    agentk = Agentk(kas, kas.add_agent("main"), control_plane.agent)
    agentk.start()
    yield kas
    agentk.stop()
    kas.stop()


def test_who_changed_what(
    audited: AuditedKas, control_plane: ControlPlane, namespace: str
) -> None:
    """Both say the same of one request; kas says whose credential it was."""
    kas = audited
    said = kas.ctl("user", "add", "alice", "--agent", "main", "--as-agent")
    token = next(word for word in said.split() if len(word) > 40)
    way = Way("proxied", kas.proxy, kas.authority, f"user:1:{token}")
    body = json.dumps({"metadata": {"name": "by-alice"}}).encode()
    head = way.head(
        "POST",
        config_maps(namespace),
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    kas.knows(way)
    audit = control_plane.audit()
    with way.connect() as connection:
        connection.send(head + body)
        assert connection.answer().status == 201
    assert way.ask("GET", config_maps(namespace)).status == 200

    def written() -> list[str]:
        # Without those of `knows`.
        return [
            one for one in events(kas) if json.loads(one)["outcome"].startswith("2")
        ]

    # Reads are not in it.
    (line,) = eventually(written, what="the line")
    ours = json.loads(line)
    theirs = next(
        one for one in audit.wait_for(f"/{namespace}/config") if one["verb"] == "create"
    )
    reference = theirs["objectRef"]
    assert (ours["verb"], ours["outcome"]) == (theirs["verb"], "201")
    assert (ours["resource"], ours["namespace"]) == (
        reference["resource"],
        reference["namespace"],
    )
    assert (ours["credential"], ours["agent"]) == ("user:alice", "main")
    assert token not in line


def test_sign_ins(audited: AuditedKas, namespace: str) -> None:
    """The agent, a user and a guess, each once; no token is in the log."""
    kas = audited
    said = kas.ctl("user", "add", "alice", "--agent", "main", "--as-agent")
    token = next(word for word in said.split() if len(word) > 40)
    way = Way("proxied", kas.proxy, kas.authority, f"user:1:{token}")
    kas.knows(way)
    guess = token[:-4] + "0000"
    guessing = Way("proxied", kas.proxy, kas.authority, f"user:1:{guess}")
    for _ in range(3):
        one = way.ask("GET", config_maps(namespace), "User-Agent: kubectl/v1.36")
        assert one.status == 200
        refused = guessing.ask("GET", config_maps(namespace), "User-Agent: curl/8")
        assert refused.status == 401

    def written() -> list[dict[str, Any]] | None:
        found = [one for one in sign_ins(kas) if one["client"] == "127.0.0.1"]
        return found if len({one["method"] for one in found}) >= 2 else None

    found = eventually(written, what="the sign-ins")
    agents = [one for one in found if one["method"] == "agent"]
    assert {(one["agent"], one["outcome"]) for one in agents} == {("main", "accepted")}
    assert agents[0]["credential"].startswith("agent:1:")
    assert agents[0]["user_agent"].startswith("agentk/")
    users = [one for one in found if one["method"] == "user"]
    (accepted,) = [one for one in users if one["outcome"] == "accepted"]
    assert (accepted["credential"], accepted["agent"]) == ("user:alice", "main")
    (curl,) = [one for one in users if one.get("user_agent") == "curl/8"]
    assert (curl["stage"], curl["status"]) == ("denied", "UNAUTHENTICATED")
    text = (kas.folder / "audit.jsonl").read_text()
    assert token not in text
    assert guess not in text


#: An id that clients send to hide among the requests of others.
FORGED = "0198c0de-0000-7000-8000-000000000000"

UPGRADES = {
    "spdy": ("POST", "Upgrade: SPDY/3.1"),
    "websocket": (
        "GET",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Protocol: v5.channel.k8s.io",
    ),
}


def test_both_logs_have_the_same_ids(
    audited: AuditedKas, control_plane: ControlPlane, namespace: str
) -> None:
    """Each event of kas has one of the API server, and no client chooses its id."""
    kas = audited
    said = kas.ctl("user", "add", "alice", "--agent", "main", "--as-agent")
    token = next(word for word in said.split() if len(word) > 40)
    way = Way("proxied", kas.proxy, kas.authority, f"user:1:{token}")
    kas.knows(way)
    audit = control_plane.audit()
    forged = f"Audit-ID: {FORGED}"
    for name in ("a", "b"):
        way.ask("DELETE", f"{config_maps(namespace)}/{name}", forged)
    for method, *lines in UPGRADES.values():
        pod = f"/api/v1/namespaces/{namespace}/pods/none/exec?command=sh&stdout=true"
        way.ask(method, pod, "Connection: Upgrade", *lines, forged)

    def written() -> list[dict[str, Any]] | None:
        found = [json.loads(one) for one in events(kas)]
        found = [one for one in found if one.get("namespace") == namespace]
        return found if len(found) >= 6 else None

    found = eventually(written, what="the events of kas")
    begun = [one["id"] for one in found if one["stage"] == "begun"]
    ours = [one for one in found if one["stage"] != "begun"]
    assert begun == [one["id"] for one in ours if one["stage"] == "ended"]
    done = ("ResponseComplete",)
    theirs = {
        one["auditID"]: one
        for one in audit.wait_for(f"/{namespace}/", 4)
        if one["stage"] in done
    }
    assert FORGED not in theirs
    assert [one["verb"] for one in ours] == ["delete", "delete", "create", "get"]
    assert {one["id"] for one in ours} == theirs.keys()
    for one in ours:
        other = theirs[one["id"]]
        assert one["verb"] == other["verb"]
        assert one["name"] == other["objectRef"]["name"]


@pytest.mark.parametrize("transport", ["websocket", "spdy"])
def test_a_session_of_kubectl(
    audited: AuditedKas, control_plane: ControlPlane, namespace: str, transport: str
) -> None:
    """Its beginning, its end and the API server's event have the same id."""
    kas = audited
    program = control_plane.assets / "kubectl"
    direct = Kubectl(program, control_plane.agent, namespace, transport)
    pods.start_pods(direct)
    kubectl = attrs.evolve(direct, kubeconfig=kas.add_user("alice"))
    audit = control_plane.audit()
    done = kubectl(
        "exec", "main", "-c", "echo", "--", "sh", "-c", "echo secret; exit 7"
    )
    assert done.code == 7

    def written() -> list[dict[str, Any]] | None:
        found = [json.loads(one) for one in events(kas)]
        found = [one for one in found if one.get("subresource") == "exec"]
        return found if any(one["stage"] == "ended" for one in found) else None

    begun, ended = eventually(written, what="the events of kas")
    assert (begun["stage"], begun["outcome"]) == ("begun", "")
    assert (ended["stage"], ended["outcome"]) == ("ended", "101")
    assert (ended["resource"], ended["name"]) == ("pods", "main")
    assert ended["bytes_out"] > len("secret")
    assert {"bytes_in", "ms", "reason"} <= ended.keys()
    assert ended["exit_code"] == 7
    theirs = audit.wait_for(f"/{namespace}/pods/main/exec")
    assert {one["auditID"] for one in theirs} == {begun["id"]} == {ended["id"]}
    assert "secret" not in (kas.folder / "audit.jsonl").read_text()


@pytest.mark.parametrize("workers", ["", "workers: 2\n"], ids=["alone", "workers"])
def test_changes_by_kasctl(short: Path, workers: str) -> None:
    """Each change by kasctl is one event with its operator, and no token."""
    kas = AuditedKas(short, workers)
    kas.start()
    try:
        said = kas.ctl("agent", "add", "main")
        kas.ctl("agent", "rotate", "main")
        options = ("--as", "alice@example.com", "--group", "dev")
        kas.ctl("user", "add", "alice", "--agent", "main", *options)
        kas.ctl("user", "revoke", "alice")
        kas.ctl("drain", "--timeout", "0")
        kas.ctl("drain", "--undo")
        kas.ctl("rebalance")
        kas.ctl("agent", "remove", "main")

        def written() -> list[str] | None:
            lines = events(kas)
            return lines if len(lines) >= 8 else None

        lines = eventually(written, what="the lines")
    finally:
        kas.stop()
    found = [json.loads(line) for line in lines]
    assert [one["action"] for one in found] == [
        "agent.add",
        "agent.rotate",
        "user.add",
        "user.revoke",
        "kas.drain",
        "kas.undrain",
        "kas.rebalance",
        "agent.remove",
    ]
    assert {one["module"] for one in found} == {"kasctl"}
    assert {one["operator"] for one in found} == {operator_name()}
    added = found[2]
    assert (added["name"], added["agents"]) == ("alice", "main")
    assert (added["as"], added["groups"]) == ("alice@example.com", "dev")
    token = next(word for word in said.split() if len(word) > 40)
    assert token not in "".join(lines)


def verified(kas: Kas, *options: str | Path) -> tuple[int, str]:
    """Return the exit status of ``kasctl audit verify``, and its output."""
    files = sorted(kas.folder.glob("audit.jsonl*"))
    done = kasctl("audit", "verify", *files, *options, state=kas.state, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("workers", ["", "workers: 2\n"], ids=["alone", "workers"])
def test_a_chain_from_start_to_stop(short: Path, workers: str) -> None:
    """After a rotation, a restart and a kill, and with each line changed in turn."""
    kas = AuditedKas(short, workers)
    file = kas.folder / "audit.jsonl"

    def lines(action: str) -> int:
        return file.read_text().count(f'"action":"{action}"') if file.exists() else 0

    kas.start()
    processes = 2 if workers else 1
    try:
        kas.ctl("agent", "add", "main")
        eventually(lambda: lines("agent.add"), what="the event")
        assert "agent.add main" in kas.ctl("audit", "query", "--user", operator_name())
        file.rename(kas.folder / "audit.jsonl.1")
        assert kas.process is not None
        kas.process.child.send_signal(signal.SIGHUP)
        eventually(
            lambda: lines("audit.continue") == processes, what="the continued chains"
        )
        kas.ctl("agent", "rotate", "main")
        eventually(lambda: lines("agent.rotate"), what="the event")
    finally:
        kas.stop()
    status, said = verified(kas, "--key", kas.ctl("audit", "key").strip())
    assert status == 0, said
    # Killed: the end of the chain is missing, and the next chain names it.
    kas.start()
    kas.ctl("agent", "rotate", "main")
    eventually(lambda: lines("agent.rotate") == 2, what="the event")

    def signed() -> bool:
        status, said = verified(kas)
        return status == 0 and "not signed yet" not in said

    eventually(signed, what="a checkpoint of all lines")
    assert kas.process is not None
    if not workers:
        kas.process.kill()
        kas.start()
        eventually(lambda: verified(kas)[0] == 0, what="a checkpoint of the new chain")
        assert verified(kas, "--key", kas.ctl("audit", "key").strip())[0] == 2
    kas.stop()
    good = file.read_bytes().splitlines(keepends=True)
    changed = good.copy()
    changed[2] = changed[2].replace(b"main", b"nobody").replace(b'"v":1', b'"v":2')
    for number, text in enumerate((changed, good[:-1], good[1:], [*good, good[0]])):
        file.write_bytes(b"".join(text))
        assert verified(kas)[0] != 0, number
    file.write_bytes(b"".join(good))
    assert verified(kas)[0] == 0


def test_a_search_in_a_fleet(short: Path) -> None:
    """Any kas searches at all, and names a kas that does not respond."""
    fleet = Fleet(short, count=2)
    first, second = fleet.kas
    for kas in fleet.kas:
        kas.observability_settings = (f"audit: {{file: {kas.folder}/audit.jsonl}}",)
    try:
        fleet.start()
        fleet.know_each_other()
        for number, kas in enumerate(fleet.kas):
            assert kas.process is not None
            way = Way("stranger", kas.proxy, kas.authority, "user:1:nobody")
            way.ask("GET", f"/api/v1/namespaces/n{number}/pods")

        def query(*options: str) -> tuple[int, str, str]:
            assert first.process is not None
            pid = str(first.process.child.pid)
            command = ("audit", "query", "--pid", pid, *options)
            done = kasctl(*command, state=first.state, check=False)
            return done.returncode, done.stdout, done.stderr

        def both() -> bool:
            status, said, _ = query("--denied", "--action", "kubernetes.*")
            assert status == 0
            return "n0" in said and "n1" in said

        eventually(both, what="the events of both kas")
        status, said, _ = query("--namespace", "n1", "--output", "json")
        assert (status, json.loads(said)["path"]) == (0, "/api/v1/namespaces/n1/pods")
        status, said, _ = query("--action", "audit.search", "--output", "json")
        assert json.loads(said.splitlines()[0])["operator"] == operator_name()
        # Both have logs of their own in one state directory, and both are good.
        for kas in fleet.kas:
            eventually(
                lambda kas=kas: (  # type: ignore[misc]
                    kasctl(
                        *("audit", "verify", kas.folder / "audit.jsonl"),
                        state=kas.state,
                        check=False,
                    ).returncode
                    == 0
                ),
                what="signed lines",
            )
        assert second.process is not None
        second.process.kill()

        def partial() -> bool:
            status, said, problem = query("--denied")
            assert "n0" in said
            return status == 3 and "events are missing: " in problem

        eventually(partial, what="the name of the kas that was killed")
    finally:
        fleet.stop()


class EnforcingKas(AuditedKas):
    """One that records changes before it forwards them."""

    @property
    def configuration(self) -> Path:
        path = super().configuration
        text = path.read_text()
        wanted = "{file: audit.jsonl, enforced: [sessions, changes]}"
        path.write_text(text.replace("{file: audit.jsonl}", wanted))
        return path


def limit_files(kas: Kas, size: int) -> None:
    """Let kas write files up to *size* bytes, as on a full disk."""
    assert kas.process is not None
    pid = kas.process.child.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


def limit_all_files(kas: Kas, size: int) -> None:
    """The same for kas and its workers."""
    limit_files(kas, size)
    assert kas.process is not None
    pid = kas.process.child.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in map(int, children):
        _, hard = resource.prlimit(child, resource.RLIMIT_FSIZE)
        resource.prlimit(child, resource.RLIMIT_FSIZE, (size, hard))


def create(way: Way, namespace: str, name: str) -> tuple[int, str]:
    """Create an object; return the status, and the message of an error."""
    body = json.dumps({"metadata": {"name": name}}).encode()
    head = way.head(
        "POST",
        config_maps(namespace),
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    with way.connect() as connection:
        connection.send(head + body)
        answer = connection.answer()
    return answer.status, str(json.loads(answer.body).get("message", ""))


def test_a_full_disk(
    tmp_path: Path, control_plane: ControlPlane, namespace: str
) -> None:
    """Changes are refused with the reason, reads go on, and no restart is needed."""
    kas = EnforcingKas(tmp_path / "kas")
    kas.start()
    agentk = Agentk(kas, kas.add_agent("main"), control_plane.agent)
    agentk.start()
    try:
        said = kas.ctl("user", "add", "alice", "--agent", "main", "--as-agent")
        token = next(word for word in said.split() if len(word) > 40)
        way = Way("proxied", kas.proxy, kas.authority, f"user:1:{token}")
        kas.knows(way)
        assert create(way, namespace, "before")[0] == 201
        file = kas.folder / "audit.jsonl"
        eventually(lambda: '"outcome":"201"' in file.read_text(), what="the end")
        limit_files(kas, file.stat().st_size)
        for number in range(3):
            began = time.monotonic()
            status, message = create(way, namespace, f"full-{number}")
            # The limit of the sheet is 0.1 s; the machine may be busy.
            assert time.monotonic() - began < 2.0
            assert status == 503
            assert "must be in the audit log of kas" in message
            assert "File too large" in message
            assert way.ask("GET", config_maps(namespace)).status == 200
        limit_files(kas, resource.RLIM_INFINITY)
        assert create(way, namespace, "after")[0] == 201
        listed = json.loads(way.ask("GET", config_maps(namespace)).body)["items"]
        names = {one["metadata"]["name"] for one in listed}
        assert {"before", "after"} == names - {"kube-root-ca.crt"}
        eventually(lambda: '"audit.refused"' in file.read_text(), what="the refusals")
    finally:
        agentk.stop()
        kas.stop()
    (refused,) = (
        json.loads(one)
        for one in file.read_text().splitlines()
        if '"action":"audit.refused"' in one
    )
    assert (refused["count"], refused["reason"]) == (3, "File too large")
    status, said = verified(kas)
    assert status == 0, said


@pytest.mark.parametrize("workers", ["", "workers: 2\n"], ids=["alone", "workers"])
def test_changes_without_kas(short: Path, workers: str) -> None:
    """The next kas records them once."""
    kas = AuditedKas(short, workers)
    kas.start()
    kas.stop()
    kas.ctl("agent", "add", "main")
    kas.ctl("agent", "label", "main", "env=prod")
    for _ in range(2):
        kas.start()
        eventually(lambda: len(events(kas)) >= 2, what="the changes")
        kas.stop()
    added, labelled = (json.loads(one) for one in events(kas))
    assert (added["action"], added["name"]) == ("agent.add", "main")
    assert added["operator"] == operator_name()
    assert added["made_at"] < added["time"]
    assert labelled["labels"] == "env=prod"


@pytest.mark.parametrize("workers", [0, 2])
def test_kasctl_and_a_full_disk(short: Path, workers: int) -> None:
    """kasctl changes nothing that is not in the log, and says why."""
    kas = Kas(short / "kas", f"workers: {workers}\n" if workers else "")
    file = kas.folder / "audit.jsonl"
    kas.observability_settings = (
        f"audit: {{file: {file}, enforced: [administration]}}",
    )
    kas.start()
    try:
        kas.ctl("agent", "add", "before")
        eventually(lambda: '"stage":"ended"' in file.read_text(), what="the end")
        limit_all_files(kas, file.stat().st_size)
        done = kasctl("agent", "add", "full", state=kas.state, check=False)
        assert done.returncode == 1
        assert "nothing was changed: " in done.stderr
        assert "File too large" in done.stderr
        assert "full" not in kas.ctl("agent", "list")
        limit_all_files(kas, resource.RLIM_INFINITY)
        kas.ctl("agent", "add", "after")
        kas.ctl("drain", "--timeout", "0")
    finally:
        kas.stop()
    found = [json.loads(one) for one in events(kas)]
    changes = [one for one in found if one["action"] in ("agent.add", "kas.drain")]
    assert [(one.get("name"), one["stage"]) for one in changes] == [
        ("before", "begun"),
        ("before", "ended"),
        ("after", "begun"),
        ("after", "ended"),
        (None, "begun"),
        (None, "ended"),
    ]
    assert changes[0]["operator"] == operator_name()
    status, said = verified(kas)
    assert status == 0, said


def test_no_change_without_its_event(
    tmp_path: Path, control_plane: ControlPlane, namespace: str
) -> None:
    """Each executed request is in the log, although kas is killed."""
    kas = EnforcingKas(tmp_path / "kas")
    kas.start()
    agentk = Agentk(kas, kas.add_agent("main"), control_plane.agent)
    agentk.start()
    audit = control_plane.audit()
    said = kas.ctl("user", "add", "alice", "--agent", "main", "--as-agent")
    token = next(word for word in said.split() if len(word) > 40)
    way = Way("proxied", kas.proxy, kas.authority, f"user:1:{token}")
    created = 0
    try:
        for turn in range(4):
            kas.knows(way)
            assert kas.process is not None
            child = kas.process.child
            timer = threading.Timer(1.0 + turn * 0.13, child.kill)
            timer.start()
            with suppress(OSError, EOFError, AssertionError, ValueError):
                for number in range(10_000):
                    status, _ = create(way, namespace, f"turn-{turn}-{number}")
                    created += status == 201
            timer.join()
            kas.process.kill()
            kas.start()
    finally:
        agentk.stop()
        kas.stop()
    assert created > 4
    begun = {
        json.loads(one)["id"]
        for one in (kas.folder / "audit.jsonl").read_text().splitlines()
        if '"stage":"begun"' in one and one.endswith("}")
    }
    theirs = {
        one["auditID"]
        for one in audit.wait_for(f"/{namespace}/config", created)
        if one["verb"] == "create"
    }
    assert len(theirs) >= created
    assert theirs <= begun


def test_a_writer_that_hangs(
    short: Path, control_plane: ControlPlane, namespace: str
) -> None:
    """A pipe that is not read holds the writer like a disk that does not respond."""
    kas = EnforcingKas(short / "kas")
    kas.folder.mkdir()
    pipe = kas.folder / "audit.jsonl"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    received = b""

    def drain() -> bool:
        nonlocal received
        with suppress(BlockingIOError):
            while data := os.read(reader, 65536):
                received += data
        return True

    kas.start()
    agentk = Agentk(kas, kas.add_agent("main"), control_plane.agent)
    agentk.start()
    try:
        said = kas.ctl("user", "add", "alice", "--agent", "main", "--as-agent")
        token = next(word for word in said.split() if len(word) > 40)
        way = Way("proxied", kas.proxy, kas.authority, f"user:1:{token}")

        def works() -> bool:
            drain()
            return create(way, namespace, "before")[0] in (201, 409)

        kas.knows(way)
        eventually(works, what="an event that was written")
        refused = []
        for number in range(100):
            status, message = create(way, namespace, f"stuck-{number}")
            if status == 503:
                refused.append(message)
            if len(refused) == 3:
                break
        # The first one waited, the others did not.
        assert len(refused) == 3
        assert all("the disk does not respond" in one for one in refused)
        assert way.ask("GET", config_maps(namespace)).status == 200

        def again() -> bool:
            drain()
            return create(way, namespace, "after")[0] in (201, 409)

        eventually(again, what="the end of the refusals")
        eventually(
            lambda: drain() and b'"action":"audit.refused"' in received,
            what="the number of refusals",
        )
        listed = json.loads(way.ask("GET", config_maps(namespace)).body)["items"]
        names = {one["metadata"]["name"] for one in listed} - {"kube-root-ca.crt"}
    finally:
        stopping = threading.Thread(target=kas.stop)
        stopping.start()
        while stopping.is_alive():
            drain()
            stopping.join(0.1)
        agentk.stop()
        drain()
        os.close(reader)
    begun = [
        json.loads(one)
        for one in received.splitlines()
        if b'"stage":"begun"' in one and one.endswith(b"}")
    ]
    created = [one for one in begun if one["verb"] == "create"]
    assert len(created) >= len(names)
