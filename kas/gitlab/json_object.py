"""Checked reading of GitLab's responses: each member is checked before it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from tunnel.errors import CallError, Status

__all__ = ["MAX_ID", "JsonObject", "is_id"]

T = TypeVar("T")

#: Maximum number of an id, because ids are sent as int64.
MAX_ID = 2**63 - 1

#: Maximum characters of a text that becomes part of a Kubernetes user.
MAX_TEXT = 1024


class JsonObject:
    """
    One JSON object in a response, whose members are checked when they are read.

    :param place: the place of the object in the response, for error messages.
    """

    def __init__(self, raw: Any, place: str) -> None:
        self._place = place
        if not isinstance(raw, dict):
            self._unreadable("")
        self._raw: dict[str, Any] = raw

    def id(self, name: str) -> int:
        """Return a number greater than 0."""
        value = self._raw.get(name)
        # Compare the type, because True is a number in Python.
        if type(value) is not int or not 0 < value <= MAX_ID:
            self._unreadable(name)
        return value

    def text(self, name: str, *, optional: bool = False) -> str:
        """
        Return a text that is valid in a header; it may be empty only if *optional* is
        true.
        """
        value = self._raw.get(name)
        if optional and value is None:
            return ""
        return self._checked(name, value, optional)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts, which may be missing."""
        return tuple(self._checked(name, one) for one in self._list(name))

    def object(self, name: str) -> JsonObject:
        """Return a required object."""
        return JsonObject(self._raw.get(name), f"{self._place}.{name}")

    def optional(self, name: str) -> JsonObject | None:
        """Return an optional object."""
        return None if self._raw.get(name) is None else self.object(name)

    def objects(self, name: str, read: Callable[[JsonObject], T]) -> tuple[T, ...]:
        """Return a list of objects, which may be missing."""
        place = f"{self._place}.{name}[]"
        return tuple(read(JsonObject(one, place)) for one in self._list(name))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the members whose value is not null."""
        return tuple(name for name, value in self._raw.items() if value is not None)

    def _list(self, name: str) -> list[Any]:
        value = self._raw.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            self._unreadable(name)
        return value

    def _checked(self, name: str, value: Any, may_be_empty: bool = False) -> str:
        if (
            not isinstance(value, str)
            or len(value) > MAX_TEXT
            or not (value or may_be_empty)
            or not value.isprintable()
            or value != value.strip()
        ):
            self._unreadable(name)
        return value

    def _unreadable(self, name: str) -> NoReturn:
        place = f"{self._place}.{name}" if name else self._place
        text = f"cannot use GitLab: {place} of its response is malformed"
        raise CallError(Status.UNAVAILABLE, text)


def is_id(text: str) -> bool:
    """Return whether a text is a valid id."""
    return (
        text.isascii()
        and text.isdecimal()
        and text[0] != "0"
        and len(text) <= 19
        and int(text) <= MAX_ID
    )
