"""State of an object after agentk last applied it."""

from __future__ import annotations

import json
from hashlib import sha256

import attrs

from modules.gitops.agent.objects.manifests import Manifest

__all__ = ["Settled", "digest_of"]

#: Version of the annotations that mark objects.  If it changes, all objects are applied
#: again.
_FORM = "1"


@attrs.frozen
class Settled:
    """
    Record of a manifest, and of the fields that agentk owned after it applied the
    manifest.

    :ivar digest: the digest of the manifest.
    :ivar owned: the result of `owned_fields`, which differs once agentk's fields have
        changed.
    :ivar problem: why applying the object failed; agentk does not retry until the
        manifest changes.
    """

    digest: str
    owned: str
    problem: str = ""

    @classmethod
    def read(cls, text: str) -> Settled | None:
        """Parse the result of `text`; return None if the format differs."""
        form, _, rest = text.partition(":")
        digest, _, owned = rest.partition(":")
        return cls(digest, owned) if form == _FORM and digest and owned else None

    @property
    def text(self) -> str:
        """Text that is stored in the inventory."""
        return f"{_FORM}:{self.digest}:{self.owned}"


def digest_of(manifest: Manifest) -> str:
    """
    Return a digest of a manifest, and of its ciphertext if it was encrypted.

    The digest is the same if and only if `Manifest.is_as` is true.
    """
    text = json.dumps(manifest.object, sort_keys=True, separators=(",", ":"))
    text += manifest.ciphertext
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
