"""
Functions that make texts of a peer safe on arrival, so that later code need not.

A text from a peer may contain line ends that forge a log line, escape sequences for
terminals, or marks that reverse the order of characters.  None of these is printable,
and the functions replace them.

`json_for_yaml` is for the other direction: text that is sent to a YAML parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import Message

__all__ = [
    "DNS_LABEL",
    "DNS_SUBDOMAIN",
    "SUBJECT_RULE",
    "clean",
    "clean_message",
    "excerpt",
    "is_subject",
    "json_for_yaml",
    "shortened",
]

#: Pattern for a DNS label of RFC 1123: the name of an agent, a Namespace or a Service.
DNS_LABEL = "[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"

#: Pattern for the name of most other objects: labels with dots between them.
DNS_SUBDOMAIN = rf"{DNS_LABEL}(?:\.{DNS_LABEL})*"

#: Maximum number of characters of a Kubernetes user or group: longer names are
#: mistakes.
_MAX_SUBJECT = 256

#: The rule of `is_subject`, for messages.
SUBJECT_RULE = f"1 to {_MAX_SUBJECT} printable characters, without blanks at the ends"

#: Number of characters of a page or another response that an error text quotes.
_EXCERPT = 200

#: Minimum number of characters of a secret: a shorter one could be any word.
MIN_SECRET = 6

#: Placeholder for the omitted middle of a long text.
_GAP = " ... "

#: Characters that are permitted in JSON strings but not in YAML strings: YAML parsers
#: reject some, and treat others as the end of a line.
_ESCAPED_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")

#: Surrogates, halves of a character, which Go's JSON parsers replace.
_SURROGATES = re.compile("[\ud800-\udfff]")


def clean(text: str, most: int, instead: str = "?") -> str:
    """Return one line of at most *most* characters, all of them printable."""
    if len(text) > most:
        text = text[:most]
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else instead for one in text)


def shortened(text: str, most: int) -> str:
    """
    Return at most *most* characters of a text: its beginning and its end.

    The end is kept, because in error messages it often contains the cause or the
    remedy.
    """
    if len(text) <= most:
        return text
    end = (most - len(_GAP)) // 2
    return text[: most - len(_GAP) - end] + _GAP + text[len(text) - end :]


def excerpt(body: bytes, secrets: Iterable[str] = ()) -> str:
    """
    Return the beginning of a text from another program, on one line.

    :param secrets: values that the program received, such as ``Bearer TOKEN``; some
        programs repeat a request in their response.
    """
    for value in secrets:
        for part in (value, value.rpartition(" ")[2]):
            if len(part) >= MIN_SECRET:
                body = body.replace(part.encode(), b"***")
    text = body[:_EXCERPT].decode("utf-8", "replace")
    return " ".join(clean(text, _EXCERPT, " ").split())


def json_for_yaml(value: Any, *, sort_keys: bool = False) -> str:
    r"""
    Write *value* so that JSON and YAML parsers read the same.

    JSON may write a character beyond U+FFFF as two escapes (``\ud83d\ude80``), which
    YAML parsers reject: such a character is written unescaped.
    """
    text = json.dumps(value, ensure_ascii=False, sort_keys=sort_keys)
    text = _ESCAPED_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return _SURROGATES.sub("\ufffd", text)


def clean_message(message: Message, most: int) -> None:
    """Clean every text in *message*, and in the messages within it."""
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


def is_subject(name: str) -> bool:
    """Tell whether *name* is valid as a Kubernetes user or group in a header."""
    return 0 < len(name) <= _MAX_SUBJECT and name.isprintable() and name == name.strip()
