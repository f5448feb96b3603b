"""The shape of the tree: maps that are true, and names that mean one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRODUCT = ("tunnel", "kas", "agentk", "modules")

#: What twistd looks for in every tap.
TWISTEDS = {"Options"}


def packages() -> Iterator[Path]:
    """Every package that holds more than generated code."""
    for top in PRODUCT:
        for file in sorted((ROOT / top).rglob("__init__.py")):
            if any(rooms(file.parent)):
                yield file.parent


def rooms(package: Path) -> Iterator[str]:
    """The files and folders in a package, as its map names them."""
    for one in package.iterdir():
        if (one / "__init__.py").exists():
            yield f"{one.name}/"
        elif one.suffix == ".py" and not one.stem.endswith(("__init__", "_pb2")):
            yield one.name


@pytest.mark.parametrize(
    "package", list(packages()), ids=lambda one: str(one.relative_to(ROOT))
)
def test_map(package: Path) -> None:
    """The docstring of a package names every file and folder in it, and no other."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    assert set(re.findall(r"\b\w+\.py\b|\b\w+/(?=\s)", text)) == set(rooms(package))


def test_architecture() -> None:
    """Every path in the document is there."""
    text = (ROOT / "docs" / "architecture.rst").read_text()
    paths = re.findall(r"``((?:tunnel|kas|agentk|modules)/[\w/.]+)``", text)
    assert len(paths) > 30
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_class_names() -> None:
    """No two classes of the product have one name."""
    places = defaultdict(list)
    for top in PRODUCT:
        for file in sorted((ROOT / top).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(file.relative_to(ROOT)))
    several = {name: files for name, files in places.items() if len(files) > 1}
    assert not {name: several[name] for name in several.keys() - TWISTEDS}


def test_no_group_is_possessive() -> None:
    """
    No expression repeats a group possessively; atomic groups do the same.

    Python before 3.11.5 keeps part of a failed repetition of such a group.  A test of
    an expression shows that only where it runs in such a Python.
    """
    possessive = re.compile(r"\)(?:[*+?]|\{[0-9,]+\})\+")
    characters = re.compile(r"\[(?:[^\]\\]|\\.)*\]")
    assert possessive.search(r"(?:ab)*+") and not possessive.search(r"(?>(?:ab)*)")
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {text}"
        for top in PRODUCT
        for file in sorted((ROOT / top).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        for text in [characters.sub("x", str(node.value))]
        if possessive.search(text)
    ]
    assert not found
