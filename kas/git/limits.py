"""Limits on a repository and its server."""

from __future__ import annotations

import attrs

__all__ = ["GitLimits"]

_MIB = 1024 * 1024


@attrs.frozen(kw_only=True)
class GitLimits:
    """Limits on the resources that the content of a repository can use."""

    #: Bytes of one file, whatever a caller allows, because the whole file is in memory.
    blob: int = 16 * _MIB
    #: kas does not fetch larger files if the server supports that; files between this
    #: limit and `blob` are not manifests either.
    fetched_blob: int = 16 * _MIB
    #: Entries of one listing: five times as many as the largest known repository of
    #: manifests.
    entries: int = 100_000
    #: Folders that one listing visits, including empty ones: a small tree of nested
    #: empty folders can represent billions of them.
    folders: int = 100_000
    #: Depth of nested folders: code that walks such a tree may be recursive.
    depth: int = 64
    #: Bytes of one listing: 100,000 entries of 320 bytes.
    listing: int = 32 * _MIB
    #: Seconds for one read: the largest listing takes less than one.
    read_timeout: float = 30.0
    #: Seconds for one fetch: a server that sends a byte each second counts as
    #: unavailable.
    fetch_timeout: float = 120.0
    #: Bytes of one file that git writes. Because a fetch writes a pack, this also
    #: limits a fetch.
    pack: int = 1024 * _MIB
    #: Bytes of address space of one git process.
    memory: int = 2048 * _MIB
    #: CPU seconds of one git process.
    cpu: int = 120
    #: Packs, one for each fetch, until kas fetches the repository again as a whole:
    #: each pack slows down every read, and a new copy also drops unreferenced objects.
    packs: int = 50
    #: Bytes of packs of the copy; more than `pack`, so that a new copy is not outdated
    #: at once. While kas creates the next copy, two exist.
    copy: int = 2048 * _MIB
    #: Fetches at the same time, of different repositories: each takes three processes.
    fetches: int = 4
    #: Reads at the same time: more would only compete for the same cores.
    readings: int = 8
    #: Reads and fetches that wait for a slot.
    waiting: int = 1000
    #: Calls to all Gitaly servers together, and to each of them: calls per second, and
    #: the burst after a pause. The default of GitLab's kas.
    gitaly_rate: float = 30.0
    gitaly_burst: int = 70
    gitaly_server_rate: float = 15.0
    gitaly_server_burst: int = 40
    #: Configured repositories, on this machine and on Git servers.
    repositories: int = 10_000
