"""What configuration names for TLS is tried when it is read."""

from __future__ import annotations

from pathlib import Path

from tunnel.config.schema import Invalid
from tunnel.errors import ConfigurationError
from tunnel.net.tls import check_authorities, check_identity

__all__ = ["authorities", "identity"]


def authorities(instance: object, attribute: object, value: Path | None) -> None:
    """A validator: there are CA certificates in the file."""
    if value is not None:
        try:
            check_authorities(str(value))
        except ConfigurationError as error:
            raise ValueError(str(error)) from None


def identity(certificate: Path, key: Path) -> None:
    """
    What `certificate_file` and `key_file` name belongs together.

    :raises Invalid: at the key whose file is to blame.
    """
    try:
        check_identity(str(certificate), str(key))
    except ConfigurationError as error:
        text = str(error)
        blamed = "key_file" if text.startswith(f"{key}: ") else "certificate_file"
        raise Invalid(text, blamed) from None
