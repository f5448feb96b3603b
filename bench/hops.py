"""
`python -m bench.hops [--list]`: how many calls of our code one GET takes, and where.

Figures of time hide a helper that was added to each request; this does not.  kas and
agentk run as they are, and are told by a signal to note each Python call of this
checkout while one GET on kept connections passes.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import attrs

from bench.processes import Process
from bench.stand import Stand

ROOT = Path(__file__).resolve().parents[1]

#: Requests before those that count: connections are kept, tables are filled.
WARM_UP = 50

#: Requests that count: the one with the fewest calls met no timer.
ROUNDS = 5

#: Seconds for a signal to arrive, and for what follows an answer.
SETTLE = 0.05

#: Loaded by Python itself at the start of each program.
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


@attrs.frozen
class Trip:
    """The calls of one program for one GET: file, and qualified name."""

    calls: list[tuple[str, str]]

    @property
    def way_in(self) -> list[tuple[str, str]]:
        """Those until the request has been written to the next connection."""
        for index, (_, name) in enumerate(self.calls):
            if name.endswith(("TunnelWriter.flush", "HttpConnection.flush")):
                return self.calls[: index + 1]
        return self.calls

    @property
    def way_back(self) -> list[tuple[str, str]]:
        """The others: writing it, and the answer."""
        return self.calls[len(self.way_in) :]


def trips() -> dict[str, Trip]:
    """What one GET takes in kas and in agentk."""
    with tempfile.TemporaryDirectory(prefix="hops-") as folder, Stand() as stand:
        (Path(folder) / "sitecustomize.py").write_text(_NOTE_CALLS)
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, str(ROOT)])
        os.environ["HOPS"] = f"{folder}/calls-"
        kas = stand.kas()
        _, port = stand.upstream()
        programs = {"kas": kas, "agentk": stand.agentk(port)}
        connection = http.client.HTTPConnection(stand.proxy.removeprefix("http://"))
        for _ in range(WARM_UP):
            _get(connection, stand.token)
        found: dict[str, Trip] = {}
        for _ in range(ROUNDS):
            _signal(programs, 1)
            _get(connection, stand.token)
            # What follows an answer in both programs is part of it.
            time.sleep(SETTLE)
            _signal(programs, 2)
            for name, one in programs.items():
                noted = json.loads(Path(f"{folder}/calls-{one.pid}").read_text())
                trip = Trip([(file, qualified) for file, qualified in noted])
                if name not in found or len(trip.calls) < len(found[name].calls):
                    found[name] = trip
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
    """Print both trips."""
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
