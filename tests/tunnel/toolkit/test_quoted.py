"""Long runs in texts, and the memory that their search takes."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnel.toolkit.quoted import AT_ONCE, quoted_end, run_end

_ALL = re.compile(r"(?:[^\"\\]|\\.)*", re.DOTALL)
_LINE = re.compile(r"(?:[^\"\\\n]|\\[^\n])*", re.DOTALL)


@given(st.text(alphabet='"\\\nab', max_size=60), st.booleans())
def test_end(text: str, one_line: bool) -> None:
    """It is the end of the longest match, with the closing quote."""
    found = (_LINE if one_line else _ALL).match(text)
    assert found is not None
    expected = found.end() + (text[found.end() : found.end() + 1] == '"')
    assert quoted_end(text, 0, '"', one_line=one_line) == expected
    data = text.encode()
    assert quoted_end(data, 0, b'"', one_line=one_line) == expected
    other = text.replace('"', "'")
    assert quoted_end(other, 0, "'", one_line=one_line) == expected


@pytest.mark.parametrize("count", [0, 1, AT_ONCE, AT_ONCE + 1, 10 * AT_ONCE])
def test_long(count: int) -> None:
    text = "\\n" * count + '" rest'
    assert quoted_end(text, 0, '"') == 2 * count + 1
    assert run_end(re.compile("(?:ab){0,3}"), "ab" * count + "a", 0) == 2 * count


#: What takes the memory: a module, and an expression with TEXT, of 4 MiB.
PLACES = {
    "quoted": "tunnel.toolkit.quoted import quoted_end; quoted_end(TEXT, 1, '\"')",
    "manifest": (
        "modules.gitops.agent.objects.documents import _check_depth; "
        "_check_depth(TEXT, 0, 1)"
    ),
    "lookup": (
        "modules.gitops.agent.source.rendering import _lookup_in; "
        "_lookup_in(b'{{ ' + TEXT.encode() + b' }}')"
    ),
    "versions": (
        "modules.gitops.agent.source.helm_versions import _Asking; "
        "_Asking()._tokens('a', TEXT + '}}', 0)"
    ),
    "fields": (
        "modules.gitops.agent.source.helm_versions import _Asking; "
        "_Asking()._tokens('a', '.a' * 2**21 + '}}', 0)"
    ),
    "audit": (
        "modules.cluster_audit.agent.events import EventReader; "
        'EventReader().read(b\'{"auditID":"1","stage":"ResponseComplete",'
        "\"requestObject\":[' + TEXT.encode() + b']}')"
    ),
}

_PROGRAM = """
import resource, sys
from {place}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
TEXT = {text}
{call}
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


#: Texts that clients choose: escapes, a long string, and many small values after deep
#: ones, which the parser of JSON does not accept.
TEXTS = {
    "escapes": r"""'"' + '\\n' * 2_000_000 + '"'""",
    "string": """'"' + 'a' * 4_000_000 + '"'""",
    "values": "'[' * 1500 + ']' * 1500 + ',{}' * 1_000_000",
}


@pytest.mark.parametrize(
    ("place", "kind"),
    # Two places refuse such values.
    [
        (place, kind)
        for place in PLACES
        for kind in TEXTS
        if kind != "values" or place not in ("manifest", "versions")
    ],
)
def test_memory(place: str, kind: str) -> None:
    """Whatever the text is, its copies are the largest part."""
    module, _, call = PLACES[place].partition("; ")
    program = _PROGRAM.format(place=module, text=TEXTS[kind], call=call)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 60_000, "KiB"
