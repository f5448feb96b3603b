"""kasctl audit, as an operator and an auditor meet it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kas.audit.key import read_signer
from kas.audit.notes import NoteKey
from kas.state.directory import StateDirectory
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
    result = elsewhere.run("audit", "verify", *files[:2], *files[3:], "--key", key)
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


@pytest.mark.parametrize("text", ["", "a+b+c", "x\n\n\u2014 txkas-audit AAAA\n"])
def test_a_checkpoint_of_another_program(
    kasctl: Kasctl, written: WrittenLog, text: str
) -> None:
    (kasctl.path / "note").write_text(text)
    written.chain("a1").end()
    options = ("--checkpoint", str(kasctl.path / "note"))
    said = kasctl.fails("audit", "verify", str(written.path), *options, code=2)
    assert said.startswith("the key or a checkpoint: ")


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
