"""
Backend of the stores of modules in Redis.  All keys begin with
``<key_prefix>:txkas1:store:``.

=============================  ====  ==================================================
Key                            Type  Content
=============================  ====  ==================================================
``<module>/<namespace>``       hash  ``epoch``, ``version`` (of the last change),
                                     ``bytes``, and for each key ``=<key>`` as
                                     ``<version>:<expires>:<value>``; 0: never;
                                     the value is sealed, see `SealedBackend`
``<module>/<namespace>/keys``  zset  its keys, all with score 0, so in order
``<module>/<namespace>/ends``  zset  keys that expire, by their expiry
channel ``<...>:store``              ``S`` or ``D``, version, namespace, key
=============================  ====  ==================================================

No key expires by itself, because only Redis contains this data.  Times are microseconds
since 1970 by the clock of Redis, which all kas share.

Each operation is one atomic script.  The script is sent as text each time, because
Redis does not know a loaded script any more after a restart or a failover.

A namespace without an epoch gets a random epoch.  If the epoch differs from the last
known epoch, or the version is older than the last known version, Redis has lost data:
the backend logs this, and notifies watches that they have to read again.  Each script
receives the last known version of its kas, and sets a new epoch if the version in Redis
is older; so every kas notices the loss, even after a later write.

Another program may write anything to these keys.  A value, version or number of bytes
that kas cannot have written counts as missing, so that the next `set` replaces it.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from functools import cache
from typing import Any

import attrs
from twisted.logger import Logger

from kas.config.redis import Redis
from kas.redis import Command, RedisClient, RedisRefused, RedisUnavailable
from tunnel.api import StoredValue, StoreEvent, StoreEventType
from tunnel.errors import CallError, Status
from tunnel.hosting.stores import (
    DEFAULT_LIMITS,
    BackendListener,
    StoreLimits,
    is_key,
)
from tunnel.toolkit.until import until

__all__ = ["RedisBackend"]

#: Seconds between two checks of a namespace, which detect expired values that a dead
#: kas did not remove, and data that Redis has lost.
LOOK_INTERVAL = 10.0

#: Seconds between two checks whether the first attempt to connect has ended.
FIRST_STEP = 0.01

#: Maximum number of expired values that one operation removes; the next operation
#: removes the rest.  Removing this many values blocks Redis for a millisecond.
_SWEEP = 500

#: Maximum bytes of an accepted message on the channel; messages of kas contain a key
#: and a name.
_MAX_MESSAGE = 1024

#: Maximum bytes that a value in Redis may have in addition to the value of the module:
#: version, expiry and seal.  A larger value counts as missing, because another program
#: wrote it.
_HEAD_BYTES = 256

# LARGEST, LONGEST and BYTES are replaced by the maximum bytes of a value in Redis, of a
# key and of a namespace.
#
# KEYS: the hash, and both sets. ARGV: channel, namespace, now or '', new epoch, the
# last epoch and version that this kas knows, operation, and its arguments.
_SCRIPT = """\
local hash, order, ends = KEYS[1], KEYS[2], KEYS[3]
local channel, name, now = ARGV[1], ARGV[2], tonumber(ARGV[3])
local fresh, what = ARGV[4], ARGV[7]
local known_epoch, known_version = ARGV[5], tonumber(ARGV[6])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Return a number that kas can have written, and nil for any other text.  Each number
-- has one text, because versions are compared as texts.  The largest one is 2^53 - 1,
-- because Lua cannot count further.
local function number(text)
  if not text or #text > 16 then return nil end
  if text ~= '0' and not string.find(text, '^[1-9]%d*$') then return nil end
  local found = tonumber(text)
  return found <= 9007199254740991 and found or nil
end

local meta = redis.call('HMGET', hash, 'epoch', 'version', 'bytes')
local epoch, bytes = meta[1] or '', number(meta[3]) or 0
if #epoch > 100 then epoch = '' end
local version = number(meta[2])
if not version then
  -- Continue after the last known version if another program changed only this number.
  version = meta[2] and epoch == known_epoch and known_version or 0
end
-- No clock shows this time, which is in the year 2112, and the limit leaves room for
-- later versions.
if version > 4503599627370496 then version = 0 end
-- kas never stores more.
if bytes > BYTES then bytes = 0 end

-- Compare here, because the operation may change the version. The new epoch notifies
-- every kas, even if the version exceeds the last known version until then.
if epoch ~= '' and epoch == known_epoch and version < known_version then
  epoch = fresh
  redis.call('HSET', hash, 'epoch', epoch)
end

local function text(number) return string.format('%.0f', number) end

-- Return the version as text, the expiry, and the length of the head of a value that
-- kas can have written; nothing for any other value.
local function split(stored)
  if #stored > LARGEST then return nil end
  local _, last, its_version, expires = string.find(stored, '^(%d+):(%d+):')
  if (number(its_version) or 0) == 0 or not number(expires) then return nil end
  return its_version, number(expires), last
end

local function changed(kind, key)
  version = math.max(version + 1, now)
  if epoch == '' then epoch = fresh end
  local told = text(version)
  redis.call('HSET', hash, 'epoch', epoch, 'version', told, 'bytes', text(bytes))
  redis.call('PUBLISH', channel, kind .. ' ' .. told .. ' ' .. name .. ' ' .. key)
end

local function remove(key)
  local stored = redis.call('HGET', hash, '=' .. key)
  redis.call('ZREM', ends, key)
  redis.call('ZREM', order, key)
  if stored then
    local _, _, last = split(stored)
    redis.call('HDEL', hash, '=' .. key)
    -- Another program wrote a value without a valid head, which was never counted.
    if last then bytes = math.max(0, bytes - #key - (#stored - last)) end
    changed('D', key)
  end
end

local function answer(status, ...) return {epoch, text(version), status, ...} end

local function live(key)
  local stored = redis.call('HGET', hash, '=' .. key)
  if not stored then return nil end
  local its_version, expires, last = split(stored)
  if not last then return nil end
  if expires > 0 and expires <= now then return nil end
  return stored, its_version, last
end

if what == 'get' then
  local stored, its_version, last = live(ARGV[8])
  if not stored then return answer('nothing') end
  return answer('found', its_version, string.sub(stored, last + 1))
end

local most = tonumber(ARGV[#ARGV])
for _, key in ipairs(redis.call(
    'ZRANGEBYSCORE', ends, '-inf', text(now), 'LIMIT', 0, most)) do
  remove(key)
end

if what == 'sweep' then
  local first = redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')
  local due = number(first[2])
  if not due then return answer('nothing') end
  return answer('found', text(math.max(0, due - now)))
end

if what == 'page' then
  local prefix, after, limit = ARGV[8], ARGV[9], tonumber(ARGV[10])
  local from = after == '' and '[' .. prefix or '(' .. after
  if prefix == '' and after == '' then from = '-' end
  local keys = redis.call(
    'ZRANGEBYLEX', order, from, '[' .. prefix .. '\\255', 'LIMIT', 0, limit)
  local found = {}
  for _, key in ipairs(keys) do
    local until_ = redis.call('ZSCORE', ends, key)
    if #key <= LONGEST and (not until_ or tonumber(until_) > now) then
      found[#found + 1] = key
    end
  end
  local next_ = #keys == limit and keys[#keys] or ''
  -- Shorten a key of another program, so that the next page begins after it.
  if #next_ > LONGEST then next_ = string.sub(next_, 1, LONGEST + 1) .. '\\255' end
  return answer('found', next_, found)
end

local key, wanted = ARGV[8], ARGV[9]
local stored, its_version, last = live(key)
if not stored then
  remove(key)
  its_version = '0'
end

if what == 'replace' then
  if not stored or wanted ~= its_version then return answer('other', its_version) end
  if #stored - last ~= #ARGV[10] then return answer('other', its_version) end
  redis.call('HSET', hash, '=' .. key, string.sub(stored, 1, last) .. ARGV[10])
  return answer('found')
end

if what == 'delete' then
  if not stored then return answer('nothing') end
  if wanted ~= '' and wanted ~= its_version then return answer('other', its_version) end
  remove(key)
  return answer('found')
end

local value, lasts = ARGV[10], tonumber(ARGV[11])
if wanted ~= '' and wanted ~= its_version then return answer('other', its_version) end
local size = bytes + #key + #value
if stored then
  size = size - #key - (#stored - last)
elseif redis.call('ZCARD', order) >= tonumber(ARGV[12]) then
  return answer('keys')
end
if size > BYTES then return answer('bytes') end
-- The number of bytes is too small if another program has changed it.
bytes = math.max(0, size)
local expires = 0
if lasts > 0 then
  expires = now + lasts
  redis.call('ZADD', ends, text(expires), key)
else
  redis.call('ZREM', ends, key)
end
changed('S', key)
redis.call('ZADD', order, 0, key)
local head = text(version) .. ':' .. text(expires) .. ':'
redis.call('HSET', hash, '=' .. key, head .. value)
return answer('found', text(version))
"""


@cache
def _script(limits: StoreLimits) -> str:
    largest = limits.value + _HEAD_BYTES
    text = _SCRIPT.replace("LARGEST", str(largest))
    text = text.replace("LONGEST", str(limits.key))
    return text.replace("BYTES", str(limits.bytes))


@attrs.define(eq=False)
class _Seen:
    """State of a namespace in Redis, as it was last seen."""

    epoch: bytes = b""
    version: int = 0


@attrs.define(eq=False)
class RedisBackend:
    """
    Implementation of `tunnel.hosting.stores.StoreBackend` with Redis.

    The backend has a client of its own, so that values do not delay messages between
    kas, and so that a Redis that forbids scripts affects only the stores.

    :param random: returns a number between 0 and 1, for the jitter.
    :param now: returns the time of day; None to use the clock of Redis.
    """

    sweep_interval = LOOK_INTERVAL

    _settings: Redis
    _reactor: Any
    _random: Callable[[], float]
    _limits: StoreLimits = DEFAULT_LIMITS
    _now: Callable[[], float] | None = None
    client: RedisClient = attrs.field(init=False)
    _listener: BackendListener | None = attrs.field(default=None, init=False)
    _seen: dict[str, _Seen] = attrs.field(factory=dict, init=False)
    _heard: bool = attrs.field(default=False, init=False)
    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.client = RedisClient(
            self._settings,
            self._reactor,
            self._random,
            self._channel,
            self._probe(),
            " for the stores of modules",
            "they fail",
        )

    @property
    def hears(self) -> bool:
        return self._heard

    def start(self, listener: BackendListener) -> None:
        self._listener = listener
        self.client.start(self)

    async def stop(self) -> None:
        self._listener = None
        self.client.stop()

    async def get(self, name: str, key: str) -> StoredValue | None:
        status, *rest = await self._run(name, "get", key)
        if status != b"found":
            return None
        return StoredValue(rest[1], self._number(rest[0]))

    async def set(
        self,
        name: str,
        key: str,
        value: bytes,
        version: int | None,
        expires_after: float | None,
    ) -> int:
        status, *rest = await self._run(
            name,
            "set",
            key,
            "" if version is None else version,
            value,
            math.ceil((expires_after or 0.0) * 1_000_000),
            self._limits.keys,
            _SWEEP,
        )
        if status == b"found":
            return self._number(rest[0])
        if status == b"other":
            raise _other(key, rest[0])
        count = self._limits.keys if status == b"keys" else self._limits.bytes
        raise CallError(
            Status.RESOURCE_EXHAUSTED,
            f"{name} would exceed its limit of {count} {status.decode()}",
        )

    async def delete(self, name: str, key: str, version: int | None) -> bool:
        wanted = "" if version is None else version
        status, *rest = await self._run(name, "delete", key, wanted, _SWEEP)
        if status == b"other":
            raise _other(key, rest[0])
        return bool(status == b"found")

    async def replace(self, name: str, key: str, value: bytes, version: int) -> bool:
        """See `kas.storage.sealed_backend.ReplacingBackend`."""
        status, *_ = await self._run(name, "replace", key, version, value, _SWEEP)
        return bool(status == b"found")

    async def page(
        self, name: str, prefix: str, after: str, limit: int
    ) -> tuple[list[str], str]:
        # Escape bytes that are not UTF-8, because a page may end with a key that
        # another program wrote.
        begin = after.encode("utf-8", "surrogateescape")
        _, last, found = await self._run(name, "page", prefix, begin, limit, _SWEEP)
        keys = [self._key(one) for one in found]
        return [one for one in keys if one], last.decode("utf-8", "surrogateescape")

    async def sweep(self, name: str) -> float:
        status, *rest = await self._run(name, "sweep", _SWEEP)
        return self._number(rest[0]) / 1_000_000 if status == b"found" else math.inf

    # Methods that run the script.

    @property
    def _channel(self) -> str:
        return f"{self._settings.key_prefix}:txkas1:store"

    def _keys(self, name: str) -> tuple[bytes, bytes, bytes]:
        key = f"{self._channel}:{name}".encode()
        return key, key + b"/keys", key + b"/ends"

    def _command(self, name: str, what: str, *arguments: bytes | str | int) -> Command:
        now = "" if self._now is None else int(self._now() * 1_000_000)
        keys = self._keys(name)
        seen = self._seen.get(name, _Seen())
        known = (seen.epoch, seen.version)
        head = (self._channel, name, now, secrets.token_hex(8), *known, what)
        return ("EVAL", _script(self._limits), len(keys), *keys, *head, *arguments)

    def _probe(self) -> list[Command]:
        """
        Return commands that check whether Redis can be used: they make and undo a
        change, in a namespace that no module uses.
        """
        return [
            self._command("probe", "set", "k", "", "", 1, self._limits.keys, _SWEEP),
            self._command("probe", "page", "", "", 1, _SWEEP),
            self._command("probe", "delete", "k", "", _SWEEP),
            ("DEL", *self._keys("probe")),
        ]

    async def _run(
        self, name: str, what: str, *arguments: bytes | str | int
    ) -> tuple[Any, ...]:
        if not self.client.tried:
            # Wait for the first attempt to connect, because modules start before a
            # connection can exist.
            patience = self._settings.dial_timeout + self._settings.write_timeout
            await until(lambda: self.client.tried, self._reactor, patience, FIRST_STEP)
        try:
            answer = await self.client.call(*self._command(name, what, *arguments))
        except RedisUnavailable as error:
            raise CallError(Status.UNAVAILABLE, str(error)) from None
        except RedisRefused as error:
            raise self._foreign(str(error)) from None
        epoch, version, *rest = answer
        self._compare(name, epoch, self._number(version))
        return tuple(rest)

    def _number(self, value: bytes) -> int:
        """
        Return the number in *value*.

        :raises CallError: if *value* is not a number, because another program wrote it.
        """
        try:
            return int(value)
        except ValueError:
            raise self._foreign("a number is malformed") from None

    def _key(self, data: bytes) -> str:
        """
        Return a module's key; empty if another program wrote *data*, because kas never
        stores such a key, and modules could not request its value.
        """
        try:
            key = data.decode()
        except UnicodeDecodeError:
            return ""
        return key if is_key(key, self._limits) else ""

    def _foreign(self, problem: str) -> CallError:
        text = f"{problem}: does another program write below {self._channel}?"
        return CallError(Status.INTERNAL, text)

    def _compare(self, name: str, epoch: bytes, version: int) -> None:
        """
        Compare the state in a response with the last known state.  Responses arrive in
        order, so an older version means that data was lost.
        """
        seen = self._seen.get(name)
        if seen is None:
            self._seen[name] = _Seen(epoch, version)
            return
        lost = seen.epoch and (seen.epoch != epoch or version < seen.version)
        seen.epoch, seen.version = epoch, version
        if lost:
            self._log.error(
                "Redis lost some or all of the data in {name}: was it flushed or "
                "restarted, or did it fail over to an older state?",
                name=name,
            )
            self._tell(lambda listener: listener.reset(name))

    def _tell(self, call: Callable[[BackendListener], None]) -> None:
        if self._listener is not None:
            call(self._listener)

    # Methods of kas.redis.RedisListener

    def redis_up(self) -> None:
        """Record that Redis works."""
        self._update()

    def redis_down(self) -> None:
        """Record that Redis does not work."""
        self._update()

    def redis_listening(self, on: bool) -> None:
        """Record whether messages arrive."""
        self._update()

    def _update(self) -> None:
        was, self._heard = self._heard, self.client.up and self.client.listening
        if self._heard and not was:
            self._tell(lambda listener: listener.reset())

    def redis_wrong_type(self, key: bytes) -> None:
        """Do nothing, because a script does not name the key with the wrong type."""

    def redis_message(self, data: bytes) -> None:
        """Report a change that any kas has made, which may be this kas."""
        event = self._read(data)
        if event is not None:
            name, change = event
            self._tell(lambda listener: listener.changed(name, change))

    def _read(self, data: bytes) -> tuple[str, StoreEvent] | None:
        """Parse a message from the channel; return None if it has another format."""
        kind, _, rest = data[:_MAX_MESSAGE].partition(b" ")
        version, _, rest = rest.partition(b" ")
        name, _, data = rest.partition(b" ")
        key = self._key(data)
        if not key:
            return None
        try:
            event = StoreEvent(_TYPES[kind], key, int(version))
            return name.decode(), event
        except (KeyError, ValueError):
            return None


_TYPES = {b"S": StoreEventType.SET, b"D": StoreEventType.DELETED}


def _other(key: str, version: bytes) -> CallError:
    found = version.decode("utf-8", "replace")
    return CallError(Status.ABORTED, f"{key} has changed: its version is {found}")
