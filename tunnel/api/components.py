"""Well-known components that live data recognizes in clusters."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from zope.interface import Interface

__all__ = ["IKnownComponents", "KnownComponent", "KnownComponentsStarted"]


@attrs.frozen
class KnownComponent:
    """
    A component and how to recognize its workloads.

    :ivar name: the name that users see.
    :ivar images: the ends of its image repositories, such as ``grafana/grafana``, which
        match in every registry.
    :ivar names: values of the label ``app.kubernetes.io/name``, for workloads whose
        image is from another repository.
    """

    name: str
    images: tuple[str, ...]
    names: tuple[str, ...] = ()


class IKnownComponents(Interface):
    """In kas: the table of components, a capability of the module ``cluster_data``."""

    def add(component: KnownComponent) -> Callable[[], None]:
        """
        Recognize a further component, and return a function that ends this.

        :raises ValueError: there are too many components.
        """


@attrs.frozen
class KnownComponentsStarted:
    """
    In kas: `IKnownComponents` is available, for the first time or after a restart.
    """
