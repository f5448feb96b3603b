"""
Configuration: YAML becomes frozen attrs classes, and all errors are reported at once.

A schema is an attrs class whose annotations define how each value is read::

    @attrs.frozen(kw_only=True)
    class EchoConfiguration:
        greeting: str = field(default="hello", doc="beginning of every response")
        timeout: Duration = field(default=30.0, doc="timeout of a response")

    configuration = read(text, "echo.yaml", EchoConfiguration)

Annotations may be `str`, `int`, `float`, `bool`, `pathlib.Path` (relative to the folder
of the file), `ExistingFile`, `Duration`, `Size`, `Literal`, enums, attrs classes, ``X |
None``, ``list[X]``, ``tuple[X, ...]``, ``dict[str, X]``, `Section`, and ``Annotated[X,
Text(parse, expected)]`` for your own text format.  Validators of attrs apply; raise
`Invalid` in ``__attrs_post_init__`` for values that contradict each other. The class
attribute ``FOREIGN_KEYS`` describes keys of other programs for the message that refuses
them; keys in ``IGNORED_KEYS`` have no effect, and cause only a remark.

An error reads ``file:line:column: path: what is wrong, and what to do``.

    files.py        a file, or its text, as an instance of a schema
    flags.py        a command line as an instance of a schema
    nodes.py        the tree of the text, each value with its position
    reader.py       reads that tree by a schema
    schema.py       the parts of schemas
    texts.py        reads single values
    problems.py     errors as one line each
    redis.py        the schema of a connection to Redis
    reference.py    the keys of a schema, as a list
    json_schema.py  a JSON Schema for editors, and values as in a file
    listen.py       the schema of every listener
    caching.py      the schema of the cache for credentials
    telemetry.py    the schemas for traces and failures
    urls.py         URLs of servers
    certificates.py checks of certificates; other modules watch them
    names.py        names in certificates
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
from tunnel.config.redis import (
    REDIS_PORT,
    SENTINEL_PORT,
    RedisConnection,
    RedisSentinel,
    RedisServer,
    RedisTls,
    read_password,
    redis_address,
)
from tunnel.config.reference import Key, keys
from tunnel.config.schema import ExistingFile, Invalid, field, is_positive
from tunnel.config.telemetry import Profile, Sentry, Tracing, is_installed
from tunnel.config.texts import Duration, Size, Text, parse_duration, parse_size
from tunnel.config.urls import is_url

__all__ = [
    "REDIS_PORT",
    "SENTINEL_PORT",
    "CredentialCaching",
    "DrainingListen",
    "Duration",
    "ExistingFile",
    "Invalid",
    "Key",
    "Listen",
    "PartlyRead",
    "Profile",
    "RedisConnection",
    "RedisSentinel",
    "RedisServer",
    "RedisTls",
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
    "is_installed",
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
    "read_password",
    "redis_address",
    "validity",
]
