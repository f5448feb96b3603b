"""The mark of requests that agentk sends as a user."""

from __future__ import annotations

import pytest

from agentk.policy.questions import identity_of
from agentk.policy.via import Via

MARK = b"\r\nImpersonate-Extra-txkas.dev%2Fvia: txkas"


def test_users_only() -> None:
    """A request with agentk's own permissions has no extra fields."""
    fields = b"\r\nAccept: */*\r\nX: impersonate-user: x"
    assert Via("txkas").marked(fields) is fields
    user = b"\r\nHost: a\r\nimpersonate-USER: alice"
    assert Via("txkas").marked(user) == user + MARK


@pytest.mark.parametrize(
    "name",
    [
        "Impersonate-Extra-txkas.dev%2Fvia",
        "impersonate-extra-Txkas.Dev%2fVIA",
        "Impersonate-Extra-%74xkas%2Edev%2Fvia",
        "Impersonate_Extra_txkas.dev%2Fvia",
        "Impersonate-Extra-txkas.dev/via",
    ],
)
def test_marks_of_kas(name: str) -> None:
    """They are removed, in each spelling; other extra fields stay."""
    user = b"\r\nImpersonate-User: alice\r\nImpersonate-Extra-Team: a"
    forged = b"\r\n%b: other" % name.encode()
    for fields in (forged + user, user + forged, forged + user + forged):
        assert Via("txkas").marked(fields) == user + MARK
    assert identity_of(user + forged).extra == ("team",)
