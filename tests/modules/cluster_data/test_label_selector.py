"""Label selectors, as SQLite evaluates them."""

from __future__ import annotations

import json
import sqlite3

import pytest

from modules.cluster_data.server.store.label_selector import label_conditions
from modules.cluster_data.server.store.terms import terms_of
from tunnel.kubernetes import MAX_SELECTOR

ROWS = {
    "web": {"app": "web", "tier": "front"},
    "api": {"app": "api", "example.org/tier": "back"},
    "bare": None,
}


def selected(selector: str) -> set[str]:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE rows (id INTEGER, name TEXT)")
    database.execute("CREATE TABLE terms (term TEXT, id INTEGER)")
    for number, (name, labels) in enumerate(ROWS.items()):
        columns = json.dumps({} if labels is None else {"labels": labels})
        database.execute("INSERT INTO rows VALUES (?, ?)", (number, name))
        for term in terms_of(name, columns):
            database.execute("INSERT INTO terms VALUES (?, ?)", (term, number))
    terms, values = ["1"], []
    for term, more in label_conditions(selector):
        terms.append(term)
        values += more
    text = "SELECT name FROM rows WHERE " + " AND ".join(terms)
    return {name for (name,) in database.execute(text, values)}


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", {"web", "api", "bare"}),
        ("app=web", {"web"}),
        ("app == web", {"web"}),
        ("app!=web", {"api", "bare"}),
        ("app", {"web", "api"}),
        ("!app", {"bare"}),
        ("example.org/tier=back", {"api"}),
        ("app in (web, api),tier", {"web"}),
        ("app notin (web)", {"api", "bare"}),
        ("app=web,tier!=front", set()),
    ],
)
def test_selector(selector: str, names: set[str]) -> None:
    assert selected(selector) == names


@pytest.mark.parametrize(
    "selector",
    ["=", "app=web,,", "app in web", "app=a b", 'a"b', 'app in (a"b)', "app>5"],
)
def test_invalid(selector: str) -> None:
    with pytest.raises(ValueError, match="invalid"):
        list(label_conditions(selector))


def test_too_long() -> None:
    with pytest.raises(ValueError, match="more than 1000 characters"):
        list(label_conditions("a" * (MAX_SELECTOR + 1)))
