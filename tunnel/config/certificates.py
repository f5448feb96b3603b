"""Checks of TLS files when the configuration is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tunnel.config.schema import Invalid
from tunnel.errors import ConfigurationError

__all__ = ["EXPIRY_NOTICE", "authorities", "expiry_problem", "identity", "validity"]

#: A warning is logged if a configured certificate expires within this time, because a
#: replacement takes time.
EXPIRY_NOTICE = timedelta(days=14)


def authorities(instance: object, attribute: object, value: Path | None) -> None:
    """Validate that the file contains CA certificates."""
    # Programs without a certificate to check start faster without this import.
    from tunnel.transport.tls import check_authorities

    if value is not None:
        try:
            check_authorities(str(value))
        except ConfigurationError as error:
            raise ValueError(str(error)) from None


def identity(certificate: Path, key: Path) -> None:
    """
    Check that `certificate_file` and `key_file` belong together.

    :raises Invalid: if a file is wrong; the error names the key of this file.
    """
    from tunnel.transport.tls import check_identity

    try:
        check_identity(str(certificate), str(key))
    except ConfigurationError as error:
        text = str(error)
        blamed = "key_file" if text.startswith(f"{key}: ") else "certificate_file"
        raise Invalid(text, blamed) from None


def validity(certificate: Path) -> tuple[datetime, datetime]:
    """
    Return the beginning and end of the validity of the first certificate in a PEM file,
    in UTC.

    :raises ConfigurationError: the file cannot be read, or contains no certificate.
    """
    from tunnel.transport.tls import certificate_validity

    try:
        return certificate_validity(certificate.read_bytes())
    except OSError as error:
        what = f"cannot be read ({error.strerror}): check the path and its owner"
    except ValueError:
        what = "it contains no certificate; it must be a PEM file with one"
    raise ConfigurationError([f"{certificate}: {what}"])


def expiry_problem(certificate: Path, now: float) -> str:
    """
    Return a warning about the dates of a certificate, with the remedy; empty if there
    is none.

    :param now: the time of day, in seconds since 1970.
    :raises ConfigurationError: as `validity`.
    """
    begin, end = validity(certificate)
    today = datetime.fromtimestamp(now, UTC)
    if today < begin:
        return (
            f"{certificate}: the certificate is not valid before {_date(begin)}; "
            "correct the clock, or replace the file"
        )
    left = end - today
    if left <= timedelta(0):
        when = f"expired on {_date(end)}"
    elif left < EXPIRY_NOTICE:
        days = "day" if left.days == 1 else "days"
        when = f"expires on {_date(end)}, in {left.days} {days}"
    else:
        return ""
    return (
        f"{certificate}: the certificate {when}; replace it and its key (no restart "
        "is needed)"
    )


def _date(when: datetime) -> str:
    return when.strftime("%Y-%m-%d %H:%M UTC")
