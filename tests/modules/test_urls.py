"""URLs in what an operator writes for modules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from modules.gitops.server.config import WebhookSettings
from tunnel.api import RepositorySettings


@pytest.mark.parametrize(
    "make",
    [
        lambda url: RepositorySettings(url=url),
        lambda url: WebhookSettings(url=url, secret_file=Path("/")),
    ],
)
@pytest.mark.parametrize(
    "url", ["https://user:s3cret", "https://user:s3cret\u2100@host/", "https://[s3cret"]
)
def test_no_url(make: Callable[[str], object], url: str) -> None:
    """A password that is in one by a mistake is not repeated."""
    with pytest.raises(ValueError, match="not a URL") as caught:
        make(url)
    assert "s3cret" not in str(caught.value)
