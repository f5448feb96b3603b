"""What no file can do to its reader."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tunnel.config.schemas import Outer, problems
from tunnel.config import nodes, read
from tunnel.errors import ConfigurationError
from tunnel.toolkit.yaml_directives import MAX_TAGS


class TestLimits:
    def test_billion_laughs(self) -> None:
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        for n in range(1, 10):
            lines.append(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]")
        (problem,) = problems("\n".join(lines))
        assert f"more than {nodes.MAX_NODES} values" in problem

    def test_too_many_directives(self) -> None:
        """libyaml compares each with all others: kas would do nothing else."""
        lines = (f"%TAG !{number}! x\n" for number in range(60_000))
        (problem,) = problems("".join(lines) + "--- {}\n")
        assert problem.startswith(f"f.yaml:{MAX_TAGS + 1}:1: only {MAX_TAGS} %TAG")

    def test_aliases_of_long_text(self) -> None:
        """Few values, whose characters are too many once aliases are expanded."""
        text = "x" * 1000
        often = nodes.MAX_CHARACTERS // len(text)
        (problem,) = problems(f"a: &a {text}\nb:\n" + "  - *a\n" * often)
        assert problem.startswith(f"f.yaml:{often + 2}:5: ")
        assert f"more than {nodes.MAX_CHARACTERS} characters" in problem

    def test_merged_long_text(self) -> None:
        """Merge keys and keys count as any value."""
        key = "k" * 1000
        often = nodes.MAX_CHARACTERS // len(key)
        lines = [f"a: &a {{{key}: 1}}", *(f"b{n}: {{<<: *a}}" for n in range(often))]
        with pytest.raises(nodes.Unreadable, match="characters"):
            nodes.parse("\n".join(lines), "f.yaml", as_json=True)

    def test_characters_as_many_as_allowed(self) -> None:
        node = nodes.parse(f"a: &a {'x' * 1000}\nb: [*a, *a]", "f.yaml")
        assert (node.size, node.characters) == (7, 3002)

    def test_depth(self) -> None:
        (problem,) = problems("a: " + "[" * 100_000)
        assert f"nested deeper than {nodes.MAX_DEPTH} levels" in problem

    def test_depth_by_aliases(self) -> None:
        lines = ["a0: &a0 [x]"]
        lines += [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 40)]
        (problem,) = problems("\n".join(lines))
        assert "nested deeper" in problem

    def test_size(self) -> None:
        (problem,) = problems("#" * (nodes.MAX_TEXT + 1))
        assert "larger than 1024 KiB" in problem

    def test_as_large_as_allowed(self) -> None:
        assert read("#" * nodes.MAX_TEXT, "f.yaml", Outer) == Outer()

    @given(st.text(alphabet="ab:-[]{}&*!|>'\"#,? \n\t0", max_size=60))
    def test_nothing_but_configuration_errors(self, text: str) -> None:
        try:
            read(text, "f.yaml", Outer)
        except ConfigurationError as error:
            assert error.problems
