"""The section ``oidc``."""

from __future__ import annotations

from pathlib import Path

import pytest

from kas.config.oidc import OidcAccess, read_client_secret
from kas.config.schema import read_configuration
from tests.kas.configuring import problems

_TEXT = "oidc:\n  issuer: https://id.example.com/realm\n  client_id: kubernetes\n"


def test_read() -> None:
    text = _TEXT + (
        "  required_claims: {hd: example.com}\n"
        "  signing_algorithms: [PS256, EdDSA]\n"
        "  access:\n"
        "  - {groups: ['oidc:dev'], agents: [test], read_only: true}\n"
    )
    oidc = read_configuration(text, "kas.yaml").oidc
    assert oidc is not None
    assert oidc.username_claim == "sub"
    assert oidc.signing_algorithms == ("PS256", "EdDSA")
    assert oidc.required_claims == {"hd": "example.com"}
    entry = OidcAccess(groups=("oidc:dev",), agents=("test",), read_only=True)
    assert oidc.access == (entry,)
    assert oidc.shown_title == "id.example.com"
    assert oidc.scopes == ("profile", "email")
    assert read_configuration("", "kas.yaml").oidc is None


def test_example() -> None:
    """What the example file has in comments can be read."""
    example = Path(__file__).parents[3] / "docs" / "kas.example.yaml"
    part = example.read_text().partition("# oidc:\n")[2].partition("\n\n")[0]
    lines = [line[2:] for line in part.splitlines() if "_file" not in line]
    oidc = read_configuration("oidc:\n" + "\n".join(lines), "kas.yaml").oidc
    assert oidc is not None
    assert len(oidc.access) == 2


@pytest.mark.parametrize(
    "issuer",
    ["http://127.0.0.1:5556/dex", "http://localhost:1", "http://[::1]:1", "https://h"],
)
def test_issuers(issuer: str) -> None:
    text = f"oidc: {{issuer: '{issuer}', client_id: x}}"
    assert read_configuration(text, "kas.yaml").oidc is not None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("issuer: http://id.example.com", "plain http"),
        ("issuer: http://127.0.0.1.example.com", "plain http"),
        ("issuer: id.example.com", "complete URL"),
        (
            "issuer: https://u:secret@id.example.com",
            "must not contain a user name or password",
        ),
        ("client_id: ''", "empty"),
        ("username_claim: ''", "empty"),
        ('username_prefix: "a\\nb"', "printable"),
        ('title: "a\\nb"', "printable"),
        (f"title: {'x' * 61}", "at most 60"),
        ("scopes: [profile email]", "entry of its own"),
        ("scopes: ['']", "is not a scope"),
        ("signing_algorithms: [HS256]", "HS256"),
        ("signing_algorithms: [none]", "none"),
        ("signing_algorithms: []", "at least"),
        ("keys_outage_ttl: 1m", "keys_ttl"),
        ("max_token_lifetime: 0s", "max_token_lifetime"),
        ("access: [{agents: ['*']}]", "matches no user"),
        ("access: [{groups: ['oidc:a'], agents: []}]", "name agents"),
        ("access: [{groups: [dev], agents: ['*']}]", "does not begin with 'oidc:'"),
        ("access: [{users: [''], agents: ['*']}]", "printable"),
        ("access: [{users: ['oidc:a']}]", "agents"),
    ],
)
def test_problems(line: str, expected: str) -> None:
    key = line.partition(":")[0]
    kept = [one for one in _TEXT.splitlines() if not one.startswith(f"  {key}:")]
    text = "\n".join([*kept, f"  {line}"])
    (problem,) = problems(text, "kas.yaml")
    assert expected in problem
    assert "secret" not in problem
    assert f"oidc.{key}" in problem


def test_client_secret(tmp_path: Path) -> None:
    """The secret has the form of one, and no message quotes it."""
    file = tmp_path / "client.secret"
    text = f"{_TEXT}  client_secret_file: {file}\n  title: Example Ltd.\n"
    (problem,) = problems(text, "kas.yaml")
    assert "client_secret_file" in problem
    for content, expected in (
        (b"short", "5 bytes"),
        (b"secret" * 1000, "at most"),
        ("sécret of the client".encode(), "printable ASCII"),
        (b"secret\nof the client", "printable ASCII"),
    ):
        file.write_bytes(content)
        (problem,) = problems(text, "kas.yaml")
        assert expected in problem
        assert problem.startswith("kas.yaml:4:")
        assert content.decode() not in problem
    file.write_bytes(b"  GOCSPX-secret-of-the-client\n")
    oidc = read_configuration(text, "kas.yaml").oidc
    assert oidc is not None
    assert read_client_secret(file) == "GOCSPX-secret-of-the-client"
    assert oidc.shown_title == "Example Ltd."
