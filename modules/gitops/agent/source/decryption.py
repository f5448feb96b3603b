"""
Decryption of SOPS-encrypted Secrets with the age keys of their project.

Each Secret is decrypted separately after the source was rendered: kustomize and Helm,
and the temporary files, contain only encrypted text.  Only Secrets are decrypted,
because every message masks them: a merge request that copies an encrypted text
elsewhere reveals no secret.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from typing import Any

import attrs
from twisted.internet.threads import deferToThread

from modules.gitops.agent.objects.manifests import Manifest, Source, SourceProblem
from modules.gitops.agent.source.child_processes import AT_ONCE, ChildProcesses
from modules.gitops.agent.source.folder import TemporaryFolder
from modules.gitops.agent.source.threads import COMMIT_THREADS, TextThreads
from tunnel.api import IKubernetesClient, KubernetesResource
from tunnel.errors import CallError, Status
from tunnel.toolkit.parallel import in_parallel
from tunnel.toolkit.texts import clean

__all__ = ["Decryptor"]

#: Suffix of the keys in the Secret with age keys, as in Flux.
SUFFIX = ".agekey"

#: Maximum bytes of all keys of a project: enough for hundreds.
MAX_KEYS = 64 * 1024

#: Maximum number of encrypted objects of a source: each needs a run of the program.
MAX_ENCRYPTED = 500

#: Path below the program's home folder where it looks for keys.
_KEYS = ".config/sops/age/keys.txt"

#: Beginning of the error that no key fits.  Other errors are not shown, because they
#: may quote the object.
_NO_KEY = "Failed to get the data key"

#: Beginning of each value that SOPS encrypted.
_ENCRYPTED = b"ENC[AES256_GCM,data:"

#: Fields that may be encrypted; encrypting any other field is an error.
_FIELDS = ("data", "stringData")

_SECRETS = KubernetesResource("", "v1", "Secret", "secrets", True)


@attrs.frozen
class Decryptor:
    """
    Runner of the program that decrypts Secrets.

    :param sops: name of the program on PATH, or its path.
    """

    children: ChildProcesses
    sops: str = "sops"
    threads: TextThreads = attrs.field(
        factory=lambda: TextThreads(COMMIT_THREADS), kw_only=True
    )

    async def decrypt(
        self, source: Source, client: IKubernetesClient, secret: str
    ) -> Source:
        """
        Return the source with its encrypted objects decrypted.

        :param client: client with the permissions of the project, so that a project
            gets only keys that it may read.
        :param secret: namespace/name of the Secret with the keys; empty if the project
            has no keys.
        :raises CallError: UNAVAILABLE if a retry may succeed; other statuses as from
            *client*.
        """
        encrypted = [one for one in source.manifests if one.is_encrypted]
        if secret and (problems := tuple(_left_encrypted(source))):
            return attrs.evolve(source, problems=(*source.problems, *problems))
        if not encrypted:
            return source
        if not secret or len(encrypted) > MAX_ENCRYPTED:
            why = (
                f"there are more than {MAX_ENCRYPTED} encrypted objects"
                if secret
                else (
                    "it is encrypted with SOPS: name the Secret that has the age "
                    "keys (decryption.secret), or exclude it with paths"
                )
            )
            problem = SourceProblem(encrypted[0].origin, f"{encrypted[0].key}: {why}")
            return attrs.evolve(source, problems=(*source.problems, problem))
        keys = await _keys(client, secret)
        place = TemporaryFolder()
        try:
            files = [
                (f"{number}.json", json.dumps(one.object).encode())
                for number, one in enumerate(encrypted)
            ]
            await self.threads.run(place.write, files, home=[(_KEYS, keys)])
            found = await in_parallel(
                (
                    partial(self._decrypt, one, name, place, secret)
                    for one, (name, _) in zip(encrypted, files, strict=True)
                ),
                AT_ONCE,
            )
        finally:
            await deferToThread(place.remove)
        changed = {one.key: one for one in found}
        manifests = tuple(changed.get(one.key, one) for one in source.manifests)
        return attrs.evolve(source, manifests=manifests)

    async def _decrypt(
        self, manifest: Manifest, file: str, place: TemporaryFolder, secret: str
    ) -> Manifest:
        # The MAC of the object is ignored, because it does not cover fields that
        # kustomize adds; each value has a MAC of its own.
        made = await self.children.run(
            self.sops,
            [
                *("decrypt", "--ignore-mac"),
                *("--input-type", "json", "--output-type", "json"),
                str(place.path / "files" / file),
            ],
            place.path,
        )
        if made.problem:
            why = made.problem
            if made.is_said:
                why = "sops failed: run it manually to see why"
                recipients = _recipients(manifest)
                if not recipients:
                    why = "no age key can decrypt it; agentk supports only age keys"
                elif made.problem.startswith(_NO_KEY):
                    names = ", ".join(recipients[:5])
                    why = f"no key in the Secret {secret} fits any of {names}"
            raise _cannot(manifest, why)
        try:
            found = json.loads(made.output)
            values = {name: found[name] for name in _FIELDS if found.get(name)}
            if not all(isinstance(one, dict) for one in values.values()):
                raise ValueError
        except (ValueError, RecursionError, AttributeError):
            raise _cannot(manifest, "the output of sops is not a Secret") from None
        kept = {
            key: one
            for key, one in manifest.object.items()
            if key not in ("sops", *_FIELDS)
        }
        encrypted = json.dumps(manifest.object, sort_keys=True)
        return attrs.evolve(
            manifest,
            object={**kept, **values},
            ciphertext=sha256(encrypted.encode("utf-8", "surrogatepass")).hexdigest(),
        )


def _cannot(manifest: Manifest, why: str) -> CallError:
    # The status allows a retry: adding a key does not need a new commit.
    return CallError(
        Status.UNAVAILABLE,
        f"{manifest.origin}: {manifest.key} cannot be decrypted: {why}",
    )


def _recipients(manifest: Manifest) -> list[str]:
    """Return the public keys that encrypted an object."""
    found = manifest.object["sops"].get("age")
    return [
        clean(str(one.get("recipient")), 80)
        for one in (found if isinstance(found, list) else [])
        if isinstance(one, dict)
    ]


def _left_encrypted(source: Source) -> Iterator[SourceProblem]:
    """
    Yield a problem for each Secret that contains a file that SOPS encrypted as a whole.
    """
    for one in source.manifests:
        if one.key.kind != "Secret" or one.is_encrypted:
            continue
        for field in _FIELDS:
            for name, value in _values(one, field):
                if _ENCRYPTED in value:
                    yield SourceProblem(
                        one.origin,
                        f"{one.key}: {field}.{clean(name, 80)} is a file that SOPS "
                        "encrypted: agentk decrypts Secrets, but not files that "
                        "kustomize or Helm read; write an encrypted Secret",
                    )


def _values(manifest: Manifest, field: str) -> Iterator[tuple[str, bytes]]:
    found = manifest.object.get(field)
    for name, value in (found if isinstance(found, dict) else {}).items():
        if not isinstance(value, str):
            continue
        try:
            yield (
                str(name),
                base64.b64decode(value) if field == "data" else value.encode(),
            )
        except (binascii.Error, ValueError):
            # Let the API server report the mistake.
            continue


async def _keys(client: IKubernetesClient, secret: str) -> bytes:
    """
    Read the age keys.

    :raises CallError: UNAVAILABLE if the keys are missing or cannot be read.
    """
    try:
        found: dict[str, Any] = await client.get(_SECRETS, *reversed(secret.split("/")))
    except CallError as error:
        why = f"the Secret {secret} (decryption.secret) cannot be read: {error.message}"
        raise CallError(Status.UNAVAILABLE, why) from None
    keys = b"\n".join(
        base64.b64decode(value)
        for name, value in sorted((found.get("data") or {}).items())
        if name.endswith(SUFFIX)
    )
    if not keys or len(keys) > MAX_KEYS:
        why = (
            f"has more than {MAX_KEYS} bytes of keys"
            if keys
            else f"has no entry whose name ends in {SUFFIX}"
        )
        text = f"the Secret {secret} (decryption.secret) {why}"
        raise CallError(Status.UNAVAILABLE, text)
    return keys + b"\n"
