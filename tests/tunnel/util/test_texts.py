"""Texts of a peer, made safe."""

from __future__ import annotations

import pytest

from tests.tunnel.hostile import HOSTILE
from tunnel.pb import tunnel_pb2 as pb
from tunnel.util.texts import clean, clean_message


@pytest.mark.parametrize("text", HOSTILE)
def test_clean(text: str) -> None:
    """One line that prints, as long as before."""
    cleaned = clean(text, 1000)
    assert cleaned.isprintable() and len(cleaned) == len(text)
    assert clean(cleaned, 1000) is cleaned


def test_what_is_fine_stays() -> None:
    """People have names in all scripts."""
    for text in ("", "pod-1", "Müller", "日本語", "مرحبا", "a b"):
        assert clean(text, 100) is text


def test_cut() -> None:
    assert clean("x" * 50 + "\n" * 50, 60) == "x" * 50 + "?" * 10


def test_every_text_of_a_message() -> None:
    """Within others, and in lists; bytes are none."""
    hello = pb.Hello(
        role="a\nb",
        credential=b"\r\n",
        services=["a\x1bb", "fine"],
        agent=pb.AgentMeta(
            pod_name="\u202e", kubernetes_version=pb.KubernetesVersion(minor="\x00")
        ),
    )
    clean_message(hello, 2)
    assert (hello.role, hello.credential) == ("a?", b"\r\n")
    assert list(hello.services) == ["a?", "fi"]
    assert hello.agent.pod_name == hello.agent.kubernetes_version.minor == "?"
