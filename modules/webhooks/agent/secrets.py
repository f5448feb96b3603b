"""Secrets of receivers and CA certificates, read in the cluster for each attempt."""

from __future__ import annotations

import base64
import binascii

from modules.webhooks.wire.settings import SecretKey
from tunnel.api import IKubernetes, KubernetesResource
from tunnel.errors import CallError, Status

__all__ = ["KEYS", "read_key"]

_SECRET = KubernetesResource("", "v1", "Secret", "secrets", True)

#: Annotation of a Secret with the keys that webhooks may use, separated by commas.
#: Without it, the author of a configuration in Git could send any Secret that agentk
#: can read to a Service of his own.
KEYS = "txkas/webhook-keys"


async def read_key(kubernetes: IKubernetes, wanted: SecretKey) -> bytes:
    """
    Return the value of a key of a Secret.

    :raises CallError: the Secret cannot be read, or does not permit the use of the key;
        the text does not contain the value.
    """
    own = kubernetes.own_namespace
    if own is not None and own.name == wanted.namespace:
        text = f"Secret {wanted}: Secrets in agentk's own namespace are not used"
        raise CallError(Status.PERMISSION_DENIED, text)
    client = kubernetes.as_agentk()
    try:
        found = await client.get(_SECRET, wanted.name, wanted.namespace)
    except CallError as error:
        text = f"Secret {wanted.namespace}/{wanted.name}: {error.message}"
        raise CallError(error.status, text) from None
    annotations = found["metadata"].get("annotations") or {}
    permitted = str(annotations.get(KEYS, "")).split(",")
    if wanted.key not in (one.strip() for one in permitted):
        raise CallError(
            Status.PERMISSION_DENIED,
            f"Secret {wanted.namespace}/{wanted.name}: its owner must permit the key: "
            f"kubectl -n {wanted.namespace} annotate secret {wanted.name} "
            f"{KEYS}={wanted.key}",
        )
    value = (found.get("data") or {}).get(wanted.key)
    if not value:
        text = f"Secret {wanted}: the key is missing or empty"
        raise CallError(Status.NOT_FOUND, text)
    try:
        return base64.b64decode(value)
    except binascii.Error:
        text = f"Secret {wanted}: the API server sent an invalid value"
        raise CallError(Status.INTERNAL, text) from None
