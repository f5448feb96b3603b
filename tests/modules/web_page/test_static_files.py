"""The files that browsers load: complete, small, and without unsafe constructs."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "modules" / "web_page"
STATIC = PAGE / "static"

#: Maximum number of bytes of the first view, compressed, so that phones show it fast.
MAX_SCRIPT, MAX_STYLE = 40_000, 12_000

#: Constructs that parse text as HTML or run it, or that the page's policy forbids.
UNSAFE = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|srcdoc|document\.write|DOMParser"
    r"|setHTMLUnsafe|createContextualFragment|\beval\s*\(|new Function|javascript:"
    r"|\son[a-z]+=\"|\sstyle=\"",
    re.IGNORECASE,
)


@pytest.fixture
def manifest() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((STATIC / "manifest.json").read_text())
    return found


def test_manifest_names_each_file(manifest: dict[str, Any]) -> None:
    """The manifest agrees with the files."""
    found = {
        one.name: {
            "sha256": hashlib.sha256(one.read_bytes()).hexdigest(),
            "bytes": one.stat().st_size,
        }
        for one in STATIC.iterdir()
        if one.name != "manifest.json"
    }
    assert manifest["files"] == found


def test_compressed_files(manifest: dict[str, Any]) -> None:
    """Each file has compressed copies, without a time."""
    names = [one for one in manifest["files"] if not one.endswith((".br", ".gz"))]
    assert len(names) == 4
    for name in names:
        zipped = (STATIC / f"{name}.gz").read_bytes()
        assert gzip.decompress(zipped) == (STATIC / name).read_bytes()
        assert zipped[4:8] == bytes(4)
        assert f"{name}.br" in manifest["files"]


def test_first_view_is_small(manifest: dict[str, Any]) -> None:
    files = manifest["files"]
    assert files[f"{manifest['script']}.br"]["bytes"] <= MAX_SCRIPT
    assert files[f"{manifest['style']}.br"]["bytes"] <= MAX_STYLE


def test_licences(manifest: dict[str, Any]) -> None:
    """Each package has a version, a licence that permits this use, and its text."""
    text = (STATIC / "LICENSES.txt").read_text()
    assert {one["name"] for one in manifest["packages"]} >= {"preact", "htm"}
    for one in manifest["packages"]:
        assert one["license"] in ("MIT", "ISC", "Apache-2.0")
        _, found, rest = text.partition(f"{one['name']} {one['version']}\n")
        assert found and "opyright" in rest.partition("-" * 72)[0]


def test_no_source_maps(manifest: dict[str, Any]) -> None:
    assert not [one for one in manifest["files"] if ".map" in one]
    assert b"sourceMappingURL" not in (STATIC / manifest["script"]).read_bytes()


def test_sources_are_safe() -> None:
    """No source of the page parses or runs text of a cluster."""
    sources = sorted((PAGE / "browser" / "src").rglob("*.js"))
    assert len(sources) > 20
    found = [
        f"{file.name}:{number}: {line.strip()}"
        for file in sources
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if UNSAFE.search(line)
    ]
    assert not found
