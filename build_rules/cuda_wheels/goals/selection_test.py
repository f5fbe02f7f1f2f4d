from __future__ import annotations

import pytest
from pants.engine.addresses import Address

from cuda_wheels.goals.selection import NoWheelsSelectedError, selected_wheels
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
    assert "./pants list" in str(raised.value)
