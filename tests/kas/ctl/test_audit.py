"""kasctl audit, as an operator and an auditor meet it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from pathlib import Path

import pytest

from kas.audit.key import read_signer
from kas.audit.notes import NoteKey
from kas.state.directory import StateDirectory
from tests.kas.audit.test_search import CHANGED, CHECKPOINT, DENIED, EXEC, encoded
from tests.kas.audit.test_verify import WrittenLog
from tests.kas.ctl.kasctl import Kasctl


@pytest.fixture
def written(kasctl: Kasctl) -> WrittenLog:
    log = WrittenLog(kasctl.path)
    log.signer = read_signer(StateDirectory.open(kasctl.state), create=True)
    return log


def test_the_key(kasctl: Kasctl, written: WrittenLog) -> None:
    text = kasctl.ok("audit", "key").strip()
    assert NoteKey.parse(text) == written.signer.key
    assert kasctl.data("audit", "key") == {"key": text}


def test_without_a_key(kasctl: Kasctl) -> None:
    kasctl.state.mkdir(mode=0o700)
    assert "audit.key does not exist" in kasctl.fails("audit", "key")
    (kasctl.path / "x").touch()
    said = kasctl.fails("audit", "verify", str(kasctl.path / "x"), code=2)
    assert "audit.key does not exist" in said


def test_a_good_log(kasctl: Kasctl, written: WrittenLog) -> None:
    chain = written.chain("a1")
    written.write(chain, 3)
    chain.end()
    said = kasctl.ok("audit", "verify", str(written.path))
    assert said == "good: 6 lines of 1 chain in 1 file\n"
    found = kasctl.data("audit", "verify", str(written.path))
    assert (found["verdict"], found["findings"]) == ("good", [])
    assert found["chains"] == [
        {"kas": "a1", "lines": 6, "signed": 6, "state": "ended", "unfinished": []}
    ]


def test_rotated_files_in_any_order(kasctl: Kasctl, written: WrittenLog) -> None:
    """With the public key alone, on another machine."""
    chain = written.chain("a1")
    files = [str(written.path)]
    for number in range(3):
        written.write(chain, 3)
        moved = written.path.with_name(f"audit.jsonl.{number}")
        written.path.rename(moved)
        chain.reopen()
        packed = written.path.with_name(f"audit.jsonl.{number}.gz")
        packed.write_bytes(gzip.compress(moved.read_bytes()))
        files.append(str(packed))
    chain.end()
    key = kasctl.ok("audit", "key").strip()
    (kasctl.path / "key").write_text(f"{key}\n")
    elsewhere = Kasctl(kasctl.path / "elsewhere")
    for value in (key, str(kasctl.path / "key")):
        said = elsewhere.ok("audit", "verify", *files, *files[:1], "--key", value)
        assert said.startswith("good: 18 lines of 1 chain in ")
    options = ("--key", key, "--partial")
    said = elsewhere.ok("audit", "verify", *files[:1], *files[2:], *options)
    assert "lines 0 to 4 of chain a1 are in no file here" in said
    result = elsewhere.run("audit", "verify", *files[:2], *files[3:], *options)
    assert result.exit_code == 1
    assert "lines 5 to 9 are missing" in result.stdout


def test_a_log_with_a_wrong_line(kasctl: Kasctl, written: WrittenLog) -> None:
    chain = written.chain("a1")
    written.write(chain, 3)
    chain.end()
    text = written.path.read_bytes()
    written.path.write_bytes(text.replace(b"/x", b"/y", 1))
    result = kasctl.run("audit", "verify", str(written.path))
    assert result.exit_code == 1
    first, last = result.stdout.splitlines()
    assert first == (
        f"{written.path}:3: chain a1: line 1, or the hash of it in line 2, was changed"
    )
    assert last == "tampered: 6 lines of 1 chain in 1 file"


def test_checkpoints(kasctl: Kasctl, written: WrittenLog) -> None:
    """From the state directory, or a file that was copied before."""
    chain = written.chain("a1")
    written.write(chain, 3)
    chain.sign()
    (path,) = written.last.folder.iterdir()
    kasctl.ok("audit", "verify", str(written.path))
    key = kasctl.ok("audit", "key").strip()
    options = ("audit", "verify", str(written.path), "--key", key)
    assert kasctl.run(*options).exit_code == 2
    kasctl.ok(*options, "--checkpoint", str(path))
    lines = written.lines()
    written.path.write_bytes(b"".join(lines[:3]))
    result = kasctl.run(*options, "--checkpoint", str(path))
    assert result.exit_code == 1
    assert "lines 3 to 3 are missing; a checkpoint proves them" in result.stdout


def test_a_log_that_was_rolled_back(kasctl: Kasctl, written: WrittenLog) -> None:
    """The state directory knows the newest chains of exactly this log."""
    written.chain("a1").end()
    good = written.path.read_bytes()
    written.chain("b2").end()
    kasctl.ok("audit", "verify", str(written.path))
    written.path.write_bytes(good)
    moved = written.path.with_name("audit.jsonl.1")
    for path in (written.path, written.path.rename(moved)):
        result = kasctl.run("audit", "verify", str(path if path.exists() else moved))
        assert result.exit_code == 2
        assert "of txkas-audit/b2 are missing; its checkpoint is newer" in result.stdout
    # Another log.
    (kasctl.path / "other").mkdir()
    other = kasctl.path / "other" / "audit.jsonl"
    other.write_bytes(good)
    result = kasctl.run("audit", "verify", str(other))
    assert result.exit_code == 2
    assert "has no checkpoint of a log with these files" in result.stdout
    key = kasctl.ok("audit", "key").strip()
    kasctl.ok("audit", "verify", str(other), "--key", key)


def test_a_key_that_is_not_a_text(kasctl: Kasctl, written: WrittenLog) -> None:
    written.chain("a1").end()
    path = kasctl.path / "key"
    path.write_bytes(b"\xff\xfe")
    for option in ("--key", "--checkpoint"):
        said = kasctl.fails(
            *("audit", "verify", str(written.path), option, str(path)), code=2
        )
        assert "key is not a text in UTF-8" in said


@pytest.mark.parametrize("text", ["", "a+b+c", "x\n\n\u2014 txkas-audit AAAA\n"])
def test_a_checkpoint_of_another_program(
    kasctl: Kasctl, written: WrittenLog, text: str
) -> None:
    (kasctl.path / "note").write_text(text)
    written.chain("a1").end()
    options = ("--checkpoint", str(kasctl.path / "note"))
    said = kasctl.fails("audit", "verify", str(written.path), *options, code=2)
    assert said.startswith("the key or a checkpoint: ")


def test_files_that_cannot_be_read(kasctl: Kasctl, written: WrittenLog) -> None:
    """A search reads the others; a verification does not."""
    chain = written.chain("a1")
    written.write(chain)
    chain.end()
    damaged = kasctl.path / "audit.jsonl.1.gz"
    damaged.write_bytes(gzip.compress(written.path.read_bytes())[:-9])
    packed = kasctl.path / "audit.jsonl.2.zst"
    packed.write_bytes(b"\x28\xb5\x2f\xfd")
    for path, why in ((damaged, "is damaged"), (packed, "is compressed with zstd")):
        files = (str(path), str(written.path))
        said = kasctl.fails("audit", "verify", *files, code=2)
        assert said.startswith(f"{path}: ")
        assert why in said
        result = kasctl.run("audit", "search", *files, "--action", "audit.stop")
        assert result.exit_code == 3
        assert f"events are missing: {path}: " in result.stderr
        assert "audit.stop" in result.stdout


def test_a_file_that_is_missing(kasctl: Kasctl, written: WrittenLog) -> None:
    said = kasctl.fails("audit", "verify", str(written.path), code=2)
    assert "No such file" in said or "does not exist" in said


def test_texts_in_a_file_do_not_reach_the_terminal(
    kasctl: Kasctl, written: WrittenLog, tmp_path: Path
) -> None:
    path = tmp_path / "a\x1b[2J"
    path.write_bytes(json.dumps({"x": "\x1b[2J"}).encode() + b"\n")
    result = kasctl.run("audit", "verify", str(path))
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout


# search and tail


@pytest.fixture
def searched(kasctl: Kasctl) -> Path:
    path = kasctl.path / "audit.jsonl"
    events = (EXEC, DENIED, CHANGED, CHECKPOINT)
    path.write_bytes(b"".join(map(encoded, events)))
    return path


def test_search(kasctl: Kasctl, searched: Path) -> None:
    said = kasctl.ok("audit", "search", str(searched), "--agent", "edge")
    assert said.splitlines() == [
        "2026-05-01T12:00:00Z  user:alice  edge  create pods/exec prod/web-0  begun",
        "2026-05-01T13:00:00Z  user:bob  edge  create pods prod/web-0/x  403",
    ]
    options = ("--object", "pods/exec:prod/web-0", "--output", "json")
    said = kasctl.ok("audit", "search", str(searched), *options)
    # The line as kas wrote it.
    assert said.encode() == encoded(EXEC)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ((), 3),
        (("--since", "2026-05-01T12:30:00Z"), 2),
        (("--until", "2026-05-01T14:30:00+02:00"), 1),
        (("--since", "1s"), 0),
        (("--denied",), 1),
        (("--user", "root"), 1),
        (("--namespace", "prod", "--action", "kubernetes.*"), 2),
    ],
    ids=str,
)
def test_options(
    kasctl: Kasctl, searched: Path, options: tuple[str, ...], count: int
) -> None:
    said = kasctl.ok("audit", "search", str(searched), *options)
    assert len(said.splitlines()) == count
    said = kasctl.ok("audit", "tail", str(searched), "--once", *options)
    assert len(said.splitlines()) == count


def test_a_limited_search(kasctl: Kasctl, searched: Path) -> None:
    result = kasctl.run("audit", "search", str(searched), "--limit", "1")
    assert len(result.stdout.splitlines()) == 1
    assert result.stderr == "stopped after 1 events; see --limit and --since\n"


def test_tail(kasctl: Kasctl, searched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last events, and then new ones until Ctrl-C."""

    def sleep(seconds: float) -> None:
        if searched.stat().st_size > size:
            raise KeyboardInterrupt
        with searched.open("ab") as file:
            file.write(encoded({**CHANGED, "name": "dave"}))

    size = searched.stat().st_size
    monkeypatch.setattr("kas.ctl.audit.time.sleep", sleep)
    said = kasctl.ok("audit", "tail", str(searched), "--lines", "1")
    assert [one.split()[-2] for one in said.splitlines()] == ["carol", "dave"]


@pytest.mark.parametrize(
    "options",
    [("--since", "yesterday"), ("--object", "a/b/c"), ("--limit", "0")],
    ids=str,
)
def test_wrong_options(
    kasctl: Kasctl, searched: Path, options: tuple[str, ...]
) -> None:
    kasctl.fails("audit", "search", str(searched), *options, code=2)


def test_search_without_a_file(kasctl: Kasctl) -> None:
    for name in ("search", "tail"):
        said = kasctl.fails("audit", name, str(kasctl.path / "none"))
        assert "none" in said


def test_search_does_not_affect_the_terminal(kasctl: Kasctl, searched: Path) -> None:
    searched.write_bytes(encoded({**EXEC, "name": "\x1b[2J"}))
    assert "\x1b" not in kasctl.ok("audit", "search", str(searched))


def test_holds(kasctl: Kasctl) -> None:
    """They are stored in the state directory, and printed with their ids."""
    kasctl.state.mkdir(mode=0o700)
    assert kasctl.data("audit", "holds") == []
    said = kasctl.ok("audit", "hold", "--reason", "incident\x1b 7", "--user", "alice")
    (hold,) = kasctl.data("audit", "holds")
    assert said == f"hold {hold['id']} is in effect\n"
    assert (hold["user"], hold["agent"], hold["expires"]) == ("alice", "", "")
    made = kasctl.data(
        *("audit", "hold", "--reason", "b", "--for", "90d", "--agent", "edge"),
        *("--since", "2026-01-01T00:00:00+00:00"),
    )
    assert made["expires"] > made["created"]
    assert made["since"] == "2026-01-01T00:00:00.000000+00:00"
    said = kasctl.ok("audit", "holds")
    assert "\x1b" not in said
    assert "edge" in said and made["expires"][:19] in said
    assert kasctl.ok("audit", "release", hold["id"]) == f"hold {hold['id']} has ended\n"
    assert "does not exist" in kasctl.fails("audit", "release", hold["id"])
    assert [one["id"] for one in kasctl.data("audit", "holds")] == [made["id"]]


def test_a_hold_needs_a_reason(kasctl: Kasctl) -> None:
    kasctl.state.mkdir(mode=0o700)
    assert "--reason" in kasctl.fails("audit", "hold", code=2)


EXPORTED = [EXEC, DENIED, CHANGED]


def test_an_export(kasctl: Kasctl) -> None:
    """The same filters as a search, and each format has one line for each event."""
    file = kasctl.path / "audit.jsonl"
    file.write_bytes(b"".join(map(encoded, [*EXPORTED, CHECKPOINT])))
    stored = [encoded(one).decode() for one in EXPORTED]
    assert kasctl.ok("audit", "export", str(file)) == "".join(stored)
    denied = kasctl.ok("audit", "export", str(file), "--denied")
    assert denied == encoded(DENIED).decode()
    said = kasctl.ok("audit", "export", str(file), "--format", "syslog")
    lines = said.splitlines()
    assert [one.partition("\ufeff")[2] + "\n" for one in lines] == stored
    assert [one.startswith("<108>1 ") for one in lines] == [
        one is DENIED for one in EXPORTED
    ]
    said = kasctl.ok("audit", "export", str(file), "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(said)))
    assert [one["action"] for one in rows] == [one["action"] for one in EXPORTED]


def test_an_export_of_a_file_that_cannot_be_read(kasctl: Kasctl) -> None:
    good, bad = kasctl.path / "good", kasctl.path / "bad"
    good.write_bytes(encoded(EXEC))
    bad.write_bytes(b"\x28\xb5\x2f\xfd zstd")
    result = kasctl.run("audit", "export", str(good), str(bad))
    assert (result.exit_code, result.stdout) == (3, encoded(EXEC).decode())
    assert "events are missing: " in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_hold_by_root(kasctl: Kasctl) -> None:
    """The user of kas can read it, and create the folder of the audit log."""
    kasctl.state.mkdir(mode=0o700)
    os.chown(kasctl.state, 65534, 65534)
    kasctl.ok("audit", "hold", "--reason", "x")
    (path,) = kasctl.state.glob("*holds*")
    assert path.stat().st_uid == 65534
    assert {one.stat().st_uid for one in kasctl.state.iterdir()} == {65534}
