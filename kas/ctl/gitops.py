"""``kasctl gitops``: the state of GitOps projects, and decisions of operators."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import click
import yaml

from kas.ctl.calls import Callee, callee_options
from kas.ctl.common import Ctl, command, printable
from tunnel.toolkit.single_object import check_manifest

__all__ = ["declare"]

_SERVICE = "txkas.gitops.v1.GitopsControl"

#: Timeout in seconds: kas may wait until an agent reconnects, and agentk queries its
#: cluster.
TIMEOUT = 40.0

_NO_DRIFT = (
    "no drift is known; drift of projects with 'drift.mode: off' is not detected"
)


def declare(group: click.Group) -> None:
    """Add the commands to *group*."""
    group.add_command(gitops)


@click.group()
def gitops() -> None:
    """GitOps projects of agents."""


agent_argument = click.argument("agent")
project_argument = click.argument("project")


@command(gitops, "status")
@agent_argument
@click.argument("project", default="")
@click.option("--objects", is_flag=True, help="List the objects, too.")
@callee_options
def _status(ctl: Ctl, callee: Callee, agent: str, project: str, objects: bool) -> None:
    """
    Show the state of an agent's projects.

    AGENT is its name or its id. PROJECT is the name of a project in the agent's
    configuration, or the id of a project without a name.
    """
    request = {"agent": agent, "project": project, "objects": objects}
    answer = callee.call(f"{_SERVICE}/GetStatus", request, TIMEOUT)
    projects = answer.get("projects", [])
    receivers = answer.get("receivers", [])
    refused = answer.get("configurationProblems", [])
    lines = [f"  {printable(one)}" for one in refused]
    if refused:
        lines.insert(
            0,
            "the agent's configuration file in Git was refused; the previous "
            "configuration stays in effect",
        )
    if not projects and not receivers:
        text = (
            f"agent {agent} has no gitops.manifest_projects in its configuration file "
            "in Git; agent.configuration in kas' configuration file names the "
            "repository of that file"
        )
        ctl.result(answer, "\n".join([*lines, text]))
        return
    lines += [line for one in projects for line in _lines(agent, one)]
    lines += [line for one in receivers for line in _receiver_lines(one)]
    ctl.result(answer, "\n".join(lines))


def _receiver_lines(receiver: dict[str, Any]) -> Iterator[str]:
    name = _object_name(receiver.get("object", {}))
    commit = receiver.get("commit", "")[:12] or "no commit yet"
    health = receiver.get("health") or "not known"
    reason = f": {receiver['reason']}" if receiver.get("reason") else ""
    yield printable(f"{name}  {health}  notified of {commit}{reason}")
    problem = receiver.get("problem")
    if problem and problem != receiver.get("reason"):
        yield f"  {printable(problem)}"


def _lines(agent: str, project: dict[str, Any]) -> Iterator[str]:
    name = project.get("id") or project.get("repository", "")
    state = str(project.get("state", "")).removeprefix("STATE_").lower()
    commit = project.get("commit", "")[:12]
    counts = project.get("objectsByOutcome", {})
    summary = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    at = _second(project.get("workedAt", ""))
    parts = [name or "(no files yet)", state]
    if commit:
        parts.append(f"at {commit}")
    # This is the time of the last check, and not the time when this state began.
    looked = f", last checked at {at}" if at else ""
    yield printable(" ".join(parts) + looked + (f": {summary}" if summary else ""))
    resume = f"until: kasctl gitops resume {_quoted(agent, name)}"
    if pinned := project.get("pinned"):
        yield f"  pinned to {printable(pinned[:12])} {resume}"
    if state == "suspended":
        yield f"  nothing is changed {resume}"
    problems = project.get("problems", [])
    if following := project.get("nextCommit"):
        reason = project.get("nextReason") or "agentk has not applied it yet"
        of_it = f"commit {following[:12]}: "
        # Show only the problem, which contains more of the reason than the truncated
        # *reason*.
        same = [one for one in problems if one.removeprefix(of_it).startswith(reason)]
        problems = [one for one in problems if one not in same[:1]]
        reason = same[0].removeprefix(of_it) if same else reason
        yield f"  newest commit {printable(following[:12])}: {printable(reason)}"
    for problem in problems:
        if state == "suspended" and problem == "suspended: nothing is changed":
            continue
        # Cut the command, because it is printed below with the name that the user gave
        # for the agent.
        said = problem.partition("; to delete: kasctl gitops approve ")[0]
        yield f"  {printable(said if project.get('release') else problem)}"
    if drifted := project.get("drifted"):
        objects = f"{drifted} object" + "s" * (drifted > 1)
        words = _quoted(agent, name)
        yield f"  others have changed {objects}: kasctl gitops drift {words}"
    if delay := project.get("driftDelay"):
        yield f"  {printable(delay)}"
    for notice in project.get("notices", []):
        yield f"  {printable(notice)}"
    if release := project.get("release"):
        words = _quoted(agent, name, release)
        yield f"  to delete them: kasctl gitops approve {words}"
    for one in project.get("objects", []):
        name = _object_name(one.get("object", {}))
        said = [name, one.get("outcome", ""), one.get("place", "")]
        text = "  ".join(filter(None, [*said, one.get("reason", "")]))
        yield f"  {printable(text)}"


def _quoted(*words: str) -> str:
    """
    Quote words for a shell: users copy the printed line, and some words come from an
    agent.
    """
    return " ".join(shlex.quote(printable(one)) for one in words)


@command(gitops, "preview")
@agent_argument
@project_argument
@click.option(
    "--ref", default="", help="A branch, or a full name such as refs/tags/v1."
)
@click.option(
    "--commit",
    default="",
    help="The id of a commit; the first digits suffice for an applied commit.",
)
@click.option(
    "--merge-request", type=int, help="The number of a merge request in GitLab."
)
@click.option("--path", default="", help="Limit the preview to this file or folder.")
@click.option("--all", "every", is_flag=True, help="List unchanged objects, too.")
@callee_options
def _preview(
    ctl: Ctl,
    callee: Callee,
    agent: str,
    project: str,
    ref: str,
    commit: str,
    merge_request: int | None,
    path: str,
    every: bool,
) -> None:
    """
    Show the changes that a commit would make in the cluster, without making them.

    The changes include the drift that agentk would revert. Without --ref, --commit or
    --merge-request, the commit is the one that the project follows. The exit status is
    1 if an object of the commit could not be applied.
    """
    refs: list[dict[str, str]] = []
    if ref:
        refs.append({"name" if ref.startswith("refs/") else "branch": ref})
    if commit:
        refs.append({"commit": commit})
    if merge_request is not None:
        refs.append({"name": f"refs/merge-requests/{merge_request}/head"})
    if len(refs) > 1:
        raise click.UsageError(
            "--ref, --commit and --merge-request are mutually exclusive"
        )
    asked = refs[0] if refs else {}
    request = {"agent": agent, "project": project, "ref": asked, "path": path}
    answer = callee.call(f"{_SERVICE}/Preview", request, TIMEOUT)
    objects = answer.get("objects", [])
    summary = _summary(objects)
    if not objects and not answer.get("problems"):
        summary = f"no object in {path}" if path else "no object"
    lines = [f"commit {printable(answer.get('commit', ''))[:12]}: {summary}"]
    lines += [printable(one) for one in answer.get("problems", [])]
    for one in objects:
        if every or one.get("effect") != "unchanged":
            lines += _previewed(one)
    ctl.result(answer, "\n".join(lines))
    if answer.get("problems") or any(one.get("effect") in _BAD for one in objects):
        raise SystemExit(1)


#: Results that mean that a commit is not applied in full.
_BAD = ("denied", "refused")

#: Results that revert changes of other clients.
_TAKING_BACK = ("change", "create", "recreate")

_SIGNS = {
    **dict.fromkeys(("create", "adopt"), "+"),
    **dict.fromkeys(("prune",), "-"),
    **dict.fromkeys((*_BAD, "blocked"), "!"),
    **dict.fromkeys(("unknown",), "?"),
    "change": "~",
    "recreate": "-/+",
}


def _summary(objects: list[dict[str, Any]]) -> str:
    counts = Counter(one.get("effect", "") for one in objects)
    said = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    return printable(said) or "-"


def _who(drift: dict[str, Any]) -> str:
    """Return which client caused a drift, as far as this is known."""
    by = [
        f"{one.get('manager', '')} at {_second(one['time'])}"
        if one.get("time")
        else one.get("manager", "")
        for one in drift.get("writers", [])
    ]
    return printable(", ".join([*by, *drift.get("credentials", [])]))


def _previewed(one: dict[str, Any]) -> Iterator[str]:
    effect = one.get("effect", "")
    name = _object_name(one.get("object", {}))
    text = f"{name}  {effect}  {one.get('place', '')}".rstrip()
    reason = f": {one['reason']}" if one.get("reason") else ""
    yield f"{_SIGNS.get(effect, ' ')} {printable(text + reason)}"
    drift = one.get("drift")
    if drift is not None:
        what = "reverts what was" if effect in _TAKING_BACK else "was"
        gone = drift.get("kind") == "KIND_DELETED"
        how, who = "deleted" if gone else "changed", _who(drift) or "others"
        yield f"    {what} {how} since it was applied, by {who}"
    drifted = {field.get("path") for field in (drift or {}).get("fields", [])}
    for field in one.get("fields", []):
        before, after = field.get("before") or "-", field.get("after") or "-"
        note = "  (by others)" if field.get("path") in drifted else ""
        yield f"    {printable(field.get('path', ''))}: {printable(before)}{note}"
        yield f"    {' ' * len(printable(field.get('path', '')))}-> {printable(after)}"
    if more := one.get("moreFields"):
        yield f"    and {more} more fields"


@command(gitops, "approve")
@agent_argument
@project_argument
@click.argument("release")
@callee_options
def _approve(ctl: Ctl, callee: Callee, agent: str, project: str, release: str) -> None:
    """
    Approve a prune that is held back.

    `kasctl gitops status` shows RELEASE, which is valid for exactly these objects at
    this commit.
    """
    request = {"agent": agent, "project": project, "release": release}
    callee.call(f"{_SERVICE}/Approve", request, TIMEOUT)
    ctl.result({"approved": release}, f"agentk deletes these objects of {project} now")


@command(gitops, "drift")
@agent_argument
@click.argument("project", default="")
@click.option("--ended", is_flag=True, help="Also list drift that ended recently.")
@callee_options
def _drift(ctl: Ctl, callee: Callee, agent: str, project: str, ended: bool) -> None:
    """
    Show the objects that other clients have changed since they were applied.

    If agentk repairs drift, it ends at once: see --ended.
    """
    request = {"agent": agent, "project": project, "ended": ended}
    answer = callee.call(f"{_SERVICE}/GetDrift", request, TIMEOUT)
    drifts = answer.get("drifts", [])
    lines = [line for one in drifts for line in _drift_lines(one)]
    ctl.result(answer, "\n".join(lines) or _NO_DRIFT)


def _drift_lines(drift: dict[str, Any]) -> Iterator[str]:
    words = [
        drift.get("project", ""),
        _object_name(drift.get("object", {})),
        str(drift.get("kind", "")).removeprefix("KIND_").lower(),
        str(drift.get("state", "")).removeprefix("STATE_").lower(),
        _second(drift.get("foundAt", "")),
    ]
    yield printable("  ".join(filter(None, words)))
    if by := _who(drift):
        yield f"  by {by}"
    if reason := drift.get("reason"):
        yield f"  {printable(reason)}"
    for field in drift.get("fields", []):
        wanted, live = field.get("wanted") or "none", field.get("live") or "none"
        yield (
            f"  {printable(field.get('path', ''))}: {printable(live)}, in Git "
            f"{printable(wanted)}"
        )
    if more := drift.get("moreFields"):
        yield f"  and {more} more fields"


def _object_name(found: dict[str, Any]) -> str:
    kind = ".".join(filter(None, (found.get("kind"), found.get("group"))))
    where = "/".join(filter(None, (found.get("namespace"), found.get("name"))))
    return f"{kind} {where}"


def _second(time: str) -> str:
    """Return a time without fractions of a second."""
    return time.partition(".")[0].rstrip("Z") + "Z" if time else ""


@command(gitops, "history")
@agent_argument
@project_argument
@callee_options
def _history(ctl: Ctl, callee: Callee, agent: str, project: str) -> None:
    """Show the applied commits of a project, the newest last."""
    request = {"agent": agent, "project": project}
    answer = callee.call(f"{_SERVICE}/GetHistory", request, TIMEOUT)
    rows = [
        (
            printable(one.get("commit", ""))[:12],
            one.get("at", "").partition(".")[0].rstrip("Z") + "Z",
            printable(one.get("summary", "")),
        )
        for one in answer.get("commits", [])
    ]
    if not rows:
        ctl.result(answer, "no commit was applied yet")
        return
    ctl.table(answer, ("COMMIT", "APPLIED", "OBJECTS"), rows)


@command(gitops, "kept")
@agent_argument
@project_argument
@click.argument("state", default="")
@callee_options
def _kept(ctl: Ctl, callee: Callee, agent: str, project: str, state: str) -> None:
    """
    Show the states of objects from before agentk deleted them or took their fields.

    With STATE, the id of a state, print its manifest, for `kubectl apply -f -`.
    """
    request = {"agent": agent, "project": project, "id": state}
    answer = callee.call(f"{_SERVICE}/GetKept", request, TIMEOUT)
    states = answer.get("states", [])
    if state:
        manifest = _manifest_of(states, state)
        ctl.result(manifest, yaml.safe_dump(manifest, allow_unicode=False).rstrip())
        return
    rows = [
        (
            printable(one.get("id", "")),
            _second(one.get("at", "")),
            printable(one.get("why", "")),
            printable(_object_name(one.get("object", {}))),
        )
        for one in states
    ]
    if not rows:
        ctl.result(answer, "no object was deleted or taken over recently")
        return
    ctl.table(answer, ("STATE", "KEPT", "BEFORE IT WAS", "OBJECT"), rows)


def _manifest_of(states: list[dict[str, Any]], state: str) -> Any:
    """
    Return the manifest of the requested state, and check that it is this state.

    The check is needed because users pass the manifest to kubectl, which would apply
    any object that an agent sends.
    """
    try:
        if [one.get("id") for one in states] != [state]:
            raise ValueError("it contains another state than the requested one")
        (found,) = states
        name = found.get("object", {})
        group, kind, namespace, own = (
            name.get(part, "") for part in ("group", "kind", "namespace", "name")
        )
        return check_manifest(
            found.get("manifest", "{}"), (group, kind, namespace, own)
        )
    except ValueError as error:
        text = f"the agent's response is invalid: {error}"
        raise click.ClickException(text) from None


@command(gitops, "undo")
@agent_argument
@project_argument
@click.argument("commit", default="")
@callee_options
def _undo(ctl: Ctl, callee: Callee, agent: str, project: str, commit: str) -> None:
    """
    Apply an earlier commit, and stay there until `kasctl gitops resume`.

    COMMIT is the beginning of an id that `kasctl gitops history` shows; the default is
    the last other commit that was applied in full. Objects that were pruned since then
    return, and the limits of pruning apply as for any commit. A suspended project is
    resumed.
    """
    request = {"agent": agent, "project": project, "commit": commit}
    answer = callee.call(f"{_SERVICE}/Undo", request, TIMEOUT)
    found = printable(answer.get("commit", ""))
    text = f"{project} goes to commit {found[:12]}, and stays there"
    words = _quoted(agent, project)
    ctl.result(answer, f"{text} until: kasctl gitops resume {words}")


wait_option = click.option(
    "--wait",
    is_flag=True,
    help="Wait until the project is current; exit status 1 if it fails.",
)
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=300.0,
    show_default=True,
    help="Maximum number of seconds to wait.",
)


@command(gitops, "sync")
@agent_argument
@project_argument
@wait_option
@timeout_option
@callee_options
def _sync(
    ctl: Ctl, callee: Callee, agent: str, project: str, wait: bool, timeout: float
) -> None:
    """
    Fetch the newest commit of a project and apply it now, without waiting for a retry.

    With --wait the exit status is 0 once that commit is applied in full, and 1 if it
    fails, waits for an approval, or the project is suspended or pinned.
    """
    before = _project_status(callee, agent, project)
    request = {"agent": agent, "project": project}
    answer = callee.call(f"{_SERVICE}/Sync", request, TIMEOUT)
    commit = printable(answer.get("commit", ""))
    if not wait:
        ctl.result(answer, f"agentk applies commit {commit[:12]} of {project} now")
        return
    _wait_until_applied(ctl, callee, agent, project, commit, before, timeout)


@command(gitops, "repair")
@agent_argument
@project_argument
@click.argument("objects", nargs=-1)
@wait_option
@timeout_option
@callee_options
def _repair(
    ctl: Ctl,
    callee: Callee,
    agent: str,
    project: str,
    objects: tuple[str, ...],
    wait: bool,
    timeout: float,
) -> None:
    """
    Apply objects of a project again, and take their fields back from other managers.

    Each of OBJECTS is KIND[.GROUP]/[NAMESPACE/]NAME, such as Deployment.apps/web/shop;
    the default is all objects of the project. This also takes fields in conflict, and
    works with `drift.mode: report`.
    """
    references = [_reference(one) for one in objects]
    before = _project_status(callee, agent, project)
    request = {"agent": agent, "project": project, "objects": references}
    callee.call(f"{_SERVICE}/Repair", request, TIMEOUT)
    if not wait:
        count = f"{len(objects)} object" + "s" * (len(objects) > 1)
        what = count if objects else "all objects"
        ctl.result({"repairing": list(objects)}, f"agentk repairs {what} of {project}")
        return
    commit = before.get("commit", "")
    _wait_until_applied(ctl, callee, agent, project, commit, before, timeout)


def _reference(text: str) -> dict[str, str]:
    # The status separates kind and name with a space.
    kind, *place = text.replace(" ", "/", 1).split("/")
    if not kind or len(place) not in (1, 2) or not all(place):
        raise click.UsageError(
            f"{text!r} does not name an object: write KIND[.GROUP]/[NAMESPACE/]NAME, "
            "such as Deployment.apps/web/shop or Namespace/web"
        )
    kind, _, group = kind.partition(".")
    namespace = place[0] if len(place) == 2 else ""
    return {"kind": kind, "group": group, "namespace": namespace, "name": place[-1]}


def _project_status(callee: Callee, agent: str, project: str) -> dict[str, Any]:
    request = {"agent": agent, "project": project}
    answer = callee.call(f"{_SERVICE}/GetStatus", request, TIMEOUT)
    found: dict[str, Any] = answer["projects"][0]
    return found


#: States that end a wait, and seconds between two checks.
_ENDS = ("current", "failed", "held", "suspended")
PAUSE = 0.5


def _wait_until_applied(
    ctl: Ctl,
    callee: Callee,
    agent: str,
    project: str,
    commit: str,
    before: dict[str, Any],
    timeout: float,
) -> None:
    """Wait until a pass that began after *before* has ended, and print the status."""
    until = time.monotonic() + timeout
    while True:
        found = _project_status(callee, agent, project)
        state = str(found.get("state", "")).removeprefix("STATE_").lower()
        is_new = found.get("workedAt") != before.get("workedAt")
        other = state == "suspended" or found.get("pinned", commit) != commit
        done = found.get("commit") == commit and is_new
        # Continue to wait if objects remain until another project takes them over.
        goes_on = found.get("handsOver", False)
        ended = other or (state in _ENDS and done and not goes_on)
        # agentk refuses a commit that cannot be used, without a pass.
        refused = state == "failed" and found.get("nextCommit") == commit
        if ended or refused or time.monotonic() > until:
            break
        time.sleep(PAUSE)
    ctl.result(found, "\n".join(_lines(agent, found)))
    if not ended and not refused:
        raise click.ClickException(f"{project} is not done after {timeout:g} s")
    if state != "current" or found.get("commit") != commit:
        raise SystemExit(1)


@command(gitops, "suspend")
@agent_argument
@project_argument
@callee_options
def _suspend(ctl: Ctl, callee: Callee, agent: str, project: str) -> None:
    """Stop all changes of a project until `kasctl gitops resume`."""
    request = {"agent": agent, "project": project}
    callee.call(f"{_SERVICE}/Suspend", request, TIMEOUT)
    ctl.result({"suspended": True}, f"agentk does not change {project} any more")


@command(gitops, "resume")
@agent_argument
@project_argument
@callee_options
def _resume(ctl: Ctl, callee: Callee, agent: str, project: str) -> None:
    """Have a project follow Git again, after `suspend` or `undo`."""
    request = {"agent": agent, "project": project}
    callee.call(f"{_SERVICE}/Resume", request, TIMEOUT)
    ctl.result({"suspended": False}, f"{project} follows Git again")
