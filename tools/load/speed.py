"""
Requests at maximum speed, with wrk if it is installed; downloads and watches.

    python -m tools.load.speed requests URL CONNECTIONS SECONDS SETTINGS [PATH ...]
    python -m tools.load.speed downloads URL TOKEN BYTES
    python -m tools.load.speed watch URL TOKEN COUNT

The first command prints one JSON object; the others run until they are stopped.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

_ROOT = Path(__file__).resolve().parents[2]

#: Header field that identifies a request, and the format of its value if each value
#: differs.
ID, FRESH_ID = "X-Request-Id", "b63bdc6b-8d2f-4a7f-a2f2-%012d"

#: Header fields of a client such as kubectl, except Host and Authorization.
HEADERS = {
    "User-Agent": "kubectl/v1.36.3 (linux/amd64) kubernetes/unknown",
    "Accept": "application/json, */*",
    "Accept-Encoding": "gzip",
    "Kubectl-Command": "kubectl get",
    "Kubectl-Session": "6f8a8b38-77a4-45ba-9b1d-2c4b8a9e7f10",
    ID: "b63bdc6b-8d2f-4a7f-a2f2-2f9f4b0a3c9e",
    "Cache-Control": "no-cache",
    "Pragma": "no-cache",
}


@attrs.frozen
class Load:
    """Results of a run of requests."""

    requests: int
    seconds: float
    p50: float
    p99: float


def requests(
    url: str,
    connections: int,
    seconds: float,
    token: str,
    paths: list[str] | None = None,
    nice: int = 0,
    fresh: bool = False,
) -> Load:
    """
    Run a closed loop: each connection sends its next request after each response.

    :param nice: niceness of the sending process; above 0, the measured programs have
        priority.
    :param fresh: whether each request has an id of its own, so that no two heads are
        equal.
    """
    wrk = shutil.which("wrk")
    headers = {**HEADERS, "Authorization": f"Bearer {token}"}
    if wrk is None:
        return _own(url, connections, seconds, headers, paths, nice, fresh)
    command = [
        *_niced(nice),
        wrk,
        "-t1",
        f"-c{connections}",
        f"-d{seconds:g}s",
        "--latency",
    ]
    for name, value in headers.items():
        command += ["-H", f"{name}: {value}"]
    with tempfile.TemporaryDirectory() as folder:
        if paths or fresh:
            script = Path(folder, "requests.lua")
            listed = ", ".join(
                json.dumps(path) for path in paths or [urlsplit(url).path]
            )
            fresh_one = f"wrk.headers['{ID}'] = string.format('{FRESH_ID}', i); "
            script.write_text(
                f"local paths = {{{listed}}}\nlocal i = 0\n"
                f"request = function() i = i + 1; {fresh_one if fresh else ''}"
                "return wrk.format('GET', paths[i % #paths + 1]) end\n"
            )
            command += ["-s", str(script)]
        text = subprocess.run(
            [*command, url], check=True, capture_output=True, text=True
        ).stdout
    if bad := re.search(r"Non-2xx or 3xx responses: (\d+)|Socket errors:.*", text):
        raise RuntimeError(f"{url}: {bad[0]}")
    done = re.search(r"(\d+) requests in ([\d.]+)(m?s)", text)
    assert done is not None, text
    return Load(
        int(done[1]), float(done[2]), _latency(text, "50%"), _latency(text, "99%")
    )


def _niced(nice: int) -> list[str]:
    return ["nice", "-n", str(nice)] if nice else []


def _latency(text: str, which: str) -> float:
    found = re.search(rf"{which} +([\d.]+)(us|ms|s)", text)
    assert found is not None, text
    return float(found[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[found[2]]


def _own(
    url: str,
    connections: int,
    seconds: float,
    headers: dict[str, str],
    paths: list[str] | None,
    nice: int,
    fresh: bool,
) -> Load:
    """Run the loop without wrk, in a slower process of our own."""
    settings = json.dumps({"headers": headers, "fresh": fresh})
    arguments = [url, str(connections), str(seconds), settings]
    text = subprocess.run(
        [
            *(*_niced(nice), sys.executable, "-m", "tools.load.speed", "requests"),
            *arguments,
            *(paths or []),
        ],
        check=True,
        capture_output=True,
        text=True,
        cwd=_ROOT,
    ).stdout
    return Load(**json.loads(text))


def latencies(url: str, token: str, count: int) -> list[float]:
    """
    Return the sorted durations, in seconds, of *count* requests, sent one after the
    other on one connection.
    """
    where = urlsplit(url)
    head = _request(where.path, {**HEADERS, "Authorization": f"Bearer {token}"})
    found = []
    with _connect(where) as connection:
        for _ in range(count):
            began = time.perf_counter()
            connection.sendall(head)
            _answer(connection)
            found.append(time.perf_counter() - began)
    return sorted(found)


def download(url: str, token: str, size: int) -> float:
    """Return how many seconds a download of *size* bytes takes."""
    where = urlsplit(url)
    began = time.perf_counter()
    with _connect(where) as connection:
        connection.sendall(_request(where.path, {"Authorization": f"Bearer {token}"}))
        buffer = bytearray(262144)
        got = 0
        while got < size:
            count = connection.recv_into(buffer)
            if not count:
                raise RuntimeError(f"{url}: cut after {got} bytes")
            got += count
    return time.perf_counter() - began


def _connect(where: Any) -> socket.socket:
    plain = socket.create_connection((where.hostname, where.port))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if where.scheme == "http":
        return plain
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain, server_hostname=where.hostname)


def _request(path: str, headers: dict[str, str]) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: bench"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def _answer(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            raise RuntimeError("cut")
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(head.decode("latin-1"))
    length = re.search(rb"(?i)content-length: (\d+)", head)
    assert length is not None, head
    left = int(length[1]) - len(body)
    while left:
        left -= len(connection.recv(min(left, 65536)))


def _run_requests(arguments: list[str]) -> None:
    import threading

    url, connections, seconds, text, *paths = arguments
    where, settings = urlsplit(url), json.loads(text)
    headers, ids = settings["headers"], itertools.count()
    paths = paths or [where.path]
    heads = [_request(path, headers) for path in paths]

    def head(which: int) -> bytes:
        if settings["fresh"]:
            return _request(paths[which], {**headers, ID: FRESH_ID % next(ids)})
        return heads[which]

    end = time.perf_counter() + float(seconds)
    found: list[float] = []

    def loop(number: int) -> None:
        with _connect(where) as connection:
            while (began := time.perf_counter()) < end:
                number += 1
                connection.sendall(head(number % len(paths)))
                _answer(connection)
                found.append(time.perf_counter() - began)

    threads = [
        threading.Thread(target=loop, args=(n,)) for n in range(int(connections))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.sort()
    result = Load(
        len(found),
        float(seconds),
        found[len(found) // 2],
        found[len(found) * 99 // 100],
    )
    print(json.dumps(attrs.asdict(result)))


def _run_downloads(arguments: list[str]) -> None:
    """Download one URL repeatedly, until the process is stopped."""
    url, token, size = arguments
    print("downloading", flush=True)
    while True:
        download(url, token, int(size))


def _run_watches(arguments: list[str]) -> None:
    """
    Open many watches; after each event, print the number of watches that received it.
    """
    import selectors

    url, token, count = arguments
    where = urlsplit(url)
    head = _request(where.path, {"Authorization": f"Bearer {token}"})
    selector = selectors.DefaultSelector()
    for _ in range(int(count)):
        connection = _connect(where)
        connection.sendall(head)
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ)
    print("open", flush=True)
    while True:
        seen: set[int] = set()
        while len(seen) < int(count):
            for key, _ in selector.select():
                if not key.fileobj.recv(65536):  # type: ignore[union-attr]
                    raise SystemExit("a watch was cut")
                seen.add(key.fd)
        print(f"delivered {len(seen)}", flush=True)


if __name__ == "__main__":
    {
        "requests": _run_requests,
        "downloads": _run_downloads,
        "watch": _run_watches,
    }[sys.argv[1]](sys.argv[2:])
