"""
Checks the language of comments, docstrings, messages and documents.

    python -m tools.prose [KIND...]    print each fault; status 1 if there are any
    python -m tools.prose --counts     print hits per 1,000 words for each pattern

KIND is ``code`` (comments and docstrings), ``messages`` (string constants) or ``docs``.

Each pattern is a turn of phrase that native technical writers avoid, because a reader
has to read the sentence twice.  In Twisted, websockets, hypothesis, click, h2 and
attrs, most patterns occur at most 0.2 times in 1,000 words.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("agentk", "kas", "modules", "tunnel")
DOCUMENTS = ("*.rst", "*.md", "newsfragments/*.rst", "docs/*.rst")

KINDS = ("code", "messages", "docs")

#: String constants of fewer words are names, keys and formats, not messages.
MESSAGE_WORDS = 4


@attrs.frozen
class Pattern:
    """
    A turn of phrase to avoid.

    :ivar advice: what to write instead.
    :ivar allowed: hits in 1,000 words that are not reported; some have a proper use.
    """

    name: str
    expression: re.Pattern[str]
    advice: str
    allowed: float = 0.3


def _pattern(name: str, text: str, advice: str, allowed: float = 0.3) -> Pattern:
    return Pattern(name, re.compile(text, re.IGNORECASE), advice, allowed)


PATTERNS = (
    Pattern(
        "headless-what",
        re.compile(
            r"(?:^|(?<=[.:;!?]\s)|(?<=[.:;!?]\s\s))"
            r"(?:What|Whatever|Who|Whoever|Whose)\b(?![^.?!]*\?)",
            re.MULTILINE,
        ),
        "begin with a noun: 'the cost of a request', not 'what a request costs'",
    ),
    _pattern(
        "one-that",
        r"\b(?:one|those|that) (?:that|who|which|of which|whose)\b",
        "repeat the noun: 'a request that', not 'one that'",
    ),
    _pattern("is-told", r"\b(?:is|are|was|were|be|been) told\b", "say who tells whom"),
    _pattern(
        "stands",
        r"\b(?:stands?|stood) (?:in|at|beside|before|behind|there|apart|alone|for)\b",
        "use 'is', 'contains' or 'means'",
    ),
    _pattern(
        "is-no",
        r"\b(?:is|are|was|were) no (?!longer|more\b)[a-z]",
        "negate the verb: 'is not a duration', not 'is no duration'",
        0.5,
    ),
    _pattern(
        "people",
        r"\b(?:a person|people|somebody|someone|nobody|whoever)\b",
        "name the role: user, operator, client, author",
        0.4,
    ),
    _pattern(
        "anew",
        r"\b(?:anew|for ever|lest|shall|likewise|thereby|thereof|hereby)\b",
        "use again, forever, so that … not, must, also",
    ),
    _pattern(
        "of-which",
        r"\b(?:of|by|from|with|to|in|for) which\b",
        "begin a new sentence, or use 'whose' or 'where'",
        1.0,
    ),
    _pattern(
        "so-many-as",
        r"\bso (?:many|much|long|often) (?:as|that)\b",
        "use 'as many as', 'as long as' or 'at most'",
    ),
    _pattern(
        "that-of",
        r"\b(?:that|those) of\b",
        "repeat the noun: 'the size of the file', not 'that of the file'",
    ),
)


@attrs.frozen
class Text:
    """A piece of prose: its place, kind (code, messages, docs) and words."""

    path: Path
    line: int
    kind: str
    text: str


def _code(path: Path) -> Iterator[Text]:
    source = path.read_text("utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(
            ("#!", "# type", "# noqa")
        ):
            yield Text(path, token.start[0], "code", token.string.lstrip("#: "))
    docstrings = set()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ) and (text := ast.get_docstring(node)):
            # A line break inside a sentence is a space; an empty line ends a sentence.
            joined = re.sub(r"\n(?!\n)", " ", text)
            yield Text(path, node.body[0].lineno, "code", joined)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings.add(node.value)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node not in docstrings
            and len(node.value.split()) >= MESSAGE_WORDS
        ):
            yield Text(path, node.lineno, "messages", node.value)


def _document(path: Path) -> Iterator[Text]:
    block: list[str] = []
    begin = 1
    for number, line in enumerate([*path.read_text("utf-8").splitlines(), ""], 1):
        if line.strip() and not line.startswith(("    $", "..")):
            if not block:
                begin = number
            block.append(line.strip())
        elif block:
            yield Text(path, begin, "docs", " ".join(block))
            block = []


def texts(root: Path) -> Iterator[Text]:
    """Yield every text of the product below *root*."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            if not path.name.endswith("_pb2.py"):
                yield from _code(path)
    for glob in DOCUMENTS:
        for path in sorted(root.glob(glob)):
            yield from _document(path)


def main(arguments: Sequence[str] | None = None) -> int:
    description = (__doc__ or "").strip().splitlines()[0]
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], metavar="KIND")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--counts", action="store_true", help="print figures alone")
    options = parser.parse_args(arguments)
    words: Counter[str] = Counter()
    found: dict[tuple[str, Pattern], list[Text]] = {}
    for text in texts(options.root):
        if text.kind not in (options.kinds or KINDS):
            continue
        words[text.kind] += len(text.text.split())
        for pattern in PATTERNS:
            for _ in pattern.expression.finditer(text.text):
                found.setdefault((text.kind, pattern), []).append(text)
    failed = False
    for (kind, pattern), hits in found.items():
        rate = 1000 * len(hits) / words[kind]
        if options.counts:
            print(f"{kind}\t{pattern.name}\t{len(hits)}\t{rate:.2f}")
        if rate <= pattern.allowed:
            continue
        failed = True
        if options.counts:
            continue
        for hit in hits:
            place = f"{hit.path.relative_to(options.root)}:{hit.line}"
            print(f"{place}: {pattern.name}: {pattern.advice}: {hit.text[:100]!r}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
