"""Pages and webhooks of modules."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from zope.interface import Attribute, Interface

if TYPE_CHECKING:
    # agentk serves no pages: it does without twisted.web.
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

        Where ``web`` is not configured, no client can ask.  kas checks no credential
        there: the resource does, with `IUsers.authorize` or its own.

        :param prefix: ``/name`` or deeper, without a slash at its end.
        :raises ValueError: it is invalid, or a module has it, or one above or below
            it, already.
        """
