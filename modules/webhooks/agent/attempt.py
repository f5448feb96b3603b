"""One attempt to deliver a webhook."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IStreamClientEndpoint

from modules.webhooks.agent.formats import WebhookRequest, webhook_request
from modules.webhooks.agent.response import WebhookResponse
from modules.webhooks.agent.secrets import read_key
from modules.webhooks.wire.settings import SecretKey, ServicePort, WebhookTarget
from modules.webhooks.wire.webhooks_pb2 import Delivery, ReportAttemptRequest
from tunnel.api import AgentScope, IAgentModuleApi
from tunnel.errors import CallError, Status
from tunnel.http1 import UpstreamError, UpstreamLimits, UpstreamPool, is_value

__all__ = ["TIMEOUT", "Attempts"]

#: Timeout of the request in seconds: receivers only queue the delivery.
TIMEOUT = 30.0

#: Timeout in seconds of all requests to the API server before that.  With `TIMEOUT`, it
#: is shorter than kas waits for the result.
PREPARATION = 30.0

#: Limits of the connection: each attempt has a connection of its own, because most
#: receivers get a request every few minutes at most.
LIMITS = UpstreamLimits(max_connections=1, max_idle=0, max_header_bytes=16 * 1024)


@attrs.frozen
class Attempts:
    """
    Attempts to deliver webhooks.

    Requests carry no credential of agentk, follow no redirect, and only go to Services
    that the API server knows.

    :param now: returns the time in seconds since 1970.
    :param scope: returns the part of the cluster that the agent works in.
    """

    api: IAgentModuleApi
    now: Callable[[], float]
    scope: Callable[[], AgentScope]

    async def deliver(
        self, target: WebhookTarget, delivery: Delivery
    ) -> ReportAttemptRequest:
        """Make one attempt, and return its result."""
        report = ReportAttemptRequest(
            target=delivery.target, ref=delivery.ref, id=delivery.id
        )
        preparing = Deferred.fromCoroutine(self._prepare(target, delivery))
        preparing.addTimeout(PREPARATION, self.api.clock)
        try:
            request, endpoint = await preparing
        except CallError as error:
            report.error = error.message
            return report
        except ValueError as error:
            report.error = f"Secret {target.secret} {error}"
            return report
        except TimeoutError:
            report.error = f"the API server did not answer within {PREPARATION:g} s"
            return report
        pool = UpstreamPool(lambda: endpoint, self.api.clock, limits=LIMITS)
        response = WebhookResponse()
        try:
            await self._send(pool, target, request, response)
        except CancelledError:
            raise
        except TimeoutError:
            # The status decides, even if the body has no end.
            if not response.status:
                report.error = f"no response within {TIMEOUT:g} s"
        except Exception as error:
            report.error = _reason(error)
        finally:
            pool.close()
        report.status, report.retry_after = response.status, response.retry_after
        if not request.contains_secret:
            report.body = response.body
        return report

    async def _prepare(
        self, target: WebhookTarget, delivery: Delivery
    ) -> tuple[WebhookRequest, IStreamClientEndpoint]:
        """
        Return the request, and the endpoint of the Service.

        :raises CallError: the API server does not permit the request.
        :raises ValueError: the secret cannot be used; the text does not repeat it.
        """
        kubernetes, service = self.api.kubernetes, ServicePort.parse(target.service)
        if outside := self.scope().why_outside(service.namespace):
            raise CallError(Status.FAILED_PRECONDITION, outside)
        secret = authority = b""
        if target.secret:
            secret = await read_key(kubernetes, SecretKey.parse(target.secret))
        if target.ca_certificate:
            key = SecretKey.parse(target.ca_certificate)
            authority = await read_key(kubernetes, key)
        request = webhook_request(target, delivery, secret, self.now())
        endpoint = await kubernetes.service_endpoint(
            service.namespace, service.name, service.port, ca_certificate=authority
        )
        return request, endpoint

    async def _send(
        self,
        pool: UpstreamPool,
        target: WebhookTarget,
        request: WebhookRequest,
        response: WebhookResponse,
    ) -> None:
        """Send the request, and wait for the response."""
        service = ServicePort.parse(target.service)
        host = f"{service.name}.{service.namespace}.svc:{service.port}"
        fields = b""
        for name, value in {"Host": host, **request.fields}.items():
            line = value.encode("ascii", "replace")
            if not is_value(line):
                text = f"the field {name} has a character that HTTP does not permit"
                raise UpstreamError(text)
            fields += b"\r\n" + name.encode() + b": " + line
        response.request = sending = pool.request(
            b"POST", target.path.encode(), fields, response, length=len(request.body)
        )
        sending.write(request.body)
        sending.finish()
        await response.done.addTimeout(TIMEOUT, self.api.clock)


def _reason(error: Exception) -> str:
    """Return why the receiver did not respond."""
    if isinstance(error, UpstreamError):
        return str(error)
    return type(error).__name__
