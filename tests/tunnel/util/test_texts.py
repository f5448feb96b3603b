"""Texts of a peer, made safe."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.tunnel.hostile import HOSTILE
from tunnel.pb import tunnel_pb2 as pb
from tunnel.toolkit.texts import clean, clean_message, json_for_yaml, shortened


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


class YamlTests(SynchronousTestCase):
    """`json_for_yaml`."""

    @given(text=st.text(st.characters(exclude_categories=["Cs"])))
    @example(text="ship it \U0001f680")
    @example(text="\x00\x7f\x85\x9f\u2028\u2029\ufeff\ufffe\uffff\\\U0010ffff")
    def test_readers(self, text: str) -> None:
        """Those of JSON and those of YAML read the same, whatever a text has."""
        value = {"a": text, f"k{text[:100]}": [text, 1, True, None]}
        written = json_for_yaml(value)
        self.assertEqual(json.loads(written), value)
        for loader in (yaml.SafeLoader, yaml.CSafeLoader):
            read = yaml.load(written.encode(), loader)
            self.assertEqual(read, value)

    def test_half_a_character(self) -> None:
        """It becomes what Go's readers of JSON make of it."""
        self.assertEqual(json.loads(json_for_yaml("a\ud83d")), "a\ufffd")


def test_shortened() -> None:
    """The middle is left out, and neither the beginning nor the end."""
    assert shortened("abc", 3) == "abc"
    text = shortened("a" * 500 + "b" * 500, 100)
    assert len(text) == 100
    assert text == "a" * 48 + " ... " + "b" * 47
