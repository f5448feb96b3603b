"""What `kasctl gitops` makes of the words of agents."""

from __future__ import annotations

from typing import Any

from kas.ctl.gitops import _drift_lines, _lines, _previewed, _receiver_lines, _summary

#: Renames the terminal, clears it, and begins a line that kasctl never wrote.
HOSTILE = "\x1b]0;x\x07\x1b[2J\r\nall is well"


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
