"""Markdown text of the comment on a merge request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import attrs

from modules.gitops.wire import control_pb2 as pb
from modules.gitops.wire.effect import Effect
from tunnel.toolkit.texts import clean

__all__ = ["MARK", "Asked", "comment"]

#: First line of a comment, which marks kas' own comments; GitLab's pages do not show
#: this line.
MARK = "<!-- txkas: preview of GitOps projects -->"

#: Maximum characters of a comment: GitLab accepts a million, which is too long to read.
MAX_TEXT = 100_000

#: Maximum characters of one line, and maximum number of fields of one object.
MAX_LINE, MAX_FIELDS = 400, 20

#: Maximum characters of a name outside code blocks.
MAX_NAME = 100

_SIGNS = {
    Effect.CREATE.value: "+",
    Effect.CHANGE.value: "~",
    Effect.RECREATE.value: "-/+",
    Effect.ADOPT.value: "~",
    Effect.PRUNE.value: "-",
}

_EFFECTS = frozenset(one.value for one in Effect)

_TICKS = re.compile("`+")

#: Effects that need a reviewer's attention, and are listed first.
_BAD = (Effect.DENIED.value, Effect.REFUSED.value, Effect.BLOCKED.value)


@attrs.frozen
class Asked:
    """
    Preview of one project of one agent.

    :ivar problem: why the preview is missing; empty if the preview exists.
    """

    agent: str
    project: str
    preview: pb.PreviewResponse | None = None
    problem: str = ""


def comment(commit: str, asked: Iterable[Asked], left_out: int = 0) -> str:
    """
    Return the comment for a commit.

    Texts from commits and clusters are placed in code blocks only, and kas writes a
    sign before each line: GitLab treats lines that begin with a slash as commands, and
    would run them with the permissions of kas' token.

    :param left_out: the number of projects without a preview.
    """
    parts = [
        MARK,
        f"**What this would change in clusters**, at commit {_code(commit[:12])}",
    ]
    sections = list(asked)
    room = (MAX_TEXT - 1000) // max(1, len(sections))
    parts += [_section(commit, one, room) for one in sections]
    if left_out:
        parts.append(f"{left_out} more projects follow this branch.")
    parts.append(
        "_This is the source branch alone, without newer commits of the target branch. "
        "Nothing was changed. This comment is updated with the merge request._"
    )
    return "\n\n".join(parts) + "\n"


def _section(commit: str, asked: Asked, room: int) -> str:
    head = f"#### {_code(asked.agent)}, project {_code(asked.project)}"
    preview = asked.preview
    if preview is None:
        return f"{head}\n\n{_block(iter([_bad(asked.problem)]), room)}"
    lines: Iterator[str]
    if preview.problems:
        lines = map(_bad, preview.problems)
        text = "nothing would be applied"
    else:
        lines = _lines(preview.objects)
        text = _summary(preview.objects)
    if preview.commit != commit:
        text += f" (at {_code(preview.commit[:12])})"
    found = f"{head}: {text}"
    block = _block(lines, room - len(found))
    return f"{found}\n\n{block}" if block else found


def _bad(problem: str) -> str:
    return f"! {clean(problem, MAX_LINE)}"


def _summary(objects: Iterable[pb.ObjectPreview]) -> str:
    # This text is not in a code block, so it must not contain text from an agent.
    counts = Counter(
        one.effect if one.effect in _EFFECTS else Effect.UNKNOWN.value
        for one in objects
    )
    bad = [one for one in _BAD if one in counts]
    order = [*bad, *sorted(set(counts) - set(bad))]
    return ", ".join(f"{counts[one]} {one}" for one in order) or "no object"


def _lines(objects: Iterable[pb.ObjectPreview]) -> Iterator[str]:
    shown = [one for one in objects if one.effect != Effect.NONE.value]
    for one in sorted(shown, key=lambda one: one.effect not in _BAD):
        named = one.object
        kind = f"{named.kind}.{named.group}" if named.group else named.kind
        name = f"{named.namespace}/{named.name}" if named.namespace else named.name
        parts = [kind, name, f" {one.effect}", f" {one.place}" if one.place else ""]
        text = " ".join(part for part in parts if part)
        if one.reason:
            text += f": {one.reason}"
        sign = "!" if one.effect in _BAD else _SIGNS.get(one.effect, "?")
        yield f"{sign} {clean(text, MAX_LINE)}"
        for field in one.fields[:MAX_FIELDS]:
            before, after = field.before or "absent", field.after or "absent"
            yield f"    {clean(f'{field.path}: {before} -> {after}', MAX_LINE)}"
        more = one.more_fields + max(0, len(one.fields) - MAX_FIELDS)
        if more:
            yield f"    and {more} more fields"
        if one.HasField("drift"):
            managers = (each.manager for each in one.drift.writers)
            who = ", ".join((*one.drift.credentials, *managers))
            yield "    " + clean(f"changed in the cluster, by {who or '?'}", MAX_LINE)


def _block(lines: Iterator[str], room: int) -> str:
    """
    Return a code block that no line can terminate; empty without lines.

    Lines that do not fit are never generated, because their number may be very large.
    """
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            kept.append("... and more, see kasctl gitops preview")
            break
        kept.append(line)
    if not kept:
        return ""
    longest = max(
        (len(run) for line in kept for run in _TICKS.findall(line)), default=0
    )
    fence = "`" * max(3, longest + 1)
    return "\n".join((f"{fence}text", *kept, fence))


def _code(name: str) -> str:
    return f"`{clean(name, MAX_NAME).replace('`', '?') or '?'}`"
