"""The package of interfaces: complete, documented, and known by its earlier name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from zope.interface.interface import InterfaceClass

import tunnel.api
import tunnel.interfaces

FOLDER = Path(tunnel.api.__file__).parent
SUBJECTS = [one for one in sorted(FOLDER.glob("*.py")) if one.stem != "__init__"]


def _exported(file: Path) -> set[str]:
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    raise AssertionError(f"{file} has no __all__")


@pytest.mark.parametrize("file", SUBJECTS, ids=lambda one: one.stem)
def test_exports(file: Path) -> None:
    """The package exports the names of each subject."""
    assert _exported(file) <= set(tunnel.api.__all__)
    assert all(hasattr(tunnel.api, name) for name in _exported(file))


#: Interfaces that others implement for what they provide, or that the page describes.
NOT_SHOWN = {
    "IAuthenticator",
    "ICalls",
    "IClientCall",
    "IConfigurationDelivery",
    "IGitLabResponse",
    "IListingAuthenticator",
    "IOpening",
    "IOwnNamespace",
    "IRepositories",
    "ISharedCount",
    "IServiceClient",
    "ISpan",
    "ITracer",
    "IWaitingStream",
}


def test_documented() -> None:
    """The page for authors of modules shows each interface that a module gets."""
    page = (FOLDER.parents[1] / "docs" / "modules.rst").read_text()
    missing = {
        name
        for name in tunnel.api.__all__
        if isinstance(getattr(tunnel.api, name), InterfaceClass)
        and f":pyobject: {name}\n" not in page
        and not name.startswith(("IServerModule", "IAgentModule"))
    }
    assert missing <= NOT_SHOWN


def test_earlier_name() -> None:
    """Names of `tunnel.interfaces` are those of the package."""
    for name in tunnel.interfaces.__all__:
        assert getattr(tunnel.interfaces, name) is getattr(tunnel.api, name)
