from __future__ import annotations

import pytest
from pants.engine.addresses import Address

from cuda_wheels.goals.selection import (
    NAMED,
    NoWheelsSelectedError,
    SeveralWheelsSelectedError,
    selected_wheel,
    selected_wheels,
)
from cuda_wheels.sources import FilesSource
from cuda_wheels.target_types import CudaSourceTarget, CudaWheelTarget

SOURCE = CudaSourceTarget(
    {"source": FilesSource(".")}, Address("packages/thing", target_name="src")
)


def wheel(name: str) -> CudaWheelTarget:
    return CudaWheelTarget(
        {"package": "thing", "version": "1", "source": ":src", "arch": "amd64", "accel": "cu130"},
        Address("packages/thing", target_name=name),
    )


def test_the_wheels_among_the_targets_keep_their_order() -> None:
    found = selected_wheels("cuda-build", [wheel("b"), SOURCE, wheel("a")])
    assert [field_set.address.target_name for field_set in found] == ["b", "a"]


@pytest.mark.parametrize("targets", [[], [SOURCE]])
def test_an_empty_selection_is_an_error(targets: list[CudaSourceTarget]) -> None:
    with pytest.raises(NoWheelsSelectedError) as raised:
        selected_wheels("cuda-lock", targets)
    assert "`cuda-lock` was given no `cuda_wheel`" in str(raised.value)
    assert "=cuda_wheel list packages::" in str(raised.value)


def test_the_only_wheel_among_the_targets() -> None:
    assert selected_wheel("cuda-shell", [SOURCE, wheel("a")]).address.target_name == "a"


def test_a_goal_for_one_wheel_wants_one() -> None:
    with pytest.raises(NoWheelsSelectedError) as raised:
        selected_wheel("cuda-shell", [SOURCE])
    assert "`cuda-shell` was given no `cuda_wheel` target, and needs one" in str(raised.value)


def test_a_goal_for_one_wheel_names_those_that_it_got() -> None:
    with pytest.raises(SeveralWheelsSelectedError) as raised:
        selected_wheel("cuda-shell", [SOURCE, wheel("a"), wheel("b")])
    message = str(raised.value)
    assert "given 2: packages/thing:a, packages/thing:b. " in message
    assert "./pants cuda-shell packages/thing:a" in message


def test_of_a_whole_repository_only_some_are_named() -> None:
    wheels = [wheel(f"w{number}") for number in range(NAMED + 3)]
    with pytest.raises(SeveralWheelsSelectedError) as raised:
        selected_wheel("cuda-shell", wheels)
    assert f"packages/thing:w{NAMED - 1} and 3 more" in str(raised.value)
    assert f"packages/thing:w{NAMED}" not in str(raised.value)
