"""The owner's policy in effect: loading, reloading, and deciding on requests."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any, Final

import attrs
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from agentk.config import PolicySettings
from agentk.policy.document import MAX_FILE, PolicyFile
from agentk.policy.engine import Engine, PolicyDecision
from agentk.policy.floor import Floor
from agentk.policy.questions import (
    Question,
    identity_of,
    impersonation_in,
    questions_of,
)
from agentk.policy.signature import (
    MAX_TEXT,
    SignatureError,
    check_signatures,
    read_signers,
)
from agentk.policy.state import ClusterState
from agentk.policy.via import Via
from tunnel.config import read
from tunnel.errors import CallError, ConfigurationError, Status
from tunnel.http1 import ResponseReceiver, UpstreamError, UpstreamPool
from tunnel.kubernetes import OwnerDenial, RequestOrigin, Right
from tunnel.toolkit.files import FileVersion, file_version
from tunnel.toolkit.log_budget import LogBudget
from tunnel.toolkit.recent import Recent

__all__ = ["PolicyCollector", "PolicyGuard"]

#: Seconds between two checks of the files.
LOOK_SECONDS: Final = 10.0

#: Seconds between two searches for roles that are bound to agentk's account.
ROLES_SECONDS: Final = 600.0

#: Maximum seconds that the first attempt to load the policy delays the start.
START_SECONDS: Final = 10.0

#: Maximum number of permitted requests that are remembered, and of bytes of their
#: targets and users: clients repeat a few requests all the time.
MAX_PERMITTED: Final = 500
MAX_KNOWN: Final = 4096

#: Seconds for which permitted requests are remembered: their heads may contain secrets
#: of a client that has disconnected.
KNOWN_SECONDS: Final = 60.0

#: Seconds after the beginning of a minute at which windows are checked: the time of day
#: may be read a moment too early.
LATE: Final = 0.05


#: Reason of denials while agentk has no policy.
_UNREAD: Final = (
    "agentk cannot use the policy of the cluster's owner; the owner finds the reason "
    "in its log and at /readiness"
)


@attrs.frozen
class _Loaded:
    """
    A policy in effect.

    :ivar signers: the owners of the keys that signed it.
    """

    engine: Engine
    serial: int
    digest: str
    signers: tuple[str, ...]


@attrs.define(eq=False)
class PolicyGuard:
    """
    The policy of the cluster's owner: a `tunnel.kubernetes.RequestGuard`.

    `_decide` is the only place that decides.

    :param settings: the files.
    :param state: the state in the cluster.
    :param floor: what no policy permits.
    :param pool: the connections whose requests end when the policy denies them.
    :param path_prefix: the prefix of the API server's paths.
    :param clock: the clock for durations.
    :param now: returns the time in seconds since 1970.
    :param changed: called when `problem` has changed.
    :param via: marks requests for admission; None without an admission webhook.
    :ivar problem: why the files are not in effect; empty if they are.
    """

    settings: PolicySettings
    state: ClusterState
    floor: Floor
    pool: UpstreamPool
    path_prefix: str
    clock: IReactorTime
    now: Callable[[], float]
    changed: Callable[[], object] = lambda: None
    via: Via | None = None
    problem: str = "agentk has not read the policy yet"
    #: Number of decisions by result: allowed, denied, or warned.
    results: Counter[str] = attrs.field(factory=Counter)
    #: Number of decisions at admission by result, in the same words.
    admissions: Counter[str] = attrs.field(factory=Counter)
    #: Number of running requests that ended because the policy denies them now.
    ended: int = 0
    _loaded: _Loaded | None = None
    #: Time of day of the next check of windows.
    _due: float = float("inf")
    _version: object = None
    #: Version of the files at the last look.
    _seen: tuple[FileVersion, ...] | None = None
    _loading: Deferred[None] | None = None
    _timer: IDelayedCall | None = None
    #: Permitted requests; emptied by each change of the policy, and every minute.
    _permitted: Recent[Any, None] = attrs.field(
        factory=lambda: Recent(MAX_PERMITTED), init=False
    )
    _emptied_at: float = 0.0
    #: Time at which the roles of agentk's account were read, and whether that failed.
    _protected_at: float = 0.0
    _complained: bool = False
    _budget: LogBudget = attrs.field(factory=LogBudget)
    _log = Logger()

    # Loading.

    async def start(self) -> None:
        """
        Read the policy; if the cluster does not answer in time, continue without it.
        """
        self._look()
        loading = self._loading
        if loading is not None:
            waiting: Deferred[None] = Deferred()

            def ended(_: object) -> None:
                if not waiting.called:
                    waiting.callback(None)

            loading.addBoth(ended)
            waiting.addTimeout(START_SECONDS, self.clock, lambda *_: None)
            await waiting
        self._tick()

    def stop(self) -> None:
        """Stop looking for changes; the policy stays in effect."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._loading is not None:
            self._loading.cancel()

    @property
    def is_enforced(self) -> bool:
        """Whether a policy is in effect."""
        return self._loaded is not None

    @property
    def serial(self) -> int:
        """The serial of the policy in effect; -1 without one."""
        return -1 if self._loaded is None else self._loaded.serial

    @property
    def expires(self) -> float:
        """Seconds since 1970 at which the policy expires; infinite if it does not."""
        policy = None if self._loaded is None else self._loaded.engine.policy
        end = policy.expires if policy is not None else None
        return float("inf") if end is None else end.timestamp()

    def _look(self) -> None:
        """Load the files if they have changed, or could not be checked before."""
        if self._loading is not None:
            return
        version = tuple(map(file_version, self.settings.files))
        is_whole = self._is_whole(version)
        is_new = version != self._version and is_whole
        if not (is_new or self._is_protection_old):
            return
        working = self._work(version, is_new)
        loading = self._loading = Deferred.fromCoroutine(working)
        loading.addBoth(self._load_ended)

    @property
    def _is_protection_old(self) -> bool:
        return self.clock.seconds() - self._protected_at >= ROLES_SECONDS

    async def _work(self, version: object, is_new: bool) -> None:
        if is_new:
            await self._load(version)
        # A policy that cannot be used must not keep the protection from its renewal.
        if self._is_protection_old:
            await self._protect_roles()

    def _is_whole(self, version: tuple[FileVersion, ...]) -> bool:
        """
        Return whether no program seems to be writing a policy without a signature.

        Half of a file may be a valid policy without its last deny rules.  So a file
        that was changed in place has to be the same at two looks.

        :param version: the version of the policy, and of the files with signatures.
        """
        seen, self._seen = self._seen, version
        if seen is None or self.settings.keys is not None:
            return True
        [before], [now] = seen, version
        if before is None or now is None:
            return before == now
        # The number of `reread_files` is no change, and another inode is another file,
        # which replaced the first as a whole.
        return before[:3] == now[:3] or before[1] != now[1]

    def _load_ended(self, result: object) -> None:
        self._loading = None
        if isinstance(result, Failure) and not result.check(CancelledError):
            self._log.failure("loading the policy failed", result)
            self._refuse("an internal error; see the log of agentk")

    async def _load(self, version: object) -> None:
        try:
            loaded = self._read()
        except ConfigurationError as error:
            # Only other files can change this.
            self._version = version
            self._refuse(str(error))
            return
        except SignatureError as error:
            # A key may become valid.
            self._refuse(str(error))
            return
        try:
            await self._admit(loaded)
        except ConfigurationError as error:
            # The owner may change the Secret with the serial.
            self._refuse(str(error))
        except CallError as error:
            self._refuse(f"the API server: {error.message}")
        else:
            self._version = version
            await self._protect_roles()
            self._take(loaded)

    def _read(self) -> _Loaded:
        """
        Return the policy of the files.

        :raises ConfigurationError: a file is unusable.
        :raises SignatureError: the signatures do not suffice now.
        """
        settings = self.settings
        assert settings.file is not None
        data = _read(settings.file, MAX_FILE)
        # Signatures come first: nothing else reads a file that its owner did not sign.
        signers: tuple[str, ...] = ()
        if settings.keys is not None:
            keys = read_signers(_text(settings.keys, MAX_TEXT), str(settings.keys))
            signature = _text(settings.signature_file, MAX_TEXT)
            try:
                signers = check_signatures(
                    data, signature, keys, settings.signatures, self.now()
                )
            except SignatureError as error:
                raise SignatureError(f"{settings.signature_file}: {error}") from None
        policy = read(_decoded(data, settings.file), str(settings.file), PolicyFile)
        if settings.keys is not None and not (policy.clusters and policy.serial):
            raise ConfigurationError(
                [f"{settings.file}: a signed policy needs clusters and a serial"]
            )
        digest = hashlib.sha256(data).hexdigest()
        return _Loaded(Engine(policy), policy.serial, digest, signers)

    async def _admit(self, loaded: _Loaded) -> None:
        """
        Check that a policy is for this cluster, and not older than the last one.

        :raises ConfigurationError: it is not, or the cluster's record is damaged.
        :raises CallError: the API server did not answer.
        """
        settings, clusters = self.settings, loaded.engine.policy.clusters
        if clusters:
            uid = await self.state.uid()
            if uid not in clusters:
                raise ConfigurationError(
                    [
                        f"{settings.file}: clusters: the policy is for another cluster;"
                        f" the uid of kube-system is {uid!r}"
                    ]
                )
        if settings.keys is not None:
            await self.state.accept(loaded.serial, loaded.digest)

    async def _protect_roles(self) -> None:
        """Find the roles of agentk's account, which no policy lets kas change."""
        self._protected_at = self.clock.seconds()
        try:
            objects = await self.state.own_roles()
        except (CallError, KeyError, TypeError) as error:
            if not self._complained:
                self._complained = True
                self._log.warn(
                    "agentk cannot protect the roles of its own account: {reason}; "
                    "grant it list of clusterrolebindings and rolebindings",
                    reason=str(error),
                )
            return
        self._complained = False
        if objects != self.floor.objects:
            self.floor.objects = objects
            self._permitted.clear()

    def _take(self, loaded: _Loaded) -> None:
        self._loaded = loaded
        self.problem = ""
        engine = loaded.engine
        engine.tick(self.now())
        self._log.info(
            "the policy of the cluster's owner is in effect: serial {serial}, {rules} "
            "rules, sha256 {digest}{signed}{warns}",
            serial=loaded.serial,
            rules=len(engine.policy.rules),
            digest=loaded.digest,
            signed=f", signed by {', '.join(loaded.signers)}" if loaded.signers else "",
            warns="; it only warns" if engine.policy.mode == "warn" else "",
        )
        self._permitted.clear()
        self._plan()
        self._end_denied()
        self.changed()

    def _refuse(self, problem: str) -> None:
        if problem == self.problem:
            return
        self.problem = problem
        self._log.error(
            "the policy of the cluster's owner cannot be used: {problem}; {stays}",
            problem=problem,
            stays="the previous policy stays in effect"
            if self._loaded
            else "all requests are denied",
        )
        self.changed()

    # Time.

    def _tick(self) -> None:
        """Check files and windows, and plan the next check."""
        try:
            self._look()
            self._turn()
        except Exception:
            # The checks have to go on.
            self._log.failure("checking the policy failed")
        if self.clock.seconds() - self._emptied_at >= KNOWN_SECONDS:
            self._emptied_at = self.clock.seconds()
            self._permitted.clear()
        seconds = LOOK_SECONDS
        if self._due != float("inf"):
            seconds = min(seconds, max(self._due - self.now(), 0.0) + LATE)
        self._timer = self.clock.callLater(seconds, self._tick)

    def _turn(self) -> None:
        """Adapt the policy to the time of day."""
        loaded, now = self._loaded, self.now()
        # A clock that was set back needs a check, too.
        if loaded is not None and (now >= self._due or now < self._due - 60):
            self._plan()
            if loaded.engine.tick(now):
                self._permitted.clear()
                self._end_denied()

    def _plan(self) -> None:
        timed = self._loaded is not None and self._loaded.engine.timed
        self._due = (self.now() // 60 + 1) * 60 if timed else float("inf")

    # Decisions.

    def _decide(self, question: Question) -> PolicyDecision:
        """Decide on one request."""
        why = self.floor.why_refused(question)
        if why:
            return PolicyDecision(False, "floor", why)
        if self.floor.is_record(question):
            return PolicyDecision(True, "records")
        if question.identity.problem:
            return PolicyDecision(False, "identities", question.identity.problem)
        if self._loaded is None:
            # Users must not see the problem: it names files of agentk.
            return PolicyDecision(False, "", _UNREAD)
        return self._loaded.engine.decide(question)

    def _enforce(self, question: Question) -> None:
        """
        Decide on one request, and count it.

        :raises OwnerDenial: the policy denies it.
        """
        decision = self._decide(question)
        if decision.allowed:
            self.results["allowed"] += 1
            return
        warns = self._warns(decision)
        self.results["warned" if warns else "denied"] += 1
        left_out = self._budget.spend(self.clock.seconds())
        if left_out is not None:
            identity = question.identity
            self._log.warn(
                "the policy of the cluster's owner {denies} {what} for {who} (module "
                "{module}): {reason}{left_out}",
                denies="would deny" if warns else "denied",
                what=question.what,
                who="agentk itself" if identity.user is None else repr(identity.user),
                module=question.origin.module,
                reason=decision.reason,
                left_out=left_out,
            )
        if not warns:
            raise _denial(question, decision, self._loaded is None)

    def _questions(
        self,
        origin: RequestOrigin,
        method: bytes,
        target: bytes,
        fields: bytes,
        upgrade: bool,
    ) -> Iterable[Question]:
        prefix = self.path_prefix.encode()
        if not target.startswith(prefix + b"/"):
            identity = attrs.evolve(
                identity_of(fields), problem="its path leads out of the API server"
            )
        else:
            identity = identity_of(fields)
            target = target[len(prefix) :]
        return questions_of(origin, identity, method, target, fields, upgrade)

    def check(
        self,
        origin: RequestOrigin,
        method: bytes,
        target: bytes,
        fields: bytes,
        upgrade: bool,
    ) -> None:
        """See `tunnel.kubernetes.RequestGuard`."""
        if self._due != float("inf"):
            self._turn()
        user = impersonation_in(fields)
        key = origin, method, target, user, upgrade
        if key in self._permitted:
            self.results["allowed"] += 1
            return
        for question in self._questions(origin, method, target, fields, upgrade):
            self._enforce(question)
        # Whether a PATCH may create depends on its content type.
        if method != b"PATCH" and len(target) + len(user) <= MAX_KNOWN:
            self._permitted[key] = None

    def check_right(self, origin: RequestOrigin, fields: bytes, right: Right) -> None:
        """See `tunnel.kubernetes.RequestGuard`."""
        if self._due != float("inf"):
            self._turn()
        self._enforce(Question.about(origin, identity_of(fields), right))

    def check_service(
        self, origin: RequestOrigin, namespace: str, name: str, port: int
    ) -> None:
        """See `tunnel.kubernetes.RequestGuard`."""
        if self._due != float("inf"):
            self._turn()
        self._enforce(Question.to_service(origin, namespace, name, port))

    def marked(self, fields: bytes) -> bytes:
        """See `tunnel.kubernetes.RequestGuard`."""
        return fields if self.via is None else self.via.marked(fields)

    # Admission.

    @property
    def modules(self) -> frozenset[str]:
        """The modules that rules of the policy name."""
        return frozenset() if self._loaded is None else self._loaded.engine.modules

    def admit(self, alternatives: Iterable[Question]) -> PolicyDecision:
        """
        Decide on a request that came through agentk, at its admission.

        If the policy only warns, the decision permits the request and has a reason.

        :param alternatives: what the request may be; it is permitted if any of them is.
        """
        if self._due != float("inf"):
            self._turn()
        denied: PolicyDecision | None = None
        for question in alternatives:
            decision = self._decide(question)
            if decision.allowed:
                self.admissions["allowed"] += 1
                return decision
            denied = denied or decision
        assert denied is not None
        warns = self._warns(denied)
        self.admissions["warned" if warns else "denied"] += 1
        return attrs.evolve(denied, allowed=warns)

    def _warns(self, decision: PolicyDecision) -> bool:
        """Return whether a denial has no effect."""
        return (
            self._loaded is not None
            and self._loaded.engine.policy.mode == "warn"
            and decision.rule != "floor"
        )

    # Running requests.

    def _end_denied(self) -> None:
        """End the running requests that the policy denies now."""
        loaded = self._loaded
        if loaded is None or loaded.engine.policy.mode == "warn":
            return
        denied: dict[int, ResponseReceiver] = {}
        for request in self.pool.running():
            questions = chain.from_iterable(
                self._questions(
                    origin,
                    request.method,
                    request.target,
                    request.fields,
                    bool(request.upgrade),
                )
                for origin in tuple(request.origins)
            )
            if not all(self._decide(one).allowed for one in questions):
                denied[id(request.receiver)] = request.receiver
        if denied:
            self.ended += len(denied)
            self._log.info(
                "ended {count} requests that the policy of the cluster's owner denies "
                "now",
                count=len(denied),
            )
            self.pool.give_up(
                lambda one: id(one) in denied,
                UpstreamError("the policy of the cluster's owner denies it now", 403),
            )


def _denial(
    question: Question, decision: PolicyDecision, is_unread: bool
) -> OwnerDenial:
    what = (
        f"{question.what} is denied"
        if is_unread
        else f"{question.what} is forbidden by the policy of the cluster's owner"
    )
    return OwnerDenial(
        f"{what}: {decision.reason}",
        decision.rule,
        Status.UNAVAILABLE if is_unread else Status.PERMISSION_DENIED,
    )


def _read(path: Path, most: int) -> bytes:
    """
    Return the bytes of a file.

    :raises ConfigurationError: it cannot be read, or is too large.
    """
    try:
        with path.open("rb") as source:
            data = source.read(most + 1)
    except OSError as error:
        raise ConfigurationError(
            [f"{path} cannot be read ({error.strerror}); correct the path"]
        ) from None
    if len(data) > most:
        raise ConfigurationError([f"{path} has more than {most} bytes"])
    return data


def _decoded(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError([f"{path} is not UTF-8"]) from None


def _text(path: Path, most: int) -> str:
    return _decoded(_read(path, most), path)


@attrs.define(eq=False)
class PolicyCollector(Collector):
    """Metrics of the policy; their labels contain no values from outside."""

    guard: PolicyGuard

    def collect(self) -> Iterable[Any]:
        """Return the current metrics."""
        guard = self.guard
        yield GaugeMetricFamily(
            "agentk_policy_enforced",
            "1 while a policy of the cluster's owner is in effect.",
            value=int(guard.is_enforced),
        )
        yield GaugeMetricFamily(
            "agentk_policy_problem",
            "1 while the files of the policy cannot be used.",
            value=int(bool(guard.problem)),
        )
        yield GaugeMetricFamily(
            "agentk_policy_serial",
            "Serial of the policy in effect; -1 without one.",
            value=guard.serial,
        )
        if guard.expires != float("inf"):
            yield GaugeMetricFamily(
                "agentk_policy_expiry_seconds",
                "Seconds until the policy expires; negative after that.",
                value=guard.expires - guard.now(),
            )
        decisions = CounterMetricFamily(
            "agentk_policy_decisions",
            "Decisions by result: allowed, denied, or warned (not enforced).",
            labels=["result"],
        )
        for result in ("allowed", "denied", "warned"):
            decisions.add_metric([result], guard.results[result])
        yield decisions
        admissions = CounterMetricFamily(
            "agentk_policy_admissions",
            "Decisions of the admission webhook by result.",
            labels=["result"],
        )
        for result in ("allowed", "denied", "warned"):
            admissions.add_metric([result], guard.admissions[result])
        yield admissions
        yield CounterMetricFamily(
            "agentk_policy_ended_requests",
            "Running requests that ended because the policy denies them now.",
            value=guard.ended,
        )
