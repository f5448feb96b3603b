"""Marks for tests that depend on the build."""

from __future__ import annotations

import pytest

from tunnel.compiled import build_name

__all__ = ["sources_only"]

#: For a test whose fakes a native class does not accept.  The sources are the same.
sources_only = pytest.mark.skipif(
    build_name() == "compiled", reason="compiled classes accept no fakes here"
)
