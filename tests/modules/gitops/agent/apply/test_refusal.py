"""What is told of a refusal, and what to do; never what a Secret holds."""

from __future__ import annotations

import pytest

from modules.gitops.agent.apply.refusal import MAX_SAID, words_of
from modules.gitops.agent.objects.manifests import ObjectKey
from tunnel.kubernetes.answers import error_of

SECRET = ObjectKey("", "Secret", "web", "db")
CONFIG_MAP = ObjectKey("", "ConfigMap", "web", "settings")
UNFIT = "failed to create typed patch object (web/db; /v1, Kind=Secret): "
UNDECODED = (
    "failed to convert new object (web/db; /v1, Kind=Secret) to proper version: unable "
    "to convert unstructured object to /v1, Kind=Secret: error decoding from json: "
)


def got(value: str) -> str:
    return f"got &value.valueUnstructured{{Value:{value}}}"


def said(key: ObjectKey, words: str, status: int = 500) -> str:
    return words_of(key, error_of(status, {"message": words}))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            f"{UNFIT}.stringData.password: expected string, {got('8374')}",
            "stringData.password is not text; YAML reads the value as a number or a "
            "Boolean: put quotes around the value",
        ),
        (
            f"{UNFIT}errors:\n  .stringData.a: expected string, {got('true')}\n"
            "  .datta: field not declared in schema",
            "stringData.a is not text; YAML reads the value as a number or a Boolean: "
            "put quotes around the value; a Secret has no field datta",
        ),
        (f"{UNFIT}.data: expected map, {got('hunter2')}", "data is not of type map"),
        (
            f"{UNFIT}.data.a: expected string, {got('map[hunter2:hunter2]')}",
            "data.a is not of type string",
        ),
        (
            f"{UNDECODED}illegal base64 data at input byte 4",
            "a value in data is not base64: put plain text under stringData",
        ),
        (
            'Apply failed with 1 conflict: conflict with "hunter2" using v1: .data.a',
            "other field managers have set .data.a",
        ),
        (
            'Apply failed with 2 conflicts: conflicts with "hunter2" using v1:\n'
            "- .data.tls.crt\n- .metadata.labels.a",
            "other field managers have set .data.tls.crt, .metadata.labels.a",
        ),
        ('namespaces "web" not found', 'namespaces "web" not found'),
    ],
)
def test_a_secret_that_does_not_fit(words: str, told: str) -> None:
    """The field and the remedy, and no value."""
    assert said(SECRET, words) == f"the API server refuses the Secret: {told}"


@pytest.mark.parametrize(
    "words",
    [
        'admission webhook "a" denied the request: .data.a: expected string, got & h2',
        f"{UNFIT}hunter2",
        f"{UNDECODED}hunter2",
    ],
)
def test_other_words_about_a_secret(words: str) -> None:
    """They may quote it."""
    assert "agentk omits the message" in said(SECRET, words, 422)
    assert "hunter2" not in said(SECRET, words)


def test_a_number_for_a_text() -> None:
    """The commonest mistake, in Go's words, has its remedy; others are as they are."""
    words = "failed to create typed patch object (a): .data.n: expected string, "
    assert said(CONFIG_MAP, words + got("80")).endswith(": put quotes around the value")
    assert said(CONFIG_MAP, words + got("[1]")) == f"API server: {words}{got('[1]')}"


@pytest.mark.parametrize("key", [SECRET, CONFIG_MAP])
@pytest.mark.parametrize("path", ["data", "immutable"])
def test_one_that_is_immutable(key: ObjectKey, path: str) -> None:
    """It says what to do, and neither kind's content."""
    words = (
        f'{key.kind} "db" is invalid: {path}: Forbidden: field is immutable when '
        "`immutable` is set"
    )
    told = said(key, words, 422)
    assert told.startswith(f"{path}: field is immutable, because the object")
    assert "give it another name in Git" in told
    quoting = f'{key.kind} "db" is invalid: data: Invalid value: "hunter2": no'
    assert ("hunter2" in said(key, quoting, 422)) is (key is CONFIG_MAP)


def test_long_words() -> None:
    """The API server quotes a whole object; what is wrong comes after it."""
    quoted = "core.PodTemplateSpec{" + 3000 * "x" + "}"
    words = f"spec.template: Invalid value: {quoted}: field is immutable"
    key = ObjectKey("batch", "Job", "web", "migrate")
    told = said(key, f'Job.batch "migrate" is invalid: {words}', 422)
    assert len(told) == MAX_SAID
    assert "spec.template: Invalid value: core.Pod" in told
    assert told.endswith("}: field is immutable")
