"""
Bodies and header fields of deliveries, as GitHub, GitLab and kas itself send them.

A body only contains what kas knows.  It has one commit in place of all new commits,
with the new id, and with the paths that differ as ``modified``.  Without paths, it has
no commit, and receivers assume that everything has changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import attrs

from modules.webhooks.wire.settings import WebhookTarget
from modules.webhooks.wire.webhooks_pb2 import Delivery
from tunnel import __version__
from tunnel.toolkit.webhook_signature import PREFIX, hub_signature, standard_signature

__all__ = ["WebhookRequest", "webhook_request"]

_NO_COMMIT = "0" * 40
_TAGS, _BRANCHES = "refs/tags/", "refs/heads/"


@attrs.frozen
class WebhookRequest:
    """
    Body and header fields of one attempt.

    :ivar fields: without ``Host`` and fields about the length.
    :ivar contains_secret: whether a field is the receiver's secret itself, which a
        response may repeat.
    """

    body: bytes = attrs.field(repr=lambda body: f"{len(body)} bytes")
    fields: Mapping[str, str] = attrs.field(repr=False)
    contains_secret: bool = False


def webhook_request(
    target: WebhookTarget, delivery: Delivery, secret: bytes, now: float
) -> WebhookRequest:
    """
    Return the request of one attempt.

    :param secret: empty for a request without signature.
    :param now: the time of the attempt, in seconds since 1970.
    :raises ValueError: the secret cannot be used; the text does not repeat it.
    """
    if secret.endswith((b"\n", b"\r")) and not secret.startswith(PREFIX):
        # Some receivers remove it, and others do not.
        raise ValueError("ends with a line end; remove it")
    make = {"github": _github, "gitlab": _gitlab, "generic": _generic}[target.format]
    return make(target, delivery, secret, int(now))


# GitHub


def _github(
    target: WebhookTarget, delivery: Delivery, secret: bytes, now: int
) -> WebhookRequest:
    full_name = _path(delivery)
    url = delivery.repository_url
    commits = [
        {
            "id": delivery.after,
            "distinct": True,
            "message": "",
            "timestamp": _time(delivery),
            "url": f"{url}/commit/{delivery.after}",
            **_files(delivery),
        }
    ][: len(delivery.changed)]
    body = _json(
        {
            "ref": delivery.full_ref,
            "before": delivery.before,
            "after": delivery.after,
            "repository": {
                "name": full_name.rpartition("/")[2],
                "full_name": full_name,
                "html_url": url,
                "url": url,
                "clone_url": f"{url}.git",
                "default_branch": _branch(delivery),
            },
            "pusher": {"name": "kas"},
            "created": delivery.before == _NO_COMMIT,
            "deleted": False,
            "forced": False,
            "base_ref": None,
            "compare": f"{url}/compare/{delivery.before[:12]}...{delivery.after[:12]}",
            "commits": commits,
            "head_commit": commits[0] if commits else None,
        }
    )
    fields = {
        "User-Agent": f"GitHub-Hookshot/txkas-{__version__}",
        "Accept": "*/*",
        "Content-Type": "application/json",
        "X-GitHub-Delivery": _uuid(delivery.id),
        "X-GitHub-Event": "push",
        # GitHub counts its webhooks; a number from the target is as stable.
        "X-GitHub-Hook-ID": str(int(target.fingerprint[:8], 16)),
    }
    if secret:
        fields["X-Hub-Signature"] = hub_signature(secret, body, "sha1")
        fields["X-Hub-Signature-256"] = hub_signature(secret, body)
    return WebhookRequest(body, fields)


# GitLab


def _gitlab(
    target: WebhookTarget, delivery: Delivery, secret: bytes, now: int
) -> WebhookRequest:
    full_name, url = _path(delivery), delivery.repository_url
    name = full_name.rpartition("/")[2]
    kind = "tag_push" if delivery.full_ref.startswith(_TAGS) else "push"
    commits = [
        {
            "id": delivery.after,
            "message": "",
            "title": "",
            "timestamp": _time(delivery),
            "url": f"{url}/-/commit/{delivery.after}",
            **_files(delivery),
        }
    ][: len(delivery.changed)]
    body = _json(
        {
            "object_kind": kind,
            "event_name": kind,
            "before": delivery.before,
            "after": delivery.after,
            "ref": delivery.full_ref,
            "checkout_sha": delivery.after,
            "message": None,
            "project": {
                "name": name,
                "web_url": url,
                "git_http_url": f"{url}.git",
                "path_with_namespace": full_name,
                "default_branch": _branch(delivery),
                "homepage": url,
                "url": f"{url}.git",
                "http_url": f"{url}.git",
            },
            "commits": commits,
            "total_commits_count": len(commits),
            "repository": {
                "name": name,
                "url": f"{url}.git",
                "homepage": url,
                "git_http_url": f"{url}.git",
            },
        }
    )
    event = _uuid(delivery.id)
    parts = urlsplit(url)
    fields = {
        "User-Agent": f"GitLab/txkas-{__version__}",
        "Idempotency-Key": event,
        "Content-Type": "application/json",
        "X-Gitlab-Event": "Tag Push Hook" if kind == "tag_push" else "Push Hook",
        "X-Gitlab-Webhook-UUID": _uuid(target.fingerprint * 2),
        "X-Gitlab-Instance": f"{parts.scheme}://{parts.netloc}",
        "X-Gitlab-Event-UUID": event,
    }
    if secret.startswith(PREFIX):
        # A signing token of newer versions of GitLab, which is never sent itself.
        fields |= _standard(delivery, secret, now, body)
    elif secret:
        token = secret.decode("latin-1")
        if not token.isascii() or not token.isprintable():
            raise ValueError("has characters that a header field cannot contain")
        fields["X-Gitlab-Token"] = token
    return WebhookRequest(body, fields, contains_secret="X-Gitlab-Token" in fields)


# Standard Webhooks


def _generic(
    target: WebhookTarget, delivery: Delivery, secret: bytes, now: int
) -> WebhookRequest:
    body = _json(
        {
            "type": "git.push",
            "timestamp": _time(delivery),
            "data": {
                "repository": {
                    "name": delivery.repository,
                    "url": delivery.repository_url,
                    "default_branch": _branch(delivery),
                },
                "ref": delivery.full_ref,
                "before": delivery.before,
                "after": delivery.after,
                "changed": list(delivery.changed) or None,
            },
        }
    )
    fields = {
        "User-Agent": f"txkas/{__version__}",
        "Accept": "*/*",
        "Content-Type": "application/json",
        **_standard(delivery, secret, now, body),
    }
    if secret:
        # Receivers without Standard Webhooks, such as Flux' generic-hmac.
        fields["X-Signature"] = hub_signature(secret, body)
    return WebhookRequest(body, fields)


def _standard(
    delivery: Delivery, secret: bytes, now: int, body: bytes
) -> dict[str, str]:
    fields = {"webhook-id": delivery.id, "webhook-timestamp": str(now)}
    if secret:
        signature = standard_signature(secret, delivery.id, now, body)
        fields["webhook-signature"] = signature
    return fields


# Common parts


def _json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _files(delivery: Delivery) -> dict[str, list[str]]:
    return {"added": [], "removed": [], "modified": list(delivery.changed)}


def _time(delivery: Delivery) -> str:
    """Return the time of the push, which is the same for each attempt."""
    return f"{delivery.noticed_at.ToDatetime().isoformat(timespec='seconds')}Z"


def _branch(delivery: Delivery) -> str:
    return delivery.default_branch.removeprefix(_BRANCHES)


def _path(delivery: Delivery) -> str:
    """Return the path of the repository at its server."""
    return urlsplit(delivery.repository_url).path.strip("/")


def _uuid(text: str) -> str:
    """Return a UUID made of 32 hexadecimal digits."""
    return str(UUID(hex=text, version=5))
