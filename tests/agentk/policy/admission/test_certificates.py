"""Rotation of the certificates of the admission webhook."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509

from agentk.policy.admission.certificates import (
    LIFE,
    OVERLAP,
    RENEW_BEFORE,
    Certificates,
)

NOW = datetime(2026, 11, 28, tzinfo=UTC)
NAMES = ("agentk.txkas.svc", "127.0.0.1", "::1")


def test_rotation() -> None:
    """At each time, the API server accepts what any replica may present."""
    first = Certificates().rotated(NAMES, NOW)
    assert first.current is not None and first.following is None
    assert first.accepted == first.current.certificate
    assert (
        first.rotated(NAMES, NOW + LIFE - RENEW_BEFORE - timedelta(seconds=1)) is first
    )
    due = NOW + LIFE - RENEW_BEFORE
    second = first.rotated(NAMES, due)
    assert second.current is first.current and second.following is not None
    assert second.accepted == (first.current.certificate + second.following.certificate)
    assert second.rotated(NAMES, due + OVERLAP - timedelta(seconds=1)) is second
    third = second.rotated(NAMES, due + OVERLAP)
    assert third.current is second.following and third.following is None
    # A replica may present the previous one for another minute.
    assert third.accepted == (second.following.certificate + first.current.certificate)
    assert third.rotated(NAMES, due + 2 * OVERLAP) is third


def test_a_long_sleep() -> None:
    """After a year without agentk, the next look replaces the certificate."""
    found = Certificates().rotated(NAMES, NOW)
    later = NOW + timedelta(days=365)
    found = found.rotated(NAMES, later)
    assert found.current is not None
    certificate = x509.load_pem_x509_certificate(found.current.certificate)
    assert certificate.not_valid_before_utc < later < certificate.not_valid_after_utc
    assert found.accepted == found.current.certificate


def test_other_names() -> None:
    """Another Service needs another certificate at once."""
    first = Certificates().rotated(NAMES, NOW)
    second = first.rotated(("other.txkas.svc",), NOW)
    assert second.current is not None and second.current.names == ("other.txkas.svc",)


def test_certificate() -> None:
    """It has these names, and its key does not show."""
    found = Certificates().rotated(NAMES, NOW).current
    assert found is not None
    assert b"PRIVATE" not in repr(found).encode()
    certificate = x509.load_pem_x509_certificate(found.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.DNSName) == ["agentk.txkas.svc"]
    addresses = names.value.get_values_for_type(x509.IPAddress)
    assert [str(one) for one in addresses] == ["127.0.0.1", "::1"]
