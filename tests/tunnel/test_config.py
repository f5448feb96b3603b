"""Reading configuration: values, and above all what is said about wrong ones."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tunnel.net import certificates
from tunnel import _yaml
from tunnel.config import (
    MAX_DURATION,
    Duration,
    ExistingFile,
    Invalid,
    Listen,
    Section,
    Size,
    Text,
    field,
    keys,
    parse_duration,
    parse_size,
    read,
    read_file,
)
from tunnel.errors import ConfigurationError


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen(kw_only=True)
class Inner:
    port: int = field(
        default=1,
        doc="a port",
        validator=[attrs.validators.ge(1), attrs.validators.le(65535)],
    )
    address: str = field(default="", doc="an address")


@attrs.frozen(kw_only=True)
class Outer:
    inner: Inner = field(factory=Inner, doc="inner section")
    names: tuple[str, ...] = field(default=(), doc="names")
    numbers: list[int] = field(factory=list, doc="numbers")
    by_name: dict[str, Inner] = field(factory=dict, doc="sections")
    wait: Duration = field(default=1.0, doc="a time")
    size: Size = field(default=1, doc="a size")
    mode: Literal["fast", "slow"] = field(default="fast", doc="a choice")
    colour: Colour = field(default=Colour.RED, doc="an enum")
    maybe: int | None = field(default=3, doc="optional")
    ratio: float = field(default=0.5, doc="a number")
    on: bool = field(default=False, doc="a switch")
    where: Path | None = field(default=None, doc="a path")
    hidden: int = field(default=0, doc="secret", secret=True)
    later: Section | None = field(default=None, doc="deferred")
    modules: dict[str, Section] = field(factory=dict, doc="deferred by name")
    upper: Annotated[str, Text(str.upper, "letters")] = field(default="", doc="own")
    current_context: str = field(default="", doc="renamed", key="current-context")


@attrs.frozen(kw_only=True)
class Pair:
    low: int = field(doc="the lower end")
    high: int = field(default=9, doc="the upper end")

    def __attrs_post_init__(self) -> None:
        if self.low > self.high:
            raise Invalid("'low' is above 'high'", "low")
        if self.low == self.high:
            raise ValueError("nothing lies between")


def problems(text: str, schema: type[Any] = Outer) -> list[str]:
    """Everything that reading *text* complains about."""
    with pytest.raises(ConfigurationError) as caught:
        read(text, "f.yaml", schema)
    return list(caught.value.problems)


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

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("0", 0),
            ("90s", 90),
            ("5m", 300),
            ("2h", 7200),
            ("1h30m", 5400),
            ("500ms", 0.5),
            ("0.5s", 0.5),
            ("1d", 86400),
            ("1m30s500ms", 90.5),
        ],
    )
    def test_durations(self, text: str, seconds: float) -> None:
        assert parse_duration(text) == seconds

    @pytest.mark.parametrize(
        "text", ["", "5", "-5s", "s", "1s1s", "1s1h", "1 s", "5x", "1e3s", "99999d"]
    )
    def test_what_is_no_duration(self, text: str) -> None:
        with pytest.raises(ValueError):
            parse_duration(text)

    @given(st.text(alphabet="0123456789.dhms ", max_size=20))
    def test_durations_never_surprise(self, text: str) -> None:
        try:
            assert 0 <= parse_duration(text) <= MAX_DURATION
        except ValueError:
            pass

    def test_sizes(self) -> None:
        assert [parse_size(t) for t in ("7", "7B", "1 KiB", "2MiB", "1GiB")] == [
            7,
            7,
            1024,
            2 * 2**20,
            2**30,
        ]
        for text in ("1KB", "1.5MiB", "-1", "", "1k"):
            with pytest.raises(ValueError):
                parse_size(text)


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
        assert problem == (
            "f.yaml:4:3: inner.port: is here twice, first in line 3; remove one"
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

    def test_a_secret_value_is_not_repeated(self) -> None:
        (problem,) = problems("hidden: hunter2")
        assert "hunter2" not in problem

    def test_long_values_are_cut(self) -> None:
        (problem,) = problems("numbers: [" + "x" * 5000 + "]")
        assert len(problem) < 200


class TestLimits:
    def test_billion_laughs(self) -> None:
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        for n in range(1, 10):
            lines.append(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]")
        (problem,) = problems("\n".join(lines))
        assert f"more than {_yaml.MAX_NODES} values" in problem

    def test_depth(self) -> None:
        (problem,) = problems("a: " + "[" * 100_000)
        assert f"nested deeper than {_yaml.MAX_DEPTH} levels" in problem

    def test_depth_by_aliases(self) -> None:
        lines = ["a0: &a0 [x]"]
        lines += [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 40)]
        (problem,) = problems("\n".join(lines))
        assert "nested deeper" in problem

    def test_size(self) -> None:
        (problem,) = problems("#" * (_yaml.MAX_TEXT + 1))
        assert "larger than 1024 KiB" in problem

    def test_as_large_as_allowed(self) -> None:
        assert read("#" * _yaml.MAX_TEXT, "f.yaml", Outer) == Outer()

    @given(st.text(alphabet="ab:-[]{}&*!|>'\"#,? \n\t0", max_size=60))
    def test_nothing_but_configuration_errors(self, text: str) -> None:
        try:
            read(text, "f.yaml", Outer)
        except ConfigurationError as error:
            assert error.problems


class TestFiles:
    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError) as caught:
            read_file(tmp_path / "none.yaml", Outer)
        assert "none.yaml: cannot be read (No such file" in str(caught.value)

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


class TestListen:
    @pytest.mark.parametrize(
        ("text", "endpoint"),
        [
            ("address: 127.0.0.1:8150", "tcp:8150:interface=127.0.0.1:backlog=4096"),
            ("address: '[::1]:8150'", r"tcp6:8150:interface=\:\:1:backlog=4096"),
            ("address: localhost:1", "tcp:1:interface=localhost:backlog=4096"),
            ("{network: tcp4, address: ':80'}", "tcp:80:backlog=4096"),
            ("{network: tcp6, address: ':80'}", r"tcp6:80:interface=\:\::backlog=4096"),
            ("{network: unix, address: '/run/a:b'}", r"unix:/run/a\:b:mode=660"),
            ("endpoint: tcp:8150", "tcp:8150"),
            ("endpoint: systemd:domain=INET:name=x", "systemd:domain=INET:name=x"),
        ],
    )
    def test_endpoint_string(self, text: str, endpoint: str) -> None:
        assert read(text, "f.yaml", Listen).endpoint_string() == endpoint

    def test_no_host_is_every_address(self) -> None:
        got = Listen(address=":80").endpoint_string()
        assert got in ("tcp:80:backlog=4096", r"tcp6:80:interface=\:\::backlog=4096")

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("address: nonsense", "is not 'host:port'"),
            ("address: 'a:99999'", "99999 is not a port"),
            ("{network: tcp6, address: '1.2.3.4:1'}", "no address of the network tcp6"),
            ("{network: tcp4, address: '[::1]:1'}", "no address of the network tcp4"),
            (
                "{network: tcp6, address: 'name:1'}",
                "with network tcp6 write an address",
            ),
            ("address: '[x]:1'", "is not an IPv6 address"),
            ("network: unix", "write the path of the socket"),
            ("network: udp", "expected one of: tcp, tcp4, tcp6, unix"),
            ("endpoint: nonsense", "is no endpoint"),
            ("endpoint: 'tcp:x'", "is no endpoint Twisted can use"),
            ("{endpoint: 'tcp:1', address: 'a:1'}", "exclude each other"),
            ("{endpoint: 'tcp:1', network: tcp4}", "exclude each other"),
        ],
    )
    def test_wrong(self, text: str, says: str) -> None:
        (problem,) = problems(text, Listen)
        assert says in problem

    def test_half_of_tls(self, tmp_path: Path) -> None:
        (tmp_path / "x.pem").write_text("x")
        for one, other in (
            ("certificate_file", "key_file"),
            ("key_file", "certificate_file"),
        ):
            with pytest.raises(ConfigurationError) as caught:
                read(f"address: a:1\n{one}: x.pem", f"{tmp_path}/f.yaml", Listen)
            assert f"f.yaml:2:1: {one}: '{other}' is missing" in str(caught.value)

    def test_client_certificates_need_tls(self, tmp_path: Path) -> None:
        (tmp_path / "x.pem").write_text(certificates.authority().pem)
        text = "address: a:1\nclient_ca_certificate_file: x.pem"
        with pytest.raises(ConfigurationError) as caught:
            read(text, f"{tmp_path}/f.yaml", Listen)
        assert "client certificates need TLS" in str(caught.value)

    def test_several_problems_of_one_section(self, tmp_path: Path) -> None:
        (tmp_path / "x.pem").write_text("x")
        text = "address: nonsense\nkey_file: x.pem"
        with pytest.raises(ConfigurationError) as caught:
            read(text, f"{tmp_path}/f.yaml", Listen)
        assert len(caught.value.problems) == 2


class TestKeys:
    def test_lists_nested_keys_with_defaults(self) -> None:
        found = {key.path: key for key in keys(Outer)}
        assert found["inner.port"].default == 1
        assert found["inner.port"].doc == "a port"
        assert "by_name.port" in found
        assert "current-context" in found
        assert [key.path for key in keys(Pair) if key.required] == ["low"]
