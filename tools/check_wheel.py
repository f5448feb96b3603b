"""
A check of our wheel and of the example's wheel, which uses both as their users would.

``make wheel`` runs this check.  It builds our wheel twice, from sources alone and with
the compiled modules.  All work is done in a temporary folder: the check inspects the
wheels, installs them into a new environment with locked versions of all dependencies,
and starts `kas` and `agentk` from this environment with the example's module.  If a
step fails, the check prints the reason and ends with status 1.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from tools.compiled import MODULES

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "greeter"

#: Timeout of one command in seconds; the installation downloads packages.
COMMAND_TIMEOUT = 300

#: Maximum number of seconds until a program is ready, and until a report arrives.
PATIENCE = 30

# A wheel with one of the first files breaks Twisted, or hides plugins from it.  Users
# need no sources of the page.
FORBIDDEN = (
    "twisted/__init__.py",
    "twisted/plugins/__init__.py",
    "dropin.cache",
    "browser/package.json",
)

EXPECTED = {
    "txkas": (
        "twisted/plugins/kas_services.py",
        "twisted/plugins/agentk_services.py",
        "tunnel/py.typed",
        "kas/py.typed",
        "kas/ctl/agentk.yaml",
        "kas/ctl/agentk_rights.yaml",
        "agentk/py.typed",
        "modules/py.typed",
        "modules/web_page/static/manifest.json",
        "tunnel/pb/tunnel_pb2.pyi",
        "licenses/LICENSE",
        "entry_points.txt",
    ),
    "acme_kas": (
        "twisted/plugins/acme_kas_modules.py",
        "acme_kas/rpc_pb2.py",
        "acme_kas/py.typed",
    ),
}

# This program runs in the new environment: it finds all modules without importing them.
FIND_MODULES = """
import sys
from tunnel.plugin import AgentModule, ServerModule, find_modules

halves = [
    *find_modules(ServerModule, ["greeter"]), *find_modules(AgentModule, ["greeter"])
]
early = [name for name in sys.modules if name.startswith(("acme_kas", "modules"))]
assert not early, f"imported before it was enabled: {early}"
for half in halves:
    half.load()
    print(type(half).__name__, half.name)
"""

KAS = """\
agent:
  listen:
    address: 127.0.0.1:0
    development_certificate: true
    shutdown_grace_period: 1s
  kubernetes_api:
    listen:
      address: 127.0.0.1:0
observability:
  listen:
    address: 127.0.0.1:0
modules:
  greeter:
    listen:
      address: 127.0.0.1:0
"""

AGENTK = """\
modules:
  greeter:
    greeting: Good morning
"""

# No API server listens at this address, because an agent must start and work without
# one, too.
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: main
contexts: [{{name: main, context: {{cluster: main, user: main}}}}]
clusters: [{{name: main, cluster: {{server: "https://127.0.0.1:{port}"}}}}]
users: [{{name: main, user: {{token: unused}}}}]
"""


def say(text: str) -> None:
    """Print the current step."""
    print(f"wheel: {text}", flush=True)


def fail(reason: str) -> NoReturn:
    """Exit because the check has failed."""
    raise SystemExit(f"wheel: FAILED: {reason}")


def environment() -> dict[str, str]:
    """
    Return our environment without the variables that make Python or our programs use
    the checkout.
    """
    unwanted = ("PYTHON", "VIRTUAL_ENV", "KUBE", "AGENTK_", "STATE_", "NOTIFY_")
    return {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}


def run(*command: str | Path, cwd: str | Path = "/") -> str:
    """Run a command, and return its output."""
    line = [str(part) for part in command]
    try:
        done = subprocess.run(
            line,
            cwd=cwd,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        fail(f"{' '.join(line)}: not done after {COMMAND_TIMEOUT} s")
    if done.returncode:
        output = (done.stdout + done.stderr)[-4000:]
        fail(f"{' '.join(line)}: status {done.returncode}\n{output}")
    return done.stdout


# Checks of the wheels.


def build(project: Path, out: Path, *, compiled: bool = False) -> Path:
    """Build and return the wheel of a project."""
    say(f"building {project.name}{', compiled' * compiled}")
    before = set(out.glob("*.whl"))
    # fmt: off
    run(
        "env", f"TXKAS_COMPILE={compiled:d}",
        sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out,
        project,
    )
    # fmt: on
    (wheel,) = set(out.glob("*.whl")) - before
    return wheel


def check_content(wheel: Path) -> None:
    """Check that a wheel contains the required files and no forbidden ones."""
    say(f"looking into {wheel.name}")
    names = zipfile.ZipFile(wheel).namelist()
    for name in names:
        if name.endswith(FORBIDDEN) or "__pycache__" in name:
            fail(f"{wheel.name} contains {name}")
    for expected in EXPECTED[wheel.name.partition("-")[0]]:
        if not any(name == expected or name.endswith(f"/{expected}") for name in names):
            fail(f"{wheel.name} lacks {expected}")
    top = {name.partition("/")[0] for name in names if ".dist-info" not in name}
    allowed = {"kas", "agentk", "tunnel", "modules", "twisted", "acme_kas"}
    libraries = {name for name in names if name.endswith(".so")}
    if wheel.name.endswith("-none-any.whl"):
        if libraries:
            fail(f"{wheel.name} is for all machines, and has {sorted(libraries)}")
    elif len(libraries) != len(MODULES) + 1:
        fail(f"{wheel.name} has {len(libraries)} compiled files")
    else:
        allowed.update(name for name in libraries if "/" not in name)
    if top - allowed:
        fail(f"{wheel.name} installs {', '.join(sorted(top - allowed))}")


def install(wheels: Sequence[tuple[Path, str]], folder: Path) -> Path:
    """Install the wheels into a new environment; return its folder of programs."""
    say("making a new environment")
    run(sys.executable, "-m", "venv", folder / "venv")
    programs = folder / "venv" / "bin"
    # Hashes are omitted, because with hashes pip requires every requirement of a wheel
    # to be pinned.
    constraints = folder / "constraints.txt"
    locked = (ROOT / "requirements.txt").read_text()
    pins = re.findall(r"^[a-z0-9][^#\n]*==[^\\\n]*", locked, re.MULTILINE)
    constraints.write_text("\n".join(pins))
    for wheel, requirement in wheels:
        say(f"installing {requirement} with the locked versions")
        # fmt: off
        run(
            programs / "python", "-m", "pip", "install", "--quiet",
            "--disable-pip-version-check", "--constraint", constraints,
            f"{requirement} @ {wheel.as_uri()}",
        )
        # fmt: on
    run(programs / "python", "-m", "pip", "check")
    return programs


def check_installed(programs: Path, build_name: str) -> None:
    """
    Check that all modules are found from a working directory outside of the checkout.
    """
    say("looking for the commands and the modules")
    listed = run(programs / "twistd", "--help")
    for command in ("kas", "agentk"):
        if not re.search(rf"^ +{command} +\S", listed, re.MULTILINE):
            fail(f"twistd --help does not list {command}:\n{listed}")
        usage = run(programs / command, "--help").splitlines()
        if not usage[0].startswith(f"Usage: {command} "):
            fail(f"{command} --help begins with {usage[0]!r}")
    version = run(programs / "kasctl", "--version")
    if not re.search(rf"\d+\.\d+\S* \({build_name}\)", version):
        fail(f"kasctl --version says {version!r}")
    for program in ("kas", "agentk"):
        version = run("env", "TXKAS_PURE=1", programs / program, "--version")
        if not re.search(r"\d+\.\d+\S* \(pure\)", version):
            fail(f"TXKAS_PURE=1 {program} --version says {version!r}")
    found = run(programs / "python", "-c", FIND_MODULES).split("\n")
    for half in ("ServerModule", "AgentModule"):
        for name in ("greeter", "kubernetes_api"):
            if f"{half} {name}" not in found:
                fail(f"there is no {half} named {name}: {found}")


# Checks of the programs.


class Program:
    """One of our programs, with its log in a file."""

    def __init__(self, name: str, command: Sequence[str | Path], folder: Path) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as out:
            self._child = subprocess.Popen(
                [str(part) for part in command],
                cwd="/",
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the log matches *pattern*."""
        end = time.monotonic() + PATIENCE
        while (found := re.search(pattern, self.log)) is None:
            if self._child.poll() is not None:
                fail(f"{self.name} ended with {self._child.returncode}:\n{self.log}")
            if time.monotonic() > end:
                fail(f"{self.name} does not say {pattern!r}:\n{self.log}")
            time.sleep(0.05)
        return found

    def port(self, what: str) -> int:
        """Return the port of a listener from the log."""
        return int(self.wait_for(rf"listening for {what} on 127\.0\.0\.1:(\d+)")[1])

    @property
    def log(self) -> str:
        """Return the end of the log."""
        return self._log.read_text(errors="replace")[-20_000:]

    def stop(self) -> int:
        """Stop the program as an operator would, and return its status."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
        try:
            return self._child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            fail(f"{self.name} does not stop:\n{self.log}")

    def kill(self) -> None:
        """Kill the program if it is still running."""
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()


@contextmanager
def running(
    name: str, command: Sequence[str | Path], folder: Path
) -> Iterator[Program]:
    """Run a program until the end of the block."""
    program = Program(name, command, folder)
    try:
        yield program
    finally:
        program.kill()


def get(url: str, token: str) -> tuple[int, Any]:
    """Send a GET without a proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, headers=headers)
    try:
        with opener.open(request, timeout=PATIENCE) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")


def unused_port() -> int:
    """Return a port of loopback without a listener."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def check_running(programs: Path, folder: Path) -> None:
    """
    Start kas and agentk with the module of the example, and call it through the tunnel.
    """
    state = folder / "state"
    for name, content in (
        ("kas.yaml", KAS),
        ("agentk.yaml", AGENTK),
        ("kubeconfig", KUBECONFIG.format(port=unused_port())),
    ):
        (folder / name).write_text(content)
    say("allowing an agent and a user")
    kasctl = (programs / "kasctl",)
    agent_token, user_token = folder / "agent.token", folder / "user.token"
    # fmt: off
    run(
        *kasctl, "agent", "add", "home", "--token-file", agent_token,
        "--state-directory", state,
    )
    run(
        *kasctl, "user", "add", "alice", "--agent", "home", "--as-agent",
        "--token-file", user_token, "--state-directory", state,
    )
    token = user_token.read_text().strip()
    say("starting kas")
    kas_command: list[str | Path] = [
        programs / "kas", "--configuration-file", folder / "kas.yaml",
        "--state-directory", state,
    ]
    with running("kas", kas_command, folder) as kas:
        kas.wait_for("kas is ready")
        api = f"http://127.0.0.1:{kas.port('greeter')}"
        say("starting agentk")
        agentk_command: list[str | Path] = [
            programs / "agentk",
            "--kas-address", f"tls://127.0.0.1:{kas.port('agents')}",
            "--ca-cert-file", state / "ca.crt",
            "--token-file", agent_token,
            "--kubeconfig", folder / "kubeconfig",
            "--configuration-file", folder / "agentk.yaml",
            "--observability-listen-address", "127.0.0.1:0",
        ]
        # fmt: on
        with running("agentk", agentk_command, folder) as agentk:
            agentk.wait_for("connected to kas as agent home")
            check_greeter(api, token)
            say("stopping both")
            for program in (agentk, kas):
                # Both programs end with the signal that they received, after their
                # cleanup.
                if (status := program.stop()) != -signal.SIGTERM:
                    fail(f"{program.name} ended with {status}:\n{program.log}")


def check_greeter(api: str, token: str) -> None:
    """Check that the module works through the tunnel in both directions."""
    say("calling the agent through the tunnel")
    answer = get(f"{api}/greet/home?name=Ada", token)
    if answer != (200, {"text": "Good morning, Ada!"}):
        fail(f"the greeting is {answer}")
    if (refusal := get(f"{api}/greet/home?name=Ada", "wrong"))[0] != 401:
        fail(f"a stranger gets {refusal}")
    say("waiting for what the agent reports")
    end = time.monotonic() + PATIENCE
    while (seen := get(f"{api}/sightings/home", token)) != (200, {"names": ["Ada"]}):
        if time.monotonic() > end:
            fail(f"the agent's report did not arrive: {seen}")
        time.sleep(0.05)


def main() -> None:
    """Run all checks."""
    began = time.monotonic()
    # SIGTERM raises an exception, so that the programs end and the folder is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("wheel: told to stop"))
    with tempfile.TemporaryDirectory(prefix="txkas-wheel-") as name:
        folder = Path(name)
        example = folder / EXAMPLE.name
        shutil.copytree(EXAMPLE, example)
        # This file exists after a test run of the module, and outside of Git no rule
        # ignores it.
        (example / "twisted" / "plugins" / "dropin.cache").touch()
        theirs = build(example, folder / "dist")
        check_content(theirs)
        say("running the tests of the example")
        # -m puts the example's folder on the path.
        tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
        run(sys.executable, *tests, cwd=EXAMPLE)
        for build_name in ("pure", "compiled"):
            part = folder / build_name
            part.mkdir()
            ours = build(ROOT, part / "dist", compiled=build_name == "compiled")
            check_content(ours)
            programs = install(
                [(ours, "txkas[server,agent]"), (theirs, "acme-kas[server]")], part
            )
            check_installed(programs, build_name)
            check_running(programs, part)
    say(f"good, after {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
