"""Limits on the resources that a repository and its server may use."""

from __future__ import annotations

import attrs

__all__ = ["GitLimits"]

_MIB = 1024 * 1024


@attrs.frozen(kw_only=True)
class GitLimits:
    """Limits on the resources that the content of a repository can use."""

    #: Maximum bytes of one file, for every caller, because the whole file is in memory.
    blob: int = 16 * _MIB
    #: Size of a file in bytes above which kas does not fetch the file if the server
    #: supports that; files between this limit and `blob` are not manifests either.
    fetched_blob: int = 16 * _MIB
    #: Maximum number of entries of one listing: five times the largest known repository
    #: of manifests.
    entries: int = 100_000
    #: Maximum number of folders that one listing visits, including empty ones: a small
    #: tree of nested empty folders can represent billions of folders.
    folders: int = 100_000
    #: Maximum depth of nested folders: functions that walk such a tree may be
    #: recursive.
    depth: int = 64
    #: Maximum bytes of one listing: 100,000 entries of 320 bytes.
    listing: int = 32 * _MIB
    #: Maximum seconds for one read: the largest listing takes less than one second.
    read_timeout: float = 30.0
    #: Maximum seconds for one fetch: a server that sends a byte each second counts as
    #: unavailable.
    fetch_timeout: float = 120.0
    #: Maximum bytes of one file that git writes.  Because a fetch writes a pack, this
    #: also limits a fetch.
    pack: int = 1024 * _MIB
    #: Maximum bytes of address space of one git process.
    memory: int = 2048 * _MIB
    #: Maximum CPU seconds of one git process.
    cpu: int = 120
    #: Maximum number of packs, one for each fetch, before kas fetches the repository
    #: again as a whole: each pack slows down every read, and a new copy also drops
    #: unreferenced objects.
    packs: int = 50
    #: Maximum bytes of all packs of a copy; more than `pack`, so that a new copy does
    #: not exceed this limit at once.  Two copies exist while kas creates the next one.
    copy: int = 2048 * _MIB
    #: Maximum number of simultaneous fetches of different repositories: each takes
    #: three processes.
    fetches: int = 4
    #: Maximum number of simultaneous reads: further reads would only compete for the
    #: same cores.
    readings: int = 8
    #: Maximum number of reads and fetches that wait for a slot.
    waiting: int = 1000
    #: Maximum rate of calls to all Gitaly servers together, and to each server: calls
    #: per second, and the burst after a pause.  The values are the defaults of GitLab's
    #: kas.
    gitaly_rate: float = 30.0
    gitaly_burst: int = 70
    gitaly_server_rate: float = 15.0
    gitaly_server_burst: int = 40
    #: Maximum number of configured repositories, on this machine and on Git servers.
    repositories: int = 10_000
