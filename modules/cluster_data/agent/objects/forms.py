"""
Objects, lists and events in the formats that clients of Kubernetes accept.

    objects    JSON
    metadata   ``PartialObjectMetadata``
    tables     ``Table``, with the cells that kubectl prints
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from modules.cluster_data.agent.objects.packing import ObjectText
from modules.cluster_data.agent.objects.store import ObjectStore
from modules.cluster_data.agent.objects.time_cells import TimeCells

__all__ = ["Form", "Printer", "form_of"]

#: Maximum number of media types of a request that are read.
MAX_TYPES: Final = 20

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])

#: The columns of a kind without a Table of the API server, as kubectl prints it.
_NAME_AND_AGE: Final = msgspec.json.encode(
    [
        {
            "name": name,
            "type": "string",
            "format": form,
            "description": "",
            "priority": 0,
        }
        for name, form in (("Name", "name"), ("Age", ""))
    ]
)


class Form(Enum):
    """Format of a response."""

    OBJECT = "Object"
    METADATA = "PartialObjectMetadata"
    TABLE = "Table"


_FORMS: Final = {
    "": Form.OBJECT,
    "Table": Form.TABLE,
    "PartialObjectMetadata": Form.METADATA,
    "PartialObjectMetadataList": Form.METADATA,
}


def form_of(accept: str) -> Form | None:
    """
    Return the first format of a field ``Accept`` that the cache has; None without one.
    """
    if not accept.strip():
        return Form.OBJECT
    for one in accept.split(",", MAX_TYPES)[:MAX_TYPES]:
        kind, *parameters = (part.strip() for part in one.split(";"))
        found = dict(part.partition("=")[::2] for part in parameters)
        if kind not in ("application/json", "application/*", "*/*"):
            continue
        if found.get("as") and (found.get("g"), found.get("v")) != (
            "meta.k8s.io",
            "v1",
        ):
            continue
        if (form := _FORMS.get(found.get("as", ""))) is not None:
            return form
    return None


class Printer:
    """
    Writer of one response.

    :param include: which part of objects a Table contains: ``None``, ``Metadata`` or
        ``Object``.
    :param now: time in seconds since 1970.
    """

    def __init__(
        self, store: ObjectStore, form: Form, include: str, now: float
    ) -> None:
        self._store = store
        self._form = form
        self._include = include or "Metadata"
        self.now = now
        columns = store.columns or _NAME_AND_AGE
        self._columns = columns
        self._cells = TimeCells(store.resource, columns)
        #: Whether an event has contained the columns.
        self._has_columns = False
        resource = store.resource
        self._kind = resource.kind
        self._api_version = resource.api_version

    def item(self, found: ObjectText) -> bytes:
        """Return an object as part of a list."""
        if self._form is Form.TABLE:
            return self._row(found)
        return found.text if self._form is Form.OBJECT else _metadata(found.text)

    def one(self, found: ObjectText, version: str) -> bytes:
        """Return the response with one object."""
        if self._form is not Form.TABLE:
            return self.item(found)
        return self._table(version, self._columns) + self._row(found) + b"]}"

    def begin(self, version: str) -> bytes:
        """Return the beginning of a list; its objects follow with commas."""
        if self._form is Form.TABLE:
            return self._table(version, self._columns)
        kind, api_version = f"{self._kind}List", self._api_version
        if self._form is Form.METADATA:
            kind, api_version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        return b'{"kind":%b,"apiVersion":%b,"metadata":%b,"items":[' % (
            msgspec.json.encode(kind),
            msgspec.json.encode(api_version),
            msgspec.json.encode({"resourceVersion": version}),
        )

    def end(self) -> bytes:
        """Return the end of a list."""
        return b"]}\n"

    def event(self, kind: str, found: ObjectText, version: str) -> bytes:
        """
        Return a line of a watch.

        :param version: the ``resourceVersion`` of a Table with the object.
        """
        if self._form is not Form.TABLE:
            return _line(kind, self.item(found))
        columns = b"null" if self._has_columns else self._columns
        self._has_columns = True
        table = self._table(version, columns) + self._row(found) + b"]}"
        return _line(kind, table)

    def bookmark(self, version: str, is_end: bool = False) -> bytes:
        """
        Return a line of a watch with a position.

        :param is_end: whether it ends the initial objects.
        """
        metadata: dict[str, object] = {"resourceVersion": version}
        if is_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        found = msgspec.json.encode(
            {
                "kind": self._kind,
                "apiVersion": self._api_version,
                "metadata": metadata,
            }
        )
        if self._form is Form.METADATA:
            found = _metadata(found)
        elif self._form is Form.TABLE:
            row = b'{"cells":[],"object":' + _metadata(found) + b"}"
            found = self._table(version, b"null") + row + b"]}"
        return _line("BOOKMARK", found)

    def _row(self, found: ObjectText) -> bytes:
        if found.cells:
            cells = found.cells
        else:
            name = msgspec.json.decode(found.text)["metadata"].get("name")
            cells = msgspec.json.encode([name, "<unknown>"])
        cells = self._cells.update(cells, found.text, self.now)
        if self._include == "None":
            return b'{"cells":' + cells + b"}"
        text = found.text if self._include == "Object" else _metadata(found.text)
        return b'{"cells":' + cells + b',"object":' + text + b"}"

    def _table(self, version: str, columns: bytes) -> bytes:
        metadata = msgspec.json.encode({"resourceVersion": version})
        return (
            b'{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":%b,'
            b'"columnDefinitions":%b,"rows":[' % (metadata, columns)
        )


def _line(kind: str, found: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), found)


def _metadata(text: bytes) -> bytes:
    """Return the metadata of an object, as an object of its own."""
    metadata = bytes(_FIELDS.decode(text)["metadata"])
    return (
        b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":'
        + metadata
        + b"}"
    )
