"""
Compiles the modules that each request passes with mypyc, beside their sources.

    python -m tools.compiled           in this checkout, which then runs them
    python -m tools.compiled --clean   take them away again
    python -m tools.compiled --check   fail if they cannot run or sources are newer

``TXKAS_COMPILE=1`` has the wheel built with them, see ``hatch_build.py``.  The sources
stay what runs everywhere else, and are the same; `docs/performance.rst` says what is
gained, and what a module in `MODULES` has to avoid.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tunnel.compiled import LIBRARY, PACKAGES, unusable

ROOT = Path(__file__).resolve().parents[1]

MODULES = (
    "tunnel/wire/framing.py",
    "tunnel/wire/outbox.py",
    "tunnel/wire/session.py",
    "tunnel/wire/stream.py",
    "tunnel/wire/window.py",
    "tunnel/session/keepalive.py",
    "tunnel/session/protocol.py",
    "tunnel/session/stream.py",
    "tunnel/http1/chunked.py",
    "tunnel/http1/client.py",
    "tunnel/http1/connection.py",
    "tunnel/http1/head.py",
    "tunnel/http1/pool.py",
    "tunnel/http1/server.py",
    "tunnel/transport/eager.py",
    "tunnel/transport/layer.py",
    "tunnel/transport/tlsio.py",
    "tunnel/util/flusher.py",
    "tunnel/util/poller.py",
    "modules/kubernetes_api/agent.py",
    "modules/kubernetes_api/fields.py",
    "modules/kubernetes_api/frontdoor.py",
    "modules/kubernetes_api/metrics.py",
    "modules/kubernetes_api/server.py",
    "modules/kubernetes_api/shares.py",
    "kas/agents/registry.py",
    "kas/directory/cache.py",
    "kas/directory/directory.py",
    "kas/directory/known_kas.py",
    "kas/fleet/gateway.py",
    "kas/routing/router.py",
    "kas/routing/stream.py",
)

#: What mypyc calls the library by.
_GROUP = LIBRARY.removesuffix("__mypyc")

# Run in a folder of its own: setuptools would read our pyproject.toml.
_SETUP = """
import sys
from mypyc.build import mypycify
from setuptools import setup

modules = mypycify(
    ["--config-file", "mypy.toml", *sys.argv[3:]],
    group_name=sys.argv[2],
    opt_level="3",
    debug_level="0",
)
out = sys.argv[1]
setup(
    name=sys.argv[2],
    ext_modules=modules,
    script_args=["--quiet", "build_ext", "--build-lib", out],
)
"""


class CompileError(Exception):
    """What the compilers said."""


def build(root: Path, out: Path) -> Sequence[Path]:
    """
    Compile the sources in *root*; their files, relative to *out*.

    :raises CompileError: there is no C compiler, or it or mypyc found something.
    """
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    compiler = command.split()[0]
    if shutil.which(compiler) is None:
        raise CompileError(f"there is no C compiler here: {compiler}")
    with tempfile.TemporaryDirectory(prefix="txkas-compiled-") as name:
        folder = Path(name)
        # What changes from now on is newer than what is compiled.
        begun = time.time()
        for package in PACKAGES:
            shutil.copytree(
                root / package,
                folder / package,
                ignore=shutil.ignore_patterns("*.so", "__pycache__"),
            )
        shutil.copy(root / "pyproject.toml", folder / "mypy.toml")
        lib = folder / "lib"
        done = subprocess.run(
            [sys.executable, "-c", _SETUP, str(lib), _GROUP, *MODULES],
            cwd=folder,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise CompileError(f"{done.stdout}\n{done.stderr}".strip())
        # The library comes first, and goes last: the others only lead there.
        found = sorted(
            (one.relative_to(lib) for one in lib.rglob("*.so")),
            key=lambda one: (not one.name.startswith(LIBRARY), one),
        )
        for one in found:
            (out / one.parent).mkdir(parents=True, exist_ok=True)
            # Never into a file that a program has loaded.
            beside = out / one.with_suffix(".new")
            shutil.copy(lib / one, beside)
            os.utime(beside, (begun, begun))
            beside.replace(out / one)
    return found


def built(root: Path) -> list[Path]:
    """What is compiled in *root*, for any Python, also of modules no longer listed."""
    ours = [
        file
        for package in PACKAGES
        for file in sorted((root / package).rglob("*.so"))
        if file.is_file() and LIBRARY.encode() in file.read_bytes()
    ]
    return [*ours, *sorted(root.glob(f"{LIBRARY}.*.so"))]


def main() -> None:
    """For the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.compiled",
        description="Compile the modules that each request passes.",
    )
    parser.add_argument("--clean", action="store_true", help="take them away again")
    parser.add_argument(
        "--check",
        action="store_true",
        help="fail if they cannot run or sources are newer",
    )
    arguments = parser.parse_args()
    if arguments.check:
        sys.exit(unusable(ROOT))
    for file in built(ROOT):
        file.unlink()
    if arguments.clean:
        return
    print(f"compiling {len(MODULES)} modules; this takes two minutes", flush=True)
    try:
        build(ROOT, ROOT)
    except CompileError as error:
        sys.exit(f"{error}\n\nnothing was compiled; the sources run")


if __name__ == "__main__":
    main()
