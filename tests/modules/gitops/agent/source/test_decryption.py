"""Secrets that the real sops encrypted, and decrypts as agentk runs it."""

from __future__ import annotations

import base64
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
import yaml
from twisted.internet import reactor

from modules.gitops.agent.apply.settled import digest_of
from modules.gitops.agent.objects.manifests import Source, read_source
from modules.gitops.agent.source import decryption
from modules.gitops.agent.source.child_processes import ChildProcesses
from modules.gitops.agent.source.decryption import Decryptor
from tests.integration import needs
from tests.integration.processes import clean_environment
from tunnel.errors import CallError, Status

_reactor: Any = reactor
async_test = pytest_twisted.ensureDeferred

#: Made for these tests alone.
IDENTITY = "AGE-SECRET-KEY-18PQZMHY50FJ7F78EYWAUHF8C7D8MUAM3LP74P6YEEX35SQRQY7QS6XLRYW"
RECIPIENT = "age1jl2srx96at8ehetf2epg3asu0na3ezwsy8zkvngg94tcfzvuggtqxvkc90"

REGEX = "^(data|stringData)$"

DATABASE = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "db", "namespace": "web"},
    "type": "Opaque",
    "data": {"raw": base64.b64encode(b"\0\1").decode()},
    "stringData": {"password": "s3cret\nline", "number": "007"},
}


def encrypted(
    found: dict[str, Any], folder: Path, regex: str = REGEX, name: str = "one.yaml"
) -> str:
    """*found* as a person commits it."""
    file = folder / name
    file.write_text(yaml.safe_dump(found))
    command = ("encrypt", "--age", RECIPIENT, "--encrypted-regex", regex, file)
    done = subprocess.run(
        [needs.sops(), *command],
        capture_output=True,
        check=True,
        text=True,
        env=clean_environment(),
    )
    assert "s3cret" not in done.stdout
    return done.stdout


class Cluster:
    """Has one Secret, and no other."""

    def __init__(self, **data: str) -> None:
        coded = {name: base64.b64encode(one.encode()) for name, one in data.items()}
        self.secret = {"data": {name: one.decode() for name, one in coded.items()}}
        self.asked: list[tuple[str, str]] = []

    async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        self.asked.append((namespace, name))
        if (kind.kind, namespace, name) != ("Secret", "keys", "age"):
            raise CallError(Status.NOT_FOUND, f"there is no {namespace}/{name}")
        return self.secret


async def decrypted(
    text: str, cluster: Cluster | None = None, secret: str = "keys/age"
) -> Source:
    client: Any = cluster or Cluster(**{"main.agekey": IDENTITY})
    made = Decryptor(ChildProcesses(_reactor), str(needs.sops()))
    return await made.decrypt(read_source([("a.yaml", text.encode())]), client, secret)


async def refused(text: str, cluster: Cluster | None = None, secret: str = "") -> str:
    """Why it cannot be decrypted now."""
    with pytest.raises(CallError) as caught:
        await decrypted(text, cluster, secret or "keys/age")
    assert caught.value.status is Status.UNAVAILABLE
    return caught.value.message


@async_test
async def test_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was, with what was added since then; nothing stays behind."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    found = yaml.safe_load(encrypted(DATABASE, tmp_path))
    # As kustomize does.
    found["metadata"]["labels"] = {"app": "web"}
    plain = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
    source = await decrypted(f"{plain}---\n{yaml.safe_dump(found)}")
    assert source.problems == ()
    assert [one.key.kind for one in source.manifests] == ["ConfigMap", "Secret"]
    wanted = {**DATABASE, "metadata": {**found["metadata"]}}
    assert source.manifests[1].object == wanted
    assert list((tmp_path / "tmp").iterdir()) == []


@async_test
async def test_the_same_ciphertext(tmp_path: Path) -> None:
    """The same content that was encrypted again is another manifest."""
    first, second = encrypted(DATABASE, tmp_path), encrypted(DATABASE, tmp_path)
    one, other, again, plain = [
        (await decrypted(text)).manifests[0]
        for text in (first, second, first, yaml.safe_dump(DATABASE))
    ]
    assert one.object == other.object == plain.object
    assert one.is_as(again)
    assert digest_of(one) == digest_of(again)
    for guess in (other, plain):
        assert not one.is_as(guess)
        assert digest_of(one) != digest_of(guess)


@async_test
async def test_many(tmp_path: Path) -> None:
    """Each gets its own content."""
    texts = []
    for number in range(8):
        metadata = {"name": f"s{number}", "namespace": "web"}
        text = {"stringData": {"number": str(number)}}
        one = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **text}
        texts.append(encrypted(one, tmp_path))
    source = await decrypted("---\n".join(texts))
    numbers = [one.object["stringData"]["number"] for one in source.manifests]
    assert numbers == [str(number) for number in range(8)]


@async_test
async def test_nothing_is_encrypted() -> None:
    """Then no key is asked for."""
    cluster = Cluster()
    source = await decrypted(yaml.safe_dump(DATABASE), cluster)
    assert source.manifests[0].object == DATABASE
    assert cluster.asked == []


@async_test
async def test_no_secret_is_named(tmp_path: Path) -> None:
    source = await decrypted(encrypted(DATABASE, tmp_path), secret="")
    (problem,) = source.problems
    assert str(problem).startswith("a.yaml:1: Secret web/db: it is encrypted with SOPS")


@async_test
async def test_keys_that_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can add them reads which; it is tried again."""
    text = encrypted(DATABASE, tmp_path)
    assert "keys/none (decryption.secret) cannot be read" in await refused(
        text, secret="keys/none"
    )
    said = await refused(text, Cluster(identity=IDENTITY))
    assert "no entry whose name ends in .agekey" in said
    monkeypatch.setattr(decryption, "MAX_KEYS", 10)
    assert "more than 10 bytes" in await refused(text)


@async_test
async def test_no_key_fits(tmp_path: Path) -> None:
    """Whom it is encrypted for is said, and nothing of the keys."""
    found = yaml.safe_load(encrypted(DATABASE, tmp_path))
    for one in found["sops"]["age"]:
        one["enc"] = one["enc"].replace("YWdl", "XWdl", 1)
    said = await refused(yaml.safe_dump(found))
    assert said.startswith("a.yaml:1: Secret web/db cannot be decrypted: no key in ")
    assert said.endswith(f"the Secret keys/age fits any of {RECIPIENT}")
    del found["sops"]["age"]
    assert "no age key can decrypt it" in await refused(yaml.safe_dump(found))


@async_test
async def test_content_that_was_changed(tmp_path: Path) -> None:
    """A value belongs to its place; sops quotes it, and that is left out."""
    found = yaml.safe_load(encrypted(DATABASE, tmp_path))
    texts = found["stringData"]
    texts["number"], texts["password"] = texts["password"], texts["number"]
    said = await refused(yaml.safe_dump(found))
    assert said.endswith("sops failed: run it manually to see why")


@async_test
async def test_what_is_no_secret(tmp_path: Path) -> None:
    """A merge request that has a preview show it as a ConfigMap gets nothing."""
    found = {**DATABASE, "kind": "ConfigMap"}
    source = await decrypted(encrypted(found, tmp_path))
    assert source.manifests == ()
    assert "decrypts only Secrets" in str(source.problems[0])
    source = await decrypted(encrypted(DATABASE, tmp_path, regex=""))
    assert "encrypted_regex: ^(data|stringData)$" in str(source.problems[0])


@async_test
async def test_a_file_within_a_secret(tmp_path: Path) -> None:
    """As a generator of kustomize makes it of an encrypted file."""
    file = encrypted(DATABASE, tmp_path).encode()
    data = {"env": base64.b64encode(file).decode(), "other": "eA=="}
    made = {**DATABASE, "data": data, "stringData": {}}
    source = await decrypted(yaml.safe_dump(made))
    (problem,) = source.problems
    assert "Secret web/db: data.env is a file that SOPS encrypted" in str(problem)


@async_test
async def test_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decryption, "MAX_ENCRYPTED", 0)
    source = await decrypted(encrypted(DATABASE, tmp_path))
    assert "there are more than 0 encrypted objects" in str(source.problems[0])
