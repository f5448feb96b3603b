"""
Secret with the certificates of the admission webhook, and its registration.

    Secret agentk-policy-webhook                        the certificates and keys
    ValidatingWebhookConfiguration agentk-policy-NAME   NAME: agentk's own namespace

All replicas of agentk share both.  Each of them looks once a minute whether a new
certificate is due, and whether the registration is as it should be.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any, Final

import attrs

from agentk.config import AdmissionSettings
from agentk.policy.admission.certificates import Certificates, Identified
from agentk.policy.floor import ADMISSION_PREFIX, WEBHOOK_SECRET
from agentk.policy.policy_secret import PolicySecret
from agentk.policy.via import via_condition
from tunnel.api import IKubernetesClient
from tunnel.errors import CallError, Status

__all__ = ["PATH", "Registration", "WebhookState"]

#: First part of the path; a secret follows.
PATH: Final = "/admit/"

#: Seconds for which the API server waits for agentk.
TIMEOUT: Final = 3

FIELD_MANAGER: Final = "agentk"

_GROUP: Final = "admissionregistration.k8s.io/v1"


@attrs.frozen
class WebhookState:
    """
    Content of the Secret.

    :ivar token: the secret part of the path.
    """

    certificates: Certificates = attrs.field(factory=Certificates)
    token: str = attrs.field(default="", repr=False)


@attrs.define(eq=False)
class Registration:
    """
    Reader and writer of both objects.

    :param client: a client with agentk's own permissions and without a guard.
    :param namespace: agentk's own namespace.
    """

    _client: IKubernetesClient
    _namespace: str
    _settings: AdmissionSettings

    @property
    def name(self) -> str:
        """Name of the ValidatingWebhookConfiguration."""
        return f"{ADMISSION_PREFIX}-{self._namespace}"

    @property
    def names(self) -> tuple[str, ...]:
        """Host names and addresses that the API server connects to."""
        if self._settings.service:
            return (f"{self._settings.service}.{self._namespace}.svc",)
        return (self._settings.host,)

    async def renew(self, now: datetime) -> WebhookState:
        """
        Return the state, after a change if one is due.

        :raises CallError: the Secret cannot be read or written.
        """
        state = WebhookState()

        def change(data: Mapping[str, Any] | None) -> Mapping[str, bytes] | None:
            nonlocal state
            before = _state(data)
            certificates = before.certificates.rotated(self.names, now)
            token = before.token or token_hex(16)
            state = WebhookState(certificates, token)
            is_due = certificates is not before.certificates or not before.token
            return _data(state) if is_due else None

        why = _why(f"Secret {self._namespace}/{WEBHOOK_SECRET}")
        secret = PolicySecret(self._client, self._namespace, WEBHOOK_SECRET, why)
        await secret.update(change)
        return state

    async def register(self, state: WebhookState) -> None:
        """
        Make the API server call the webhook.

        :raises CallError: the registration cannot be written.
        """
        try:
            await self._client.apply(
                self._object(state), field_manager=FIELD_MANAGER, force=True
            )
        except CallError as error:
            what = f"ValidatingWebhookConfiguration {self.name}"
            if error.status is not Status.PERMISSION_DENIED:
                raise
            raise CallError(error.status, f"{_why(what)}: {error.message}") from None

    def _object(self, state: WebhookState) -> dict[str, Any]:
        path = f"{PATH}{state.token}"
        client: dict[str, Any] = {
            "caBundle": base64.b64encode(state.certificates.accepted).decode()
        }
        if self._settings.service:
            client["service"] = {
                "namespace": self._namespace,
                "name": self._settings.service,
                "path": path,
            }
        else:
            client["url"] = self._settings.url.rstrip("/") + path
        # Each agentk judges only its own requests.
        through = via_condition(self._namespace)
        return {
            "apiVersion": _GROUP,
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": self.name},
            "webhooks": [
                {
                    "name": "policy.agentk.txkas.dev",
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "timeoutSeconds": TIMEOUT,
                    # Requests of others do not match, so they do not depend on agentk.
                    "failurePolicy": "Fail",
                    "matchConditions": [
                        {"name": "through-agentk", "expression": through}
                    ],
                    "rules": [
                        {
                            "operations": ["CREATE", "UPDATE", "DELETE", "CONNECT"],
                            "apiGroups": ["*"],
                            "apiVersions": ["*"],
                            "resources": ["*/*"],
                        }
                    ],
                    "clientConfig": client,
                }
            ],
        }


def _why(what: str) -> str:
    return (
        f"agentk needs the permission to create and change the {what} (see "
        "'agentk-policy render rbac --webhook')"
    )


# Format of the Secret: one JSON text for each certificate.


def _data(state: WebhookState) -> dict[str, bytes]:
    found = state.certificates
    data = {"token": state.token.encode(), "previous": found.previous}
    for name, one in (("current", found.current), ("following", found.following)):
        if one is not None:
            data[f"{name}.crt"] = one.certificate
            data[f"{name}.key"] = one.key
            created = one.created.timestamp()
            data[f"{name}.json"] = json.dumps([created, one.names]).encode()
    return data


def _state(data: Mapping[str, Any] | None) -> WebhookState:
    try:
        found = {
            key: base64.b64decode(value, validate=True)
            for key, value in (data or {}).items()
        }
        certificates = Certificates(
            _identified(found, "current"),
            _identified(found, "following") if "following.crt" in found else None,
            found["previous"],
        )
        return WebhookState(certificates, found["token"].decode("ascii"))
    except (KeyError, ValueError, TypeError, binascii.Error):
        # A damaged Secret is replaced: nobody else needs its content.
        return WebhookState()


def _identified(data: Mapping[str, bytes], name: str) -> Identified:
    created, names = json.loads(data[f"{name}.json"])
    return Identified(
        data[f"{name}.crt"],
        data[f"{name}.key"],
        datetime.fromtimestamp(created, UTC),
        tuple(map(str, names)),
    )
