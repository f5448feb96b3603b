"""The choice of the tests that a change of a file needs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import grimp
import pytest

from tools import related

#: Each importer and the modules that it imports, of a repository with all cases.
IMPORTS = {
    "kas.b.c": ["kas.b.a"],
    "kas.b.d": ["kas.b.c"],
    "tests.helper": ["kas.b.a"],
    "tests.kas.b.test_a": ["kas.b.a"],
    "tests.kas.b.test_c": ["kas.b.c"],
    "tests.kas.b.test_d": ["kas.b.d"],
    "tests.test_help": ["tests.helper"],
    "tests.faults.test_near": ["kas.b.a"],
    "tests.integration.test_far": ["kas.b.c"],
}

FILES = {
    "docs/page.rst": "",
    "kas/b/a.py": "",
    "kas/b/lonely.py": "",
    "tests/test_structure.py": "",
    "tests/kas/test_b.py": "",
    "tests/kas/b/test_a_slow.py": "",
    "tests/kas/b/test_abc.py": "",
    "tests/test_pages.py": 'PAGE = "page.rst"\n',
}


@pytest.fixture
def graph() -> grimp.ImportGraph:
    found = grimp.ImportGraph()
    for module in ("kas.b", "kas.b.lonely"):
        found.add_module(module)
    for importer, modules in IMPORTS.items():
        for module in modules:
            found.add_import(importer=importer, imported=module)
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Create a repository whose path contains a space."""
    root = tmp_path / "a path"
    tests = {f"{one.replace('.', '/')}.py": "" for one in IMPORTS if ".test_" in one}
    for name, text in {**FILES, **tests}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("file", "depth", "tests"),
    [
        ("kas/b/a.py", 1, "faults/near kas/b/a kas/b/a_slow structure"),
        ("kas/b/a.py", 2, "faults/near kas/b/a kas/b/a_slow kas/b/c help structure"),
        ("kas/b/__init__.py", 2, "kas/b structure"),
        ("kas/b/c.py", 1, "integration/far kas/b/c structure"),
        ("kas/b/lonely.py", 2, "structure"),
        ("tests/helper.py", 2, "help"),
        ("tests/kas/b/test_abc.py", 2, "kas/b/abc"),
        ("tests/kas/b/test_deleted.py", 2, ""),
        ("docs/page.rst", 2, "pages"),
        ("docs/other.rst", 2, ""),
    ],
)
def test_related(
    file: str, depth: int, tests: str, graph: grimp.ImportGraph, root: Path
) -> None:
    found = related.related([file], graph, root, depth)
    short = [one.removeprefix("tests/").removesuffix(".py") for one in found]
    assert [one.replace("test_", "") for one in short] == tests.split()


def test_generated_code(graph: grimp.ImportGraph, root: Path) -> None:
    """A change of a .proto file needs the tests of the code that protoc generates."""
    graph.add_import(importer="tests.kas.b.test_c", imported="kas.b.call_pb2")
    found = related.related(["kas/b/call.proto"], graph, root)
    assert found == ["tests/kas/b/test_c.py", "tests/test_structure.py"]


def test_this_repository(capsys: pytest.CaptureFixture[str]) -> None:
    related.main([str(related.ROOT / "tools" / "related.py")])
    assert capsys.readouterr().out == "tests/test_related.py\n"


def test_unknown_file(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="not a file of this repository"):
        related.main([str(tmp_path / "missing.py")])
    (tmp_path / "outside.py").touch()
    with pytest.raises(SystemExit, match="not a file of this repository"):
        related.main([str(tmp_path / "outside.py")])


def test_changed_files(
    root: Path,
    graph: grimp.ImportGraph,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without a file, changed and new ones count, whatever their names contain."""
    monkeypatch.setattr(related, "import_graph", lambda: graph)

    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("-c", "user.name=n", "-c", "user.email=e", "commit", "-m", "m")
    with pytest.raises(SystemExit, match="no file differs"):
        related.main([], root)
    (root / "docs" / "page.rst").write_text("changed")
    (root / "docs" / "é page.rst").touch()
    (root / "tests" / "test_pages.py").write_text('PAGES = "page.rst", "é page.rst"\n')
    related.main([], root)
    assert capsys.readouterr().out == "tests/test_pages.py\n"


def test_nothing_found(
    root: Path, graph: grimp.ImportGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file without tests is an error, so that no test is mistaken for success."""
    monkeypatch.setattr(related, "import_graph", lambda: graph)
    (root / "Makefile").touch()
    with pytest.raises(SystemExit, match="no test imports or names Makefile"):
        related.main([str(root / "Makefile")], root)
