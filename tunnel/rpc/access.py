"""The user for whom kas makes a call: an `Access` as metadata of the call."""

from __future__ import annotations

import json
from typing import Final

import attrs

from tunnel.errors import CallError, Status
from tunnel.interfaces import Access, Impersonation

__all__ = ["RESERVED", "access_fields", "take_access"]

#: Names of metadata that begin so are ours; modules can neither send nor see them.
RESERVED: Final = "txkas-"

_FIELD: Final = "txkas-access"


def access_fields(access: Access) -> dict[str, str]:
    """*access* as metadata."""
    return {_FIELD: json.dumps(attrs.asdict(access), separators=(",", ":"))}


def take_access(metadata: dict[str, str], trusted: bool) -> Access | None:
    """
    Take our fields out of *metadata*; return the access among them.

    :param trusted: the peer is a kas; what any other peer says is dropped.
    :raises CallError: INVALID_ARGUMENT, it cannot be read.  To go on without it could
        be to go on with more rights.
    """
    found = metadata.get(_FIELD)
    for name in [name for name in metadata if name.startswith(RESERVED)]:
        del metadata[name]
    if found is None or not trusted:
        return None
    try:
        fields = json.loads(found)
        who = fields.pop("impersonation")
        if who is not None:
            who = Impersonation(
                str(who["username"]),
                tuple(map(str, who["groups"])),
                str(who["uid"]),
                {str(k): tuple(map(str, v)) for k, v in who["extra"].items()},
            )
        return Access(
            str(fields["credential_id"]),
            str(fields["agent_id"]),
            str(fields["agent_name"]),
            who,
            # What is not plainly false is read-only.
            fields["read_only"] is not False,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CallError(
            Status.INVALID_ARGUMENT, "the access of this call cannot be read"
        ) from None
