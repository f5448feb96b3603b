"""Secrets that authenticate webhooks of other systems."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import TYPE_CHECKING

from twisted.logger import Logger

from tunnel.toolkit.secret_file import read_secret

if TYPE_CHECKING:
    # agentk serves no pages, and need not import twisted.web.
    from twisted.web.iweb import IRequest

__all__ = ["carries_secret"]

_log = Logger()


def carries_secret(request: IRequest, file: Path) -> bool:
    """
    Tell whether a request proves that its sender knows the secret in a file.

    GitLab sends the secret as ``X-Gitlab-Token``; GitHub, Gitea and Forgejo sign the
    body with it (``X-Hub-Signature-256``); a Git hook can send it as ``Authorization:
    Bearer``. If the file is unusable, the result is False, and the reason is logged.
    """
    try:
        secret = read_secret(file)
    except ValueError as error:
        _log.error("{problem}", problem=str(error))
        return False
    scheme, _, token = (request.getHeader(b"authorization") or b"").partition(b" ")
    given = [request.getHeader(b"x-gitlab-token") or b""]
    if scheme.lower() == b"bearer":
        given.append(token.strip())
    if any(hmac.compare_digest(one, secret) for one in given):
        return True
    signature = request.getHeader(b"x-hub-signature-256") or b""
    body = request.content.read()
    request.content.seek(0)
    mac = hmac.new(secret, body, hashlib.sha256).hexdigest().encode()
    return hmac.compare_digest(signature, b"sha256=" + mac)
