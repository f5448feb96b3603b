"""``kasctl doctor``: checks for every fault that can keep kas from working."""

from __future__ import annotations

import functools
import hashlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import attrs
import click
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from kas.config.schema import KasConfiguration, read_configuration_file
from kas.ctl import agents
from kas.ctl.checks import TIMEOUT, NoAnswer, fetch, named_certificates, unanswered
from kas.ctl.common import Ctl, command, counted, pid_option, printable
from kas.ctl.control_client import ask
from kas.identity.store import IdentityStore
from kas.state import pki
from kas.state.directory import StateDirectory
from kas.state.process_socket import path_of
from kas.state.running import (
    AGENTS,
    EXTERNAL_API,
    KUBERNETES_API,
    OBSERVABILITY,
    OTHER_KAS,
    WEB,
    Running,
)
from tunnel.config import Listen, expiry_problem, validity
from tunnel.config.certificates import EXPIRY_NOTICE
from tunnel.errors import ConfigurationError, TunnelError
from tunnel.program.opened import Opened
from tunnel.toolkit.files import in_words
from tunnel.transport.tls import ALPN_TUNNEL

__all__ = ["declare"]

#: Maximum seconds for all checks together that wait for a response.
PATIENCE = 3.5

#: Maximum number of agents' problems that are shown.
SHOWN_PROBLEMS = 20

_T = TypeVar("_T")

#: Names of listeners, as used by a running kas and in a configuration file.
_NAMES = {
    KUBERNETES_API: "API proxy",
    "agent.kubernetes_api.listen": "API proxy",
    EXTERNAL_API: "external API",
    "api.listen": "external API",
    OTHER_KAS: "private API port",
    "private_api.listen": "private API port",
    WEB: "pages",
    "web.listen": "pages",
}


@attrs.frozen
class Finding:
    """One line of the report."""

    check: str
    ok: bool
    message: str


class _Wrong(TunnelError):
    """Error for a problem that a check found; the text tells the user what to do."""


def declare(group: click.Group) -> None:
    """Add the command to *group*."""
    command(group, "doctor")(doctor)


@click.option(
    "--configuration-file",
    type=click.Path(),
    help=(
        "The configuration file that kas was started with  [default: the addresses "
        "of the running kas, or else the defaults]"
    ),
)
@pid_option
def doctor(ctl: Ctl, configuration_file: str | None, pid: int | None) -> None:
    """
    Check state, certificates, ports, agents and Redis; exit with 1 if any check fails,
    else 0.
    """
    if configuration_file is not None and pid is not None:
        raise ConfigurationError(
            ["--pid already selects a kas; pass only one of the two"]
        )
    running = None if configuration_file is not None else ctl.running(pid)
    findings = []
    for finding in _Doctor(ctl, configuration_file, running).findings():
        findings.append(finding)
        if not ctl.as_json:
            # Print each finding at once, because some of the next checks take seconds.
            word = "ok  " if finding.ok else "FAIL"
            ctl.result(None, f"{word}  {finding.check}: {finding.message}")
    ok = all(finding.ok for finding in findings)
    if ctl.as_json:
        checks = [attrs.asdict(finding) for finding in findings]
        ctl.result({"ok": ok, "checks": checks}, "")
    if not ok:
        raise SystemExit(1)


@attrs.define(eq=False)
class _Asked(Generic[_T]):
    """
    Slow operation that runs in a thread, which does not keep the program from ending.
    """

    check: Callable[[], _T]
    _done: threading.Event = attrs.field(factory=threading.Event, init=False)
    _result: _T | None = attrs.field(default=None, init=False)
    _error: Exception | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._result = self.check()
        except Exception as error:
            self._error = error
        self._done.set()

    def result(self, until: float) -> _T:
        """
        Return the result of the operation.

        :param until: the time at which to give up, by `time.monotonic`.
        """
        if not self._done.wait(max(0.0, until - time.monotonic())):
            raise _Wrong(f"no response within {PATIENCE:g} s; does kas hang?")
        if self._error is not None:
            raise self._error
        return cast("_T", self._result)


class _Doctor:
    """
    Runner of the checks.  Each check explains failures of later checks.
    """

    def __init__(self, ctl: Ctl, file: str | None, running: Running | None) -> None:
        self._ctl = ctl
        self._file = file
        self._configuration = KasConfiguration()
        self._listens: list[tuple[str, Listen]] = []
        self._running = running
        self._state: StateDirectory | None = None
        self._agents = 0

    def findings(self) -> Iterator[Finding]:
        """Run every check, regardless of the results of earlier checks."""
        for name, check in (
            ("configuration", self._check_configuration),
            ("state directory", self._check_state),
            ("identity file", self._check_identity),
            ("certificate", self._check_certificate),
        ):
            yield _finding(name, check)
        for name, path in self._other_certificates():
            yield _finding(name, functools.partial(self._check_dates, path))
        # Start all slow operations at once, so that a kas that does not respond costs
        # its timeout only once.
        until = time.monotonic() + PATIENCE
        kas = self._whom_to_ask()
        about = [_Asked(functools.partial(self._ask, one)) for one in kas[:1]]
        everyone = _Asked(lambda: agents.look(self._ctl, kas))
        asked = [(name, _Asked(check)) for name, check in self._ports()]
        for name, one in asked:
            yield _finding(name, functools.partial(one.result, until))
        if not kas:
            return
        if not path_of(self._ctl.existing(), kas[0].pid).exists():
            # kas did not open the socket; its log contains the reason.
            text = "not checked: kas has no control socket"
            yield Finding("agents and other kas", True, text)
            return
        yield _finding("agents", lambda: self._check_agents_of(everyone.result(until)))
        for answer in about:
            try:
                known = answer.result(until)
            except (TunnelError, OSError) as error:
                yield Finding("other kas", False, in_words(error))
            else:
                yield from (_finding(*check) for check in _checks_of_others(known))

    def _ask(self, kas: Running) -> dict[str, Any]:
        return ask(path_of(self._ctl.existing(), kas.pid), "GET", "/peers")

    def _whom_to_ask(self) -> list[Running]:
        """Return the selected kas first, and then the other kas that run here."""
        found = list(self._ctl.all_running())
        if self._running is not None:
            mine = [one for one in found if one.pid == self._running.pid]
        else:
            wanted = _address(self._configuration.agent.listen)
            mine = [one for one in found if _agents_at(one) == wanted]
        return [*mine, *(one for one in found if one not in mine)]

    def _ports(self) -> list[tuple[str, Callable[[], str]]]:
        checks: list[tuple[str, Callable[[], str]]] = [
            ("agent listener", self._check_agents),
            ("liveness", lambda: self._check_probe("liveness")),
            ("readiness", lambda: self._check_probe("readiness")),
        ]
        if self._running is not None:
            return checks + [
                (
                    _NAMES.get(one.what, one.what),
                    functools.partial(
                        _check_port,
                        _connectable(one.address),
                        one.certificate_file is not None,
                    ),
                )
                for one in self._running.listeners
                if one.what not in (AGENTS, OBSERVABILITY)
            ]
        for place, listen in self._listens:
            if place in ("agent.listen", "observability.listen"):
                continue
            name = _NAMES.get(place, place)
            where = _address(listen)
            if where is None:
                text = f"{listen.endpoint_string()} cannot be checked"
                checks.append((name, functools.partial(str, text)))
            else:
                check = functools.partial(_check_port, where, listen.tls)
                checks.append((name, check))
        return checks

    def _other_certificates(self) -> list[tuple[str, Path]]:
        """
        Return the operator's certificates, except the certificate of the agents'
        listener, because a separate check exists for it.
        """
        if self._running is not None:
            found = [
                (f"certificate of {_NAMES.get(one.what, one.what)}", file)
                for one in self._running.listeners
                if (file := one.certificate_file) is not None
            ]
        else:
            found = [
                (f"certificate {place}", file)
                for place, file in named_certificates(self._listens)
            ]
        seen = {self._own_certificate(), self._certificate_path()}
        others = []
        for name, file in found:
            if file not in seen:
                seen.add(file)
                others.append((name, file))
        return others

    def _own_certificate(self) -> Path | None:
        """Return the certificate that kas created and renews; None if there is none."""
        state = self._state
        return None if state is None else state.file(pki.SERVER_CERTIFICATE)

    def _check_dates(self, path: Path) -> str:
        if problem := expiry_problem(path, self._ctl.now().timestamp()):
            raise _Wrong(problem)
        return f"{path} is valid until {validity(path)[1]:%Y-%m-%d}"

    def _check_configuration(self) -> str:
        # Imported here, because it imports every module that the file enables.
        from kas.config.loading import listeners, load
        from kas.workers.folder import check_path
        from kas.workers.sharing import check_listeners

        if self._running is not None:
            return (
                f"process {self._running.pid} runs with the configuration of its "
                "start; 'kasctl config check FILE' checks a file for the next start"
            )
        # Read the file separately: if this succeeds, it shows which addresses to check,
        # even if load() reports other problems.
        self._configuration = read_configuration_file(self._file)
        self._listens = list(listeners(self._configuration, []))
        _, modules = load(self._file)
        self._listens = list(listeners(self._configuration, modules))
        check_listeners(self._configuration, modules, self._file)
        check_path(self._ctl.path(), self._configuration.workers)
        if self._file is None:
            for one in self._ctl.leaving():
                raise _Wrong(
                    f"kas {one} is stopping, and no other kas runs; see 'kasctl status'"
                )
            return "no file given, and no kas runs: checking the defaults"
        return f"{self._file} is valid"

    def _check_agents_of(self, known: agents.Known | None) -> str:
        if known is None or not known.answered:
            why = "; ".join(known.problems) if known is not None else ""
            raise _Wrong(
                f"kas does not report which agents are connected: {why or 'see above'}"
            )
        missing = "; ".join(known.problems)
        some = known.connected
        if self._agents and not some and not missing:
            seen = sorted(agents.row(one)[1] for one in known.agents.values())
            last = f" ({seen[-1]})" if len(seen) == 1 else ""
            raise _Wrong(
                f"none of {counted(self._agents, 'agent')} is connected{last}; see "
                "'kasctl agent list', and the log of agentk for the reason"
            )
        text = f"{len(some)} of {counted(self._agents, 'agent')} connected"
        return f"{text}; {missing}" if missing else text

    def _check_state(self) -> str:
        path = self._ctl.path()
        if not path.exists():
            raise _Wrong(f"{path} does not exist; start kas once, or add an agent")
        self._state = StateDirectory.open(path, create=False)
        return f"{path} is writable only for its owner"

    def _check_identity(self) -> str:
        if self._state is None:
            raise _Wrong("needs the state directory")
        found = IdentityStore(self._state, self._ctl.now).load()
        count = sum(agent.revoked_at is None for agent in found.agents)
        users = sum(user.revoked_at is None for user in found.users)
        self._agents = count
        if not count:
            raise _Wrong(
                "no agent may connect yet; add one with 'kasctl agent add NAME'"
            )
        return f"{counted(count, 'agent')} and {counted(users, 'user')} may connect"

    def _listener(self, what: str) -> Opened | None:
        return None if self._running is None else self._running.find(what)

    def _certificate_path(self) -> Path | None:
        if (found := self._listener(AGENTS)) is not None:
            return found.certificate_file
        listen = self._configuration.agent.listen
        if listen.own_certificate:
            return self._state.file(pki.SERVER_CERTIFICATE) if self._state else None
        return listen.certificate_file

    def _load_certificate(self) -> x509.Certificate | None:
        path = self._certificate_path()
        if path is None:
            return None
        try:
            return x509.load_pem_x509_certificate(path.read_bytes())
        except FileNotFoundError:
            raise _Wrong(f"{path} does not exist; start kas once to make it") from None
        except ValueError:
            raise _Wrong(f"{path} is not a PEM certificate; replace it") from None

    def _check_certificate(self) -> str:
        certificate = self._load_certificate()
        if certificate is None:
            own = self._configuration.agent.listen.own_certificate
            if own and self._listener(AGENTS) is None:
                raise _Wrong("needs the state directory")
            return "none configured: agents connect without TLS"
        path = self._certificate_path()
        end = certificate.not_valid_after_utc
        left = end - self._ctl.now()
        if path is not None and path != self._own_certificate():
            self._check_dates(path)
        problem = None
        if self._state is not None and path == self._own_certificate():
            problem = pki.renewal_problem(self._state, self._ctl.now())
        if problem is not None:
            when = "expired" if left <= timedelta(0) else "expires"
            raise _Wrong(f"{problem}; the certificate {when} on {end:%Y-%m-%d}")
        if left <= timedelta(0):
            raise _Wrong(f"{path} expired at {end}; restart kas, which renews it")
        if certificate.not_valid_before_utc > self._ctl.now():
            raise _Wrong(f"{path} is not valid yet; is the clock right?")
        if left < EXPIRY_NOTICE:
            # kas renews its certificate a month before its expiry.
            raise _Wrong(
                f"{path} expires in {left.days} days, and kas did not renew it: see "
                "its log"
            )
        pin = pki.certificate_pin(certificate.public_bytes(Encoding.DER))
        return f"{path} is valid for {left.days} days, pin {pin}"

    def _check_agents(self) -> str:
        listen = self._configuration.agent.listen
        found = self._listener(AGENTS)
        where = _address(listen) if found is None else _connectable(found.address)
        if where is None:
            return f"{listen.endpoint_string()} cannot be checked"
        family, address, shown = where
        tls = listen.tls if found is None else found.certificate_file is not None
        try:
            with socket.socket(family, socket.SOCK_STREAM) as plain:
                plain.settimeout(TIMEOUT)
                plain.connect(address)
                if not tls:
                    return f"{shown} accepts connections, without TLS"
                try:
                    return f"{shown}: {self._handshake(plain)}"
                except TimeoutError:
                    raise _Wrong(unanswered(shown)) from None
        except ssl.SSLError as error:
            raise _Wrong(
                f"{shown}: the TLS handshake failed ({error.reason or error}); is "
                "another program listening there?"
            ) from None
        except OSError as error:
            raise _Wrong(
                f"{shown} does not accept connections ({error.strerror or error}); is "
                "kas running, and is agent.listen.address that one?"
            ) from None

    def _handshake(self, plain: socket.socket) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_alpn_protocols([ALPN_TUNNEL])
        # Accept any certificate, because it is compared below; its name and CA matter
        # only to clients.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with context.wrap_socket(plain) as secure:
            served = secure.getpeercert(binary_form=True) or b""
            protocol, version = secure.selected_alpn_protocol(), secure.version()
        if protocol != ALPN_TUNNEL:
            raise _Wrong("another program than kas listens there; choose another port")
        expected = self._load_certificate()
        if expected is not None:
            own = expected.public_bytes(Encoding.DER)
            if hashlib.sha256(own).digest() != hashlib.sha256(served).digest():
                raise _Wrong(
                    "it presents another certificate than "
                    f"{self._certificate_path()}; was kas started with another state "
                    "directory or file?"
                )
        return f"{version} with the expected certificate"

    def _check_probe(self, name: str) -> str:
        observability = self._configuration.observability
        listen = observability.listen
        found = self._listener(OBSERVABILITY)
        where = _address(listen) if found is None else _connectable(found.address)
        if where is None or where[0] == socket.AF_UNIX:
            return f"{listen.endpoint_string()} cannot be checked"
        tls = listen.tls if found is None else found.certificate_file is not None
        scheme = "https" if tls else "http"
        probe = getattr(observability, f"{name}_probe")
        url = f"{scheme}://{where[2]}"
        code, body = fetch(url, probe.url_path, option="--configuration-file")
        if code != 200:
            said = printable(body[:800].decode("utf-8", "replace").strip())
            hint = "see kas' log"
            if code == 404 and self._file is None:
                hint = "if its path differs, pass --configuration-file"
            raise NoAnswer(
                f"{url}{probe.url_path} responds with {code}: {said}; {hint}"
            )
        return f"{url}{probe.url_path} reports success"


def _finding(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, check())
    except (TunnelError, OSError) as error:
        return Finding(name, False, in_words(error).replace("\n", "; "))


def _agents_at(kas: Running) -> tuple[int, Any, str] | None:
    found = kas.find(AGENTS)
    return None if found is None else _connectable(found.address)


def _check_port(where: tuple[int, Any, str], tls: bool) -> str:
    family, address, shown = where
    try:
        with socket.socket(family, socket.SOCK_STREAM) as plain:
            plain.settimeout(TIMEOUT)
            plain.connect(address)
    except OSError as error:
        raise _Wrong(
            f"{shown} does not accept connections ({error.strerror or error}); see "
            "kas' log"
        ) from None
    return f"{shown} accepts connections, {'with' if tls else 'without'} TLS"


def _checks_of_others(about: dict[str, Any]) -> list[tuple[str, Callable[[], str]]]:
    """Return the checks of what the running kas knows about other programs."""
    checks: list[tuple[str, Callable[[], str]]] = [
        ("clusters", functools.partial(_check_clusters, about)),
        ("modules of agents", functools.partial(_check_modules, about)),
    ]
    if "silent_workers" in about:
        checks.insert(0, ("workers", functools.partial(_check_workers, about)))
    if "own_url" not in about:
        return checks
    checks.append(("private API", functools.partial(_check_private, about)))
    if "redis" in about:
        checks.append(("Redis", functools.partial(_check_redis, about["redis"])))
    return [*checks, ("peers", functools.partial(_check_peers, about))]


def _check_workers(about: dict[str, Any]) -> str:
    if silent := about["silent_workers"]:
        raise _Wrong(
            f"{counted(silent, 'worker')} did not answer; kas replaces a dead worker "
            "at once and a hanging worker after 15 seconds, and logs it; try again"
        )
    return "all workers respond"


def _check_clusters(about: dict[str, Any]) -> str:
    problems = about.get("cluster_problems", {})
    if problems:
        found = (
            f"agentk {printable(name)} {printable(why)}"
            for name, why in sorted(problems.items())
        )
        raise _Wrong("; ".join(found))
    return "every agent that is connected to this kas reaches its cluster"


def _check_modules(about: dict[str, Any]) -> str:
    problems = about.get("agent_problems", {})
    if problems:
        found = [
            f"agent {printable(name)}: {printable(why)}"
            for name, why in sorted(problems.items())
        ]
        more = len(found) - SHOWN_PROBLEMS
        text = "; ".join(found[:SHOWN_PROBLEMS])
        raise _Wrong(f"{text}; and {more} more" if more > 0 else text)
    return "no agent that is connected to this kas reports a problem"


def _check_private(about: dict[str, Any]) -> str:
    if "redis" not in about:
        raise _Wrong(
            f"other kas would reach this one at {about['own_url']}, but cannot learn "
            "of it without 'redis'; add that section"
        )
    return f"other kas reach this one at {about['own_url']}"


def _check_redis(redis: dict[str, Any]) -> str:
    if not redis["up"]:
        raise _Wrong(f"down: {redis['reason']}")
    if not redis["news"]:
        raise _Wrong(
            "up, but no notifications arrive; may kas subscribe?  See its log, and "
            "the required permissions under 'Redis' in the documentation"
        )
    return "up"


def _check_peers(about: dict[str, Any]) -> str:
    known, missed = about["peers"], about["unreachable_peers"]
    problems = about.get("peer_problems", {})
    compare = "compare own addresses, certificates, secrets and clocks"
    if refused := about.get("refused_peer"):
        raise _Wrong(
            f"this kas refused another one, {printable(refused)}; others do not reach "
            f"its agents: {compare}"
        )
    if missed:
        found = (f"{url} {problems.get(url) or 'cannot be reached'}" for url in missed)
        raise _Wrong(f"{', '.join(found)}; see the log of both, and {compare}")
    sessions = counted(about["peer_sessions"], "session")
    text = f"{known} other kas known, {sessions} connected; others connect when needed"
    # The problems existed a moment ago, when this kas tried to connect to all
    # addresses, but may have ended.
    found = (f"when last dialled, {url} {why}" for url, why in sorted(problems.items()))
    return "; ".join([text, *found, *([compare] if problems else [])])


def _address(listen: Listen) -> tuple[int, Any, str] | None:
    """
    Return the family and address to connect to, and the address as text; None for an
    endpoint that only Twisted can parse.
    """
    if listen.endpoint:
        return None
    if listen.network == "unix":
        return socket.AF_UNIX, listen.address, listen.address
    host, _, port = listen.address.rpartition(":")
    if host == "" and listen.network == "tcp6":
        host = "[::]"
    return _connectable(f"{host}:{port}")


def _connectable(address: str) -> tuple[int, Any, str]:
    """
    Return the family, the address, and the address as text, for ``host:port`` or the
    path of a Unix socket.
    """
    if address.startswith("/"):
        return socket.AF_UNIX, address, address
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if host in ("", "0.0.0.0"):  # noqa: S104 - where it listens, not we
        host = "127.0.0.1"
    elif host == "::":
        host = "::1"
    if ":" in host:
        return socket.AF_INET6, (host, int(port)), f"[{host}]:{port}"
    return socket.AF_INET, (host, int(port)), f"{host}:{port}"
