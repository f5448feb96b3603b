"""
``agentk-policy``: work on policy files, without a cluster.

Exit statuses: 0; 1 if a case failed, a request is denied, a signature does not count,
or decisions differ; 2 for wrong arguments or files.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from agentk.policy.cases import CaseFile, PolicyCase, questions_for
from agentk.policy.document import MAX_FILE, PolicyFile, parse_time
from agentk.policy.engine import Engine
from agentk.policy.rendering import admission_objects, rbac_objects, wider_rules
from agentk.policy.replay import replay
from agentk.policy.signature import (
    MAX_TEXT,
    SignatureError,
    check_signatures,
    read_signers,
)
from tunnel.config import read_file
from tunnel.errors import ConfigurationError

__all__ = ["main"]

#: Maximum number of changes that ``diff`` prints.
SHOWN = 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except ConfigurationError as error:
        print("\n".join(error.problems), file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agentk-policy", description="Work on policies of a cluster's owner."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    explain = commands.add_parser(
        "explain", help="show how each rule decides on one request"
    )
    explain.set_defaults(run=_explain)
    explain.add_argument("policy", type=Path, metavar="POLICY")
    explain.add_argument("verb", metavar="VERB", help="get, create, …; connect")
    explain.add_argument(
        "resource",
        metavar="RESOURCE",
        help="pods, pods/exec, deployments.apps, or /path",
    )
    explain.add_argument("name", nargs="?", default="", metavar="NAME")
    explain.add_argument("-n", "--namespace", default="")
    explain.add_argument("--as", dest="user", default="", metavar="USER")
    explain.add_argument("--as-group", dest="groups", action="append", default=[])
    explain.add_argument("--module", default="kubernetes_api")
    explain.add_argument("--argv0", default="", help="the program that exec runs")
    explain.add_argument("--port", type=int, default=0)
    explain.add_argument("--at", default="", help="a time such as 2026-11-01T08:00:00Z")
    test = commands.add_parser("test", help="compare decisions with expected ones")
    test.set_defaults(run=_test)
    test.add_argument("policy", type=Path, metavar="POLICY")
    test.add_argument("cases", type=Path, metavar="CASES")
    check = commands.add_parser("sign-check", help="check the signatures of a policy")
    check.set_defaults(run=_sign_check)
    check.add_argument("policy", type=Path, metavar="POLICY")
    check.add_argument("--keys", type=Path, required=True, metavar="FILE")
    check.add_argument("--signatures", type=int, default=1, metavar="NUMBER")
    diff = commands.add_parser(
        "diff", help="show whose requests would get another decision"
    )
    diff.set_defaults(run=_diff)
    diff.add_argument("old", type=Path, metavar="OLD")
    diff.add_argument("new", type=Path, metavar="NEW")
    diff.add_argument("--replay", type=Path, required=True, metavar="AUDIT-LOG")
    render = commands.add_parser("render", help="print objects for the cluster")
    render.set_defaults(run=_render)
    render.add_argument("kind", choices=("rbac", "admission"))
    render.add_argument("policy", type=Path, metavar="POLICY")
    render.add_argument("--namespace", default="txkas", help="agentk's namespace")
    render.add_argument("--service-account", default="agentk")
    render.add_argument(
        "--constrained",
        action="store_true",
        help="use constrained impersonation (Kubernetes 1.36)",
    )
    render.add_argument(
        "--webhook",
        action="store_true",
        help="add what agentk needs for its admission webhook (rbac)",
    )
    return parser


def _engine(path: Path) -> Engine:
    return Engine(read_file(path, PolicyFile, max_bytes=MAX_FILE))


def _explain(options: argparse.Namespace) -> int:
    is_path = options.resource.startswith("/")
    try:
        case = PolicyCase(
            verb=options.verb,
            resource="" if is_path else options.resource,
            path=options.resource if is_path else "",
            namespace=options.namespace,
            name=options.name,
            user=options.user,
            groups=tuple(options.groups),
            module=options.module,
            argv0=options.argv0,
            port=options.port,
        )
    except ValueError as error:
        raise ConfigurationError([str(error)]) from None
    engine = _engine(options.policy)
    try:
        now = parse_time(options.at).timestamp() if options.at else time.time()
    except ValueError as error:
        raise ConfigurationError([f"--at: {error}"]) from None
    engine.tick(now)
    questions = questions_for(case)
    for question in questions:
        for one in engine.review(question):
            why = f"does not match: {one.mismatch}" if one.mismatch else "matches"
            print(f"{one.effect:5} {one.rule}: {why}")
        decision = engine.decide(question)
        print(f"{question.what}: {'allowed' if decision.allowed else 'denied'}", end="")
        print(f" ({decision.reason or decision.rule})")
    return 0 if engine.decide_all(questions).allowed else 1


def _test(options: argparse.Namespace) -> int:
    engine = _engine(options.policy)
    cases = read_file(options.cases, CaseFile).cases
    failed = 0
    for number, case in enumerate(cases, 1):
        engine.tick(case.at.timestamp() if case.at else time.time())
        questions = questions_for(case)
        decision = engine.decide_all(questions)
        found = "allow" if decision.allowed else "deny"
        if found != case.expect or (case.by and case.by != decision.rule):
            failed += 1
            by = f" by {case.by}" if case.by else ""
            print(
                f"{options.cases}: case {number}: {questions[0].what}: expected "
                f"{case.expect}{by}, got {found} by {decision.rule or 'default'}"
            )
    print(f"{len(cases) - failed} of {len(cases)} cases passed")
    return 1 if failed else 0


def _sign_check(options: argparse.Namespace) -> int:
    policy: Path = options.policy
    signature = policy.with_name(f"{policy.name}.sig")
    keys = read_signers(_text(options.keys), str(options.keys))
    data = policy.read_bytes()
    try:
        owners = check_signatures(
            data, _text(signature), keys, options.signatures, time.time()
        )
    except SignatureError as error:
        print(f"{signature}: {error}", file=sys.stderr)
        return 1
    found = read_file(policy, PolicyFile, max_bytes=MAX_FILE)
    if not (found.clusters and found.serial):
        raise ConfigurationError(
            [f"{policy}: a signed policy needs clusters and a serial"]
        )
    print(f"serial {found.serial}, signed by {', '.join(owners)}")
    return 0


def _text(path: Path) -> str:
    with path.open("rb") as source:
        return source.read(MAX_TEXT).decode("utf-8", "replace")


def _diff(options: argparse.Namespace) -> int:
    old, new = _engine(options.old), _engine(options.new)
    with options.replay.open("rb") as lines:
        result = replay(lines, old, new)
    for change, count in result.changes.most_common(SHOWN):
        who = change.user or "agentk itself"
        print(f"{count}x {who}: {change.what}: {change.before} -> {change.after}")
    hidden = len(result.changes) - SHOWN
    if hidden > 0:
        print(f"… and {hidden} other changes")
    total = result.changes.total() + result.left_out
    print(f"{total} of {result.requests} requests would get another decision")
    if result.unreadable:
        print(f"{result.unreadable} lines could not be read", file=sys.stderr)
    return 1 if total else 0


def _render(options: argparse.Namespace) -> int:
    policy = read_file(options.policy, PolicyFile, max_bytes=MAX_FILE)
    if options.kind == "rbac":
        for line in wider_rules(policy):
            print(line, file=sys.stderr)
    where = options.namespace, options.service_account
    if options.kind == "rbac":
        objects = rbac_objects(
            policy, *where, constrained=options.constrained, webhook=options.webhook
        )
    else:
        objects = admission_objects(policy, *where)
    print(yaml.safe_dump_all(objects, sort_keys=False), end="")
    return 0


def program() -> None:
    """Run the command line as a program."""
    sys.exit(main())
