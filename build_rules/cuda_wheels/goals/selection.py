"""The `cuda_wheel` targets that a goal is asked for."""

from __future__ import annotations

from typing import Iterable, Sized

from pants.engine.target import Target

from cuda_wheels.field_sets import CudaWheelFieldSet
from cuda_wheels.rules.wheelhouse import CudaWheelhouseFieldSet

# How many addresses a message names; a whole repository has hundreds.
NAMED = 8

_LISTING = "`./pants --filter-target-type=cuda_wheel list packages::`"


class NoWheelsSelectedError(Exception):
    """No `cuda_wheel` is among the targets that a goal was given."""


class SeveralWheelsSelectedError(Exception):
    """A goal that is for one wheel was given several."""


def selected_wheels(
    goal: str, targets: Iterable[Target], *, or_wheelhouses: Sized = ()
) -> tuple[CudaWheelFieldSet, ...]:
    """The field sets of the `cuda_wheel` targets among `targets`, in their order.

    Raises NoWheelsSelectedError where there is none: an empty selection is a mistake. It is none
    where the goal takes wheelhouses too, and was given some.
    """
    found = tuple(
        CudaWheelFieldSet.create(target)
        for target in targets
        if CudaWheelFieldSet.is_applicable(target)
    )
    if not found and not or_wheelhouses:
        raise NoWheelsSelectedError(
            f"`{goal}` was given no `cuda_wheel` target. Name some, for instance "
            f"`./pants {goal} packages::`; {_LISTING} shows all."
        )
    return found


def selected_wheelhouses(targets: Iterable[Target]) -> tuple[CudaWheelhouseFieldSet, ...]:
    """The field sets of the `cuda_wheelhouse` targets among `targets`, in their order."""
    return tuple(
        CudaWheelhouseFieldSet.create(target)
        for target in targets
        if CudaWheelhouseFieldSet.is_applicable(target)
    )


def selected_wheel(goal: str, targets: Iterable[Target]) -> CudaWheelFieldSet:
    """The field set of the only `cuda_wheel` target among `targets`.

    Raises NoWheelsSelectedError where there is none, SeveralWheelsSelectedError for more than one.
    """
    found = [
        CudaWheelFieldSet.create(target)
        for target in targets
        if CudaWheelFieldSet.is_applicable(target)
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NoWheelsSelectedError(
            f"`{goal}` was given no `cuda_wheel` target, and needs one: "
            f"`./pants {goal} ADDRESS`; {_LISTING} shows all."
        )
    names = [str(field_set.address) for field_set in found]
    named = ", ".join(names[:NAMED])
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    raise SeveralWheelsSelectedError(
        f"`{goal}` is for one `cuda_wheel` target, but was given {len(names)}: {named}{more}. "
        f"Name one, for instance `./pants {goal} {names[0]}`."
    )
