"""What configuration names for TLS is tried when it is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tunnel.config.schema import Invalid
from tunnel.errors import ConfigurationError

__all__ = ["EXPIRY_NOTICE", "authorities", "expiry_problem", "identity", "validity"]

#: How long before its end an operator is told of a certificate that a file names:
#: people replace it, and people need notice.
EXPIRY_NOTICE = timedelta(days=14)


def authorities(instance: object, attribute: object, value: Path | None) -> None:
    """A validator: there are CA certificates in the file."""
    # Who has none to check starts sooner without.
    from tunnel.transport.tls import check_authorities

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
    from tunnel.transport.tls import check_identity

    try:
        check_identity(str(certificate), str(key))
    except ConfigurationError as error:
        text = str(error)
        blamed = "key_file" if text.startswith(f"{key}: ") else "certificate_file"
        raise Invalid(text, blamed) from None


def validity(certificate: Path) -> tuple[datetime, datetime]:
    """
    From when to when the first certificate in a PEM file is valid, in UTC.

    :raises ConfigurationError: the file cannot be read, or has no certificate in it.
    """
    from tunnel.transport.tls import certificate_validity

    try:
        return certificate_validity(certificate.read_bytes())
    except OSError as error:
        what = f"cannot be read ({error.strerror}): check the path and its owner"
    except ValueError:
        what = "it contains no certificate: it must be a PEM file"
    raise ConfigurationError([f"{certificate}: {what}"])


def expiry_problem(certificate: Path, now: float) -> str:
    """
    What an operator has to know about the dates of a certificate, and do; "" if none.

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
        f"{certificate}: the certificate {when}; replace it and its key (the files are "
        "read again by themselves)"
    )


def _date(when: datetime) -> str:
    return when.strftime("%Y-%m-%d %H:%M UTC")
