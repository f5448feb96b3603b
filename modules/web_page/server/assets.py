"""The files that `make page` has built, as resources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.web.resource import Resource

from modules.web_page.server.headers import protect
from tunnel.errors import ConfigurationError

__all__ = ["FOLDER", "Assets"]

#: The built files, which belong to the package.
FOLDER: Final = Path(__file__).parents[1] / "static"

_KINDS: Final = {
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".txt": b"text/plain; charset=utf-8",
    ".woff2": b"font/woff2",
}

#: The name of a file contains a hash of its content, so the content never changes.
_FOREVER: Final = "public, max-age=31536000, immutable"

#: Encodings, best first, with the ends of the names of encoded files.
_ENCODINGS: Final = ((b"br", ".br"), (b"gzip", ".gz"))


@attrs.frozen
class _File:
    kind: bytes
    plain: bytes
    encoded: tuple[tuple[bytes, bytes], ...]


class Assets(Resource):
    """
    The built files, from memory: some hundred KB.

    :ivar script: path of the script below the page, such as ``static/app-1234.js``.
    :ivar style: path of the style sheet.
    :ivar build: hash of all files, which changes with every release.
    :raises ConfigurationError: the files are missing.
    """

    isLeaf = True

    def __init__(self, folder: Path = FOLDER) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        try:
            manifest: Any = json.loads((folder / "manifest.json").read_bytes())
        except FileNotFoundError:
            raise ConfigurationError(
                [f"{folder} has no built page: run 'make page', or install a wheel"]
            ) from None
        self.script = f"static/{manifest['script']}"
        self.style = f"static/{manifest['style']}"
        self.build = "".join(manifest["files"][manifest["script"]]["sha256"][:16])
        self._files = {
            name.encode(): _read(folder / name) for name in manifest["files"]
        }

    def render_GET(self, request: Any) -> bytes:
        """Return one file."""
        found = self._files.get(b"/".join(request.postpath))
        if found is None:
            protect(request)
            request.setResponseCode(404)
            request.setHeader(b"content-type", b"text/plain; charset=utf-8")
            return b"this file does not exist\n"
        protect(request, _FOREVER)
        request.setHeader(b"content-type", found.kind)
        request.setHeader(b"vary", b"accept-encoding")
        accepted = _accepted(request.getHeader(b"accept-encoding") or b"")
        for name, content in found.encoded:
            if name in accepted:
                request.setHeader(b"content-encoding", name)
                return content
        return found.plain


def _read(path: Path) -> _File:
    encoded = []
    for name, end in _ENCODINGS:
        other = path.with_name(path.name + end)
        if other.exists():
            encoded.append((name, other.read_bytes()))
    kind = _KINDS.get(path.suffix, b"application/octet-stream")
    return _File(kind, path.read_bytes(), tuple(encoded))


def _accepted(field: bytes) -> set[bytes]:
    """Return the encodings that a client accepts."""
    found = set()
    for part in field.lower().split(b","):
        name, _, quality = part.partition(b";")
        if quality.strip().replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00"):
            found.add(name.strip())
    return found
