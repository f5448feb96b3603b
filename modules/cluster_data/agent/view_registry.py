"""The views of the cache: those of this module, and those of other modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zope.interface import implementer

from modules.cluster_data.agent.views.applications import APPLICATIONS
from modules.cluster_data.agent.views.events import EVENTS
from modules.cluster_data.agent.views.nodes import NODES
from modules.cluster_data.agent.views.problems import PROBLEMS
from modules.cluster_data.agent.views.services import SERVICES
from modules.cluster_data.agent.views.workloads import WORKLOADS
from modules.cluster_data.wire.view_names import COMPUTED_VIEWS, MAX_VIEWS, is_view_name
from tunnel.api import ClusterView, IClusterViews

__all__ = ["OWN_VIEWS", "ViewRegistry"]

OWN_VIEWS = (WORKLOADS, NODES, PROBLEMS, EVENTS, APPLICATIONS, SERVICES)


@implementer(IClusterViews)
class ViewRegistry:
    """
    Implementation of `IClusterViews`.

    :param changed: called after a view was added or removed.
    """

    def __init__(self, changed: Callable[[], object]) -> None:
        self._views = list(OWN_VIEWS)
        self._changed = changed

    @property
    def views(self) -> Sequence[ClusterView]:
        """Return all views."""
        return tuple(self._views)

    def add(self, view: ClusterView) -> Callable[[], None]:
        """See `IClusterViews`."""

        def remove() -> None:
            if view in self._views:
                self._views.remove(view)
                self._changed()

        if view in self._views:
            return remove
        names = {one.name for one in self._views} | set(COMPUTED_VIEWS)
        if not is_view_name(view.name):
            raise ValueError(f"{view.name!r} is no name of a view")
        if view.name in names:
            raise ValueError(f"a view {view.name!r} exists already")
        if len(names) >= MAX_VIEWS:
            raise ValueError(f"there are {MAX_VIEWS} views already")
        shapes = {
            kind: shape for one in self._views for kind, shape in one.kinds.items()
        }
        for kind, shape in view.kinds.items():
            if shapes.get(kind, shape) is not shape:
                raise ValueError(
                    f"another view reads {kind.kind} with the shape "
                    f"{shapes[kind].__name__}"
                )
        self._views.append(view)
        self._changed()
        return remove
