from __future__ import annotations

from pants.engine.addresses import Address

from cuda_wheels.goals.build import table
from cuda_wheels.rules.stage import StageFailure
from cuda_wheels.rules.wheel import FallibleCudaWheel


def test_the_closing_table_has_a_line_a_wheel() -> None:
    good = FallibleCudaWheel(Address("packages/a", target_name="amd64-cu130"), name="a-1.whl")
    bad = FallibleCudaWheel(
        Address("packages/longer", target_name="x"), failure=StageFailure("compile", "why")
    )
    assert table((good, bad)).splitlines() == [
        "packages/a:amd64-cu130  built             a-1.whl",
        "packages/longer:x       failed (compile)",
    ]
