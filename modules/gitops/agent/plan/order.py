"""
Order in which objects are applied.

An object needs its Namespace and the CustomResourceDefinition of its kind, if the
source contains them, and the objects that its ``depends-on`` annotation names; it comes
after all objects of a lower wave.  Webhooks and aggregated APIs, which the API server
calls on each request, come last in their wave: if they were applied earlier, they could
refuse the objects of their own service.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

import attrs

from modules.gitops.agent.objects.manifests import (
    Manifest,
    ObjectKey,
    SourceProblem,
    definition_of,
)

__all__ = ["DEPENDS_ON", "WAVE", "Order", "order_of"]

#: Annotation with the objects that an object depends on.  Source:
#: kubernetes-sigs/cli-utils, pkg/object/dependson.
DEPENDS_ON = "config.kubernetes.io/depends-on"

#: Annotation with the wave of an object.  Source: Argo CD, docs/user-guide/sync-waves.
WAVE = "argocd.argoproj.io/sync-wave"

#: Maximum number of references of one object: a larger number is a mistake, and each
#: reference is looked up.
MAX_REFERENCES = 100

#: Maximum number of reported problems of one source, and maximum number of named
#: objects of a circle: a file of a few hundred kilobytes can cause a million.
MAX_PROBLEMS, MAX_CIRCLE = 100, 20

_NAMESPACE = ("", "Namespace")
_LATE = frozenset(
    {
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
        ("apiregistration.k8s.io", "APIService"),
    }
)

#: Wave of an object, and whether the object comes after all other objects of the wave.
_Stage = tuple[int, bool]


@attrs.frozen(eq=False)
class Order:
    """
    Order of a source's objects.

    :ivar layers: each object after all objects that it needs; agentk deletes in
        reverse.
    :ivar needs: the objects that each object needs directly; if one of them fails,
        agentk skips the object.
    :ivar awaited: objects that must be current, and not only exist, before the next
        layer begins.
    :ivar problems: references to unknown objects, and circles.  With problems, *layers*
        is empty.
    """

    layers: tuple[tuple[ObjectKey, ...], ...] = ()
    needs: Mapping[ObjectKey, frozenset[ObjectKey]] = attrs.field(factory=dict)
    awaited: frozenset[ObjectKey] = frozenset()
    problems: tuple[SourceProblem, ...] = ()


def order_of(manifests: Collection[Manifest], *, strict: bool = True) -> Order:
    """
    Return the order of objects, whose keys have namespaces if their kinds are
    namespaced.

    The result does not depend on the order of *manifests*.

    :param strict: whether each reference must lead to one of the objects.
    """
    return _Ordering(manifests, strict).order()


class _Ordering:
    def __init__(self, manifests: Collection[Manifest], strict: bool) -> None:
        self._strict = strict
        self._manifests = {one.key: one for one in manifests}
        self._problems: list[SourceProblem] = []
        self._unsaid = 0
        self._needs: dict[ObjectKey, set[ObjectKey]] = {
            key: set() for key in self._manifests
        }
        #: Objects that other objects name in ``depends-on``, and wait for.
        self._named: set[ObjectKey] = set()

    def order(self) -> Order:
        """Return the order of the objects, or the problems that prevent an order."""
        waves = {key: self._wave(manifest) for key, manifest in self._manifests.items()}
        definitions = {
            (found.group, found.kind): key
            for key, one in self._manifests.items()
            if (found := definition_of(one.object)) is not None
        }
        implied: dict[ObjectKey, set[ObjectKey]] = {}
        for key, manifest in self._manifests.items():
            needs = {definitions.get((key.group, key.kind))}
            if key.namespace:
                needs.add(ObjectKey(*_NAMESPACE, "", key.namespace))
            implied[key] = {one for one in needs if one in self._needs} - {key}
            self._needs[key] |= implied[key] | self._references(manifest)
        stages = self._stages(waves, implied)
        layers = self._layers(stages)
        if self._problems:
            return Order(problems=tuple(self._said()))
        return Order(
            layers,
            {key: frozenset(needs) for key, needs in self._needs.items()},
            frozenset(self._awaited(waves, definitions.values())),
        )

    def _said(self) -> Iterator[SourceProblem]:
        yield from self._problems
        if self._unsaid:
            origin = self._problems[-1].origin
            yield SourceProblem(origin, f"and {self._unsaid} more problems")

    def _complain(self, key: ObjectKey, message: str) -> None:
        if len(self._problems) >= MAX_PROBLEMS:
            self._unsaid += 1
            return
        origin = self._manifests[key].origin
        self._problems.append(SourceProblem(origin, f"{key}: {message}"))

    def _wave(self, manifest: Manifest) -> int:
        text = manifest.annotations.get(WAVE) or "0"
        try:
            return int(text)
        except ValueError:
            self._complain(manifest.key, f"{WAVE} is not a whole number: {text[:40]!r}")
            return 0

    def _references(self, manifest: Manifest) -> set[ObjectKey]:
        """Return the objects that the ``depends-on`` annotation of an object names."""
        found: set[ObjectKey] = set()
        text = manifest.annotations.get(DEPENDS_ON) or ""
        references = [one.strip() for one in text.split(",")] if text.strip() else []
        if len(references) > MAX_REFERENCES:
            self._complain(
                manifest.key, f"{DEPENDS_ON} names more than {MAX_REFERENCES} objects"
            )
            return found
        for reference in references:
            try:
                key = _referenced(reference)
            except ValueError as error:
                self._complain(manifest.key, f"{DEPENDS_ON}: {error}")
                continue
            if key == manifest.key:
                self._complain(manifest.key, f"{DEPENDS_ON} names the object itself")
            elif key in found:
                self._complain(manifest.key, f"{DEPENDS_ON} names {key} twice")
            elif key not in self._manifests:
                if self._strict:
                    why = f"{DEPENDS_ON} names {key}, which this source does not have"
                    self._complain(manifest.key, why)
            else:
                found.add(key)
        self._named |= found
        return found

    def _stages(
        self,
        waves: Mapping[ObjectKey, int],
        implied: Mapping[ObjectKey, Collection[ObjectKey]],
    ) -> dict[ObjectKey, _Stage]:
        needed = {one for needs in self._needs.values() for one in needs}
        stages = {
            key: (wave, (key.group, key.kind) in _LATE and key not in needed)
            for key, wave in waves.items()
        }
        # A Namespace exists before the first object in it, regardless of the wave in
        # its own annotation. Objects that are needed by annotation must have a suitable
        # wave of their own.
        for key, needs in implied.items():
            for one in needs:
                stages[one] = min(stages[one], (stages[key][0], False))
        for key, needs in self._needs.items():
            for one in needs:
                if stages[one] > stages[key]:
                    self._complain(key, f"needs {one}, which has a later wave")
        return stages

    def _layers(
        self, stages: Mapping[ObjectKey, _Stage]
    ) -> tuple[tuple[ObjectKey, ...], ...]:
        layers: list[tuple[ObjectKey, ...]] = []
        by_stage: dict[_Stage, set[ObjectKey]] = {}
        for key in sorted(stages):
            by_stage.setdefault(stages[key], set()).add(key)
        for stage in sorted(by_stage):
            members = by_stage[stage]
            sorter = TopologicalSorter(
                {key: sorted(self._needs[key] & members) for key in sorted(members)}
            )
            try:
                sorter.prepare()
            except CycleError as error:
                circle: list[ObjectKey] = error.args[1][::-1]
                names = " needs ".join(map(str, circle[:MAX_CIRCLE]))
                if len(circle) > MAX_CIRCLE:
                    names += f" needs {len(circle) - MAX_CIRCLE} more"
                self._complain(circle[0], f"a circle: {names}")
                continue
            while ready := sorter.get_ready():
                layers.append(tuple(sorted(ready)))
                sorter.done(*ready)
        return tuple(layers)

    def _awaited(
        self, waves: Mapping[ObjectKey, int], definitions: Iterable[ObjectKey]
    ) -> set[ObjectKey]:
        last = max(waves.values(), default=0)
        earlier = {key for key, wave in waves.items() if wave < last}
        # Include only the definitions that other objects of the source need; agentk
        # does not wait for an unused definition.
        needed = {one for needs in self._needs.values() for one in needs}
        return self._named | earlier | (needed & set(definitions))


def _referenced(text: str) -> ObjectKey:
    """
    Return the object that *text* names.

    :raises ValueError: if *text* is not a reference.
    """
    parts = text.split("/")
    if len(parts) == 5 and parts[1] == "namespaces" and all(parts[2:]):
        return ObjectKey(parts[0], parts[3], parts[2], parts[4])
    if len(parts) == 3 and all(parts[1:]):
        return ObjectKey(parts[0], parts[1], "", parts[2])
    raise ValueError(
        f"{text[:100]!r} is neither group/kind/name nor "
        "group/namespaces/namespace/kind/name"
    )
