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

#: Their `__init__` has no map: what is in them says it by its name.
WITHOUT_MAP = {"modules", "kas/pb", "tunnel/pb"}


def packages() -> Iterator[Path]:
    for top in PRODUCT:
        for file in sorted((ROOT / top).rglob("__init__.py")):
            if str(file.parent.relative_to(ROOT)) not in WITHOUT_MAP:
                yield file.parent


@pytest.mark.parametrize(
    "package", packages(), ids=lambda one: str(one.relative_to(ROOT))
)
def test_map(package: Path) -> None:
    """The docstring of a package names every file and folder in it, and no other."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    here = {
        f"{one.name}/" if one.is_dir() else one.name
        for one in package.iterdir()
        if (one.suffix == ".py" and not one.stem.endswith(("__init__", "_pb2")))
        or (one / "__init__.py").exists()
    }
    assert set(re.findall(r"\b\w+(?:\.py\b|/(?=\s))", text)) == here


def test_class_names() -> None:
    """No two classes of the product have one name."""
    places = defaultdict(list)
    for top in PRODUCT:
        for file in sorted((ROOT / top).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(str(file.relative_to(ROOT)))
    assert not {name: files for name, files in places.items() if len(files) > 1}
