"""Limits on a repository and its server."""

from __future__ import annotations

import attrs

__all__ = ["GitLimits"]

_MIB = 1024 * 1024


@attrs.frozen(kw_only=True)
class GitLimits:
    """Limits on the resources that an author of a repository can use here."""

    #: Bytes of one file, whatever a caller allows: it is in memory as a whole.
    blob: int = 16 * _MIB
    #: kas does not fetch larger files if the server supports that; files between this
    #: limit and `blob` are not manifests either.
    fetched_blob: int = 16 * _MIB
    #: Entries of one listing: five times the largest repository of manifests here.
    entries: int = 100_000
    #: Folders that one listing visits, with files or without: a tree of a few empty
    #: folders in each other can be one of billions.
    folders: int = 100_000
    #: Folders in each other: what walks such a tree may recurse.
    depth: int = 64
    #: Bytes of one listing: 100,000 entries of 320 bytes.
    listing: int = 32 * _MIB
    #: Seconds for one reading: the largest listing takes less than one.
    read_timeout: float = 30.0
    #: Seconds for one fetch: a server that answers a byte a second is down, too.
    fetch_timeout: float = 120.0
    #: Bytes of one file that git writes: a pack, so also what one fetch may bring.
    pack: int = 1024 * _MIB
    #: Bytes of address space of one git process.
    memory: int = 2048 * _MIB
    #: Seconds of computing of one git process.
    cpu: int = 120
    #: Packs, one for each fetch, until a repository is fetched as a whole again: each
    #: costs every later reading a look, and what no ref names is forgotten with them.
    packs: int = 50
    #: Maximum bytes of packs of the copy; more than `pack`, so that not every copy is
    #: outdated at once.  While kas creates the next copy, two exist.
    copy: int = 2048 * _MIB
    #: Fetches at the same time, of different repositories: each is three processes.
    fetches: int = 4
    #: Readings at the same time: more would only share the same cores.
    readings: int = 8
    #: Readings and fetches that wait for those.
    waiting: int = 1000
    #: Calls to all Gitaly servers together, and to each: in a second, and at once after
    #: a pause.  As GitLab's kas has it.
    gitaly_rate: float = 30.0
    gitaly_burst: int = 70
    gitaly_server_rate: float = 15.0
    gitaly_server_burst: int = 40
    #: Configured repositories of this machine and of Git servers.
    repositories: int = 10_000
