"""Watches of the Kubernetes API that agents answer from their caches."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from zope.interface import Interface

from tunnel.api.users import Access

__all__ = ["ICachedWatches"]


class ICachedWatches(Interface):
    """
    In kas: watches without load on API servers, a capability of the module
    ``cluster_data``.

    The API server of the cluster reviews the rights of the caller for each watch.
    """

    def open(access: Access, target: str) -> AsyncGenerator[bytes, None]:
        """
        Yield the lines of a watch, in parts of any size; the first part is empty, and
        comes as soon as the agent answers the watch from its cache.

        Close the generator to end the watch.

        :param target: path and query, such as ``/api/v1/pods?watch=true``.
        :raises CallError: the agent does not answer this watch from a cache, or its
            answer was interrupted.
        """
