"""Symbolic links of a repository: those that stay inside, and all others."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from twisted.internet.defer import Deferred

from modules.gitops import links
from modules.gitops.globs import Glob
from modules.gitops.links import MAX_HOPS, SourceFile, followed
from tunnel.errors import CallError, Status
from tunnel.interfaces import TreeEntry, TreeEntryKind

FILES = ("base/a.yaml", "base/b.txt", "base/in/c.yaml", "top.yaml")


def places(
    links: Mapping[str, str],
    *chosen: str,
    most: int = 99,
    submodule: str = "",
    glob: Glob | None = None,
) -> list[SourceFile]:
    """What is read where the source has *chosen*, by path."""
    entries = [TreeEntry(one, TreeEntryKind.FILE, one) for one in FILES]
    entries += [TreeEntry(one, TreeEntryKind.LINK, one) for one in links]
    if submodule:
        entries.append(TreeEntry(submodule, TreeEntryKind.SUBMODULE, ""))

    async def target_of(path: str) -> str:
        return links[path]

    own = [one for one in entries if one.path in (chosen or links)]
    found: list[list[SourceFile]] = []
    failed: list[BaseException] = []
    if glob is None:
        reading = Deferred.fromCoroutine(
            followed(own, entries, target_of, lambda path: path.endswith("yaml"), most)
        )
    else:
        on_the_way = [
            one
            for one in entries
            if one.kind is TreeEntryKind.LINK and glob.leads_below(one.path)
        ]
        reading = Deferred.fromCoroutine(
            followed(
                own,
                entries,
                target_of,
                glob.matches,
                most,
                glob.leads_below,
                on_the_way,
            )
        )
    reading.addCallbacks(found.append, lambda failure: failed.append(failure.value))
    if failed:
        raise failed[0]
    return found[0]


def refused(links: Mapping[str, str], *chosen: str, **more: str) -> str:
    with pytest.raises(CallError) as caught:
        places(links, *chosen, **more)  # type: ignore[arg-type]
    assert caught.value.status is Status.FAILED_PRECONDITION
    return caught.value.message


@pytest.mark.parametrize(
    ("link", "target", "path"),
    [
        ("x.yaml", "top.yaml", "top.yaml"),
        ("x.yaml", "./base/../base//a.yaml", "base/a.yaml"),
        ("apps/x.yaml", "../base/in/c.yaml", "base/in/c.yaml"),
        ("base/in/x.yaml", "../a.yaml", "base/a.yaml"),
    ],
)
def test_a_file(link: str, target: str, path: str) -> None:
    assert places({link: target}) == [SourceFile(link, path)]


def test_a_folder() -> None:
    """Files below it that belong to the source, under the name of the link."""
    expected = [
        SourceFile("l/a.yaml", "base/a.yaml"),
        SourceFile("l/in/c.yaml", "base/in/c.yaml"),
    ]
    assert places({"l": "base"}) == expected
    assert places({"l": "m", "m": "base/in/.."}, "l") == expected
    links = {"l": "base", "base/n": "../top.yaml", "base/in/m.yaml": "../../top.yaml"}
    assert places(links, "l")[-1] == SourceFile("l/in/m.yaml", "top.yaml")


def test_a_folder_that_globs_go_on_below() -> None:
    """A link that a glob names as a folder is one; ``**`` names none."""
    glob = Glob("l/in/*.yaml")
    links = {"l": "base", "out": "base"}
    expected = [SourceFile("l/in/c.yaml", "base/in/c.yaml")]
    assert ways(links, glob) == expected
    assert ways({"l": "m", "m": "base"}, glob) == expected
    # Within another one, and a file.
    nested = {"l": "base", "base/n": "in", "base/f": "a.yaml"}
    assert ways(nested, Glob("l/*/c.yaml")) == [
        SourceFile("l/in/c.yaml", "base/in/c.yaml"),
        SourceFile("l/n/c.yaml", "base/in/c.yaml"),
    ]
    assert ways(links, Glob("**/*.yaml")) == []
    for target in ("none", "..", "/base"):
        with pytest.raises(CallError, match="l is a symbolic link that leads"):
            ways({"l": target}, glob)
    with pytest.raises(CallError, match="in a circle"):
        ways({"l": ".", "m": "."}, Glob("*/*/*/*/*/*/*/*/*/*/*.yaml"))


def ways(links: Mapping[str, str], glob: Glob) -> list[SourceFile]:
    """What *glob* reaches over links alone."""
    return places(links, "none", glob=glob)


def test_over_a_link_to_a_folder() -> None:
    """What follows ``..`` is looked for where the link leads, as the kernel does it."""
    links = {"x.yaml": "l/../a.yaml", "l": "base/in"}
    assert places(links, "x.yaml") == [SourceFile("x.yaml", "base/a.yaml")]


@pytest.mark.parametrize(
    "target",
    ["/etc/passwd", "..", "../x.yaml", "base/../../etc/passwd", "base/in/../../../x"],
)
def test_out_of_the_repository(target: str) -> None:
    said = refused({"x.yaml": target})
    assert said == "x.yaml is a symbolic link that leads out of the repository"


def test_to_nothing() -> None:
    for target in ("none.yaml", "base/none", "top.yaml/x", "base/a.yaml/../../no"):
        assert "leads to nothing in the commit" in refused({"x.yaml": target})


def test_circles() -> None:
    assert f"more than {MAX_HOPS} links" in refused({"x.yaml": "x.yaml"})
    assert f"more than {MAX_HOPS} links" in refused({"x": "y", "y": "x"})
    links = {"base/loop.yaml": "../base", "l": "base"}
    assert "in a circle" in refused(links, "l")


def test_submodules() -> None:
    assert "sub is a submodule" in refused({}, "sub", submodule="sub")
    said = refused({"x.yaml": "sub/a"}, "x.yaml", submodule="sub")
    assert "leads to a submodule" in said


def test_many() -> None:
    """Links make a small repository large."""
    with pytest.raises(CallError, match="more than 3 files"):
        places({"a": "base", "b": "base"}, most=3)
    assert len(places({"a": "base", "b": "base"}, most=4)) == 4


def test_a_bomb() -> None:
    """Folders of links to a folder of links, and so on, without a circle or a file."""
    links = {
        f"z{level}/{number}.yaml": f"../z{level + 1}"
        for level in range(5)
        for number in range(30)
    }
    links["z5/end"] = "../base/in"
    assert "too many symbolic links" in refused({"l": "z0", **links}, "l")


def test_targets_that_are_made_to_be_slow() -> None:
    """The names in all targets are counted, those of links on the way included."""
    target = "base/../" * (links.MAX_NAMES // 1000) + "top.yaml"
    many = {f"{number}.yaml": target for number in range(1000)}
    said = refused(many, most=2000)  # type: ignore[arg-type]
    assert f"all links lead over more than {links.MAX_NAMES}" in said
    assert len(places(dict(list(many.items())[:99]))) == 99


def test_folders_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many files are in them, and however deep."""
    looked = 0

    def dirname(path: str) -> str:
        nonlocal looked
        looked += 1
        return path.rpartition("/")[0]

    monkeypatch.setattr("modules.gitops.links.posixpath.dirname", dirname)
    folder = "/".join(["d"] * 64)
    entries = [
        TreeEntry(f"{folder}/{number}", TreeEntryKind.FILE, "")
        for number in range(1000)
    ]

    async def target_of(path: str) -> str:
        raise AssertionError

    tree = links._Tree(entries, target_of)
    assert len(tree._folders) == 64
    assert looked <= 1000 + 64 + 1
