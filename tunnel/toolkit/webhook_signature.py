"""Signatures of requests, with the secret of a receiver."""

from __future__ import annotations

import base64
import binascii
import hmac

__all__ = ["PREFIX", "hub_signature", "standard_signature"]

#: Prefix of secrets of Standard Webhooks; base64 of the key follows.
PREFIX = b"whsec_"


def hub_signature(secret: bytes, body: bytes, digest: str = "sha256") -> str:
    """Return ``X-Hub-Signature-256`` of GitHub, or the same with another digest."""
    return f"{digest}={hmac.digest(secret, body, digest).hex()}"


def standard_signature(secret: bytes, id: str, timestamp: int, body: bytes) -> str:
    """
    Return ``webhook-signature`` of Standard Webhooks.

    :param secret: the key; with the prefix ``whsec_``, one key in base64 on each line,
        and the result has a signature for each, so that keys can be rotated.
    :raises ValueError: a secret with the prefix is not base64; the text does not repeat
        the secret.
    """
    signed = f"{id}.{timestamp}.".encode() + body
    macs = [hmac.digest(key, signed, "sha256") for key in _keys(secret)]
    return " ".join(f"v1,{base64.b64encode(mac).decode()}" for mac in macs)


def _keys(secret: bytes) -> list[bytes]:
    if not secret.startswith(PREFIX):
        return [secret]
    try:
        return [
            base64.b64decode(one.removeprefix(PREFIX), validate=True)
            for one in secret.split()
        ]
    except binascii.Error:
        raise ValueError(
            "begins with whsec_, but is not base64 after that; write one key on each "
            "line"
        ) from None
