"""The `cuda_wheel` targets that a goal is asked for."""

from __future__ import annotations

from typing import Iterable

from pants.engine.target import Target

from cuda_wheels.rules.spec import CudaWheelFieldSet


class NoWheelsSelectedError(Exception):
    """No `cuda_wheel` is among the targets that a goal was given."""


def selected_wheels(goal: str, targets: Iterable[Target]) -> tuple[CudaWheelFieldSet, ...]:
    """The field sets of the `cuda_wheel` targets among `targets`, in their order.

    Raises NoWheelsSelectedError where there is none: an empty selection is a mistake.
    """
    found = tuple(
        CudaWheelFieldSet.create(target)
        for target in targets
        if CudaWheelFieldSet.is_applicable(target)
    )
    if not found:
        raise NoWheelsSelectedError(
            f"`{goal}` was given no `cuda_wheel` target. Name some, for instance "
            f"`./pants {goal} packages::`; `./pants list packages::` shows all."
        )
    return found
