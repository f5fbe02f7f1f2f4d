"""What becomes of each wheel, by the fields of its target alone: no process runs."""

from __future__ import annotations

from typing import Any

import pytest
from pants.core.register import rules as core_rules
from pants.core.util_rules import environments
from pants.engine.addresses import Address
from pants.testutil.rule_runner import QueryRule, RuleRunner

from cuda_wheels import register
from cuda_wheels.field_sets import CudaWheelFieldSet
from cuda_wheels.rules.spec import CudaWheelRequest
from cuda_wheels.rules.status import Status, WheelStatus

LOCKS = ("amd64-cu130-torch2.9.1-cp312", "amd64-cu128-torch2.9.1-cp312", "amd64-cu130-cp312")
FIELDS = {
    "package": "thing",
    "version": "1.0",
    "source": ":src",
    "arch": "amd64",
    "accel": "cu130",
    "torch": "2.9.1",
    "cuda_arch": ["8.0", "9.0"],
}
SOURCE = 'cuda_source(name="src", source=files_source("."), sources=["setup.py"])\n'


@pytest.fixture
def rule_runner() -> RuleRunner:
    runner = RuleRunner(
        rules=[
            *core_rules(),
            *environments.rules(),
            *register.rules(),
            QueryRule(WheelStatus, [CudaWheelRequest]),
        ],
        target_types=register.target_types(),
        objects=dict(register.build_file_aliases().objects),
    )
    runner.write_files({f"3rdparty/torch/{lock}.txt": "# a lock\n" for lock in LOCKS})
    runner.write_files({"thing/setup.py": ""})
    return runner


def _statuses(
    rule_runner: RuleRunner, *wheels: dict[str, Any], options: tuple[str, ...] = ()
) -> list[WheelStatus]:
    """The statuses of wheels, which are named `wheel0`, `wheel1` and so on."""
    calls = (
        f"cuda_wheel(name='wheel{number}', **{ {**FIELDS, **changes}!r})\n"
        for number, changes in enumerate(wheels)
    )
    rule_runner.write_files({"thing/BUILD": SOURCE + "".join(calls)})
    rule_runner.set_options(options)
    return [
        rule_runner.request(
            WheelStatus,
            [
                CudaWheelRequest(
                    CudaWheelFieldSet.create(
                        rule_runner.get_target(Address("thing", target_name=f"wheel{number}"))
                    )
                )
            ],
        )
        for number in range(len(wheels))
    ]


FLASH = {"gpu_arch_rule": "flash-attn"}
CUMM = {"gpu_arch_rule": "cumm", "links_torch": False}


@pytest.mark.parametrize(
    ("changes", "status", "parts"),
    [
        pytest.param({}, Status.BUILDABLE, (), id="buildable"),
        pytest.param(
            {"accel": "cu128"}, Status.BUILDABLE, ("CUDA 12.8", "cuda_home"), id="own toolkit"
        ),
        pytest.param({"skipped": "No such code."}, Status.SKIPPED, ("No such code.",), id="field"),
        pytest.param({"skipped": " "}, Status.REFUSED, ("`skipped` is empty",), id="no reason"),
        pytest.param(
            {"torch": "2.11.0"},
            Status.PENDING,
            ("cuda-lock thing:wheel0", "amd64-cu130-torch2.11.0-cp312.txt"),
            id="no lock",
        ),
        # From here on the values of public bug reports: GPUs newer than a package's list,
        pytest.param({**FLASH, "cuda_arch": ["12.1"]}, Status.BUILDABLE, (), id="flash 12.1"),
        pytest.param({**CUMM, "cuda_arch": ["12.1"]}, Status.BUILDABLE, (), id="cumm 12.1"),
        pytest.param(
            {**FLASH, "cuda_arch": ["7.5"]},
            Status.SKIPPED,
            ("7.5: flash-attn 2 has no kernels",),
            id="flash 7.5",
        ),
        pytest.param(
            {**FLASH, "cuda_arch": ["11.0"]}, Status.SKIPPED, ("11.0: flash-attn 2",), id="flash 11"
        ),
        pytest.param(
            {**FLASH, "cuda_arch": ["7.5", "8.0"]},
            Status.REFUSED,
            ("promises 7.5", "Take it out"),
            id="flash 7.5 beside 8.0",
        ),
        # and GPUs that nvcc or torch does not know.
        pytest.param(
            {"accel": "cu128", "cuda_arch": ["10.3"]},
            Status.REFUSED,
            ("10.3", "cu129, cu130"),
            id="cu128 10.3",
        ),
        pytest.param(
            {"accel": "cu129", "cuda_arch": ["11.0"]},
            Status.REFUSED,
            ("11.0", "called 10.1", "cu130"),
            id="cu129 11.0",
        ),
        pytest.param(
            {"cuda_arch": ["7.0"]}, Status.REFUSED, ("7.0", "removed in CUDA 13"), id="cu130 7.0"
        ),
        pytest.param(
            {"cuda_arch": ["8.0", "8.8"]},
            Status.REFUSED,
            ("8.8", "torch.utils.cpp_extension"),
            id="torch 8.8",
        ),
        pytest.param(
            {"accel": "cu130,cu130"}, Status.REFUSED, ("Write 'cu130'",), id="accel twice"
        ),
        pytest.param(
            {"build_requires": ["nowhere:wheel"]},
            Status.REFUSED,
            ("`build_requires` names no target", "nowhere"),
            id="requires nothing",
        ),
        pytest.param(
            {"build_requires": ["thing:gone", ":a b:c"]},
            Status.REFUSED,
            ("thing:gone", ":a b:c"),
            id="requires two that are not there",
        ),
        pytest.param(
            {"source": ":sauce"}, Status.REFUSED, ("`source` names no target", "sauce"), id="source"
        ),
        pytest.param(
            {"environment": "amd64-cu131"},
            Status.REFUSED,
            ("'amd64-cu131'", "[environments-preview.names]"),
            id="environment",
        ),
    ],
)
def test_status(
    rule_runner: RuleRunner, changes: dict[str, Any], status: Status, parts: tuple[str, ...]
) -> None:
    (found,) = _statuses(rule_runner, changes)
    assert found.status == status
    assert bool(found.reasons) == bool(parts)
    for part in parts:
        assert part in "\n".join(found.reasons)


def test_every_fault_is_a_reason(rule_runner: RuleRunner) -> None:
    (found,) = _statuses(
        rule_runner, {"torch": "2.8.0", "cuda_arch": ["7.0", "9.0"], "version": "one"}
    )
    assert found.status == Status.REFUSED
    assert len(found.reasons) == 3


@pytest.mark.parametrize(
    ("changes", "index"),
    [
        ({"accel": "cu129"}, "/cu129"),
        ({"torch": "2.10.0"}, "/cu130"),
        ({"torch": "2.11.0"}, None),
        ({**CUMM, "arch": "arm64"}, None),
    ],
)
def test_a_pending_wheel_says_which_index_its_lock_needs(
    rule_runner: RuleRunner, changes: dict[str, Any], index: str | None
) -> None:
    (found,) = _statuses(rule_runner, changes)
    assert found.status == Status.PENDING
    (reason,) = found.reasons
    assert ("https://" in reason) == bool(index)
    assert (index or "") in reason


def test_an_installed_toolkit_is_not_asked_for_again(rule_runner: RuleRunner) -> None:
    (found,) = _statuses(
        rule_runner, {"accel": "cu128"}, options=("--cuda-wheels-cuda-home=/opt/cuda",)
    )
    assert found.reasons == ()


@pytest.mark.parametrize(
    ("required", "status", "parts"),
    [
        ({}, Status.BUILDABLE, ()),
        ({"skipped": "No code."}, Status.REFUSED, ("thing:wheel1, which is skipped: No code.",)),
        # A rule, not the field, leaves nothing of it.
        (
            {**FLASH, "cuda_arch": ["7.5"]},
            Status.REFUSED,
            ("thing:wheel1, which is skipped", "7.5"),
        ),
        ({"cuda_arch": ["7.0"]}, Status.REFUSED, ("thing:wheel1, which is refused", "7.0")),
        ({"links_torch": False, "arch": "arm64"}, Status.REFUSED, ("thing:wheel1, which is for",)),
        ({"build_requires": [":wheel0"]}, Status.REFUSED, ("leads back", "wheel0 -> thing:wheel1")),
    ],
)
def test_a_wheel_cannot_do_without_what_it_requires(
    rule_runner: RuleRunner, required: dict[str, Any], status: Status, parts: tuple[str, ...]
) -> None:
    found, _ = _statuses(rule_runner, {"build_requires": [":wheel1"]}, required)
    assert found.status == status
    for part in parts:
        assert part in "\n".join(found.reasons)


def test_a_lock_that_two_wheels_miss_is_one_reason(rule_runner: RuleRunner) -> None:
    row = {"torch": "2.11.0"}
    found, other = _statuses(rule_runner, {**row, "build_requires": [":wheel1"]}, row)
    assert [one.status for one in (found, other)] == [Status.PENDING, Status.PENDING]
    assert len(found.reasons) == 1 and "cuda-lock thing:wheel0" in found.reasons[0]


def test_a_wheel_waits_for_the_lock_of_what_it_requires(rule_runner: RuleRunner) -> None:
    rule_runner.write_files({"3rdparty/torch/amd64-cu130-torch2.11.0-cp312.txt": "# a lock\n"})
    row = {"accel": "cu128", "torch": "2.9.1"}
    found, _ = _statuses(rule_runner, {**row, "build_requires": [":wheel1"]}, {**row, **CUMM})
    assert found.status == Status.PENDING
    assert "thing:wheel1, which is pending" in found.reasons[0]
    assert "cuda-lock thing:wheel1" in found.reasons[0]


def test_what_is_wrong_with_the_declaration_refuses_the_wheels_and_no_other_goal(
    rule_runner: RuleRunner,
) -> None:
    problems = ["Line 2 of `MATRIX` has 4 fields.", "`skipped` names 'gpu'."]
    source = f"cuda_source(name='src', source=files_source('.'), problems={problems})\n"
    wheel = f"cuda_wheel(name='wheel', **{FIELDS!r})\n"
    rule_runner.write_files({"thing/BUILD": source + wheel})
    target = rule_runner.get_target(Address("thing", target_name="wheel"))
    request = CudaWheelRequest(CudaWheelFieldSet.create(target))
    found = rule_runner.request(WheelStatus, [request])
    assert found.status == Status.REFUSED
    for problem in problems:
        assert f"thing:src: {problem}" in found.reasons
