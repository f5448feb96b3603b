"""Memory for the answers that kas receives and merges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tunnel.errors import CallError, Status

__all__ = ["MAX_BYTES", "MAX_BYTES_EACH", "AnswerMemory", "HeldAnswers"]

#: Maximum bytes of all answers that are incomplete or not merged yet, and of the
#: answers of one agent among them, because a cluster decides how slowly it answers.
#: Merged answers take as much again.
MAX_BYTES: Final = 128 * 1024 * 1024
MAX_BYTES_EACH: Final = 32 * 1024 * 1024


class AnswerMemory:
    """
    Counter of the bytes of answers in memory.

    :ivar held: number of bytes by agent.
    """

    def __init__(self) -> None:
        self.held: Counter[str] = Counter()

    @contextmanager
    def holder(self) -> Iterator[HeldAnswers]:
        """Count the bytes of one merged answer until the end of the block."""
        answers = HeldAnswers(self)
        try:
            yield answers
        finally:
            answers.release()


class HeldAnswers:
    """Bytes of the answers that become one merged answer."""

    def __init__(self, memory: AnswerMemory) -> None:
        self._memory = memory
        self._held: Counter[str] = Counter()

    def take(self, agent_id: str, count: int) -> None:
        """
        Count bytes of an agent's answer.

        :raises CallError: RESOURCE_EXHAUSTED if there is no room for them.
        """
        held = self._memory.held
        if held[agent_id] + count > MAX_BYTES_EACH or held.total() + count > MAX_BYTES:
            raise CallError(
                Status.RESOURCE_EXHAUSTED,
                "kas is receiving too many large answers at the same time; try again",
            )
        held[agent_id] += count
        self._held[agent_id] += count

    def release(self) -> None:
        """Release all bytes."""
        held = self._memory.held
        for agent_id, count in self._held.items():
            held[agent_id] -= count
            if not held[agent_id]:
                del held[agent_id]
        self._held.clear()
