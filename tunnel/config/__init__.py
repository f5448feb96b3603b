"""
Configuration: YAML in, frozen attrs classes out, all problems at once.

A schema is an attrs class whose annotations say how each value is read::

    @attrs.frozen(kw_only=True)
    class EchoConfiguration:
        greeting: str = field(default="hello", doc="what every answer begins with")
        timeout: Duration = field(default=30.0, doc="how long one answer may take")

    configuration = read(text, "echo.yaml", EchoConfiguration)

Annotations may be `str`, `int`, `float`, `bool`, `pathlib.Path` (relative to the file
it stands in), `ExistingFile`, `Duration`, `Size`, `Literal`, enums, attrs classes,
``X | None``, ``list[X]``, ``tuple[X, ...]``, ``dict[str, X]``, `Section`, and
``Annotated[X, Text(parse, expected)]`` for a text format of your own.  Validators of
attrs apply; `Invalid` from ``__attrs_post_init__`` reports what does not go together.
A class attribute ``FOREIGN_KEYS`` says what keys are that others know and this schema
does not, for the message that refuses them; those of ``IGNORED_KEYS`` change nothing
here, and are only remarked upon.

A problem reads ``file:line:column: path: what is wrong, and what to do``.

How it is made::

    files.py        a file, or its text, as an instance of a schema
    flags.py        what was said on a command line, likewise
    nodes.py        the tree of the text, each value with its place
    reader.py       walks that tree along a schema
    schema.py       what a schema is written with
    texts.py        reads what is a single value
    problems.py     what is wrong, said in one line
    reference.py    what a schema knows, listed
    json_schema.py  the same for editors, and values as a file would have them
    listen.py       the schema of every listener
    caching.py      the schema of how long words on credentials count
    telemetry.py    the schemas of where traces and failures go
    urls.py         URLs of servers
    certificates.py checks the certificates that one names; they are followed elsewhere
    names.py        names that a certificate is made for
"""

from tunnel.config.caching import CredentialCaching
from tunnel.config.certificates import (
    authorities,
    expiry_problem,
    identity,
    validity,
)
from tunnel.config.files import place_in, place_of, read, read_file
from tunnel.config.flags import read_flags
from tunnel.config.json_schema import as_written, json_schema
from tunnel.config.listen import DrainingListen, Listen
from tunnel.config.problems import nearest
from tunnel.config.reader import PartlyRead, Remark, Section
from tunnel.config.reference import Key, keys
from tunnel.config.schema import ExistingFile, Invalid, field, is_positive
from tunnel.config.telemetry import Profile, Sentry, Tracing
from tunnel.config.texts import Duration, Size, Text, parse_duration, parse_size
from tunnel.config.urls import is_url

__all__ = [
    "CredentialCaching",
    "DrainingListen",
    "Duration",
    "ExistingFile",
    "Invalid",
    "Key",
    "Listen",
    "PartlyRead",
    "Profile",
    "Remark",
    "Section",
    "Sentry",
    "Size",
    "Text",
    "Tracing",
    "as_written",
    "authorities",
    "expiry_problem",
    "field",
    "identity",
    "is_positive",
    "is_url",
    "json_schema",
    "keys",
    "nearest",
    "parse_duration",
    "parse_size",
    "place_in",
    "place_of",
    "read",
    "read_file",
    "read_flags",
    "validity",
]
