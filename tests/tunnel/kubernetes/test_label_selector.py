"""Label selectors, compared with labels."""

from __future__ import annotations

import pytest

from tunnel.kubernetes import label_requirements

LABELS = {"app": "web", "tier": ""}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==api", False),
        ("app!=api,app", True),
        ("env!=prod", True),
        ("env notin (prod),tier=", True),
        ("app in (api, web),!env", True),
        ("!app", False),
        ("env", False),
        ("env in (prod)", False),
        ("app notin (web)", False),
    ],
)
def test_matches(selector: str, matches: bool) -> None:
    found = label_requirements(selector)
    assert all(one.matches(LABELS) for one in found) == matches
