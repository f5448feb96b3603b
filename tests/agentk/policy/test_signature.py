"""Signatures by SSH keys, with keys of this test and with the real ssh-keygen."""

from __future__ import annotations

import base64
import hashlib
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from agentk.policy.floor import STATE_SECRET
from agentk.policy.guard import LOOK_SECONDS
from agentk.policy.signature import (
    MAX_SIGNATURES,
    MAX_SIGNERS,
    NAMESPACE,
    SignatureError,
    check_signatures,
    read_signers,
)
from tests.agentk.policy.world import READ, UID, PolicyWorld
from tests.integration import needs
from tunnel.errors import ConfigurationError

DATA = b"kind: AgentPolicy\n"
NOW = 1795800630.0


def packed(*parts: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(one)) + one for one in parts)


class Key:
    """An Ed25519 key of an owner."""

    kind = b"ssh-ed25519"

    def __init__(self, owner: str = "alice") -> None:
        self.owner = owner
        self.private = ed25519.Ed25519PrivateKey.generate()

    @property
    def public(self) -> bytes:
        raw = self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return packed(self.kind, raw)

    def line(self, options: str = "") -> str:
        """Return the line of the file with keys."""
        key = base64.b64encode(self.public).decode()
        return f"{self.owner} {options} {self.kind.decode()} {key} comment\n"

    def raw(self, message: bytes) -> bytes:
        return packed(self.kind, self.private.sign(message))

    def sign(
        self,
        data: bytes = DATA,
        namespace: str = NAMESPACE,
        algorithm: str = "sha512",
        change: Callable[[bytes], bytes] = lambda blob: blob,
    ) -> str:
        """Return an armored signature."""
        name, used = namespace.encode(), algorithm.encode()
        digest = hashlib.new(algorithm, data).digest()
        message = b"SSHSIG" + packed(name, b"", used, digest)
        blob = b"SSHSIG" + struct.pack(">I", 1)
        blob += packed(self.public, name, b"", used, self.raw(message))
        text = base64.encodebytes(change(blob)).decode()
        return f"-----BEGIN SSH SIGNATURE-----\n{text}-----END SSH SIGNATURE-----\n"


class TouchedKey(Key):
    """A key on a security key."""

    kind = b"sk-ssh-ed25519@openssh.com"
    flags = b"\x01"

    @property
    def public(self) -> bytes:
        return packed(*self.parts(super().public), b"ssh:")

    def parts(self, public: bytes) -> tuple[bytes, bytes]:
        return self.kind, public[-32:]

    def raw(self, message: bytes) -> bytes:
        counter = b"\0\0\0\x07"
        signed = (
            hashlib.sha256(b"ssh:").digest()
            + self.flags
            + counter
            + hashlib.sha256(message).digest()
        )
        return packed(self.kind, self.private.sign(signed)) + self.flags + counter


class CurveKey(Key):
    """An ECDSA key."""

    kind = b"ecdsa-sha2-nistp384"

    def __init__(self, owner: str = "alice") -> None:
        super().__init__(owner)
        self.curve = ec.generate_private_key(ec.SECP384R1())

    @property
    def public(self) -> bytes:
        point = self.curve.public_key().public_bytes(
            Encoding.X962, PublicFormat.UncompressedPoint
        )
        return packed(self.kind, b"nistp384", point)

    def raw(self, message: bytes) -> bytes:
        r, s = decode_dss_signature(self.curve.sign(message, ec.ECDSA(hashes.SHA384())))
        numbers = (one.to_bytes(49) for one in (r, s))
        return packed(self.kind, packed(*numbers))


class RsaKey(Key):
    """An RSA key."""

    kind = b"ssh-rsa"
    algorithm = b"rsa-sha2-512"
    digest: Any = hashes.SHA512()

    def __init__(self, owner: str = "alice", bits: int = 2048) -> None:
        super().__init__(owner)
        self.rsa = rsa.generate_private_key(65537, bits)

    @property
    def public(self) -> bytes:
        numbers = self.rsa.public_key().public_numbers()
        parts = (one.to_bytes(513).lstrip(b"\0") for one in (numbers.e, numbers.n))
        return packed(self.kind, *(b"\0" + one for one in parts))

    def raw(self, message: bytes) -> bytes:
        signed = self.rsa.sign(message, padding.PKCS1v15(), self.digest)
        return packed(self.algorithm, signed)


ALICE, BOB = Key("alice"), Key("bob")


def check(signature: str, keys: str, required: int = 1, data: bytes = DATA) -> Any:
    """Return the owners whose signatures count."""
    return check_signatures(data, signature, read_signers(keys, "keys"), required, NOW)


def problem(signature: str, keys: str, required: int = 1, data: bytes = DATA) -> str:
    """Return why signatures do not count."""
    with pytest.raises(SignatureError) as caught:
        check(signature, keys, required, data)
    return str(caught.value)


@pytest.mark.parametrize("kind", [Key, TouchedKey, CurveKey, RsaKey])
@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_kinds(kind: type[Key], algorithm: str) -> None:
    """Every kind of key, and a changed byte of the file."""
    key = kind()
    signature = key.sign(algorithm=algorithm)
    assert check(signature, key.line()) == ("alice",)
    assert "not a signature of this file" in problem(
        signature, key.line(), data=DATA + b"\n"
    )


def test_refused() -> None:
    """Each with its own reason."""
    key = ALICE
    line = key.line()
    assert "for the namespace 'file'" in problem(key.sign(namespace="file"), line)
    assert "unknown key" in problem(BOB.sign(), line)
    assert "another hash" in problem(key.sign(algorithm="sha1"), line)
    assert "has no SSH signature" in problem("", line)
    assert "not valid now" in problem(key.sign(), key.line('valid-before="20261101"'))
    assert "not valid now" in problem(key.sign(), key.line('valid-after="20270101Z"'))
    long = key.sign(change=lambda blob: blob + b"x")
    assert "more bytes" in problem(long, line)
    assert "is cut" in problem(key.sign(change=lambda blob: blob[:-1]), line)
    assert "SSHSIG of version 1" in problem(
        key.sign(change=lambda blob: blob[:6] + b"\0\0\0\2" + blob[10:]), line
    )
    many = key.sign() * (MAX_SIGNATURES + 1)
    assert "more than" in problem(many, line)


def test_weak_rsa() -> None:
    """Neither SHA-1 nor short keys."""
    key = RsaKey()
    key.algorithm, key.digest = b"ssh-rsa", hashes.SHA1()
    assert "not permitted for RSA" in problem(key.sign(), key.line())
    short = RsaKey(bits=1024)
    assert "less than 2048 bits" in problem(short.sign(), short.line())


def test_untouched_key() -> None:
    """A security key has to be touched."""
    key = TouchedKey()
    key.flags = b"\0"
    assert "nobody touched" in problem(key.sign(), key.line())


def test_threshold() -> None:
    """Different keys of different owners count, and nothing twice."""
    second = Key("alice")
    keys = ALICE.line() + BOB.line() + second.line()
    assert check(ALICE.sign() + BOB.sign(), keys, 2) == ("alice", "bob")
    for signature in (
        ALICE.sign(),
        ALICE.sign() + ALICE.sign(),
        ALICE.sign() + ALICE.sign(algorithm="sha256"),
        ALICE.sign() + second.sign(),
        ALICE.sign() + BOB.sign(b"other"),
    ):
        assert "1 of 2 required" in problem(signature, keys, 2)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no key"),
        ("# only a comment\n", "no key"),
        (ALICE.line('namespaces="git,file"'), "no key"),
        (ALICE.line() + ALICE.line(), "keys:2:1: the key is already"),
        (ALICE.line() + ALICE.line().replace("alice", "bob"), "already in the file"),
        (ALICE.line("cert-authority"), "keys:1:1: the option cert-authority"),
        (ALICE.line().replace("alice", "*@example.org"), "one principal"),
        (ALICE.line().replace("alice", "a,b"), "one principal"),
        (ALICE.line('valid-after="tomorrow"'), "dates are"),
        ("alice ssh-dss AAAA\n", "expected 'NAME"),
        ("alice ssh-ed25519 AAAA\n", "not a public key"),
        (ALICE.line().replace("ssh-ed25519", "ssh-rsa"), "has another type"),
    ],
    ids=range(12),
)
def test_files_with_keys(text: str, reason: str) -> None:
    """A wrong line is refused with its number."""
    with pytest.raises(ConfigurationError) as caught:
        read_signers(text, "keys")
    assert reason in str(caught.value)


def test_number_of_keys() -> None:
    """Their number is limited."""
    text = "".join(Key(f"user-{number}").line() for number in range(MAX_SIGNERS + 1))
    with pytest.raises(ConfigurationError) as caught:
        read_signers(text, "keys")
    assert "more than" in str(caught.value)


# The policy in effect.


class SignedWorld(PolicyWorld):
    """A policy that two owners have to sign."""

    def __init__(self, folder: Path) -> None:
        keys = folder / "keys"
        keys.write_text(ALICE.line() + BOB.line())
        super().__init__(folder, None, keys, 2)

    def put(self, serial: int, more: str = "", *signers: Key) -> None:
        """Write a policy with its signatures."""
        text = f'{READ}serial: {serial}\nclusters: ["{UID}"]\n{more}'
        signatures = [one.sign(text.encode()) for one in signers or (ALICE, BOB)]
        self.settings.signature_file.write_text("".join(signatures))
        self.write(text)

    def put_and_look(self, serial: int, more: str = "", *signers: Key) -> str:
        """Replace the policy, and return the problem."""
        self.put(serial, more, *signers)
        self.later(LOOK_SECONDS)
        return self.guard.problem


def test_serials(tmp_path: Path) -> None:
    """An older policy is refused, also by a new agentk; the last good one stays."""
    world = SignedWorld(tmp_path)
    world.put(5)
    world.start()
    assert world.guard.serial == 5 and not world.guard.problem
    secret = world.cluster.objects.find("v1", "Secret", STATE_SECRET, "txkas")
    assert secret is not None and secret["data"]["serial"] == "NQ=="
    assert "the serial 4 is lower than 5" in world.put_and_look(4)
    assert "another policy had the serial 5" in world.put_and_look(5, "# other\n")
    assert "1 of 2 required" in world.put_and_look(6, "", ALICE)
    assert world.guard.serial == 5
    # A new pod.
    world.guard.stop()
    world.put(4)
    world.guard = world.start(world.new_guard())
    assert "lower than 5" in world.guard.problem and not world.guard.is_enforced
    assert world.put_and_look(7) == ""
    assert world.guard.serial == 7


def test_serial_cannot_be_kept(tmp_path: Path) -> None:
    """Without the Secret, no policy is accepted, and the permission is named."""
    world = SignedWorld(tmp_path)
    world.put(1)
    path = "/api/v1/namespaces/txkas/secrets"
    refusal = {"kind": "Status", "message": "no rights", "code": 403}
    world.cluster.answer("POST", path, refusal, 403)
    world.start()
    assert "grant it get, create and update: " in world.guard.problem
    assert not world.guard.is_enforced


def test_damaged_state(tmp_path: Path) -> None:
    """A damaged Secret is not taken for the first start."""
    world = SignedWorld(tmp_path)
    world.put(1)
    world.cluster.objects.put(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": STATE_SECRET, "namespace": "txkas"},
            "data": {"serial": "eA=="},
        }
    )
    world.start()
    assert "is damaged" in world.guard.problem
    # The owner follows the message.
    world.cluster.objects.remove("v1", "Secret", STATE_SECRET, "txkas")
    world.later(LOOK_SECONDS)
    assert not world.guard.problem and world.guard.serial == 1


def test_lower_serial_in_the_cluster(tmp_path: Path) -> None:
    """Whatever the owner changes in the cluster counts without another file."""
    world = SignedWorld(tmp_path)
    world.put(5)
    world.start()
    assert "is lower than 5" in world.put_and_look(4)
    world.cluster.objects.remove("v1", "Secret", STATE_SECRET, "txkas")
    world.later(LOOK_SECONDS)
    assert world.guard.serial == 4


def test_key_that_becomes_valid(tmp_path: Path) -> None:
    """A policy is used as soon as its keys are valid."""
    world = SignedWorld(tmp_path)
    later = 'valid-after="20261127173100Z"'
    world.settings.files[2].write_text(ALICE.line() + BOB.line(later))
    world.put(1)
    world.start()
    assert "1 of 2 required" in world.guard.problem
    world.later(60)
    assert not world.guard.problem and world.guard.serial == 1


def test_what_a_signed_policy_needs(tmp_path: Path) -> None:
    """Serial and clusters."""
    world = SignedWorld(tmp_path)
    world.settings.signature_file.write_text(
        ALICE.sign(READ.encode()) + BOB.sign(READ.encode())
    )
    world.write(READ)
    world.start()
    assert "a signed policy needs clusters and a serial" in world.guard.problem
    # The signature is checked before anything else is read.
    world.write("}")
    world.later(LOOK_SECONDS)
    assert "not a signature of this file" in world.guard.problem


# The real program.


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_ssh_keygen(tmp_path: Path, kind: str) -> None:
    """What ssh-keygen signs and accepts, agentk accepts; nothing else."""
    program = needs.program("ssh-keygen", "apt-get install openssh-client")

    def run(*arguments: str, stdin: bytes = b"") -> int:
        done = subprocess.run(
            [program, *arguments], cwd=tmp_path, input=stdin, capture_output=True
        )
        return done.returncode

    (tmp_path / "policy.yaml").write_bytes(DATA)
    assert run("-q", "-t", kind, "-N", "", "-f", "key") == 0
    assert run("-Y", "sign", "-n", NAMESPACE, "-f", "key", "policy.yaml") == 0
    public = (tmp_path / "key.pub").read_text()
    keys = f'alice namespaces="{NAMESPACE}",valid-after="20200101" {public}'
    (tmp_path / "keys").write_text(keys)
    signature = (tmp_path / "policy.yaml.sig").read_text()
    assert check(signature, keys) == ("alice",)
    verify = ("-Y", "verify", "-f", "keys", "-I", "alice", "-n", NAMESPACE)
    assert run(*verify, "-s", "policy.yaml.sig", stdin=DATA) == 0
    assert run(*verify, "-s", "policy.yaml.sig", stdin=DATA + b"x") != 0
    assert problem(signature, keys, data=DATA + b"x")
    # Both accept a signature of this test, too.
    if kind == "ed25519":
        (tmp_path / "keys").write_text(ALICE.line())
        (tmp_path / "ours.sig").write_text(ALICE.sign())
        assert run(*verify, "-s", "ours.sig", stdin=DATA) == 0
