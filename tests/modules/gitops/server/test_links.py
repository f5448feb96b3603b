"""Symbolic links of a repository: those that stay inside, and all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from twisted.internet.defer import Deferred

from modules.gitops.server import links
from modules.gitops.server.globs import Glob
from modules.gitops.server.links import MAX_HOPS, SourceFile, followed
from tunnel.api import TreeEntry, TreeEntryKind
from tunnel.errors import CallError, Status

FILES = ("base/a.yaml", "base/b.txt", "base/in/c.yaml", "top.yaml")


class Choosing:
    """A choice by functions, and how much it was asked."""

    def __init__(
        self,
        matches: Callable[[str], bool],
        leads: Callable[[str], bool] = lambda path: False,
    ) -> None:
        self._matches, self._leads = matches, leads
        self.asked = self.steps = 0

    async def matches(self, path: str) -> bool:
        self.asked += 1
        return self._matches(path)

    async def leads(self, path: str) -> bool:
        return self._leads(path)

    async def take(self, steps: int) -> None:
        self.steps += steps


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
    choice = Choosing(lambda path: path.endswith("yaml"))
    on_the_way: list[TreeEntry] = []
    if glob is not None:
        choice = Choosing(glob.matches, glob.leads_below)
        on_the_way = [
            one
            for one in entries
            if one.kind is TreeEntryKind.LINK and glob.leads_below(one.path)
        ]
    reading = Deferred.fromCoroutine(
        followed(own, entries, target_of, choice, most, on_the_way)
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
    with pytest.raises(CallError, match="form a loop"):
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
    assert "form a loop" in refused(links, "l")


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
    said = refused({"l": "z0", **links}, "l")
    assert "is a symbolic link that exceeds the limit: all links" in said


def test_large_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files below links are counted, if the source has them or not."""
    monkeypatch.setattr(links, "MAX_LOOKED", 5)
    assert len(places({"l": "base", "x.yaml": "top.yaml"})) == 3
    assert "too many symbolic links" in refused({"l": "base", "m": "base"})


def test_targets_that_are_made_to_be_slow() -> None:
    """The names in all targets are counted, those of links on the way included."""
    target = "base/../" * (links.MAX_NAMES // 1000) + "top.yaml"
    many = {f"{number}.yaml": target for number in range(1000)}
    said = refused(many, most=2000)  # type: ignore[arg-type]
    assert f"pass through more than {links.MAX_NAMES}" in said
    assert len(places(dict(list(many.items())[:99]))) == 99


def test_many_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paths that links make are counted, below folders and on the way to them."""
    monkeypatch.setattr(links, "MAX_CHARACTERS", 300)
    said = "all links have more than 300 characters"
    assert said in refused({"x.yaml": "./base/../" * 80 + "top.yaml"})
    assert said in refused({"l" * 280: "base"})
    assert len(places({"l": "base"})) == 2


def test_steps_are_counted_before_they_are_done() -> None:
    """Those for the paths of the commit, names in targets, and paths below links."""
    entries = [TreeEntry(f"d/{n}", TreeEntryKind.FILE, "") for n in range(1000)]
    link = TreeEntry("l", TreeEntryKind.LINK, "")

    async def target_of(path: str) -> str:
        return "./" * 2000 + "d"

    choice = Choosing(lambda path: False)
    done = Deferred.fromCoroutine(
        followed([link], [*entries, link], target_of, choice, 99)
    )
    assert done.result == []
    assert choice.steps > 2 * 1000 * links.PATH + 2000 * links.NAME


def test_only_what_a_folder_has_is_looked_at() -> None:
    """However many files there are elsewhere, and in folders of similar names."""
    names = ["d/a", "d/b/c", "d-/a", "d.x", "e/a", *(f"z/{n}" for n in range(1000))]
    entries = [TreeEntry(name, TreeEntryKind.FILE, "") for name in names]
    many = [TreeEntry(f"l{n}", TreeEntryKind.LINK, "") for n in range(300)]

    async def target_of(path: str) -> str:
        return "d"

    choice = Choosing(lambda path: path.startswith("l1/"))
    done = Deferred.fromCoroutine(
        followed(many, [*entries, *many], target_of, choice, 99)
    )
    assert done.result == [SourceFile("l1/a", "d/a"), SourceFile("l1/b/c", "d/b/c")]
    assert choice.asked == 600
