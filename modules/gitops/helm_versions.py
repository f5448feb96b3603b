"""
API versions that Helm tells charts of and that the cluster lacks.

``helm template --api-versions`` adds to a list that is compiled into Helm, and nothing
takes from it: a chart that asks for ``policy/v1beta1`` would get it on every cluster.
So templates ask for another name in place of those that are not there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

__all__ = ["ask", "asks", "hidden", "with_hidden"]

#: A chart that prints what Helm has, by file.
ask: Mapping[str, bytes] = {
    "Chart.yaml": b"apiVersion: v2\nname: versions\nversion: 0.0.0\n",
    "templates/all.yaml": b"all: {{ .Capabilities.APIVersions | toJson }}\n",
}

#: What a template names when it asks.
_ASKS = b"APIVersions"

#: The named template of ours, and the name of its file in the chart.
_NAME, _FILE = "txkas.version", "_txkas_versions%s.tpl"

#: Within ``{{ }}``: comments and texts, chains of fields, words, and single characters.
#: Texts without an end match, too: no file takes longer than its length.
_TOKEN = re.compile(
    r"""/\*.*?(?:\*/|\Z)|"(?>(?:[^"\\\n]|\\.)*)"?|'(?>(?:[^'\\\n]|\\.)*)'?|`[^`]*+`?"""
    r"""|\$?\w*(?:\.\w+)+|\$\w*|[\w.+-]+|\s+|.""",
    re.DOTALL,
)

_OPERAND = re.compile(r"""["'`$.\w(+-]""")


def asks(templates: Mapping[str, bytes]) -> bool:
    """Whether a template asks which API versions there are."""
    return any(_ASKS in data for data in templates.values())


def hidden(printed: bytes, there: Collection[str]) -> list[str]:
    """
    Read what `ask` printed.

    :param there: what the cluster has.
    :raises ValueError: Helm printed something else.
    """
    said = json.loads(printed.partition(b"all: ")[2].partition(b"\n")[0])
    return sorted({*said} - {*there})


def with_hidden(
    files: Sequence[tuple[str, bytes]], chart: str, names: Collection[str]
) -> list[tuple[str, bytes]]:
    """
    Have the templates of *files* ask in vain for *names*.

    :param chart: the folder of the chart.
    """
    listed = " ".join(json.dumps(one) for one in names)
    ours = (
        f'{{{{- define "{_NAME}" }}}}{{{{ if has . (list {listed}) }}}}no {{{{ end }}}}'
        "{{ . }}{{ end }}\n"
    )
    folder = f"{chart}/templates" if chart else "templates"
    taken, number = {path for path, _ in files}, ""
    while f"{folder}/{_FILE % number}" in taken:
        number += "_"
    return [
        *((path, _asking(path, data)) for path, data in files),
        (f"{folder}/{_FILE % number}", ours.encode()),
    ]


def _asking(path: str, data: bytes) -> bytes:
    if "/templates/" not in f"/{path}":
        return data
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    made, place = [], 0
    while (begin := text.find("{{", place)) >= 0:
        tokens = list(_tokens(text, begin + 2))
        made.append(text[place : begin + 2])
        made.append("".join(_changed(tokens)))
        place = begin + 2 + sum(map(len, tokens))
    made.append(text[place:])
    return "".join(made).encode()


def _tokens(text: str, place: int) -> Iterator[str]:
    """What stands between ``{{`` and ``}}``."""
    while place < len(text) and not text.startswith("}}", place):
        found = _TOKEN.match(text, place)
        assert found is not None
        yield found[0]
        place = found.end()


def _changed(tokens: list[str]) -> list[str]:
    """The same, where what is asked for goes through our template."""
    made = list(tokens)
    for number, part in enumerate(tokens):
        if part.endswith(".Has"):
            operand = _operand(tokens, number + 1)
            if operand is not None:
                _wrap(made, operand)
            elif _piped(tokens, number):
                made[number] = f'include "{_NAME}" | {part}'
        elif part == "has":
            operand = _operand(tokens, number + 1)
            if operand is None:
                continue
            end = _operand(tokens, operand[1])
            if end and "".join(tokens[end[0] : end[1]]).endswith(".APIVersions"):
                _wrap(made, operand)
    return made


def _wrap(made: list[str], operand: tuple[int, int]) -> None:
    first, end = operand
    made[first] = f'(include "{_NAME}" {made[first]}'
    made[end - 1] += ")"


def _piped(tokens: list[str], number: int) -> bool:
    before = [one for one in tokens[:number] if not one.isspace()]
    return bool(before) and before[-1] == "|"


def _operand(tokens: list[str], number: int) -> tuple[int, int] | None:
    """Where the argument begins that follows, and where it ends; None: none does."""
    if number >= len(tokens) or not tokens[number].isspace():
        return None
    number += 1
    if number >= len(tokens) or not _OPERAND.match(tokens[number]):
        return None
    if tokens[number] in ("-", "+"):
        # The end of the action, as in ``-}}``.
        return None
    first, depth = number, 0
    while number < len(tokens):
        depth += {"(": 1, ")": -1}.get(tokens[number], 0)
        number += 1
        if depth <= 0:
            break
    # Fields of what stands in parentheses.
    while number < len(tokens) and tokens[number].startswith("."):
        number += 1
    return first, number
