"""kubectl that goes on through an experiment, and what is wrong with what it said."""

from __future__ import annotations

import itertools
import re
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Self

from tests.integration.kubectl import Kubectl
from tests.integration.processes import die_with_parent

#: Counts on its own, and echoes what comes, until its input ends.
COUNTING = """\
(i=0; while :; do i=$((i+1)); echo "tick $i"; sleep 0.05; done) & t=$!
while read -r l; do echo "got $l"; done
kill $t; wait; echo "end"
"""


class Lines(threading.Thread):
    """Reads the lines of a child, and keeps them."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self.child = child
        self.lines: list[str] = []
        self.start()

    def run(self) -> None:
        """Until its end."""
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self.lines.append(line.decode(errors="replace").rstrip("\n"))


def _child(
    kubectl: Kubectl, *arguments: str, stdin: bool = False
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        kubectl.command(*arguments),
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=kubectl.environment(),
        preexec_fn=die_with_parent,
    )


class Follower:
    """
    A kubectl whose lines are numbered; a context manager that ends it.

    :ivar problems: what is wrong with what it printed, once it was stopped.
    """

    def __init__(self, kubectl: Kubectl, *arguments: str, word: str = "tick") -> None:
        self.child = _child(kubectl, *arguments)
        self.reader = Lines(self.child)
        self.word = word
        self.problems: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _kill(self.child)

    @property
    def numbers(self) -> list[int]:
        """Those of its lines."""
        pattern = re.compile(rf".*\b{self.word}[ -]0*(\d+)\b")
        return [
            int(found[1])
            for line in tuple(self.reader.lines)
            if (found := pattern.match(line))
        ]

    def stop(self) -> list[str]:
        """End it; what is wrong."""
        if self.child.poll() is not None:
            err = _rest(self.child)
            self.problems.append(f"ended with {self.child.returncode}: {err}")
        self.problems += gaps(self.numbers)
        _kill(self.child)
        return self.problems


class Exec:
    """
    ``kubectl exec -i`` that counts both ways; a context manager that ends it.

    :ivar problems: what is wrong with what came back, once it was stopped.
    """

    def __init__(
        self, kubectl: Kubectl, pod: str, container: str, rate: float = 10
    ) -> None:
        self.child = _child(
            kubectl,
            *("exec", "-i", pod, "-c", container, "--", "sh", "-c", COUNTING),
            stdin=True,
        )
        self.reader = Lines(self.child)
        self.sent = 0
        self.problems: list[str] = []
        self._rate = rate
        self._stopped = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def _write(self) -> None:
        assert self.child.stdin is not None
        try:
            while not self._stopped.wait(1 / self._rate):
                self.child.stdin.write(b"%d %s\n" % (self.sent + 1, b"x" * 100))
                self.child.stdin.flush()
                self.sent += 1
        except OSError as error:
            self.problems.append(f"cannot write: {error}")

    def numbers(self, word: str) -> list[int]:
        """Those of the lines that begin with *word*."""
        return [
            int(line.split()[1])
            for line in tuple(self.reader.lines)
            if line.startswith(word + " ")
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_writer()
        _kill(self.child)

    def _end_writer(self, seconds: float = 0) -> None:
        """It may wait for a child that reads nothing: that is killed after a while."""
        self._stopped.set()
        self._writer.join(seconds)
        if self._writer.is_alive():
            self.child.kill()
            self._writer.join()

    def stop(self, seconds: float = 30) -> list[str]:
        """Say no more, and read to the end; what is wrong."""
        self._end_writer(seconds)
        assert self.child.stdin is not None
        try:
            self.child.stdin.close()
        except OSError:
            pass
        self.reader.join(seconds)
        if self.reader.is_alive():
            self.problems.append(f"did not end within {seconds} s")
            self.child.kill()
        code = self.child.wait()
        if code:
            self.problems.append(f"ended with {code}: {_rest(self.child)}")
        got = self.numbers("got")
        if len(got) != self.sent:
            self.problems.append(f"{self.sent} lines sent, {len(got)} came back")
        self.problems += [f"echo: {one}" for one in gaps(got)]
        self.problems += [f"output: {one}" for one in gaps(self.numbers("tick"))]
        if self.reader.lines[-1:] != ["end"]:
            self.problems.append(f"the last line is {self.reader.lines[-1:]}")
        return self.problems


def gaps(numbers: Sequence[int]) -> list[str]:
    """Where numbers do not go up by one."""
    if not numbers:
        return ["no line at all"]
    found = [f"{b} after {a}" for a, b in itertools.pairwise(numbers) if b != a + 1]
    return found[:5]


def _rest(child: subprocess.Popen[bytes]) -> str:
    assert child.stderr is not None
    return child.stderr.read()[-1000:].decode(errors="replace")


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.kill()
    child.wait()
    for pipe in (child.stdin, child.stderr):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                pass


def bulk(kubectl: Kubectl, megabytes: int, grown: float = 25) -> tuple[float, float]:
    """
    One stream from the pod ``main``: bytes a second, and the longest pause in seconds.

    :param grown: megabytes after which it is measured: its window has grown by then.

    The command does not end with its output: over a slow path an API server loses some
    of what is left then, also for who asks it without kas.
    """
    command = f"head -c {megabytes}000000 /dev/zero; sleep 300"
    child = subprocess.Popen(
        kubectl.command("exec", "main", "-c", "echo", "--", "sh", "-c", command),
        stdout=subprocess.PIPE,
        env=kubectl.environment(),
        preexec_fn=die_with_parent,
    )
    try:
        assert child.stdout is not None
        first = size = len(child.stdout.read(int(grown * 1_000_000)))
        begin = last = time.monotonic()
        longest = 0.0
        while size < megabytes * 1_000_000:
            data = child.stdout.read1(1 << 20)  # type: ignore[attr-defined]
            assert data, "the exec ended before its output"
            size += len(data)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
        return (size - first) / (last - begin), longest
    finally:
        child.kill()
        child.wait()
