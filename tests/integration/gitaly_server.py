"""
Gitaly's stand-in: grpcio over real repositories, in a process of its own.

    python -m tests.integration.gitaly_server ROOT TOKEN

Prints the port once it listens.  Answers as Gitaly does, what it refuses included; a
path below ROOT is a repository of the storage ``default``.
"""

from __future__ import annotations

import hashlib
import hmac
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from tools.git_repository import ENVIRONMENT
from tunnel.gitaly import gitaly_pb2 as pb
from tunnel.rpc.server import snake_case

#: Bytes of one message of data, and entries of one list.
CHUNK, PAGE = 64 * 1024, 1000

_TYPES: dict[str, Any] = {"blob": 0, "tree": 1, "commit": 3}
_KINDS: dict[str, Any] = {"commit": 0, "blob": 1, "tree": 2, "tag": 3}


class Gitaly:
    """The calls that kas makes."""

    def __init__(self, root: Path, token: str) -> None:
        self._root = root
        self._token = token

    def info_refs_upload_pack(self, request: Any, context: Any) -> Iterator[Any]:
        """As ``GET info/refs?service=git-upload-pack``."""
        out = self._git(
            request, context, "upload-pack", "--stateless-rpc", "--advertise-refs", "."
        )
        data = b"001e# service=git-upload-pack\n0000" + out
        for begin in range(0, len(data), CHUNK):
            yield pb.InfoRefsResponse(data=data[begin : begin + CHUNK])

    def tree_entry(self, request: Any, context: Any) -> Iterator[Any]:
        """A file."""
        revision, path = request.revision.decode(), request.path.decode()
        line = self._git(request, context, "ls-tree", "-z", revision, "--", path)
        if not line:
            context.abort(grpc.StatusCode.NOT_FOUND, "not found: " + path)
        mode, kind, oid = line.split(b"\t")[0].decode().split()
        if kind == "commit":
            yield pb.TreeEntryResponse(mode=int(mode, 8), oid=oid)
            return
        size = int(self._git(request, context, "cat-file", "-s", oid))
        if request.max_size and size > request.max_size:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "object is too big")
        answer = pb.TreeEntryResponse(oid=oid, size=size, mode=int(mode, 8))
        answer.type = _KINDS[kind]
        if kind == "tree":
            yield answer
            return
        data = self._git(request, context, "cat-file", "blob", oid)
        answer.data = data[:CHUNK]
        yield answer
        for begin in range(CHUNK, len(data), CHUNK):
            yield pb.TreeEntryResponse(data=data[begin : begin + CHUNK])

    def get_tree_entries(self, request: Any, context: Any) -> Iterator[Any]:
        """A folder."""
        if not request.path:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "empty Path")
        recursive = ["-r", "-t"] if request.recursive else []
        where = [] if request.path == b"." else [request.path.decode() + "/"]
        revision = request.revision.decode()
        out = self._git(
            request, context, "ls-tree", "-z", *recursive, revision, "--", *where
        )
        if where and not out:
            if request.recursive:
                context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT, "invalid revision or path"
                )
            context.abort(grpc.StatusCode.NOT_FOUND, "tree entry not found")
        entries = []
        for line in out.split(b"\0")[:-1]:
            about, _, path = line.partition(b"\t")
            mode, kind, oid = about.decode().split()
            entries.append(
                pb.TreeEntry(oid=oid, path=path, type=_TYPES[kind], mode=int(mode, 8))
            )
        for begin in range(0, len(entries), PAGE):
            yield pb.GetTreeEntriesResponse(entries=entries[begin : begin + PAGE])

    def commit_delta(self, request: Any, context: Any) -> Iterator[Any]:
        """What differs."""
        names = self._git(
            request,
            context,
            *("diff-tree", "-r", "-z", "--name-only"),
            *(request.left_commit_id, request.right_commit_id, "--"),
            *(path.decode() for path in request.paths),
        ).split(b"\0")[:-1]
        yield pb.CommitDeltaResponse(
            deltas=[pb.CommitDelta(from_path=name, to_path=name) for name in names]
        )

    def commit_is_ancestor(self, request: Any, context: Any) -> Iterator[Any]:
        """Whether a commit is in the history of another."""
        command = ("merge-base", "--is-ancestor")
        ids = (request.ancestor_id, request.child_id)
        done = self._run(request, context, *command, *ids)
        if done.returncode not in (0, 1):
            context.abort(grpc.StatusCode.INTERNAL, "exit status 128")
        yield pb.CommitIsAncestorResponse(value=not done.returncode)

    def _git(self, request: Any, context: Any, *arguments: str) -> bytes:
        done = self._run(request, context, *arguments)
        if done.returncode:
            context.abort(grpc.StatusCode.NOT_FOUND, "revision not found")
        return done.stdout

    def _run(
        self, request: Any, context: Any, *arguments: str
    ) -> subprocess.CompletedProcess[bytes]:
        metadata = dict(context.invocation_metadata())
        if not self._knows(metadata.get("authorization", "")):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "authentication required")
        if metadata.get("gitaly-feature-test") != "true":
            context.abort(grpc.StatusCode.INTERNAL, "the features are missing")
        repository = request.repository
        folder = (self._root / repository.relative_path).resolve()
        if repository.storage_name != "default" or not folder.is_dir():
            context.abort(grpc.StatusCode.NOT_FOUND, "repository does not exist")
        return subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            env={**ENVIRONMENT, "GIT_LITERAL_PATHSPECS": "1"},
        )

    def _knows(self, authorization: str) -> bool:
        scheme, _, text = authorization.partition(" ")
        version, _, rest = text.partition(".")
        mac, _, issued = rest.partition(".")
        wanted = hmac.new(self._token.encode(), issued.encode(), hashlib.sha256)
        return (
            (scheme, version) == ("Bearer", "v2")
            and mac == wanted.hexdigest()
            and abs(int(issued) - time.time()) < 30
        )


def main() -> None:
    """Serve until told to stop."""
    root, token = sys.argv[1:]
    gitaly = Gitaly(Path(root), token)
    server = grpc.server(ThreadPoolExecutor(20))
    for service in pb.DESCRIPTOR.services_by_name.values():
        handlers = {
            method.name: grpc.unary_stream_rpc_method_handler(
                getattr(gitaly, snake_case(method.name)),
                request_deserializer=GetMessageClass(method.input_type).FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )
            for method in service.methods
        }
        generic = grpc.method_handlers_generic_handler(service.full_name, handlers)
        server.add_generic_rpc_handlers((generic,))
    port = server.add_insecure_port("127.0.0.1:0")
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    server.start()
    print(f"listening on port {port}", flush=True)
    told.wait()
    server.stop(1).wait()


if __name__ == "__main__":
    main()
