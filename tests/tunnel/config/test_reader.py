"""Reading configuration: values, and above all what is said about wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tunnel.config.schemas import Colour, Inner, Outer, Pair, Wider, problems
from tunnel.config import Section, read


class TestValues:
    def test_empty_text_gives_the_defaults(self) -> None:
        for text in ("", "# only a comment\n", "---\n", "~"):
            assert read(text, "f.yaml", Outer) == Outer()

    def test_every_type(self, tmp_path: Path) -> None:
        text = """
inner: {port: 80, address: 127.0.0.1:8150}
names: [on, 1:30, "007", 0x1f]
numbers:
- 1
- -2
by_name:
  a: {port: 3}
  b:
wait: 1h30m
size: 64KiB
mode: slow
colour: blue
maybe: ~
ratio: 1.5e1
on: TRUE
where: sub/x.pem
hidden: 5
upper: abc
current-context: here
"""
        got = read(text, str(tmp_path / "f.yaml"), Outer)
        assert got.inner == Inner(port=80, address="127.0.0.1:8150")
        # the text as written: YAML 1.1 would have made True, 90 and 31 of these
        assert got.names == ("on", "1:30", "007", "0x1f")
        assert got.numbers == [1, -2]
        assert got.by_name == {"a": Inner(port=3), "b": Inner()}
        assert (got.wait, got.size, got.ratio) == (5400.0, 65536, 15.0)
        assert (got.mode, got.colour, got.maybe) == ("slow", Colour.BLUE, None)
        assert got.on is True
        assert got.where == tmp_path / "sub/x.pem"
        assert (got.upper, got.current_context) == ("ABC", "here")

    def test_absolute_path_stays(self) -> None:
        assert read("where: /a/b", "x/f.yaml", Outer).where == Path("/a/b")

    def test_aliases_are_expanded(self) -> None:
        got = read("by_name: {a: &x {port: 5}, b: *x}", "f.yaml", Outer)
        assert got.by_name["b"] == Inner(port=5)

    def test_secret_is_not_in_repr(self) -> None:
        assert "4711" not in repr(read("hidden: 4711", "f.yaml", Outer))


class TestProblems:
    def test_all_at_once_in_the_order_of_the_file(self) -> None:
        text = "inner:\n  adress: x\n  port: 0\nwait: 5\nnumbers: [1, x]\nmode: quick\n"
        assert problems(text) == [
            "f.yaml:2:3: inner: unknown key 'adress'; did you mean 'address'?",
            "f.yaml:3:9: inner.port: 'port' must be >= 1: 0",
            "f.yaml:4:7: wait: expected a time such as 90s, 5m, 1h30m or 500ms, "
            "got '5'; write the unit: 5s",
            "f.yaml:5:14: numbers[1]: expected a whole number, got 'x'",
            "f.yaml:6:7: mode: expected one of: fast, slow; got 'quick'",
        ]

    def test_unknown_key_without_a_near_one(self) -> None:
        (problem,) = problems("inner: {zzz: 1}")
        assert problem.endswith("unknown key 'zzz'; known are: address, port")

    def test_a_dash_for_an_underscore(self) -> None:
        (problem,) = problems("by-name: {}")
        assert "did you mean 'by_name'?" in problem

    def test_unknown_keys_can_be_skipped(self) -> None:
        got = read("zzz: 1\non: true", "f.yaml", Outer, unknown_keys="skip")
        assert got.on is True

    def test_duplicate_key(self) -> None:
        (problem,) = problems("on: true\ninner:\n  port: 1\n  port: 2\n")
        assert (
            problem
            == "f.yaml:4:3: inner.port: is duplicated, first in line 3; remove one"
        )

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("on: yes", "expected true or false, got 'yes'"),
            ('numbers: ["1"]', "got '1' in quotes; remove the quotes"),
            ("inner: 5", "expected a section with 'key: value' lines"),
            ("inner: [1]", "got a list"),
            ("names: one", "expected a list, got 'one'; put '- ' before each item"),
            ("ratio: .nan", "expected a number"),
            ("ratio: 1e999", "expected a number"),
            ("numbers: [99999999999999999999]", "expected a whole number"),
            ("upper:", "has no value; write one, or remove the key"),
            ("colour: green", "expected one of: red, blue; got 'green'"),
            ("where: ''", "a path cannot be empty"),
            ("upper: {a: b}", "expected letters, got a section"),
            ("- a\n- b", "got a list"),
            ("just text", "got a single value"),
            ("a: 'x\n", "not YAML"),
            ("a:\n\tb: c", "indent with spaces instead of tabs"),
            ("a: {}\nb:\n  c: d\n\te: f", "indent with spaces instead of tabs"),
            ("a: *b", "nothing above is named '&b'"),
            ("a: &a [*a]", "nothing above is named '&a' and complete"),
            ("a: !!python/object:os.system x", "tags such as"),
            ("a: 1\n---\nb: 2", "only one YAML document"),
            ("<<: {a: 1}", "merge keys"),
            ("? [a]\n: b", "a key must be plain text"),
            ("a: \x07", "U+0007"),
        ],
    )
    def test_message(self, text: str, says: str) -> None:
        found = problems(text)
        assert len(found) == 1
        assert found[0].startswith("f.yaml:")
        assert says in found[0]

    def test_place_of_a_forbidden_character(self) -> None:
        assert problems("a: 1\nb: \x00")[0].startswith("f.yaml:2:4: ")

    def test_missing_key(self) -> None:
        assert problems("high: 3", Pair) == [
            "f.yaml:1:1: the key 'low' is missing (the lower end)"
        ]

    def test_keys_that_do_not_go_together(self) -> None:
        assert problems("high: 3\nlow: 5", Pair) == [
            "f.yaml:2:1: low: 'low' is above 'high'"
        ]
        assert problems("high: 3\nlow: 3", Pair) == ["f.yaml:1:1: nothing lies between"]

    def test_what_does_not_go_together_is_said_beside_the_rest(self) -> None:
        """As far as it depends on nothing that is wrong, or may be meant."""
        together = "f.yaml:3:1: low: 'low' is above 'high'"
        for slip in ("high: 3", "x: 1"), ("high: 3", "maybe: 1"):
            first, unknown = problems("\n".join((*slip, "low: 5")), Wider)[::-1]
            assert first == together
            assert "unknown key" in unknown
        wrong = "f.yaml:1:8: spare: expected a whole number, got 'x'"
        assert problems("spare: x\nhigh: 3\nlow: 5", Wider) == [wrong, together]
        # The default of what was meant may be what does not go together.
        for text in "high: x\nlow: 50", "hihg: 99\nlow: 50", "high: 3\nlow: y":
            assert len(problems(text, Wider)) == 1, text

    def test_a_secret_value_is_not_repeated(self) -> None:
        (problem,) = problems("hidden: hunter2")
        assert "hunter2" not in problem

    def test_long_values_are_cut(self) -> None:
        (problem,) = problems("numbers: [" + "x" * 5000 + "]")
        assert len(problem) < 200


class TestSections:
    def test_a_section_keeps_its_lines(self) -> None:
        got = read("modules:\n  echo:\n    prot: 1\n", "f.yaml", Outer)
        section = got.modules["echo"]
        assert section.keys() == ("prot",)
        assert section.location == "f.yaml:2:3"
        assert section.problems(Inner) == (
            "f.yaml:3:5: modules.echo: unknown key 'prot'; did you mean 'port'?",
        )

    def test_a_good_section(self) -> None:
        got = read("later: {port: 7}", "f.yaml", Outer)
        assert got.later is not None
        assert got.later.read(Inner) == Inner(port=7)
        assert got.later.problems(Inner) == ()

    def test_without_a_value_it_is_there_and_empty(self) -> None:
        got = read("later:\n  # port: 1\n", "f.yaml", Outer)
        assert got.later is not None
        assert got.later.read(Inner) == Inner()
        assert read("later: null", "f.yaml", Outer).later is None

    def test_one_that_nobody_wrote(self) -> None:
        section = Section.empty("modules.echo")
        assert section.read(Inner) == Inner()
        assert section.problems(Pair) == (
            "(defaults): modules.echo: the key 'low' is missing (the lower end)",
        )
