"""The check of the language of comments, docstrings, messages and documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import prose


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("What a request costs.", {"headless-what"}),
        ("Slow. Whoever asks waits.", {"headless-what", "people"}),
        ("What is a module? A feature.", set()),
        ("A request, and one that fails.", {"one-that"}),
        ("The agent is told of it.", {"is-told"}),
        ("'x' is no duration; it is no longer valid.", {"is-no"}),
        ("The size of the file, and that of the other.", {"that-of"}),
        ("kas logs an expired certificate once a day.", set()),
    ],
)
def test_patterns(text: str, names: set[str]) -> None:
    found = {one.name for one in prose.PATTERNS if one.expression.search(text)}
    assert found == names


def test_each_kind_of_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Faults have the place and the advice, and only chosen kinds are checked."""
    (tmp_path / "kas").mkdir()
    (tmp_path / "kas" / "a.py").write_text(
        '"""What it is."""\n\n# That of others.\nX = "there is no such page here"\n'
    )
    (tmp_path / "README.rst").write_text("Plain text.\n\nWhoever reads it.\n")
    root = ["--root", str(tmp_path)]
    assert prose.main(root) == 1
    lines = capsys.readouterr().out.splitlines()
    places = sorted(line.split(": ")[0] + " " + line.split(": ")[1] for line in lines)
    assert places == [
        "README.rst:3 headless-what",
        "README.rst:3 people",
        "kas/a.py:1 headless-what",
        "kas/a.py:3 that-of",
        "kas/a.py:4 is-no",
    ]
    (tmp_path / "README.rst").write_text("Plain text.\n")
    assert prose.main([*root, "docs"]) == 0
    assert prose.main([*root, "messages"]) == 1
