"""
`python -m bench.git`: three ways to read Git, on a repository of 20,000 files.

The benchmark needs dulwich and pygit2 in addition to requirements.txt (``pip install
dulwich pygit2``), and omits missing libraries.  Each way runs in its own process.
Libraries work in a thread, as they would in kas.  In the meantime the main thread
measures its longest wait for the interpreter, because every tunnel would wait that
long.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.git_repository import ENVIRONMENT, GitRepository
from tools.git_server import GitServer

#: Number of files of the repository, in folders of a hundred.
FILES = 20_000

#: Number of runs of each operation; the result is their median.
ROUNDS = 5

_PATH = "apps/042"
_BLOB = "apps/042/file-17.yaml"

_Operations = dict[str, Callable[[], object]]


def _git(repository: str, *arguments: str, data: bytes = b"") -> bytes:
    return subprocess.run(
        ["git", "-C", repository, *arguments],
        input=data,
        capture_output=True,
        env=ENVIRONMENT,
        check=True,
    ).stdout


def _program(path: str, url: str, mirror: str, old: str, new: str) -> _Operations:
    _git(".", "init", "--quiet", "--bare", mirror)

    def read() -> int:
        name = f"{new}:{_BLOB}\n".encode()
        return len(_git(path, "cat-file", "--batch", data=name))

    return {
        "resolve a ref": lambda: _git(path, "rev-parse", "refs/heads/main^{commit}"),
        "list one folder": lambda: _git(path, "ls-tree", "-z", new, _PATH + "/"),
        "list all files": lambda: _git(path, "ls-tree", "-r", "-z", "-l", new),
        "read one blob": read,
        "changed paths": lambda: _git(path, "diff-tree", "-r", "-z", old, new),
        "fetch, nothing new": lambda: _git(
            mirror, "fetch", "-q", "--depth=1", url, "+refs/heads/main:refs/x"
        ),
    }


def _dulwich(path: str, url: str, mirror: str, old: str, new: str) -> _Operations:
    from dulwich import porcelain
    from dulwich.diff_tree import tree_changes
    from dulwich.object_store import iter_tree_contents, tree_lookup_path
    from dulwich.repo import Repo

    local = Repo.init_bare(mirror, mkdir=True)
    repository = Repo(path)
    store = repository.object_store

    def tree(commit: str) -> Any:
        found: Any = repository[commit.encode()]
        return found.tree

    def look(name: str) -> Any:
        sha = tree_lookup_path(repository.get_object, tree(new), name.encode())[1]
        return repository[sha]

    return {
        "resolve a ref": lambda: repository.refs[b"refs/heads/main"],
        "list one folder": lambda: list(look(_PATH).items()),
        "list all files": lambda: list(iter_tree_contents(store, tree(new))),
        "read one blob": lambda: look(_BLOB).data,
        "changed paths": lambda: list(tree_changes(store, tree(old), tree(new))),
        "fetch, nothing new": lambda: porcelain.fetch(local, url, depth=1),
    }


def _pygit2(path: str, url: str, mirror: str, old: str, new: str) -> _Operations:
    import pygit2

    local = pygit2.init_repository(mirror, bare=True)
    remote = local.remotes.create_anonymous(url)
    repository: Any = pygit2.Repository(path)

    def every(tree: Any, before: str = "") -> list[str]:
        found = []
        for entry in tree:
            name = before + entry.name
            if entry.type_str == "tree":
                found += every(entry, name + "/")
            else:
                found.append(name)
        return found

    def changed() -> list[str]:
        diff = repository.diff(repository[old], repository[new])
        return [delta.new_file.path for delta in diff.deltas]

    return {
        "resolve a ref": lambda: repository.references["refs/heads/main"].target,
        "list one folder": lambda: [e.name for e in repository[new].tree[_PATH]],
        "list all files": lambda: every(repository[new].tree),
        "read one blob": lambda: repository[new].tree[_BLOB].data,
        "changed paths": changed,
        "fetch, nothing new": lambda: remote.fetch(
            ["+refs/heads/main:refs/x"], depth=1
        ),
    }


_WAYS: dict[str, Callable[[str, str, str, str, str], _Operations]] = {
    "git": _program,
    "dulwich": _dulwich,
    "pygit2": _pygit2,
}


def _run(operation: Callable[[], object]) -> tuple[float, float]:
    """
    Return the seconds of *operation* in a thread, and the longest wait of this thread.
    """
    took: list[float] = []
    problems: list[BaseException] = []

    def work() -> None:
        begin = time.perf_counter()
        try:
            operation()
        except BaseException as error:
            problems.append(error)
        took.append(time.perf_counter() - begin)

    thread = threading.Thread(target=work)
    longest, last = 0.0, time.perf_counter()
    thread.start()
    while thread.is_alive():
        time.sleep(0.0005)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    if problems:
        raise problems[0]
    return took[0], longest


def _one(name: str, *about: str) -> None:
    """Measure one way, and print its figures as JSON."""
    path, url, mirror, old, new, add = about
    operations = _WAYS[name](path, url, mirror, old, new)
    fetch = operations["fetch, nothing new"]
    figures: dict[str, tuple[float, float]] = {"first fetch": _run(fetch)}
    for what, operation in operations.items():
        rounds = [_run(operation) for _ in range(ROUNDS)]
        took = statistics.median(round[0] for round in rounds)
        figures[what] = (took, max(round[1] for round in rounds))
    GitRepository(Path(path)).commit({_BLOB: add})
    figures["fetch, one file new"] = _run(fetch)
    status = Path("/proc/self/status").read_text()
    # ru_maxrss would begin with the maximum of the parent process.
    own = int(status.partition("VmHWM:")[2].split()[0])
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps({"figures": figures, "own": own, "children": children}))


def main() -> int:
    """Measure all ways, and print a table."""
    with tempfile.TemporaryDirectory(prefix="bench-git-") as folder:
        root = Path(folder)
        repository = GitRepository.make(root / "many.git")
        files = {
            f"apps/{n // 100:03}/file-{n % 100:02}.yaml": f"number: {n}\n" * 40
            for n in range(FILES)
        }
        repository.commit({**files, ".gitlab/agents/a/config.yaml": "{}\n"})
        old = repository.run("rev-parse", "main")
        new = repository.commit({_BLOB: "changed: true\n", "apps/new.yaml": "x: 1\n"})
        server = GitServer(root)
        for name in _WAYS:
            if name != "git" and importlib.util.find_spec(name) is None:
                print(f"{name}: not installed")
                continue
            about = [
                str(repository.path),
                server.url("many.git"),
                str(root / f"mirror-{name}"),
                old,
                new,
                f"again: {name}\n",
            ]
            done = subprocess.run(
                [sys.executable, "-m", "bench.git", name, *about],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                print(f"{name}: failed: {done.stderr.strip().splitlines()[-1]}")
                continue
            found = json.loads(done.stdout)
            print(f"\n{name:22} {'ms':>9} {'main thread waited, ms':>24}")
            for what, (took, waited) in found["figures"].items():
                print(f"  {what:20} {took * 1000:9.1f} {waited * 1000:24.1f}")
            own, children = found["own"] // 1024, found["children"] // 1024
            print(f"  memory: {own} MiB in the process, {children} MiB in a child")
        server.stop()
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _one(*sys.argv[1:])
    else:
        sys.exit(main())
