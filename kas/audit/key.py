"""The key that signs the audit log, in the state directory."""

from __future__ import annotations

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kas.audit.notes import NoteSigner
from kas.state.directory import StateDirectory
from tunnel.errors import ConfigurationError

__all__ = ["KEY_FILE", "KEY_NAME", "read_signer"]

#: Name of the file.
KEY_FILE = "audit.key"

#: Name of the owner of the key, in notes.
KEY_NAME = "txkas-audit"


def read_signer(state: StateDirectory, *, create: bool = False) -> NoteSigner:
    """
    Return the key; this function blocks, and must not be called in a reactor.

    :param create: whether to create the key if it does not exist.
    :raises ConfigurationError: if the file has no key.
    """
    data = state.read(KEY_FILE)
    if data is None and create:
        with state.lock():
            data = state.read(KEY_FILE)
            if data is None:
                data = Ed25519PrivateKey.generate().private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.PKCS8,
                    serialization.NoEncryption(),
                )
                state.write(KEY_FILE, data)
    path = state.file(KEY_FILE)
    if data is None:
        raise ConfigurationError(
            [
                f"{path} does not exist; kas creates it when it starts with "
                "observability.audit in its configuration file"
            ]
        )
    try:
        key = serialization.load_pem_private_key(data, None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigurationError(
            [
                f"{path} is not an Ed25519 key in PEM format; restore the file from a "
                "backup, or remove it, so that kas creates a new key"
            ]
        )
    return NoteSigner(KEY_NAME, key)
