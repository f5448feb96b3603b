"""The section ``gitlab``."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from kas.config.schema import read_configuration
from modules.kubernetes_api.config import KubernetesApiConfiguration
from tunnel.errors import ConfigurationError


def secret(folder: Path, size: int = 32) -> Path:
    path = folder / "secret"
    path.write_text(base64.b64encode(b"x" * size).decode())
    path.chmod(0o600)
    return path


def problems(text: str, folder: Path) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read_configuration(text, f"{folder}/kas.yaml")
    return list(caught.value.problems)


def test_defaults(tmp_path: Path) -> None:
    text = (
        "gitlab:\n  address: https://gitlab.example.com:8443/gitlab\n"
        f"  authentication_secret_file: {secret(tmp_path)}\n"
    )
    got = read_configuration(text, "kas.yaml")
    assert got.gitlab is not None
    limit = got.gitlab.api_rate_limit
    assert (limit.refill_rate_per_second, limit.bucket_size) == (50, 250)
    times = got.agent
    assert (times.info_cache_ttl, times.info_cache_error_ttl) == (300, 60)
    assert read_configuration("", "kas.yaml").gitlab is None


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("gitlab.example.com", "write a complete URL"),
        ("ssh://gitlab.example.com", "write a complete URL"),
        ("https://", "no host"),
        ("https://a:99999", "not a URL"),
        ("https://a:0", "invalid port"),
        ("https://root:s3cret@a", "must not contain a user name or password"),
        ("https://a/?token=s3cret", "has no effect"),
    ],
)
def test_address(address: str, what: str, tmp_path: Path) -> None:
    (found,) = problems(
        f"gitlab:\n  address: {address}\n"
        f"  authentication_secret_file: {secret(tmp_path)}\n",
        tmp_path,
    )
    assert what in found
    assert found.startswith(f"{tmp_path}/kas.yaml:2:")
    assert "s3cret" not in found


def test_secret_of_another_size(tmp_path: Path) -> None:
    """GitLab takes 32 bytes and nothing else."""
    (found,) = problems(
        "gitlab:\n  address: https://a\n"
        f"  authentication_secret_file: {secret(tmp_path, 33)}\n",
        tmp_path,
    )
    assert "has 33 bytes" in found and ".gitlab_kas_secret" in found


def test_what_is_needed(tmp_path: Path) -> None:
    found = problems("gitlab: {}\n", tmp_path)
    assert len(found) == 2
    assert "'address' is missing" in found[0]


@pytest.mark.parametrize(
    ("url", "origins"),
    [
        ("", ()),
        ("https://gitlab.example.com", ("https://gitlab.example.com",)),
        ("https://GitLab.Example.com:443/a/", ("https://gitlab.example.com",)),
        ("http://gitlab.example.com:8080", ("http://gitlab.example.com:8080",)),
        ("http://[2001:DB8::1]", ("http://[2001:db8::1]",)),
    ],
)
def test_origins(url: str, origins: tuple[str, ...], tmp_path: Path) -> None:
    """As browsers write them."""
    text = (
        "gitlab:\n  address: https://gitlab.example.com\n"
        f"  authentication_secret_file: {secret(tmp_path)}\n"
        f"  external_url: '{url}'\n"
    )
    got = read_configuration(text, "kas.yaml").gitlab
    assert got is not None
    assert got.origins == origins


def test_response_headers() -> None:
    """Names of header fields, and nothing that could be more."""
    kept = KubernetesApiConfiguration(extra_allowed_response_headers=("X-Mine",))
    assert kept.extra_allowed_response_headers == ("X-Mine",)
    for name in ("", "a b", "a:", "a\r\nb"):
        with pytest.raises(ValueError, match="cannot be the name"):
            KubernetesApiConfiguration(extra_allowed_response_headers=(name,))
