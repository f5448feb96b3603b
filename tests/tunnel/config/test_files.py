"""Files that are read, and files that configuration names."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from tests.tunnel.config.schemas import Outer
from tunnel.config import ExistingFile, field, read, read_file
from tunnel.errors import ConfigurationError


class TestFiles:
    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError) as caught:
            read_file(tmp_path / "none.yaml", Outer)
        assert "none.yaml cannot be read (No such file" in str(caught.value)

    def test_not_utf8(self, tmp_path: Path) -> None:
        path = tmp_path / "f.yaml"
        path.write_bytes(b"a: 1\nb: \xff\n")
        with pytest.raises(ConfigurationError) as caught:
            read_file(path, Outer)
        assert "f.yaml:2:4: not UTF-8" in str(caught.value)

    def test_byte_order_mark(self, tmp_path: Path) -> None:
        path = tmp_path / "f.yaml"
        path.write_bytes(b"\xef\xbb\xbfon: true\n")
        assert read_file(path, Outer).on is True

    def test_existing_file(self, tmp_path: Path) -> None:
        @attrs.frozen
        class Files:
            file: ExistingFile = field(doc="a file")

        Files.__annotations__["file"] = ExistingFile
        (tmp_path / "here").write_text("x")
        name = str(tmp_path / "f.yaml")
        assert read("file: here", name, Files).file == tmp_path / "here"
        for text, says in (("file: gone", "does not exist"), ("file: .", "is not a")):
            with pytest.raises(ConfigurationError) as caught:
                read(text, name, Files)
            assert says in str(caught.value)
            assert "correct the path" in str(caught.value)
