"""The steps of a demo with a story of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from demo.client import KubernetesError
from demo.processes import DemoError, Program
from demo.screen import Screen, Step
from demo.stack import Stack

__all__ = ["run_steps"]


def run_steps(
    screen: Screen,
    stack: Stack,
    programs: list[Program],
    steps: Sequence[tuple[str, Callable[[Step, list[Program]], None]]],
) -> None:
    """
    Run steps one after the other, each with its title on the screen.

    :param programs: receives the programs that steps start.
    :raises DemoError: if the Kubernetes API refuses a request of a step.
    """
    for title, act in steps:
        with screen.step(title) as step:
            try:
                act(step, programs)
            except KubernetesError as error:
                raise DemoError(str(error), stack.agentk.log) from None
