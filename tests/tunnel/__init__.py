"""Tests of what both programs share; assertions of `asserts` say what differed."""

import pytest

pytest.register_assert_rewrite("tests.tunnel.asserts")
