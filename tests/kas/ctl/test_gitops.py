"""What `kasctl gitops` makes of the words of agents."""

from __future__ import annotations

from typing import Any

from kas.ctl.gitops import _drift_lines, _lines, _previewed, _receiver_lines, _summary

#: Renames the terminal, clears it, and begins a line that kasctl never wrote.
HOSTILE = "\x1b]0;x\x07\x1b[2J\r\nall is well"


def test_drift() -> None:
    """Whoever looks at the status learns that there is some, and how to read more."""
    for drifted, objects in ((1, "1 object"), (2, "2 objects")):
        lines = list(_lines("prod", {"id": "web", "drifted": drifted}))
        said = f"  others have changed {objects}: kasctl gitops drift prod web"
        assert lines[1:] == [said]
    for kind, how in (("KIND_DELETED", "deleted"), ("KIND_CHANGED", "changed")):
        preview = {"effect": "left", "drift": {"kind": kind}}
        _, line = _previewed(preview)
        assert line == f"    was {how} since it was applied, by others"


def test_no_word_does_anything_to_the_terminal() -> None:
    """An agent says these, and its repository: each comes as text, on its own line."""
    named = dict.fromkeys(("kind", "group", "namespace", "name"), HOSTILE)
    words: dict[str, Any] = dict.fromkeys(
        (
            *("id", "repository", "state", "commit", "pinned", "nextCommit"),
            *("release", "project", "effect", "reason", "place", "health", "problem"),
            *("kind", "outcome"),
        ),
        HOSTILE,
    )
    field = dict.fromkeys(("path", "before", "after", "wanted", "live"), HOSTILE)
    words |= {
        "object": named,
        "objects": [{"object": named, "outcome": HOSTILE, "reason": HOSTILE}],
        "objectsByOutcome": {HOSTILE: 1},
        "problems": [HOSTILE],
        "fields": [field],
        "credentials": [HOSTILE],
        "writers": [{"manager": HOSTILE}],
    }
    preview = {**words, "drift": words}
    lines = [
        *_lines("prod", words),
        *_receiver_lines(words),
        *_drift_lines(words),
        *_previewed(preview),
        _summary([words]),
    ]
    assert len(lines) > 15
    for line in lines:
        assert line.isprintable(), line
