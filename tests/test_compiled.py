"""What is compiled where somebody wants it: the choice, and what its sources avoid."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import tunnel.wire
from tools import compiled
from tunnel import __version__
from tunnel.compiled import (
    LIBRARY,
    PACKAGES,
    PURE,
    _SourcesOnly,
    build_name,
    choose,
    unusable,
)

_SOURCES = [compiled.ROOT / module for module in compiled.MODULES]


def _classes(source: Path) -> Iterator[ast.ClassDef]:
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ClassDef):
            yield node


@pytest.fixture(params=_SOURCES, ids=compiled.MODULES)
def source(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_classes_become_native(source: Path) -> None:
    """mypyc leaves a class that zope decorates to the interpreter."""
    for cls in _classes(source):
        decorators = [ast.unparse(one) for one in cls.decorator_list]
        if not any(one.startswith("attrs.") for one in decorators):
            zope = [one for one in decorators if one.startswith(("impl", "provider"))]
            assert not zope, f"write classImplements({cls.name}, ...) below the class"


def test_what_belongs_to_a_class(source: Path) -> None:
    """Else each instance gets it, and a descriptor does not see whose it is."""
    for cls in _classes(source):
        methods = {one.name for one in cls.body if isinstance(one, ast.FunctionDef)}
        for line in cls.body:
            if isinstance(line, ast.Assign):
                value = ast.unparse(line.value)
                target = ast.unparse(line.targets[0])
                assert not value.startswith("Logger("), f"{cls.name}: a ClassVar"
                assert value not in methods, f"{cls.name}.{target}: write a method"


def test_errors_have_names_of_their_own(source: Path) -> None:
    """One name has one type in a function, and what has another is a TypeError."""
    for function in ast.walk(ast.parse(source.read_text())):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        kinds = defaultdict(set)
        for handler in ast.walk(function):
            if isinstance(handler, ast.ExceptHandler) and handler.name:
                assert handler.type is not None
                kinds[handler.name].add(ast.unparse(handler.type))
        for name, types in kinds.items():
            assert len(types) == 1, f"{function.name}: {name} is {sorted(types)}"


def test_finds_the_sources_of_our_modules_alone() -> None:
    finder = _SourcesOnly()
    spec = finder.find_spec("tunnel.wire.session", tunnel.wire.__path__)
    assert spec is not None and spec.origin is not None
    assert spec.origin.endswith("tunnel/wire/session.py")
    for other, path in (
        ("tunnel.wire", tunnel.__path__),
        ("tunnel", None),
        ("yaml.reader", tunnel.wire.__path__),
        ("tunnel.wire.missing", tunnel.wire.__path__),
    ):
        assert finder.find_spec(other, path) is None


@pytest.mark.parametrize(
    ("value", "wanted"), [("1", "pure"), ("0", build_name()), ("", build_name())]
)
def test_chosen_by_the_environment(value: str, wanted: str) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("kasctl"), "--version"],
        env={**os.environ, PURE: value},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"kasctl, version {__version__} ({wanted})\n"


def _touched(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    return file


def test_compiled_files_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are found again, for whichever Python and whichever list of modules."""
    monkeypatch.setattr(compiled, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["compiled", "--clean"])
    assert not compiled.built(tmp_path)
    suffix = EXTENSION_SUFFIXES[0]
    module = compiled.MODULES[0].removesuffix(".py")
    wanted = [
        _touched(tmp_path / "kas" / "fleet" / f"not_listed_now{suffix}"),
        _touched(tmp_path / f"{module}{suffix}"),
        _touched(tmp_path / f"{LIBRARY}{suffix}"),
        _touched(tmp_path / f"{LIBRARY}.cpython-39-x.so"),
    ]
    for file in wanted[:2]:
        file.write_text(f"... {LIBRARY} ...")
    others = [_touched(tmp_path / "other.so"), _touched(tmp_path / "modules" / "a.so")]
    (tmp_path / "modules" / "folder.so").mkdir()
    assert sorted(compiled.built(tmp_path)) == sorted(wanted)
    # In this order: without it the others cannot run.
    assert set(compiled.built(tmp_path)[-2:]) == set(wanted[-2:])
    compiled.main()
    assert not compiled.built(tmp_path)
    assert all(other.exists() for other in others)


#: In place of a compiler: a source is saved meanwhile.
_INSTEAD = """
import pathlib, sys, time
lib = pathlib.Path(sys.argv[1])
for name in ("txkas__mypyc.x.so", "tunnel/a.x.so"):
    (lib / name).parent.mkdir(parents=True, exist_ok=True)
    (lib / name).touch()
time.sleep(0.01)
pathlib.Path(SAVED).touch()
"""


def test_what_is_saved_while_it_compiles_is_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not in what was compiled."""
    saved = _touched(tmp_path / "tunnel" / "a.py")
    for package in PACKAGES:
        (tmp_path / package).mkdir(exist_ok=True)
    _touched(tmp_path / "pyproject.toml")
    monkeypatch.setattr(compiled, "_SETUP", _INSTEAD.replace("SAVED", repr(str(saved))))
    found = compiled.build(tmp_path, tmp_path)
    assert [str(one) for one in found] == ["txkas__mypyc.x.so", "tunnel/a.x.so"]
    assert all(
        (tmp_path / one).stat().st_mtime < saved.stat().st_mtime for one in found
    )


def test_what_cannot_run_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of it is missing, or in a checkout a source of ours is newer."""
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    suffix = EXTENSION_SUFFIXES[0]
    source = _touched(tmp_path / "kas" / "service.py")
    assert unusable(tmp_path) is None
    _touched(tmp_path / "tunnel" / "wire" / f"session{suffix}")
    with pytest.warns(
        RuntimeWarning, match="is missing: reinstall .*running the sources"
    ):
        choose({}, tmp_path)
    assert isinstance(sys.meta_path.pop(0), _SourcesOnly)
    library = _touched(tmp_path / f"{LIBRARY}{suffix}")
    # Its constants may be compiled into others.
    os.utime(source, (2**31, 2**31))
    choose({}, tmp_path)
    assert not isinstance(sys.meta_path[0], _SourcesOnly)  # installed
    _touched(tmp_path / "pyproject.toml")
    with pytest.warns(RuntimeWarning, match="make compiled, or make pure; running"):
        choose({}, tmp_path)
    assert isinstance(sys.meta_path[0], _SourcesOnly)
    os.utime(library, (2**31, 2**31))
    assert unusable(tmp_path) is None


def test_what_is_stale_is_not_shown_as_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make demo` and `make bench` refuse it."""
    suffix = EXTENSION_SUFFIXES[0]
    _touched(tmp_path / "tunnel" / "wire" / f"session{suffix}")
    monkeypatch.setattr(compiled, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["compiled", "--check"])
    with pytest.raises(SystemExit, match=f"{LIBRARY}, which .* is missing"):
        compiled.main()
    _touched(tmp_path / f"{LIBRARY}{suffix}")
    with pytest.raises(SystemExit) as caught:
        compiled.main()
    assert not caught.value.code
