"""What remains of events with large parts, however the text arrives."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modules.cluster_audit.agent.event_filter import MAX_STRING, EventFilter
from tests.modules.cluster_audit.pair import ODD_BODIES, event, text_of, with_body

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def filtered(text: bytes, depth: int = 1, size: int = 10**9) -> bytes:
    found = EventFilter(depth)
    parts = (text[start : start + size] for start in range(0, len(text), size))
    return b"".join(map(found.feed, parts))


def as_kept(found: dict[str, Any]) -> dict[str, Any]:
    """Return an event without the parts that the filter leaves out."""

    def inner(value: Any) -> Any:
        return None if isinstance(value, list | dict) else value

    kept = dict(found)
    for name, value in found.items():
        if name in ("requestObject", "responseObject"):
            kept[name] = inner(value)
        elif isinstance(value, dict):
            kept[name] = {key: inner(one) for key, one in value.items()}
        elif isinstance(value, list):
            kept[name] = [inner(one) for one in value]
            texts = [place for place, one in enumerate(value) if isinstance(one, str)]
            if texts:
                kept[name] = kept[name][: texts[0] + 1]
    return kept


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("name", ODD_BODIES)
def test_bodies(name: str, size: int) -> None:
    """Bodies are left out, whatever they contain, and the other members stay."""
    line = with_body(text_of(event("1")), ODD_BODIES[name])
    found = json.loads(filtered(line, 1, size).decode("utf-8", "replace"))
    for body in ("requestObject", "responseObject"):
        found.pop(body)
    expected = as_kept(event("1"))
    assert found == {
        key: one for key, one in expected.items() if not key.endswith("Object")
    }


@given(
    st.dictionaries(
        st.sampled_from(["requestObject", "user", "items", 'a"]\\']) | st.text(), _JSON
    ),
    st.integers(1, 9),
    st.sampled_from([1, 3]),
    st.booleans(),
)
def test_texts(found: dict[str, Any], size: int, depth: int, only_ascii: bool) -> None:
    whole: Any = {"items": [found, found]} if depth == 3 else found
    text = json.dumps(whole, ensure_ascii=only_ascii).encode("utf-8", "surrogatepass")
    kept = json.loads(filtered(text, depth, size).decode("utf-8", "surrogatepass"))
    events = kept["items"] if depth == 3 else [kept]
    assert events == [as_kept(found)] * len(events)


@pytest.mark.parametrize("character", ["x", "é", '"', "\\", "\x01", "\u2028"])
def test_long_strings(character: str) -> None:
    """They are cut, at a character."""
    text = json.dumps({"userAgent": character * 100_000, "verb": "get"})
    found = json.loads(filtered(text.encode(), 1, 1000))
    assert found["verb"] == "get"
    assert set(found["userAgent"]) == {character}
    assert MAX_STRING // 6 - 6 < len(found["userAgent"]) <= MAX_STRING


@pytest.mark.parametrize(
    "changed",
    [
        {"requestObject": {"data": {"key": "x" * 10**6}}},
        {"requestObject": {str(number): number for number in range(50_000)}},
        {"responseObject": {"items": [{"a": []}] * 50_000}},
        {"sourceIPs": ["192.0.2.7"] * 50_000},
        {"requestURI": "/" + "x" * 10**6},
        {"user": {"username": "a", "groups": ["b" * 100] * 10_000}},
        {"responseStatus": {"code": 403, "message": "<" * 100_000}},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_size(changed: dict[str, Any]) -> None:
    """An event is small, whatever the client has sent."""
    text = filtered(text_of(event("1", **changed)).encode(), 1, 4096)
    assert len(text) < 4096
    assert json.loads(text)["auditID"] == "1"


def test_invalid_texts() -> None:
    for text in (b"]]]}", b'{"a": [}', b'{"a"', b"\\", b'{"a": "\\', b"[" * 9999):
        with pytest.raises(ValueError, match=r".+"):
            json.loads(filtered(text))
