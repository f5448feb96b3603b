"""Bodies and fields, byte for byte, and keys as GitHub and GitLab write them."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import attrs
import pytest

from modules.webhooks.agent.formats import webhook_request
from modules.webhooks.wire.settings import WebhookTarget
from modules.webhooks.wire.webhooks_pb2 import Delivery
from tunnel import __version__

SECRET = b"the secret of the receiver"
NOW = 1_800_000_100.7
BEFORE, AFTER = "a" * 40, "b" * 40
TARGET = WebhookTarget(
    name="argo", service="argocd/argocd-server:80", path="/api/webhook"
)


def delivery(**more: Any) -> Delivery:
    found = Delivery(
        id="0123456789abcdef0123456789abcdef",
        full_ref="refs/heads/main",
        before=BEFORE,
        after=AFTER,
        repository="apps",
        repository_url="https://git.example.org/group/apps",
        default_branch="refs/heads/main",
        changed=["apps/a.yaml", "apps/ü.yaml"],
    )
    found.noticed_at.FromSeconds(1_800_000_000)
    for name, value in more.items():
        if name == "changed":
            found.changed[:] = value
        else:
            setattr(found, name, value)
    return found


def target(format: Any) -> WebhookTarget:
    return attrs.evolve(TARGET, format=format)


def made(format: str, secret: bytes = SECRET, **more: Any) -> tuple[bytes, Any]:
    found = webhook_request(target(format), delivery(**more), secret, NOW)
    return found.body, dict(found.fields)


GITHUB = (
    b'{"ref":"refs/heads/main","before":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",'
    b'"after":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","repository":{"name":"apps",'
    b'"full_name":"group/apps","html_url":"https://git.example.org/group/apps",'
    b'"url":"https://git.example.org/group/apps",'
    b'"clone_url":"https://git.example.org/group/apps.git","default_branch":"main"},'
    b'"pusher":{"name":"kas"},"created":false,"deleted":false,"forced":false,'
    b'"base_ref":null,"compare":"https://git.example.org/group/apps/compare/'
    b'aaaaaaaaaaaa...bbbbbbbbbbbb","commits":[COMMIT],"head_commit":COMMIT}'
).replace(
    b"COMMIT",
    b'{"id":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","distinct":true,"message":"",'
    b'"timestamp":"2027-01-15T08:00:00Z","url":"https://git.example.org/group/apps/'
    b'commit/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","added":[],"removed":[],'
    b'"modified":["apps/a.yaml","apps/\\u00fc.yaml"]}',
)


def test_github() -> None:
    body, fields = made("github")
    assert body == GITHUB
    assert fields == {
        "User-Agent": f"GitHub-Hookshot/txkas-{__version__}",
        "Accept": "*/*",
        "Content-Type": "application/json",
        "X-GitHub-Delivery": "01234567-89ab-5def-8123-456789abcdef",
        "X-GitHub-Event": "push",
        "X-GitHub-Hook-ID": str(int(target("github").fingerprint[:8], 16)),
        "X-Hub-Signature": "sha1=" + hmac.new(SECRET, body, hashlib.sha1).hexdigest(),
        "X-Hub-Signature-256": "sha256="
        + hmac.new(SECRET, body, hashlib.sha256).hexdigest(),
    }


GITLAB = (
    b'{"object_kind":"push","event_name":"push",'
    b'"before":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",'
    b'"after":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","ref":"refs/heads/main",'
    b'"checkout_sha":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","message":null,'
    b'"project":{"name":"apps","web_url":"https://git.example.org/group/apps",'
    b'"git_http_url":"https://git.example.org/group/apps.git",'
    b'"path_with_namespace":"group/apps","default_branch":"main",'
    b'"homepage":"https://git.example.org/group/apps",'
    b'"url":"https://git.example.org/group/apps.git",'
    b'"http_url":"https://git.example.org/group/apps.git"},"commits":[{'
    b'"id":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","message":"","title":"",'
    b'"timestamp":"2027-01-15T08:00:00Z","url":"https://git.example.org/group/apps/-/'
    b'commit/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","added":[],"removed":[],'
    b'"modified":["apps/a.yaml","apps/\\u00fc.yaml"]}],"total_commits_count":1,'
    b'"repository":{"name":"apps","url":"https://git.example.org/group/apps.git",'
    b'"homepage":"https://git.example.org/group/apps",'
    b'"git_http_url":"https://git.example.org/group/apps.git"}}'
)


def test_gitlab() -> None:
    body, fields = made("gitlab")
    assert body == GITLAB
    event = "01234567-89ab-5def-8123-456789abcdef"
    assert fields.pop("X-Gitlab-Webhook-UUID").count("-") == 4
    assert fields == {
        "User-Agent": f"GitLab/txkas-{__version__}",
        "Idempotency-Key": event,
        "Content-Type": "application/json",
        "X-Gitlab-Event": "Push Hook",
        "X-Gitlab-Instance": "https://git.example.org",
        "X-Gitlab-Event-UUID": event,
        "X-Gitlab-Token": SECRET.decode(),
    }


def test_gitlab_tags() -> None:
    body, fields = made("gitlab", full_ref="refs/tags/v1")
    assert fields["X-Gitlab-Event"] == "Tag Push Hook"
    assert json.loads(body)["object_kind"] == "tag_push"


def test_gitlab_signing_tokens() -> None:
    """GitLab never sends a signing token itself."""
    key = b"whsec_MfKQ9r8GKYqTwUPD8ILPZIo2LaLw"
    _, fields = made("gitlab", key)
    assert "X-Gitlab-Token" not in fields
    assert fields["webhook-signature"].startswith("v1,")
    assert fields["webhook-timestamp"] == "1800000100"


def test_generic() -> None:
    body, fields = made("generic")
    assert body == (
        b'{"type":"git.push","timestamp":"2027-01-15T08:00:00Z","data":{"repository":'
        b'{"name":"apps","url":"https://git.example.org/group/apps",'
        b'"default_branch":"main"},"ref":"refs/heads/main",'
        b'"before":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",'
        b'"after":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",'
        b'"changed":["apps/a.yaml","apps/\\u00fc.yaml"]}}'
    )
    assert fields["webhook-id"] == "0123456789abcdef0123456789abcdef"
    # The time of the attempt; the time in the body is of the push.
    assert fields["webhook-timestamp"] == "1800000100"
    mac = hmac.new(SECRET, body, hashlib.sha256).hexdigest()
    assert fields["X-Signature"] == f"sha256={mac}"


@pytest.mark.parametrize("format", ["github", "gitlab", "generic"])
def test_without_secret(format: str) -> None:
    """No field claims a signature."""
    _, fields = made(format, b"")
    assert not [
        name
        for name in fields
        if "signature" in name.lower() or "token" in name.lower()
    ]


@pytest.mark.parametrize("format", ["github", "gitlab"])
def test_without_paths(format: str) -> None:
    """No commit, so that receivers assume that everything has changed."""
    assert json.loads(made(format, changed=[])[0])["commits"] == []


@pytest.mark.parametrize("secret", [b"a\nb", "ü".encode()], ids=["line", "umlaut"])
def test_tokens_that_are_no_field(secret: bytes) -> None:
    with pytest.raises(ValueError, match="a header field cannot contain"):
        made("gitlab", secret)


def test_secrets_stay_out_of_texts() -> None:
    found = webhook_request(TARGET, delivery(), SECRET, NOW)
    assert SECRET.decode() not in repr(found)
