"""
Compiles the modules that handle each request with mypyc, next to their sources.

    python -m tools.compiled           in this checkout, which then uses them
    python -m tools.compiled --clean   remove compiled files
    python -m tools.compiled --check   fail if they cannot run or sources are newer

With ``TXKAS_COMPILE=1``, the wheel contains compiled modules, see ``hatch_build.py``.
Compiled modules have the same sources, and these sources run wherever no compiled
modules exist; `docs/performance.rst` describes the gain, and the rules for a module in
`MODULES`.
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

#: mypyc's name for the library.
_GROUP = LIBRARY.removesuffix("__mypyc")

# This runs in a folder of its own, because setuptools would read our pyproject.toml.
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
    """Raised with the output of the compilers."""


def build(root: Path, out: Path) -> Sequence[Path]:
    """
    Compile the sources in *root*; return the new files, relative to *out*.

    :raises CompileError: the C compiler is missing, or a compiler reported an error.
    """
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    compiler = command.split()[0]
    if shutil.which(compiler) is None:
        raise CompileError(f"there is no C compiler here: {compiler}")
    with tempfile.TemporaryDirectory(prefix="txkas-compiled-") as name:
        folder = Path(name)
        # A source that changes from now on is newer than its compiled module.
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
        # The library is installed first and removed last, because the other files only
        # load the library.
        found = sorted(
            (one.relative_to(lib) for one in lib.rglob("*.so")),
            key=lambda one: (not one.name.startswith(LIBRARY), one),
        )
        for one in found:
            (out / one.parent).mkdir(parents=True, exist_ok=True)
            # A file that a program has loaded must not be overwritten.
            beside = out / one.with_suffix(".new")
            shutil.copy(lib / one, beside)
            os.utime(beside, (begun, begun))
            beside.replace(out / one)
    return found


def built(root: Path) -> list[Path]:
    """
    Return the compiled files in *root*, for any Python, including files of modules that
    are no longer listed.
    """
    ours = [
        file
        for package in PACKAGES
        for file in sorted((root / package).rglob("*.so"))
        if file.is_file() and LIBRARY.encode() in file.read_bytes()
    ]
    return [*ours, *sorted(root.glob(f"{LIBRARY}.*.so"))]


def main() -> None:
    """Run the command line."""
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
