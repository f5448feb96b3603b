"""
Messages of the protocol ``actioncable-v1-json``.

An identifier is a text that the client has made; the client compares it as a text, so
it is returned unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import attrs

__all__ = [
    "AUTHENTICATE",
    "PROTOCOL",
    "WELCOME",
    "CableCommand",
    "Disconnect",
    "InvalidCommand",
    "confirmation",
    "disconnection",
    "message_around",
    "parse_command",
    "parse_object",
    "ping",
    "rejection",
]

PROTOCOL: Final = "actioncable-v1-json"

WELCOME: Final = '{"type":"welcome"}'

#: Command with a credential, which only this server has.
AUTHENTICATE: Final = "authenticate"

#: Commands about an identifier.
_COMMANDS: Final = ("subscribe", "unsubscribe", "message")


class Disconnect(StrEnum):
    """Reasons why the server ends a connection."""

    UNAUTHORIZED = "unauthorized"
    INVALID_REQUEST = "invalid_request"
    SERVER_RESTART = "server_restart"
    REMOTE = "remote"


class InvalidCommand(Exception):
    """Error for a message that no client of the protocol sends."""


@attrs.frozen
class CableCommand:
    """A command of the client."""

    #: The name; any text, because later clients may have further commands.
    name: str
    identifier: str = ""
    #: JSON text with an action, or a credential.
    data: str = attrs.field(default="", repr=False)

    @property
    def size(self) -> int:
        """Number of characters in memory."""
        return len(self.identifier) + len(self.data)


def parse_command(text: str) -> CableCommand:
    """
    Return the command in a message.

    :raises InvalidCommand: the message is not a command.
    """
    found = parse_object(text)
    name = None if found is None else found.get("command")
    if found is None or not isinstance(name, str):
        raise InvalidCommand("not a JSON object with a command")
    if name == AUTHENTICATE:
        return CableCommand(name, data=_text(found, "token"))
    if name not in _COMMANDS:
        return CableCommand(name)
    data = _text(found, "data") if name == "message" else ""
    return CableCommand(name, _text(found, "identifier"), data)


def parse_object(text: str) -> dict[str, Any] | None:
    """Return a JSON object; None if *text* is something else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str):
        raise InvalidCommand(f"{name} is not a string")
    return value


def ping(now: float) -> str:
    """Return the sign of life that clients expect each three seconds."""
    return f'{{"type":"ping","message":{int(now)}}}'


def confirmation(identifier: str) -> str:
    """Return the response to a subscription that is accepted."""
    return f'{{"identifier":{json.dumps(identifier)},"type":"confirm_subscription"}}'


def rejection(identifier: str) -> str:
    """Return the response to a subscription that is refused or has ended."""
    return f'{{"identifier":{json.dumps(identifier)},"type":"reject_subscription"}}'


def message_around(identifier: str) -> tuple[str, str]:
    """Return the texts before and after the JSON of a message of a channel."""
    return f'{{"identifier":{json.dumps(identifier)},"message":', "}"


def disconnection(reason: Disconnect, reconnect: bool) -> str:
    """Return the message that the server sends before it closes the connection."""
    again = "true" if reconnect else "false"
    return f'{{"type":"disconnect","reason":"{reason}","reconnect":{again}}}'
