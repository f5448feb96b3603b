"""
The label ``cluster`` of a merged answer, and labels with this name in a cluster.

In a merged answer, ``cluster`` is the name of the agent.  Each label of a series that
already is ``cluster``, or ``exported_cluster`` and so on, gets one more ``exported_``.
So no two label sets become equal, and each query about labels of the merged answer has
exactly one form for a single cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = [
    "CLUSTER",
    "is_about_cluster",
    "labels_in_answer",
    "name_in_answer",
    "own_name",
]

#: Label of each series of a merged answer: the name of the agent.
CLUSTER: Final = "cluster"

_PREFIX: Final = "exported_"

_ABOUT_CLUSTER: Final = re.compile(f"(?:{_PREFIX})*{CLUSTER}")


def is_about_cluster(label: str) -> bool:
    """Return whether a label is ``cluster``, ``exported_cluster`` and so on."""
    return _ABOUT_CLUSTER.fullmatch(label) is not None


def name_in_answer(label: str) -> str:
    """Return the name in a merged answer of a label in a cluster."""
    return _PREFIX + label if is_about_cluster(label) else label


def own_name(label: str) -> str:
    """
    Return the name in its cluster of a label of a merged answer: the inverse of
    `name_in_answer`; empty for ``cluster``, which no cluster knows.
    """
    if not is_about_cluster(label):
        return label
    return label.removeprefix(_PREFIX) if label != CLUSTER else ""


def labels_in_answer(labels: Mapping[str, str], cluster: str) -> dict[str, str]:
    """Return the labels of a series of one cluster as they are in a merged answer."""
    named = {name_in_answer(label): value for label, value in labels.items()}
    return named | {CLUSTER: cluster}
