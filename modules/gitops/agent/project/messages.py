"""Objects and their drift as messages."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from modules.gitops.agent.drift.change_authors import seconds_of
from modules.gitops.agent.drift.drift import Drift
from modules.gitops.agent.objects.differences import Writer
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.wire import control_pb2 as pb

__all__ = ["drift_message", "object_reference", "timestamp"]

#: Maximum characters of a reason.
MAX_REASON = 300


def object_reference(key: ObjectKey) -> pb.ObjectReference:
    """Return the message that identifies an object."""
    return pb.ObjectReference(
        group=key.group, kind=key.kind, namespace=key.namespace, name=key.name
    )


def timestamp(seconds: float) -> Timestamp:
    """
    Return a time as a message.

    :param seconds: since 1970.
    """
    made = Timestamp()
    made.FromMilliseconds(round(seconds * 1000))
    return made


def drift_message(project: str, drift: Drift) -> pb.ObjectDrift:
    """Return a drift as a message."""
    return pb.ObjectDrift(
        project=project,
        object=object_reference(drift.key),
        kind=f"KIND_{drift.kind.name}",
        state=f"STATE_{drift.state.name}",
        reason=drift.reason[:MAX_REASON],
        fields=[
            pb.ObjectDrift.Field(path=one.path, wanted=one.wanted, live=one.live)
            for one in drift.fields
        ],
        more_fields=drift.more,
        writers=[_writer(one) for one in drift.writers],
        found_at=timestamp(drift.found_at),
        commit=drift.commit,
        place=str(drift.origin or ""),
        credentials=drift.credentials,
    )


def _writer(writer: Writer) -> pb.ObjectDrift.Writer:
    made = pb.ObjectDrift.Writer(
        manager=writer.manager,
        operation=writer.operation,
        subresource=writer.subresource,
    )
    if (seconds := seconds_of(writer.time)) is not None:
        made.time.CopyFrom(timestamp(seconds))
    return made
