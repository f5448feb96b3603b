"""The section of the agent's file, and the places of its errors."""

from __future__ import annotations

from typing import Any

import pytest

from modules.agent_configuration.schema import ConfigurationFile
from modules.webhooks.wire.settings import MAX_TARGETS
from tunnel.config import read
from tunnel.errors import ConfigurationError

FILE = """\
webhooks:
  targets:
  - name: flux
    service: flux-system/webhook-receiver:80
    {}
"""


def parsed(text: str) -> Any:
    return read(text, "config.yaml", ConfigurationFile).webhooks


def test_defaults() -> None:
    (target,) = parsed(FILE.format("path: /hook/1")).targets
    assert target.refs == ("HEAD",)
    assert target.format == "generic"
    assert target.address == "http flux-system/webhook-receiver:80/hook/1"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("service: 10.0.0.1:80", "namespace/name:port"),
        ("service: flux-system/10.0.0.1:80", "namespace/name:port"),
        ("service: flux-system/a.example.org:80", "namespace/name:port"),
        ("service: flux-system/hooks", "namespace/name:port"),
        ("service: flux-system/hooks:0", "namespace/name:port"),
        ("service: flux-system/hooks:65536", "namespace/name:port"),
        ("service: default/kubernetes:443", "API server"),
        ("path: hook", "must be a path"),
        ("path: '/a b'", "must be a path"),
        ("path: http://example.org/", "must be a path"),
        ("format: gitea", "generic"),
        ("secret: the-secret-itself", "namespace/name/key of a Secret"),
        ("secret: other/webhook-token/token", "in the namespace of the Service"),
        ("ca_certificate: x", "namespace/name/key of a Secret"),
        ("repository_url: git@example.org:a", "write https://"),
        ("repository_url: https://user:pass@example.org/a", "password"),
        ("refs: []", "at least one"),
        ("refs: ['release/*']", "is not a ref"),
        ("refs: [refs/keep-around/1]", "does not begin with"),
        ("refs: [main, main]", "twice"),
        ("name: ''", "1 to 63"),
        ("unknown: 1", "unknown key"),
    ],
)
def test_errors(line: str, why: str) -> None:
    """Each names file, line and column, and no error repeats a secret."""
    text = FILE.format(line)
    if line.partition(":")[0] in ("service", "name"):
        key = line.partition(":")[0]
        lines = FILE.splitlines()
        text = "\n".join(
            one.partition(key)[0] + line if f"{key}:" in one else one
            for one in lines[:-1]
        )
    with pytest.raises(ConfigurationError) as caught:
        parsed(text)
    (problem,) = caught.value.problems
    assert problem.startswith("config.yaml:")
    assert "webhooks.targets" in problem
    assert why in problem
    assert "the-secret-itself" not in problem
    assert "user:pass" not in problem


def test_limits() -> None:
    def file(count: int, refs: int = 1, same: bool = False) -> str:
        names = ", ".join(f"r{number}" for number in range(refs))
        lines = [
            f"  - {{name: t{0 if same else n}, service: a/b:80, refs: [{names}]}}"
            for n in range(count)
        ]
        return "\n".join(["webhooks:", "  targets:", *lines])

    assert len(parsed(file(MAX_TARGETS)).targets) == MAX_TARGETS
    for text, why in (
        (file(MAX_TARGETS + 1), "21 entries; at most 20"),
        (file(20, 6), "120 refs; at most 100"),
        (file(2, same=True), "two targets are called 't0'"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            parsed(text)


def test_fingerprints() -> None:
    """Another receiver or secret makes another fingerprint; other refs do not."""
    lines = [
        "path: /a",
        "path: /b",
        "secret: flux-system/b/c",
        "ca_certificate: flux-system/b/c",
        "format: github",
    ]
    found = {parsed(FILE.format(one)).targets[0].fingerprint for one in lines}
    assert len(found) == len(lines)
    one, other = (
        parsed(FILE.format(f"refs: [{ref}]")).targets[0].fingerprint
        for ref in ("main", "next")
    )
    assert one == other
