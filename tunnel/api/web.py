"""Pages and webhooks of modules."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from zope.interface import Attribute, Interface

if TYPE_CHECKING:
    # agentk serves no pages, and need not import twisted.web.
    from twisted.web.resource import IResource

__all__ = ["IWeb"]


class IWeb(Interface):
    """kas' listener for pages and webhooks: `IServerModuleApi.web`."""

    page_origins: Collection[str] = Attribute(
        "Origins of pages that may send requests from a user's browser: GitLab's."
    )

    def mount(prefix: str, resource: IResource) -> None:
        """
        Serve *resource* below *prefix*, until the module stops.

        If ``web`` is not configured, no client can reach *resource*.  kas does not
        check credentials at this listener, so *resource* must check them, with
        `IUsers.authorize` or by itself.

        :param prefix: ``/name`` or deeper, without a slash at its end.
        :raises ValueError: the prefix is invalid, or a module already serves this
            prefix, or a prefix above or below it.
        """
