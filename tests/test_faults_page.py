"""The page of what goes wrong elsewhere: complete, and with tests that exist."""

from __future__ import annotations

import ast

import pytest

from tests.faults.page import PAGE, Fault, faults, figures

ROOT = PAGE.parents[1]

#: What the page has to have.
NAMES = [
    *(f"F{number}" for number in (19, 21, 22, 23, 24, 25)),
    *(f"S{number:02}" for number in range(1, 10)),
    *(f"J{number:02}" for number in range(1, 5)),
    *(f"P{number:02}" for number in range(1, 8)),
    *(f"G{number:02}" for number in range(1, 5)),
    *(f"E{number:02}" for number in range(1, 41)),
    *(f"V{number:02}" for number in (1, 2, 3, 6, 7, 8, 12, 13, 20, 21, 22, 24, 25)),
]


def test_complete() -> None:
    """Each fault once, and shown by something."""
    found = faults()
    assert [one.name for one in found] == NAMES
    assert all(one.tests for one in found)


@pytest.mark.parametrize("fault", faults(), ids=lambda one: one.name)
def test_tests(fault: Fault) -> None:
    """Every test that is named is there."""
    for name in fault.tests:
        path, *parts = name.split("::")
        bodies = ast.parse((ROOT / path).read_text()).body
        for part in parts:
            (bodies,) = [_body(one) for one in bodies if _name(one) == part]
        assert not parts or parts[-1].startswith(("test", "Test")) or _tests(bodies), (
            name
        )


def _name(node: ast.stmt) -> str:
    named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return node.name if isinstance(node, named) else ""


def _body(node: ast.stmt) -> list[ast.stmt]:
    return node.body if isinstance(node, ast.ClassDef) else []


def _tests(bodies: list[ast.stmt]) -> bool:
    """Whether a class has tests."""
    return any(_name(one).startswith("test") for one in bodies)


def test_figures() -> None:
    """A name has a figure if one of its tests ran, and it is bad if one failed."""
    said = figures(
        [
            ("tests/faults/test_access.py::test_audiences[x]", True, 1.5),
            ("tests/faults/test_access.py::test_audiences[y]", True, 1.0),
            ("tests/faults/test_access.py::test_audiences_of_others", False, 9.0),
            ("tests/kas/identity/test_jwt.py::VerifyTests::test_none", False, 0.25),
        ]
    )
    jwt = "J01: tests/kas/identity/test_jwt.py::VerifyTests"
    audiences = "J02: tests/faults/test_access.py::test_audiences"
    assert [(one.experiment, one.ok) for one in said] == [
        (jwt, False),
        (audiences, True),
    ]
    assert said[1].figure == "2 of 2 passed, 2.5 s"
    assert said[0].figure.endswith(
        "failed: tests/kas/identity/test_jwt.py::VerifyTests::test_none"
    )
