"""What a row of kubectl commands printed, without what differs from run to run."""

from __future__ import annotations

import re

import attrs

from tests.integration.kubectl import Done, Kubectl

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?: ?[+-]\d{4}| ?UTC|Z)*"
_DATE = r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"

# In this order.  None of them is about the way that a request takes.
_MASKS = (
    (_UUID, "UID"),
    (_TIME, "TIME"),
    (_DATE, "TIME"),
    (r'(resourceVersion"?: ?)"\d+"', r'\1"RV"'),
    (r"eyJ[\w-]+\.[\w-]+\.[\w-]+", "TOKEN"),
)

# ... and in tables and messages.
_TABLES = (
    # What other tests define at the same API server meanwhile.
    (r"^.*\.example\.org.*\n", ""),
    # Deployments name their pods by chance.
    (r"\b(web)-[a-z0-9]{8,10}(?:-[a-z0-9]{5})?\b", r"\1-SUFFIX"),
    (r"\b10\.88\.\d+\.\d+\b", "POD-IP"),
    (r"/tmp/(LIVE|MERGED)-\d+", r"/tmp/\1"),
    # Ages and durations, and how wide a table is because of them.
    (r"\b(?:\d+[dhms])+\b(?: ago)?", "AGE"),
    (r"\b\d+(?:\.\d+)?(?:ms|µs)\b", "AGE"),
    (r" {2,}", "  "),
    (r" +$", ""),
)


@attrs.frozen
class Step:
    """One command and what came of it."""

    arguments: tuple[str, ...]
    code: int
    out: str
    err: str


@attrs.define(eq=False)
class Transcript:
    """Runs commands of *kubectl*, and keeps what they printed."""

    kubectl: Kubectl
    steps: list[Step] = attrs.Factory(list)

    def run(
        self,
        *arguments: str,
        input: str | None = None,
        code: int = 0,
        ordered: bool = True,
    ) -> str:
        """
        Run one that has to end with *code*; what it printed.

        :param ordered: False where older kubectl print a map in any order.
        """
        done = self.kubectl(*arguments, input=None if input is None else input.encode())
        assert done.code == code, (arguments, done.code, done.err[-2000:])
        self._keep(arguments, done, ordered)
        return done.text

    def _keep(self, arguments: tuple[str, ...], done: Done, ordered: bool) -> None:
        out = self.mask(done.out.decode())
        self.steps.append(
            Step(
                tuple(self.mask(part) for part in arguments),
                done.code,
                out if ordered else "\n".join(sorted(out.splitlines())),
                self.mask(done.err.decode()),
            )
        )

    def mask(self, text: str) -> str:
        """*text* as any run would have it."""
        text = mask(text, self.kubectl.namespace)
        for pattern, replacement in _TABLES:
            text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
        return text


def mask(text: str, namespace: str = "") -> str:
    """An object, in JSON or YAML, without what each one has of its own."""
    if namespace:
        text = text.replace(namespace, "NAMESPACE")
    for pattern, replacement in _MASKS:
        text = re.sub(pattern, replacement, text)
    return text
