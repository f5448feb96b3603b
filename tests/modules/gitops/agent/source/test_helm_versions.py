"""Templates that are made to be slow where charts ask for API versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from modules.gitops.agent.source import helm_versions
from modules.gitops.agent.source.helm_versions import with_hidden

NAMES = ["policy/v1beta1"]


class CountedTokens(list[str]):
    """Tokens, and how many of them were looked at."""

    looked = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.looked += len(found) if isinstance(place, slice) else 1
        return found

    def __iter__(self) -> Iterator[str]:
        for one in super().__iter__():
            self.looked += 1
            yield one


@pytest.mark.parametrize(
    "unit",
    [
        ("x.Has", " ", "|", " "),
        ("x.Has", " ", "(", " "),
        ("(", " ", "x.Has", " "),
        ("has", " ", "(", " ", "x", " "),
        (")", "x.Has", " ", "("),
        ("x.Has", " ", ".a", " "),
    ],
)
@pytest.mark.parametrize("closed", [False, True])
def test_an_action_that_is_made_to_be_slow(unit: tuple[str, ...], closed: bool) -> None:
    """No token is looked at often, however parentheses are nested."""
    opened = unit.count("(")
    end = [")"] * (2000 * opened if closed else 0)
    tokens = CountedTokens([*unit * 2000, *end])
    made = helm_versions._changed(tokens)
    assert tokens.looked < 20 * len(tokens)
    assert len(made) == len(tokens)


def changed(template: str) -> str:
    files = [("web/templates/a.yaml", template.encode())]
    return with_hidden(files, "web", NAMES)[0][1].decode()


def test_nested_arguments() -> None:
    """Each is wrapped by itself."""
    made = changed("{{ a.Has (b.Has (c).d) }}")
    name = 'include "txkas.version"'
    assert made == f"{{{{ a.Has ({name} (b.Has ({name} (c).d))) }}}}"


def test_parentheses_without_an_end() -> None:
    """Helm says what is wrong with them."""
    assert changed("{{ a.Has (b }}") == "{{ a.Has (b }}"


def test_a_large_action() -> None:
    """Quadratic work on half a million tokens would not end."""
    for unit in (" x.Has (", " x.Has |"):
        with pytest.raises(ValueError, match=r"^web/templates/a\.yaml: an action has"):
            changed("{{" + unit * 500_000)


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    many = "{{ .Has }}" * 10
    monkeypatch.setattr(helm_versions, "MAX_TOKENS", 30)
    assert changed(many) == many
    with pytest.raises(ValueError, match="have more than 30 tokens"):
        changed(many + many)
    monkeypatch.setattr(helm_versions, "MAX_BYTES", 99)
    with pytest.raises(ValueError, match="have more than 99 bytes"):
        changed(many)
    # Who asks nothing may be as long as it likes.
    assert changed("{{ .Values.a }}" * 100) == "{{ .Values.a }}" * 100
