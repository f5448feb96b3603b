"""The objects that a request selects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs
import msgspec

from modules.cluster_data.agent.objects.store import KeptKey
from tunnel.kubernetes import LabelRequirement, label_requirements

__all__ = ["Selection"]

_TERM: Final = re.compile(r"(metadata\.(?:name|namespace))(==|=|!=)([^=!,\\]*)")


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_LABELS = msgspec.json.Decoder(_Labelled)


@attrs.frozen
class Selection:
    """
    A selection by namespace, name and selectors.

    :ivar namespace: empty for all namespaces.
    :ivar name: empty for all names.
    :ivar excluded: field and value, which must differ.
    """

    namespace: str
    name: str
    labels: tuple[LabelRequirement, ...] = ()
    excluded: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls, namespace: str, name: str, label_selector: str, field_selector: str
    ) -> Selection | None:
        """
        Parse selectors; return None if the cache cannot evaluate the fields.

        :raises ValueError: the label selector is invalid.
        """
        labels = tuple(label_requirements(label_selector))
        wanted = {"metadata.namespace": namespace, "metadata.name": name}
        excluded: list[tuple[str, str]] = []
        for term in filter(None, field_selector.split(",")):
            match = _TERM.fullmatch(term)
            if match is None:
                return None
            field, sign, value = match.groups()
            if sign == "!=":
                excluded.append((field, value))
            elif not value or wanted[field] not in ("", value):
                return None
            else:
                wanted[field] = value
        return cls(
            wanted["metadata.namespace"],
            wanted["metadata.name"],
            labels,
            tuple(excluded),
        )

    def has_key(self, key: KeptKey) -> bool:
        """Return whether the key of an object is selected."""
        if self.namespace not in ("", key.namespace):
            return False
        if self.name not in ("", key.name):
            return False
        fields = {"metadata.namespace": key.namespace, "metadata.name": key.name}
        return all(fields[field] != value for field, value in self.excluded)

    def has_labels(self, text: bytes) -> bool:
        """Return whether the labels of an object are selected."""
        if not self.labels:
            return True
        labels: Mapping[str, str] = _LABELS.decode(text).metadata.labels or {}
        return all(one.matches(labels) for one in self.labels)
