"""
Removal of API versions that Helm reports to charts but the cluster lacks.

``helm template --api-versions`` extends a list that is compiled into Helm, and no
option can shorten it: a chart that tests for ``policy/v1beta1`` would find it on every
cluster. Therefore templates are changed to test for another name in place of the
missing versions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence

import attrs

from tunnel.toolkit.quoted import quoted_end

__all__ = ["ask", "asks", "hidden", "with_hidden"]

#: Chart that prints Helm's API versions, by file.
ask: Mapping[str, bytes] = {
    "Chart.yaml": b"apiVersion: v2\nname: versions\nversion: 0.0.0\n",
    "templates/all.yaml": b"all: {{ .Capabilities.APIVersions | toJson }}\n",
}

#: Text in every template that tests for API versions.
_ASKS = b"APIVersions"

#: Name of the template that agentk adds, and name of its file in the chart.
_NAME, _FILE = "txkas.version", "_txkas_versions%s.tpl"

#: Tokens within ``{{ }}``: comments and strings, chains of fields, words, and single
#: characters.  Unterminated strings match, too: the time for a file is linear in its
#: length.
_TOKEN = re.compile(
    r"""/\*.*?(?:\*/|\Z)|`[^`]*+`?"""
    r"""|\$?\w*\.\w[\w.]*|\$\w*|[\w.+-]+|\s+|.""",
    re.DOTALL,
)

#: Quotes of literals, which `quoted_end` reads.
_QUOTES = ('"', "'")

_OPERAND = re.compile(r"""["'`$.\w(+-]""")

#: Names of the method and the function in templates that test for versions.
_HAS = (b".Has", b"has")

#: Maximum number of tokens of one handwritten action, and of all templates that may
#: test for versions: the largest charts have a tenth of these numbers, and that many
#: tokens take two seconds of a core.
MAX_TOKENS_OF_ACTION, MAX_TOKENS = 50_000, 2_000_000

#: Maximum bytes of all templates that may test for versions.
MAX_BYTES = 16 * 1024**2

_TEMPLATES = "templates that call has or .Has"


def asks(templates: Mapping[str, bytes]) -> bool:
    """Return whether a template tests for API versions."""
    return any(_ASKS in data for data in templates.values())


def hidden(printed: bytes, there: Collection[str]) -> list[str]:
    """
    Return the API versions in the output of `ask` that the cluster lacks.

    :param there: the API versions of the cluster.
    :raises ValueError: if Helm printed a text of another form.
    """
    said = json.loads(printed.partition(b"all: ")[2].partition(b"\n")[0])
    return sorted({*said} - {*there})


def with_hidden(
    files: Sequence[tuple[str, bytes]], chart: str, names: Collection[str]
) -> list[tuple[str, bytes]]:
    """
    Change the templates in *files* so that tests for *names* fail.

    :param chart: the folder of the chart.
    :raises ValueError: if the templates are too large; the text of the error names the
        file.
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
    asking = _Asking()
    return [
        *((path, asking.changed(path, data)) for path, data in files),
        (f"{folder}/{_FILE % number}", ours.encode()),
    ]


@attrs.define
class _Asking:
    """
    Rewriter of the templates of one chart that test for API versions.

    :ivar tokens: the number of tokens read so far.
    :ivar size: the number of bytes read so far.
    """

    tokens: int = 0
    size: int = 0

    def changed(self, path: str, data: bytes) -> bytes:
        """
        Return a file whose tests for versions use agentk's template.

        :raises ValueError: if the templates are too large.
        """
        if "/templates/" not in f"/{path}" or not any(one in data for one in _HAS):
            return data
        self.size += len(data)
        if self.size > MAX_BYTES:
            raise _too_large(path, f"{_TEMPLATES} have more than {MAX_BYTES} bytes")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return data
        made, place = [], 0
        while (begin := text.find("{{", place)) >= 0:
            tokens, end = self._tokens(path, text, begin + 2)
            made += [text[place : begin + 2], *_changed(tokens)]
            place = end
        made.append(text[place:])
        return "".join(made).encode()

    def _tokens(self, path: str, text: str, place: int) -> tuple[list[str], int]:
        """Return the tokens between ``{{`` and ``}}``, and the place where they end."""
        made: list[str] = []
        while place < len(text) and not text.startswith("}}", place):
            if text[place] in _QUOTES:
                end = quoted_end(text, place + 1, text[place], one_line=True)
            else:
                found = _TOKEN.match(text, place)
                assert found is not None
                end = found.end()
            made.append(text[place:end])
            place = end
            if len(made) > MAX_TOKENS_OF_ACTION:
                why = f"an action has more than {MAX_TOKENS_OF_ACTION} tokens"
                raise _too_large(path, why)
        self.tokens += len(made)
        if self.tokens > MAX_TOKENS:
            raise _too_large(path, f"{_TEMPLATES} have more than {MAX_TOKENS} tokens")
        return made, place


def _too_large(path: str, why: str) -> ValueError:
    return ValueError(f"{path}: {why}")


def _changed(tokens: Sequence[str]) -> list[str]:
    """Return the tokens, with agentk's template around the tested versions."""
    made = list(tokens)
    ends = _ends(tokens)
    #: The last token other than white space.
    before = ""
    for number, part in enumerate(tokens):
        if part.endswith(".Has"):
            operand = _operand(tokens, ends, number + 1)
            if operand is not None:
                _wrap(made, operand)
            elif before == "|":
                made[number] = f'include "{_NAME}" | {part}'
        elif part == "has":
            operand = _operand(tokens, ends, number + 1)
            if operand is not None:
                listed = _operand(tokens, ends, operand[1])
                if listed and tokens[listed[1] - 1].endswith(".APIVersions"):
                    _wrap(made, operand)
        if not part.isspace():
            before = part
    return made


def _wrap(made: list[str], operand: tuple[int, int]) -> None:
    first, end = operand
    made[first] = f'(include "{_NAME}" {made[first]}'
    made[end - 1] += ")"


def _ends(tokens: Sequence[str]) -> dict[int, int]:
    """
    Map each opening parenthesis to its closing one; parentheses that are not closed are
    left out.
    """
    found: dict[int, int] = {}
    opened: list[int] = []
    for number, part in enumerate(tokens):
        if part == "(":
            opened.append(number)
        elif part == ")" and opened:
            found[opened.pop()] = number
    return found


def _operand(
    tokens: Sequence[str], ends: Mapping[int, int], number: int
) -> tuple[int, int] | None:
    """Return the begin and end of the next argument; None if no argument follows."""
    if number >= len(tokens) or not tokens[number].isspace():
        return None
    first = number + 1
    if first >= len(tokens) or not _OPERAND.match(tokens[first]):
        return None
    if tokens[first] in ("-", "+"):
        # This is the end of the action, as in ``-}}``.
        return None
    last = ends.get(first) if tokens[first] == "(" else first
    if last is None:
        # Helm will reject this template.
        return None
    end = last + 1
    # Include fields of the expression in parentheses.
    while end < len(tokens) and tokens[end].startswith("."):
        end += 1
    return first, end
