"""Files that change, and secrets that every user can read."""

from __future__ import annotations

import errno
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tunnel.toolkit.files import (
    MAX_SECRET_FILE,
    WatchedFile,
    file_version,
    in_words,
    read_secret_file,
    replace_file,
    reread_files,
    warn_if_public,
)


class PublicTests(SynchronousTestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "password"
        self.path.write_text("s3cret")
        case: Any = self
        self.log = EventLoggingObserver.createWithCleanup(case, globalLogPublisher)

    def told(self) -> list[str]:
        warn_if_public(self.path)
        return [event["log_format"].format(**event) for event in self.log]

    def test_private(self) -> None:
        """Its owner and group may read it; a file that is gone is told of elsewhere."""
        self.path.chmod(0o640)
        self.assertEqual(self.told(), [])
        self.path.unlink()
        self.assertEqual(self.told(), [])

    def test_public(self) -> None:
        """Once, with what to do; again after SIGHUP, or when it is so again."""
        self.path.chmod(0o644)
        self.assertEqual(
            self.told(),
            [
                f"every user of this machine can read the secret {self.path} (mode "
                f"644); chmod 600 {self.path}"
            ],
        )
        self.assertEqual(len(self.told()), 1)
        reread_files()
        self.assertEqual(len(self.told()), 2)
        self.path.chmod(0o600)
        self.told()
        self.path.chmod(0o604)
        self.assertEqual(len(self.told()), 3)


class WatchedFileTests(SynchronousTestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "number"
        self.path.write_text("1")
        self.clock = Clock()
        self.problems: list[str] = []
        self.changes: list[int] = []
        self.reads = 0
        self.file = self.watched()

    def watched(self) -> WatchedFile[int]:
        return WatchedFile(
            partial(file_version, self.path),
            self.read,
            lambda error: self.problems.append(str(error)),
            unusable=(ValueError, OSError),
            seconds=self.clock.seconds,
            interval=2.0,
            changed=lambda: self.changes.append(self.file.content),
        )

    def read(self) -> int:
        self.reads += 1
        return int(self.path.read_text())

    def later(self) -> int:
        self.clock.advance(2.0)
        return self.file.get()

    def test_read_again_when_it_changed(self) -> None:
        self.assertEqual((self.later(), self.reads), (1, 1))
        self.path.write_text("22")
        # Not before the interval is over.
        self.assertEqual(self.file.get(), 1)
        self.clock.advance(1.9)
        self.assertEqual(self.file.get(), 1)
        self.clock.advance(0.1)
        self.assertEqual((self.file.get(), self.reads), (22, 2))
        self.assertEqual((self.later(), self.reads), (22, 2))
        self.assertEqual(self.changes, [22])

    def test_looked_at_soon(self) -> None:
        self.path.write_text("22")
        self.file.look_soon()
        self.assertEqual(self.file.get(), 22)
        self.path.write_text("333")
        self.assertEqual(self.file.get(), 22)

    def test_unusable(self) -> None:
        """The content before stays; each change is reported once, and tried again."""
        for text in ("wrong", "as wrong"):
            self.path.write_text(text)
            self.assertEqual((self.later(), self.later()), (1, 1))
        self.assertEqual(len(self.problems), 2)
        self.assertEqual(self.reads, 5)
        self.path.unlink()
        self.assertEqual((self.later(), self.later()), (1, 1))
        self.assertEqual(len(self.problems), 3)
        self.path.write_text("4444")
        self.assertEqual((self.later(), self.changes), (4444, [4444]))
        # What was reported before it was good is reported once more.
        self.path.unlink()
        self.later()
        self.assertEqual(len(self.problems), 4)

    def test_missing_for_a_moment(self) -> None:
        """It is read again: another file may have been there meanwhile."""
        away = self.path.with_name("away")
        self.path.rename(away)
        self.later()
        away.rename(self.path)
        self.assertEqual((self.later(), len(self.problems)), (1, 1))

    def test_sighup(self) -> None:
        reread_files()
        self.later()
        self.assertEqual((self.reads, self.changes), (2, [1]))

    def test_unusable_from_the_start(self) -> None:
        self.path.write_text("wrong")
        with self.assertRaises(ValueError):
            self.watched()

    def test_other_errors(self) -> None:
        """They are ours, and pass."""

        def fail() -> int:
            raise ZeroDivisionError

        self.path.write_text("22")
        self.file._read = fail
        self.clock.advance(2.0)
        with self.assertRaises(ZeroDivisionError):
            self.file.get()


@pytest.mark.parametrize(("is_folder", "bits"), [(True, "u+rwx"), (False, "u+rw")])
def test_a_file_that_its_owner_may_not_write(
    tmp_path: Path, is_folder: bool, bits: str
) -> None:
    """The owner changes the mode; to run it as the owner would not help."""
    path = tmp_path / "x"
    path.mkdir() if is_folder else path.touch()
    path.chmod(0o500 if is_folder else 0o400)
    error = PermissionError(errno.EACCES, "Permission denied", str(path))
    assert in_words(error).endswith(f"): chmod {bits} {path}")
    path.chmod(0o700)
    assert "run this as" in in_words(error)


@pytest.mark.parametrize("limit", [MAX_SECRET_FILE, 3])
def test_size_of_a_secret(tmp_path: Path, limit: int) -> None:
    """A larger file is refused as a whole: a part of a secret opens nothing."""
    path = tmp_path / "secret"
    path.write_bytes(b"\n" * limit)
    assert read_secret_file(path, limit) == b"\n" * limit
    path.write_bytes(b"\n" * (limit + 1))
    with pytest.raises(ValueError, match=f"secret is larger than {limit} bytes"):
        read_secret_file(path, limit)


def test_secret_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot be read \(No such file"):
        read_secret_file(tmp_path / "none")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs files of another user")
def test_a_link_of_another_user_is_replaced(tmp_path: Path) -> None:
    """In a folder for all, the file that it names gets nothing."""
    folder, home = tmp_path / "tmp", tmp_path / "home"
    folder.mkdir()
    folder.chmod(0o1777)
    home.mkdir()
    link = folder / "token"
    link.symlink_to(home / "token")
    os.chown(link, 1234, 1234, follow_symlinks=False)
    replace_file(link, b"secret")
    assert os.listdir(home) == []
    assert not link.is_symlink()
    found = link.stat()
    assert (found.st_uid, found.st_mode & 0o777) == (0, 0o600)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs files of another user")
def test_the_folder_of_another_user(tmp_path: Path) -> None:
    """Who owns the folder, or the file before, does not get the new file."""
    os.chown(tmp_path, 1234, 1234)
    path = tmp_path / "token"
    for _ in range(2):
        replace_file(path, b"secret")
        assert path.stat().st_uid == 0
        os.chown(path, 1234, 1234)


def test_links_to_links(tmp_path: Path) -> None:
    """All of them stay."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("folder/c")
    replace_file(tmp_path / "a", b"1")
    assert (tmp_path / "folder" / "c").read_bytes() == b"1"
    assert (tmp_path / "a").is_symlink()
    assert (tmp_path / "b").is_symlink()
