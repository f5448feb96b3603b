"""Spans of requests to the Kubernetes API, in either half."""

from __future__ import annotations

from tunnel.api import ISpan, ITracer, SpanKind
from tunnel.kubernetes.request_info import request_info
from tunnel.toolkit.traces import traceparent_in

__all__ = ["STATUS_CODE", "begin_span"]

#: Name of the attribute with the status of the response.
STATUS_CODE = "http.response.status_code"


def begin_span(
    tracer: ITracer, kind: SpanKind, method: bytes, target: bytes, fields: bytes
) -> ISpan | None:
    """
    Begin a span of the trace in *fields*; return None if the request is not traced.

    The name of the span, such as ``list deployments``, contains neither the namespace
    nor the name of an object.
    """
    verb = method.decode("latin-1")
    span = tracer.begin(verb, kind, traceparent_in(fields))
    if span is None:
        return None
    info = request_info(method, target)
    if info.is_resource:
        resource = "/".join(filter(None, (info.resource, info.subresource)))
        span.rename(f"{info.verb or verb} {resource}")
    attributes = {
        "http.request.method": verb,
        "url.path": info.path,
        "k8s.api.group": info.group,
        "k8s.namespace.name": info.namespace,
        "k8s.object.name": info.name,
    }
    for name, value in attributes.items():
        if value:
            span.set(name, value)
    return span
