"""
Texts of a peer: made safe where they enter, so that no code has to think of it later.

A text that a peer chose may hold line ends that begin a line of a log, sequences that a
terminal obeys, or marks that turn the order of what is shown.  All of these are not
printable, and are replaced here.
"""

from __future__ import annotations

from google.protobuf.message import Message

__all__ = ["clean", "clean_message", "excerpt"]

#: Characters of a page, or of another answer, that go into an error text.
_EXCERPT = 200


def clean(text: str, most: int, instead: str = "?") -> str:
    """One line of at most *most* characters, all of which print as they are."""
    if len(text) > most:
        text = text[:most]
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else instead for one in text)


def excerpt(body: bytes) -> str:
    """The beginning of what the other side wrote, as one line of text."""
    text = body[:_EXCERPT].decode("utf-8", "replace")
    return " ".join(clean(text, _EXCERPT, " ").split())


def clean_message(message: Message, most: int) -> None:
    """The same for every text in *message*, and in the messages within it."""
    for field, value in message.ListFields():
        if isinstance(value, str):
            cleaned = clean(value, most)
            if cleaned is not value:
                setattr(message, field.name, cleaned)
        elif isinstance(value, Message):
            clean_message(value, most)
        elif field.type == field.TYPE_STRING:
            value[:] = [clean(one, most) for one in value]
        elif field.type == field.TYPE_MESSAGE:
            for inner in value:
                clean_message(inner, most)
