"""Messages about refusals of the API server, with their remedies."""

from __future__ import annotations

import re

from modules.gitops.agent.objects.manifests import ObjectKey
from tunnel.errors import CallError
from tunnel.toolkit.texts import shortened

__all__ = ["words_of", "words_of_foreign"]

#: Maximum characters of a message from the API server, which may quote a whole object.
MAX_SAID = 500

_QUOTES = "YAML reads the value as a number or a Boolean: put quotes around the value"

#: Beginning of the message about a value whose type does not fit the schema. Source:
#: structured-merge-diff, package typed.
_UNFIT = "API server: failed to create typed patch object ("
_NO_TEXT = (
    r"expected string, got &value\.valueUnstructured\{Value:(?:[-0-9]|true|false)"
)

#: The same messages about a Secret: the matched part contains the field and the
#: problem, but not the value.
_FIELD = re.compile(
    r"(?:^|: |\s)\.(?P<field>[-.\w/]{1,300}): "
    rf"(?:(?P<no_text>{_NO_TEXT})|(?P<unknown>field not declared in schema)"
    r"|expected (?P<wanted>string|map|list), got &)"
)

_NO_BASE64 = re.compile(
    r"API server: failed to convert new object \([^()]*\) to proper version: [^\n]*"
    r"illegal base64 data at input byte [0-9]+"
)

#: Message about fields that other field managers own.  Source: structured-merge-diff.
_CONFLICT = re.compile(r"API server: Apply failed with [0-9]+ conflicts?: ")
_FIELD_OF_OTHERS = re.compile(
    r"(?:: |\n- )(\.(?:data|metadata|type|immutable)[-.\w/]{0,300})(?=\n|$)"
)

#: Message about a ConfigMap or Secret with ``immutable: true``.  Source:
#: apis/core/validation.
_SEALED = re.compile(
    r'API server: (?:ConfigMap|Secret) "[^"]{1,300}" is invalid: \[?'
    r"(?P<path>data|binaryData|immutable): Forbidden: "
    r"field is immutable when `immutable` is set"
)
_SEALED_WORDS = (
    "field is immutable, because the object in the cluster has immutable: true; give "
    "it another name in Git, as kustomize's generators do, and refer to it by the "
    "new name"
)

_NO_NAMESPACE = re.compile(r'API server: namespaces "[-a-z0-9]{1,63}" not found')

#: Message about the first invalid field of an object; only the path of the field is
#: matched. Source: apimachinery, pkg/api/errors and pkg/util/validation/field.
_INVALID = re.compile(
    r'API server: \S{1,300} "[^"]{1,300}" is invalid: \[?'
    r"(?P<path>[A-Za-z][A-Za-z0-9]{0,99}(?:\.[A-Za-z][A-Za-z0-9]{0,99}|\[[0-9]{1,9}\])"
    r"{0,30}): "
)


def words_of_foreign(error: CallError) -> str:
    """
    Return a message about the API server's refusal to change an object that the source
    does not own.

    The API server's own message is left out, because it may quote the object, which the
    author of a commit may not be allowed to read.
    """
    found = _INVALID.match(error.message)
    where = f" at {found['path']}" if found is not None else ""
    return (
        f"the API server refuses the object ({error.status.name}){where}; agentk omits "
        "the message, which may quote an object that the project does not own"
    )


def words_of(key: ObjectKey, error: CallError) -> str:
    """
    Return the API server's message about an object, without possible contents of a
    Secret.
    """
    said = error.message
    short = shortened(said, MAX_SAID)
    if (sealed := _SEALED.match(said)) is not None:
        return f"{sealed['path']}: {_SEALED_WORDS}"
    if (key.group, key.kind) != ("", "Secret"):
        return f"{short}; {_QUOTES}" if re.search(_NO_TEXT, said) else short
    if found := _wrong_in_secret(said):
        return f"the API server refuses the Secret: {'; '.join(found)}"
    # The message of an overloaded or slow admission webhook may also quote the Secret.
    return (
        f"the API server refuses the Secret ({error.status.name}); agentk omits the "
        "message, because the message may quote the Secret"
    )


def _wrong_in_secret(said: str) -> list[str]:
    """
    Return the problems of a Secret that can be explained without its values; field
    names are never secret.
    """
    if _NO_BASE64.fullmatch(said):
        return ["a value in data is not base64: put plain text under stringData"]
    if _NO_NAMESPACE.fullmatch(said):
        return [said.removeprefix("API server: ")]
    if _CONFLICT.match(said) and (fields := _FIELD_OF_OTHERS.findall(said)):
        return [f"other field managers have set {', '.join(fields)}"]
    if not said.startswith(_UNFIT):
        return []
    return [_explained(found) for found in _FIELD.finditer(said)]


def _explained(found: re.Match[str]) -> str:
    if found["no_text"]:
        return f"{found['field']} is not text; {_QUOTES}"
    if found["unknown"]:
        return f"a Secret has no field {found['field']}"
    return f"{found['field']} is not of type {found['wanted']}"
