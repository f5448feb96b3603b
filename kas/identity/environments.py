"""
Labels of agents, and environments: named selectors over these labels.

Only `kasctl` sets labels, never an agent: an agent that could set its own labels could
join any environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs

from tunnel.kubernetes import LabelRequirement, label_requirements

__all__ = [
    "MAX_ENVIRONMENTS",
    "MAX_LABELS",
    "Environment",
    "check_labels",
    "check_selector",
]

#: Maximum number of labels of an agent: each change of the file parses them.
MAX_LABELS: Final = 32

#: Maximum number of environments: each is compared with each agent when the file
#: changes.
MAX_ENVIRONMENTS: Final = 200

# As in Kubernetes: an optional DNS prefix, and at most 63 characters.
_PART = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PREFIX = r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"
_KEY = re.compile(f"(?:{_PREFIX}/)?{_PART}")
_VALUE = re.compile(f"(?:{_PART})?")


@attrs.frozen
class Environment:
    """
    Agents with some labels, such as all clusters in production.

    :ivar selector: a label selector, as in Kubernetes.
    """

    name: str
    selector: str
    _required: tuple[LabelRequirement, ...] = attrs.field(
        init=False, eq=False, repr=False
    )

    @_required.default
    def _parsed(self) -> tuple[LabelRequirement, ...]:
        return tuple(label_requirements(self.selector))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an agent with *labels* belongs to the environment."""
        return all(one.matches(labels) for one in self._required)


def check_labels(labels: Mapping[str, str]) -> None:
    """
    Check the labels of an agent.

    :raises ValueError: if Kubernetes would not accept a label, or there are more than
        `MAX_LABELS`.
    """
    for key, value in labels.items():
        if _KEY.fullmatch(key) is None:
            raise ValueError(
                f"{key[:80]!r} cannot be the name of a label: at most 63 letters, "
                "digits and '-_.', with a letter or digit at both ends, after an "
                "optional DNS name and '/'"
            )
        if _VALUE.fullmatch(value) is None:
            raise ValueError(
                f"{value[:80]!r} cannot be the value of a label: at most 63 letters, "
                "digits and '-_.', with a letter or digit at both ends"
            )
    if len(labels) > MAX_LABELS:
        raise ValueError(f"an agent has at most {MAX_LABELS} labels")


def check_selector(selector: str) -> None:
    """
    Check the selector of an environment.

    :raises ValueError: if the selector is invalid, or would also match agents without
        any label: a new agent must not join an environment before its labels are set.
    """
    requirements = label_requirements(selector)
    if not any(one.is_in for one in requirements):
        raise ValueError(
            f"the selector {selector[:80]!r} also matches agents without labels; name "
            "at least one label that an agent must have, such as 'env=prod'"
        )
