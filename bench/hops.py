"""
Number and places of our code's calls for one GET: `python -m bench.hops [--list]`. With
``--instructions``: number of the interpreter's instructions, of all code.

Times can hide a helper that was added to each request; these figures cannot, and are
the same on every machine.  kas and agentk run unchanged.  A signal makes them record
each Python call of this checkout, or each instruction, during one GET on kept
connections.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from bench.processes import Process
from bench.stand import Stand
from tunnel.compiled import PURE

ROOT = Path(__file__).resolve().parents[1]

#: Number of requests before the measured ones, so that connections and tables exist.
WARM_UP = 50

#: Number of measured requests: see `_smallest`.
ROUNDS = 5

#: Seconds until a signal has arrived, and until the work after a response is done.
SETTLE = 0.05

#: Code that records calls; Python loads it at the start of each program.
_NOTE_CALLS = f"""
import json, os, signal, sys
calls = []
def note(frame, event, _):
    code = frame.f_code
    file = code.co_filename
    if event == "call" and file.startswith({str(ROOT)!r}) and "/.venv/" not in file:
        calls.append((file[{len(str(ROOT)) + 1}:], code.co_qualname))
def begin(*_):
    calls.clear()
    sys.setprofile(note)
def end(*_):
    sys.setprofile(None)
    with open(os.environ["HOPS"] + str(os.getpid()), "w") as out:
        json.dump(calls, out)
signal.signal(signal.SIGRTMIN + 1, begin)
signal.signal(signal.SIGRTMIN + 2, end)
"""


#: Code that records instructions, by file.
_NOTE_INSTRUCTIONS = """
import collections, json, os, signal, sys
counts = collections.Counter()
def note(frame, event, _):
    if event == "opcode":
        counts[frame.f_code.co_filename] += 1
    elif event == "call":
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
    return note
def begin(_, frame):
    counts.clear()
    sys.settrace(note)
    # The loop of the reactor runs already.
    while frame is not None:
        frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = note, True, False
        frame = frame.f_back
def end(*_):
    sys.settrace(None)
    with open(os.environ["HOPS"] + str(os.getpid()), "w") as out:
        json.dump(counts, out)
signal.signal(signal.SIGRTMIN + 1, begin)
signal.signal(signal.SIGRTMIN + 2, end)
"""


@attrs.frozen
class Trip:
    """The calls of one program for one GET, each as file and qualified name."""

    calls: list[tuple[str, str]]

    @classmethod
    def of(cls, noted: list[tuple[str, str]]) -> Trip:
        """
        Return the recorded calls without the effects of the signal.

        The signal ends the turn of the reactor that would have waited for the request,
        so calls before the turn that reads the request, and the next turn, are not part
        of the GET.
        """
        names = [name for _, name in noted]
        first = names.index("_read") - 1
        last = len(names) - (names[-1] == "Poller.turn")
        return cls(noted[first:last])

    @property
    def way_in(self) -> list[tuple[str, str]]:
        """Return the calls until the request is written to the next connection."""
        for index, (_, name) in enumerate(self.calls):
            if name.endswith(("TunnelWriter.flush", "HttpConnection.flush")):
                return self.calls[: index + 1]
        return self.calls

    @property
    def way_back(self) -> list[tuple[str, str]]:
        """Return the remaining calls, including the calls for the response."""
        return self.calls[len(self.way_in) :]


def trips() -> dict[str, Trip]:
    """Return the calls of one GET in kas and in agentk."""
    return {
        name: Trip.of([(file, qualified) for file, qualified in noted])
        for name, noted in _smallest(_NOTE_CALLS, len).items()
    }


def instructions() -> dict[str, Counter[str]]:
    """Return the instructions of one GET in kas and in agentk, by package."""
    found = {}
    for name, noted in _smallest(
        _NOTE_INSTRUCTIONS, lambda one: sum(one.values())
    ).items():
        found[name] = counts = Counter[str]()
        for file, count in noted.items():
            counts[_package(file)] += count
    return found


def _package(file: str) -> str:
    place = file.partition("/site-packages/")[2]
    if place:
        return place.partition("/")[0]
    if file.startswith(f"{ROOT}/"):
        return "/".join(Path(file).relative_to(ROOT).parts[:2])
    return "made by attrs" if file.startswith("<attrs") else "Python"


def _smallest(note: str, size: Callable[[Any], int]) -> dict[str, Any]:
    """
    Return each program's record with the fewest entries, because timers may have
    extended the other records.
    """
    with tempfile.TemporaryDirectory(prefix="hops-") as folder, Stand() as stand:
        (Path(folder) / "sitecustomize.py").write_text(note)
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, str(ROOT)])
        os.environ["HOPS"] = f"{folder}/calls-"
        # Compiled modules are disabled, because calls between them are not recorded.
        os.environ[PURE] = "1"
        kas = stand.kas()
        _, port = stand.upstream()
        programs = {"kas": kas, "agentk": stand.agentk(port)}
        connection = http.client.HTTPConnection(stand.proxy.removeprefix("http://"))
        for _ in range(WARM_UP):
            _get(connection, stand.token)
        found: dict[str, Any] = {}
        for _ in range(ROUNDS):
            _signal(programs, 1)
            _get(connection, stand.token)
            # The record includes the work of both programs after a response.
            time.sleep(SETTLE)
            _signal(programs, 2)
            for name, one in programs.items():
                noted = json.loads(Path(f"{folder}/calls-{one.pid}").read_text())
                if name not in found or size(noted) < size(found[name]):
                    found[name] = noted
        return found


def _get(connection: http.client.HTTPConnection, token: str) -> None:
    connection.request("GET", "/6144", headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise RuntimeError(f"status {answer.status}")


def _signal(programs: dict[str, Process], number: int) -> None:
    for one in programs.values():
        os.kill(one.pid, signal.SIGRTMIN + number)
    time.sleep(SETTLE)


def main(arguments: list[str]) -> None:
    """Print the calls in both directions."""
    if "--instructions" in arguments:
        for name, counts in instructions().items():
            print(f"{name:8} {counts.total():5} instructions")
            for package, count in counts.most_common():
                print(f"    {count:5}  {package}")
        return
    for name, trip in trips().items():
        ways = {"way in": trip.way_in, "way back": trip.way_back, "whole": trip.calls}
        for what, calls in ways.items():
            files = len({file for file, _ in calls})
            print(f"{name:8} {what:8} {len(calls):4} calls in {files:3} files")
            if "--list" in arguments and what != "whole":
                for file, qualified in calls:
                    print(f"    {file}  {qualified}")


if __name__ == "__main__":
    main(sys.argv[1:])
