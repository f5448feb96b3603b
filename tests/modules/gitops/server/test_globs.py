"""GitLab's globs: which files they match, and what no glob may cost."""

from __future__ import annotations

import pytest

from modules.gitops.server.globs import BEGINNING, MAX_LENGTH, Glob


@pytest.mark.parametrize(
    ("glob", "matching", "others"),
    [
        (
            "**/*.{yaml,yml,json}",
            ["a.yaml", "x/y/z.json", "a/b.yml"],
            ["a.txt", "a.yamlx", ".git/a.yaml", "a/.b/c.yaml"],
        ),
        (
            "/prod/**/*.yaml",
            ["prod/a.yaml", "prod/x/y/a.yaml"],
            ["a.yaml", "production/a.yaml", "x/prod/a.yaml"],
        ),
        ("**", ["a", "a/b", ".a"], [".a/b"]),
        ("a/**", ["a/b", "a/b/c"], ["b/a"]),
        ("a/**/b/**/c", ["a/b/c", "a/x/b/y/c", "a/b/b/c/c"], ["a/c", "a/b/x", "a/bc"]),
        ("**/**/x", ["x", "a/x", "a/b/x"], ["xy"]),
        ("a**b", ["ab", "axb"], ["a/b"]),
        ("a*b*c.y", ["abc.y", "axxbxxc.y", "abcbc.y"], ["ac.y", "a/b/c.y"]),
        ("a?c", ["abc"], ["a/c", "ac"]),
        ("[a-c]x[!0-9]", ["axb"], ["ax1", "ax/", "dxb"]),
        ("[^a]", ["b"], ["a", "/"]),
        ("[]]x", ["]x"], ["x"]),
        ("[[]x", ["[x"], ["x"]),
        ("[a\\-z]", ["a", "-", "z"], ["b"]),
        ("[a-]", ["a", "-"], ["b"]),
        ("[,{]", [",", "{"], ["x"]),
        ("a\\*b", ["a*b"], ["axb"]),
        ("a.b", ["a.b"], ["axb"]),
        ("{a,b{c,d}}/x", ["a/x", "bc/x", "bd/x"], ["b/x"]),
        ("**/*{abc,b}*c", ["abcc", "abc", "x/bc"], ["x"]),
        ("a,b}", ["a,b}"], ["a"]),
        (".a", [".a"], []),
        (".a/b", [], [".a/b"]),
    ],
)
def test_matches(glob: str, matching: list[str], others: list[str]) -> None:
    made = Glob(glob)
    assert [path for path in matching if not made.matches(path)] == []
    assert [path for path in others if made.matches(path)] == []


@pytest.mark.parametrize(
    ("glob", "prefix"),
    [
        ("/prod/x-*/a.yaml", "prod"),
        ("prod/eu/a.yaml", "prod/eu"),
        ("*", ""),
        ("**/x/*", ""),
        ("a/{b,c}/d", "a"),
    ],
)
def test_prefix(glob: str, prefix: str) -> None:
    assert Glob(glob).prefix == prefix


@pytest.mark.parametrize(
    ("glob", "why"),
    [
        ("/", "name files"),
        ("../x", "lead out"),
        ("a/./b", "lead out"),
        ("a\0b", "lead out"),
        ("{a", "has no }"),
        ("[a", "has no ]"),
        ("a\\", "backslash"),
        ("[z-a]", "z-a of the glob is empty"),
        ("{a,b}" * 10, "at most 100 alternatives"),
        ("x" * 300 + "{,}" * 6 + "{}" * 330, "expand to too much"),
        ("x" * 800 + "{" + "," * 98 + "}", "expand to too much"),
        ("a" * (MAX_LENGTH + 1), "at most 1000 characters"),
    ],
)
def test_refused(glob: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Glob(glob)


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("**/a/" * 150 + "b", "a/" * 2000 + "c"),
        ("*a" * 400 + "b", "a" * 4000 + "c"),
        ("**/*a*" * 100 + "b", "a/" * 2000 + "c"),
        ("**/*a*a*a/" * 90 + "b", "aaaaaaa/" * 500 + "c"),
    ],
)
def test_a_hostile_glob_ends(glob: str, path: str) -> None:
    """With a step for each way to match, these would not end within a year."""
    assert not Glob(glob).matches(path)


def test_folders_that_begin_with_a_dot() -> None:
    """They count where that is asked for: of charts and kustomizations."""
    for path in (".base/a.yaml", "a/.b/c.yaml"):
        assert not Glob("**/*").matches(path)
        assert Glob("**/*").matches(path, hidden_folders=True)
    assert Glob("/a/.b/*").matches("a/.b/c.yaml", hidden_folders=True)
    assert not Glob("/b/**").matches("a/.b/c.yaml", hidden_folders=True)


@pytest.mark.parametrize(
    ("glob", "path", "leads"),
    [
        ("a/**/*.yaml", "a", True),
        ("a/**", "a", True),
        ("a/**/*.yaml", "a/b", False),
        ("**/*.yaml", "a", False),
        ("a/b.yaml", "a", True),
        ("a/b.yaml", "a/b.yaml", False),
        ("/{a,b}/*/c/*", "b/x", True),
        ("/{a,b}/*/c/*", "b/x/d", False),
        ("*/x", ".a", False),
        ("[a-c]/x", "b", True),
    ],
)
def test_folders_on_the_way(glob: str, path: str, leads: bool) -> None:
    assert Glob(glob).leads_below(path) is leads
    assert Glob(glob).leads_below(path, hidden_folders=True) is (leads or path == ".a")


def test_a_file_whose_path_is_too_long() -> None:
    """The length is checked before the path is escaped, which would take seconds."""
    with pytest.raises(ValueError, match=f"at most {MAX_LENGTH} characters"):
        Glob.of_file("*" * (MAX_LENGTH + 1))
    assert Glob.of_file("*" * (MAX_LENGTH // 2)).matches("*" * (MAX_LENGTH // 2))


def test_work_of_one_path() -> None:
    glob = Glob("/a/b/*{x,yz}")
    compared = len("a/b/file") * len("a/b/*x" + "a/b/*yz")
    assert glob.steps("a/b/file") == compared + 2 * BEGINNING
    # A link that is the folder.
    assert glob.steps("a") == len("a") * glob.cost + 2 * BEGINNING
    assert glob.is_outside("a/bc/file")
    assert not glob.is_outside("a")
    assert not glob.is_outside("a/b/file")
    assert not Glob("*").is_outside("a")
    assert Glob("*").steps("file") == 4 + BEGINNING
