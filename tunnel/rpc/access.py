"""The user for whom kas makes a call: an `Access` as metadata of the call."""

from __future__ import annotations

import base64
import json
from typing import Final

import attrs

from tunnel.api import Access, Impersonation
from tunnel.errors import CallError, Status
from tunnel.toolkit.packing import pack, unpack

__all__ = ["RESERVED", "access_fields", "take_access"]

#: Names of metadata that begin so are ours; modules can neither send nor see them.
RESERVED: Final = "txkas-"

_FIELD: Final = "txkas-access"

#: In place of `_FIELD` where that is long.  A peer that does not know it finds no
#: access, and refuses what needs one.
_PACKED: Final = "txkas-access-packed"

#: Characters of an access that travel as they are: all metadata of a call has to fit
#: into one frame.
PLAIN: Final = 16 * 1024

#: Bytes of an access: GitLab gives a user up to 3,000 groups, of some 50 bytes here.
MAX_ACCESS: Final = 512 * 1024


def access_fields(access: Access) -> dict[str, str]:
    """
    Return *access* as metadata.

    :raises CallError: RESOURCE_EXHAUSTED, the user has too many groups.
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
    Take our fields out of *metadata*; return the access among them.

    :param trusted: the peer is a kas; what any other peer says is dropped.
    :raises CallError: INVALID_ARGUMENT, it cannot be read.  To go on without it could
        be to go on with more rights.
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
        return Access(
            str(fields["credential_id"]),
            str(fields["agent_id"]),
            str(fields["agent_name"]),
            who,
            # Anything but a plain false is read-only.
            fields["read_only"] is not False,
            # A kas of before does not send it.
            fields.get("secrets") is True,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CallError(
            Status.INVALID_ARGUMENT, "the access of this call cannot be read"
        ) from None
