"""YAML and JSON as kubectl reads them, and what no text may do to its reader."""

from __future__ import annotations

import json

import pytest

from modules.gitops.agent.objects.documents import (
    MAX_DEPTH,
    Budget,
    TextDocument,
    UnreadableText,
    read_json,
    read_yaml,
)
from tunnel.toolkit.yaml_directives import MAX_TAGS


def read(
    text: str | bytes,
    *,
    values: int = 10_000,
    documents: int = 100,
    characters: int = 10**6,
) -> list[TextDocument]:
    data = text.encode() if isinstance(text, str) else text
    return list(read_yaml(data, Budget(values, characters, documents=documents)))


def value(text: str) -> object:
    (found,) = read(text)
    return found.value


def refused(text: str | bytes, **limits: int) -> tuple[int, str]:
    with pytest.raises(UnreadableText) as caught:
        read(text, **limits)
    return caught.value.line, caught.value.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yes", True), ("y", True), ("off", False), ("N", False), ("~", None),
        ("", None), ("null", None), ("010", 8), ("0o17", 15), ("0x1F", 31),
        ("0b101", 5), ("08", 8), ("1_000", 1000), ("-010", -8), ("1e3", 1000),
        (".5", 0.5), ("1.0", 1), ("1:30", "1:30"), ("2001-01-01", "2001-01-01"),
        ("100m", "100m"), ("._5", "._5"), ("1e1000", "1e1000"), ("0o8", "0o8"),
        ("18446744073709551615", 2**64 - 1), ("18446744073709551616", 2**64),
        ("'1'", "1"), ('"yes"', "yes"), ("|\n  1", "1"),
        ("9" * 5000, "9" * 5000),
        ("!!str 1", "1"), ("!!int '1'", 1), ("!!bool yes", True), ("! 1", "1"),
    ],
)  # fmt: skip
def test_scalars(text: str, expected: object) -> None:
    found = value(f"a: {text}")
    assert found == {"a": expected}
    assert isinstance(found, dict)
    assert type(found["a"]) is type(expected)


def test_keys_are_text() -> None:
    assert value("{1: a, yes: b, 1.5: c, '2': d}") == {
        "1": "a",
        "true": "b",
        "1.5": "c",
        "2": "d",
    }


def test_merge_keys_and_aliases() -> None:
    text = "a: &a {x: 1, z: 1}\nb: &b {z: 2}\nc: {<<: [*a, *b], x: 3, '<<': quoted}\n"
    assert value("{a: 1, <<: {a: 2, c: 3}, c: 4}") == {"a": 2, "c": 4}
    assert value("{<<: {a: 2}, a: 1}") == {"a": 1}
    assert value('[&m "<<", {*m : {a: 2}}]') == ["<<", {"<<": {"a": 2}}]
    assert value(text) == {
        "a": {"x": 1, "z": 1},
        "b": {"z": 2},
        "c": {"x": 3, "z": 1, "<<": "quoted"},
    }


def test_documents_and_their_lines() -> None:
    text = "# a comment\n\na: 1\n---\n# another\nb: 2\n---\n---\n- 3\n"
    assert read(text) == [
        TextDocument({"a": 1}, 3),
        TextDocument({"b": 2}, 6),
        TextDocument(None, 7),
        TextDocument([3], 9),
    ]
    assert read("") == []
    assert read("\ufeffa: 1") == [TextDocument({"a": 1}, 1)]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: 2\na: 3", 3, "duplicate key 'a'"),
        ("a:\n b: c: d", 2, "not YAML: mapping values are not allowed"),
        ("a:\n- !!python/object:os.system {}", 2, "python/object:os.system is not"),
        ("a: !secret b", 1, "the tag !secret is not supported"),
        ("a: !!int b", 1, "a value does not match its tag"),
        ("a: !!int true", 1, "a value does not match its tag"),
        ("a:\n b: .nan", 2, ".nan is not a number in JSON"),
        ("a: -.inf", 1, "-.inf is not a number in JSON"),
        ("? [a]\n: b", 1, "a key must be text"),
        ("a: *b", 1, "has the anchor &b"),
        ("a: &a [*a]", 1, "no complete value above has the anchor &a"),
        ("a: &a 1\n---\nb: *a", 3, "has the anchor &a"),
        ("a: {<<: 1}", 1, "merges mappings only"),
        (b"a: 1\nb: \xff", 2, "not UTF-8"),
        (b"a: 1\n\nb: \x00", 3, "the character U+0000"),
        ("%YAML 2.0\n---\n", 1, "incompatible YAML document"),
    ],
)  # fmt: skip
def test_refused(text: str | bytes, line: int, message: str) -> None:
    where, why = refused(text)
    assert where == line
    assert message in why


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a: b\n c: d\n", (2, 3), "put quotes around text that contains ': '"),
        ("a:\n  b: c\n d: e\n", (3, 2), "the indentation does not fit"),
        ("a:\n\tb: c\n", (2, 1), "spaces instead of tabs"),
        ("ä: x\nb: @c\n", (2, 4), "put quotes around"),
        (
            'a: "b\nc: d\n',
            (3, 1),
            "is the quote or bracket closed that begins in line 1",
        ),
        ("a: {{ .Values.x }}-y\n", (1, 17), "source: {kind: helm}"),
        ("{{- if .x }}\na: b\n", (1, 3), "source: {kind: helm}"),
        ("a: {b: 1, b: 2}", (1, 11), "duplicate key"),
        ("ä: ö\nä: \xff".encode("latin-1"), (1, 1), "save the file in that encoding"),
        ("a:\n b: ä\x00", (2, 6), "remove it"),
    ],
)
def test_place_and_remedy(
    text: str | bytes, place: tuple[int, int], message: str
) -> None:
    """An editor goes there, and a person knows what to do."""
    with pytest.raises(UnreadableText) as caught:
        read(text)
    assert (caught.value.line, caught.value.column) == place
    assert message in caught.value.message


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_levels_are_bounded(opening: str) -> None:
    """Long before anything that recurses would fail."""
    assert "levels" in refused(opening * 10_000)[1]


def test_levels_of_aliases_are_bounded() -> None:
    half = "[" * (MAX_DEPTH // 2) + "]" * (MAX_DEPTH // 2)
    text = f"a: &a {half}\nb: {half.replace('[]', '[*a]')}\n"
    assert refused(text)[0] == 2


def test_what_aliases_stand_for_counts() -> None:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    line, why = refused("\n".join(lines))
    assert "too many values" in why
    assert line < 20


def test_texts_that_aliases_stand_for_count() -> None:
    text = f"a: &a {'x' * 1000}\nb: [{', '.join(['*a'] * 100)}]"
    assert read(text, characters=102_000)
    assert "too many characters" in refused(text, characters=100_000)[1]


def test_values_and_documents_are_bounded() -> None:
    assert read("[1, 2, 3]", values=4)
    assert "too many values" in refused("[1, 2, 3]", values=3)[1]
    assert read("---\n" * 3, documents=3)
    assert refused("---\n" * 4, documents=3) == (4, "the files hold too many documents")


def json_values(text: str, **limits: int) -> list[TextDocument]:
    budget = Budget(
        limits.get("values", 1000),
        limits.get("characters", 1000),
        documents=limits.get("documents", 10),
    )
    return list(read_json(text.encode(), budget))


def test_json() -> None:
    text = '\n{"a": [1, 1.5, true, null]}\n\n{\n"b": "}"\n}\n'
    assert json_values(text) == [
        TextDocument({"a": [1, 1.5, True, None]}, 2),
        TextDocument({"b": "}"}, 4),
    ]
    assert json_values("  ") == []


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('{"a": 1}\n{"b": 1,\n"b": 2}', 2, "the key 'b' is duplicated"),
        ('{"a":\n}', 2, "this is not JSON"),
        ("NaN", 1, "NaN is not a number"),
        ("[1e999]", 1, "1e999 is too large"),
        ("[" * 10_000, 1, "levels"),
        ('{"a":' * 200, 1, "levels"),
        ('["\\u0000"', 1, "this is not JSON"),
    ],
)
def test_refused_json(text: str, line: int, message: str) -> None:
    with pytest.raises(UnreadableText) as caught:
        json_values(text)
    assert caught.value.line == line
    assert message in caught.value.message


def test_json_is_bounded() -> None:
    text = json.dumps({"a": [1, 2]})
    assert json_values(text, values=5)
    with pytest.raises(UnreadableText, match="too many values"):
        json_values(text, values=4)
    with pytest.raises(UnreadableText, match="too many characters"):
        json_values('["' + "x" * 100 + '"]', characters=100)
    with pytest.raises(UnreadableText, match="too many documents"):
        json_values("1 2 3", documents=2)


def test_many_small_values_before_much_space() -> None:
    """The rest of the text is not looked through for each."""
    text = "1 " * 3000 + " " * 3_000_000
    assert len(json_values(text, documents=3000, values=3000, characters=3000)) == 3000


def test_brackets_within_texts_are_none() -> None:
    deep = "[" * 400
    assert json_values(json.dumps([deep, f'\\"{deep}'])) == [
        TextDocument([deep, f'\\"{deep}'], 1)
    ]


def test_too_many_directives() -> None:
    """libyaml compares each with all others: these would take it minutes."""
    for between in ("\n", "\r", "\u2028"):
        text = "".join(f"%TAG !a{number}! x{between}" for number in range(400_000))
        line, message = refused(text + "--- a\n")
        assert line == (MAX_TAGS + 1 if between == "\n" else 1)
        assert (
            message == f"only {MAX_TAGS} %TAG directives are allowed; remove this one"
        )


def test_directives_that_are_few() -> None:
    text = "".join(f"%TAG !a{number}! x\n" for number in range(MAX_TAGS))
    assert value(text + "--- a\n") == "a"
    indented = "a: |\n" + " %TAG !a! x\n" * (MAX_TAGS + 1)
    assert str(value(indented)).count("%TAG") == MAX_TAGS + 1
