from __future__ import annotations

from pants.engine.addresses import Address
from pants.engine.fs import Digest

from cuda_wheels.goals.build import refuse_clashes, table
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


def built(target: str, content: str, output_path: str = "") -> FallibleCudaWheel:
    return FallibleCudaWheel(
        Address("packages/a", target_name=target),
        name="a-1.whl",
        wheel=Digest(content * 64, 1),
        output_path=output_path,
    )


def test_different_wheels_of_one_file_name_are_refused() -> None:
    one, other, third = refuse_clashes(
        (built("x", "0"), built("y", "1"), built("z", "2", output_path="z"))
    )
    assert one.error and "packages/a:y" in one.error and "local_version" in one.error
    assert other.error and "packages/a:x" in other.error and "output_path" in other.error
    assert third.error is None


def test_rows_may_share_a_wheel() -> None:
    wheels = (built("x", "0"), built("y", "0"))
    assert refuse_clashes(wheels) == wheels
