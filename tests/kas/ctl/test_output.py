"""What becomes of a command whose output cannot be written, or is not read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kas.ctl.kasctl import Kasctl

_MANIFEST = ("--system-cas", "--image", "i", "--kas-address", "tls://192.0.2.2:8150")
_KASCTL = (sys.executable, "-c", "from kas.ctl import main; main()")


def run(kasctl: Kasctl, *arguments: str, to: int | None) -> tuple[int, str]:
    """
    Exit status and standard error of a real process.

    :param to: where standard output goes; None: it is closed.
    """
    words = [*_KASCTL, *arguments, "--state-directory", str(kasctl.state)]
    if to is None:
        words = ["sh", "-c", '"$@" >&-', "sh", *words]
    done = subprocess.run(words, stdout=to, stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stderr


@pytest.fixture
def full() -> int:
    """A disk without any room."""
    return os.open("/dev/full", os.O_WRONLY)


@pytest.fixture
def unread() -> int:
    """A pipe whose reader has ended."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.fixture
def closed() -> None:
    """``>&-``"""


@pytest.mark.parametrize("where", ["full", "unread", "closed"])
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "command",
    [
        ("agent", "add", "test"),
        ("agent", "rotate", "prod"),
        ("user", "add", "me", "--agent", "prod", "--as-agent"),
        ("kubeconfig", "--agent", "prod", "--user", "me", "--as-agent"),
        ("kubeconfig", "--agent", "prod", "--user", "old", "--rotate"),
        ("agent", "manifest", "test", *_MANIFEST),
        ("agent", "manifest", "prod", *_MANIFEST, "--rotate"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_no_token_is_made_that_nobody_saw(
    kasctl: Kasctl,
    command: tuple[str, ...],
    form: str,
    where: str,
    request: pytest.FixtureRequest,
) -> None:
    kasctl.ok("agent", "add", "prod")
    kasctl.ok("user", "add", "old", "--agent", "prod", "--as-agent")
    before = (kasctl.state / "identity.json").read_bytes()
    to = request.getfixturevalue(where)
    code, said = run(kasctl, *command, "--output", form, to=to)
    if to is not None:
        os.close(to)
    assert code == 1
    if form == "text" or to is None:
        assert "standard output" in said
        assert "no token was made" in said
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    assert (kasctl.state / "identity.json").read_bytes() == before


def test_a_reader_that_ends_is_silent(kasctl: Kasctl, unread: int) -> None:
    """``kasctl agent list | head -1``"""
    kasctl.ok("agent", "add", "prod")
    assert run(kasctl, "agent", "list", to=unread) == (1, "")
    os.close(unread)


def test_a_full_disk(kasctl: Kasctl, full: int) -> None:
    kasctl.ok("agent", "add", "prod")
    code, said = run(kasctl, "agent", "list", to=full)
    os.close(full)
    reason = "cannot write to standard output (No space left on device)\n"
    assert (code, said) == (1, reason)


def test_a_closed_output(kasctl: Kasctl) -> None:
    kasctl.ok("agent", "add", "prod")
    reason = "cannot write to standard output (closed)\n"
    assert run(kasctl, "agent", "list", to=None) == (1, reason)


def test_a_token_file_on_a_full_disk(
    kasctl: Kasctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    kasctl.ok("agent", "add", "prod")
    before = (kasctl.state / "identity.json").read_bytes()

    fsync, full_for = os.fsync, "token"

    def full(descriptor: int) -> None:
        if full_for in Path(f"/proc/self/fd/{descriptor}").readlink().name:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    file = kasctl.path / "token"
    said = kasctl.fails("agent", "add", "test", "--token-file", str(file))
    assert f"cannot write {file} (No space left on device)" in said
    assert "no token was made" in said
    assert (kasctl.state / "identity.json").read_bytes() == before
    assert os.listdir(kasctl.path) == ["state"]
    full_for = "identity.json"
    said = kasctl.fails("agent", "add", "test")
    assert "identity.json" in said and "No space left on device" in said
    assert "kasagent-" not in said
    assert (kasctl.state / "identity.json").read_bytes() == before


def test_no_state_directory(kasctl: Kasctl) -> None:
    assert kasctl.fails("agent", "list") == (
        f"cannot use this as the state directory: {kasctl.state}: No such file or "
        "directory; start kas once to create it, or pass the state directory of kas "
        "with --state-directory\n"
    )


def test_a_broken_identity_file(kasctl: Kasctl) -> None:
    """What was there before the last change is named, and when that was."""
    kasctl.ok("agent", "add", "prod")
    file = kasctl.state / "identity.json"
    good = file.read_text()
    file.write_text("{")
    assert kasctl.fails("agent", "list").endswith("; restore a backup\n")
    file.write_text(good)
    kasctl.ok("agent", "add", "test")
    backup = kasctl.state / "identity.json.bak"
    os.utime(backup, (1767323045, 1767323045))
    file.write_text("{")
    said = kasctl.fails("agent", "list")
    assert f"{backup} has the content before the last change and was written" in said
    assert f"at 2026-01-02 03:04:05Z: copy it to {file}, or restore" in said


def test_errors_are_in_words(kasctl: Kasctl) -> None:
    kasctl.ok("agent", "add", "prod")
    (kasctl.state / "identity.json").unlink()
    (kasctl.state / "identity.json").mkdir()
    said = kasctl.fails("agent", "list")
    assert said == f"{kasctl.state / 'identity.json'}: Is a directory\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's file: only root has one")
def test_a_file_of_another_user(kasctl: Kasctl) -> None:
    kasctl.ok("agent", "add", "prod")
    os.seteuid(65534)
    try:
        said = kasctl.fails("agent", "list")
    finally:
        os.seteuid(0)
    assert "Permission denied" in said
    assert "belongs to root (mode 700): run this as root" in said
