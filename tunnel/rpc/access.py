"""The user for whom kas makes a call: an `Access` as metadata of the call."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import attrs

from tunnel.api import Access, Impersonation
from tunnel.errors import CallError, Status
from tunnel.toolkit.packing import pack, unpack

__all__ = ["RESERVED", "access_fields", "take_access"]

#: Prefix of reserved names of metadata; modules can neither send nor see them.
RESERVED: Final = "txkas-"

_FIELD: Final = "txkas-access"

#: Reserved name that replaces `_FIELD` for a long access.  A peer that does not know
#: the name finds no access, and refuses calls that need one.
_PACKED: Final = "txkas-access-packed"

#: Maximum number of characters of an access that is sent uncompressed: all metadata of
#: a call has to fit into one frame.
PLAIN: Final = 16 * 1024

#: Maximum number of bytes of an access: a GitLab user may have 3,000 groups, which take
#: about 50 bytes each.
MAX_ACCESS: Final = 512 * 1024


def access_fields(access: Access) -> dict[str, str]:
    """
    Return *access* as metadata.

    :raises CallError: RESOURCE_EXHAUSTED if the user has too many groups.
    """
    text = json.dumps(attrs.asdict(access), separators=(",", ":"))
    if len(text) <= PLAIN:
        return {_FIELD: text}
    packed = base64.b64encode(pack(text.encode()))
    if len(text) > MAX_ACCESS or len(packed) > 2 * PLAIN:
        groups = 0 if access.impersonation is None else len(access.impersonation.groups)
        raise CallError(
            Status.RESOURCE_EXHAUSTED,
            f"{access.who} has too many groups for a call: {groups}",
        )
    return {_PACKED: packed.decode("ascii")}


def take_access(metadata: dict[str, str], trusted: bool) -> Access | None:
    """
    Remove our fields from *metadata* and return the access that they contain.

    :param trusted: whether the peer is a kas; the access from any other peer is
        dropped.
    :raises CallError: INVALID_ARGUMENT if the access cannot be read.  Ignoring an
        unreadable access could give the caller more permissions.
    """
    found, packed = metadata.get(_FIELD), metadata.get(_PACKED)
    for name in [name for name in metadata if name.startswith(RESERVED)]:
        del metadata[name]
    if not trusted or (found is None and packed is None):
        return None
    try:
        if found is None:
            found = unpack(base64.b64decode(packed or ""), MAX_ACCESS).decode()
        fields = json.loads(found)
        who = fields.pop("impersonation")
        if who is not None:
            who = Impersonation(
                str(who["username"]),
                tuple(map(str, who["groups"])),
                str(who["uid"]),
                {str(k): tuple(map(str, v)) for k, v in who["extra"].items()},
            )
        # Earlier versions of kas do not send all fields.
        owners: dict[str, Any] = {
            name: str(fields[name])
            for name in ("owner", "budget_owner")
            if name in fields
        }
        return Access(
            str(fields["credential_id"]),
            str(fields["agent_id"]),
            str(fields["agent_name"]),
            who,
            # Any value except false means read-only.
            fields["read_only"] is not False,
            fields.get("secrets") is True,
            **owners,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CallError(
            Status.INVALID_ARGUMENT, "the access of this call is malformed"
        ) from None
