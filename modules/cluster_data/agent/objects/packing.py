"""Objects as compressed bytes: dictionaries of Python are fifty times larger."""

from __future__ import annotations

import zlib
from typing import Final

import attrs
import msgspec

from tunnel.api import KubernetesResource, PrintedObject

__all__ = ["MAX_DICTIONARY", "ObjectText", "Packer", "with_version"]

#: Level of zlib: higher ones take more time and save little.
LEVEL: Final = 3

#: Maximum bytes of the dictionary: zlib looks back no further.
MAX_DICTIONARY: Final = 32 * 1024

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


@attrs.frozen
class ObjectText:
    """
    An object and its cells, as JSON without line breaks.

    :ivar cells: an array; empty if the API server has no Table of the kind.
    """

    cells: bytes
    text: bytes


class Packer:
    """
    Compresses the objects of one kind.

    They resemble each other, so the first one is the dictionary for all.
    """

    def __init__(self, resource: KubernetesResource) -> None:
        self._head = {
            "kind": msgspec.Raw(msgspec.json.encode(resource.kind)),
            "apiVersion": msgspec.Raw(msgspec.json.encode(resource.api_version)),
        }
        self._dictionary = b""

    def pack(self, printed: PrintedObject) -> bytes:
        """
        Return an object without ``managedFields``, which take up to 40 % of an object
        and which kubectl hides.

        :raises msgspec.DecodeError: the object is not JSON, or has no metadata.
        """
        # Objects of a list have neither kind nor apiVersion.
        fields = self._head | _FIELDS.decode(printed.text)
        metadata = _FIELDS.decode(fields["metadata"])
        metadata.pop("managedFields", None)
        fields["metadata"] = msgspec.Raw(msgspec.json.encode(metadata))
        cells = b""
        if printed.cells:
            cells = msgspec.json.encode(msgspec.json.decode(printed.cells))
        text = cells + b"\n" + msgspec.json.encode(fields)
        if not self._dictionary:
            self._dictionary = text[:MAX_DICTIONARY]
        packing = zlib.compressobj(LEVEL, wbits=-15, zdict=self._dictionary)
        return packing.compress(text) + packing.flush()

    def unpack(self, packed: bytes) -> ObjectText:
        """Return an object that `pack` has compressed."""
        text = zlib.decompressobj(-15, zdict=self._dictionary).decompress(packed)
        cells, _, rest = text.partition(b"\n")
        return ObjectText(cells, rest)


def with_version(found: ObjectText, version: str) -> ObjectText:
    """Return an object with another ``resourceVersion``."""
    fields = _FIELDS.decode(found.text)
    metadata = _FIELDS.decode(fields["metadata"])
    metadata["resourceVersion"] = msgspec.Raw(msgspec.json.encode(version))
    fields["metadata"] = msgspec.Raw(msgspec.json.encode(metadata))
    return attrs.evolve(found, text=msgspec.json.encode(fields))
