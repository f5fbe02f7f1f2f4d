"""Wheelhouses of stand-in wheels: nothing is compiled; the program that describes one does run."""

from __future__ import annotations

import hashlib
import json
from textwrap import dedent
from typing import Any

import pytest
from pants.core.register import rules as core_rules
from pants.core.util_rules import environments
from pants.engine.addresses import Address
from pants.engine.fs import (
    EMPTY_DIGEST,
    EMPTY_FILE_DIGEST,
    AddPrefix,
    CreateDigest,
    Digest,
    DigestContents,
    FileContent,
)
from pants.engine.process import (
    FallibleProcessResult,
    ProcessExecutionEnvironment,
    ProcessResultMetadata,
)
from pants.engine.rules import Get, rule
from pants.testutil.rule_runner import MockGet, QueryRule, RuleRunner, run_rule_with_mocks

from cuda_wheels import register
from cuda_wheels.field_sets import CudaWheelFieldSet
from cuda_wheels.rules.programs import ProgramProcess
from cuda_wheels.rules.stage import StageFailure
from cuda_wheels.rules.toolchain import Host
from cuda_wheels.rules.wheel import FallibleCudaWheel
from cuda_wheels.rules.wheelhouse import (
    CheckedWheelhouse,
    CudaWheelhouseFieldSet,
    FallibleWheelhouse,
    FinishedWheels,
    WheelhouseError,
    WheelhouseRequest,
    assemble_wheelhouse,
    package_wheelhouse,
    path_problems,
)
from cuda_wheels.wheel_facts import WheelFacts

PINS = "pccm==0.4.16 \\\n    --hash=sha256:ab\n"
ROW = 'arch="amd64", accel="cu130", torch="2.11.0", cuda_arch=["8.0", "9.0"]'
WHEELS = dedent(f"""\
    cuda_source(name="src", source=files_source("."), sources=["setup.py"])
    row = dict({ROW})
    shared = dict(source=":src", version="1.0", environment="__local__")
    cuda_wheel(name="one", package="one", **shared, **row)
    cuda_wheel(name="two", package="two", **shared, **row)
    cuda_wheel(name="twin", package="One", **shared, **row)
    cuda_wheel(name="free", package="free", links_torch=False, **shared, **row)
    cuda_wheel(name="old", package="old", **shared, **{{**row, "torch": "2.9.1"}})
    cuda_wheel(name="no", package="no", skipped="It cannot.", **shared, **row)
    """)


@pytest.fixture
def rule_runner() -> RuleRunner:
    runner = RuleRunner(
        rules=[
            *core_rules(),
            *environments.rules(),
            *register.rules(),
            QueryRule(CheckedWheelhouse, [WheelhouseRequest]),
            QueryRule(FallibleWheelhouse, [WheelhouseRequest]),
        ],
        target_types=register.target_types(),
        objects=dict(register.build_file_aliases().objects),
    )
    runner.write_files({"thing/setup.py": "", "thing/BUILD": WHEELS, "lock.txt": PINS})
    return runner


def house(rule_runner: RuleRunner, wheels: list[str], more: str = "") -> CudaWheelhouseFieldSet:
    rule_runner.write_files(
        {"house/BUILD": f"cuda_wheelhouse(name='h', wheels={wheels!r}, **dict({ROW}, {more}))"}
    )
    return CudaWheelhouseFieldSet.create(rule_runner.get_target(Address("house", target_name="h")))


def problems(
    rule_runner: RuleRunner, wheels: list[str], more: str = "", options: tuple[str, ...] = ()
) -> tuple[str, ...]:
    fields = house(rule_runner, wheels, more)
    rule_runner.set_options(options, env_inherit={"PATH", "HOME", "PYENV_ROOT"})
    return rule_runner.request(CheckedWheelhouse, [WheelhouseRequest(fields)]).problems


def test_wheels_of_the_row_are_taken(rule_runner: RuleRunner) -> None:
    wheels = ["thing:one", "thing:two", "thing:free", "thing:no"]
    assert problems(rule_runner, wheels, 'requirements="lock.txt"') == ()


def test_the_check_tells_all_faults_at_once(rule_runner: RuleRunner) -> None:
    # One runner for all: to start one takes longer than any of these.
    cases: list[tuple[list[str], str, tuple[str, ...], tuple[str, ...]]] = [
        (["thing:old"], "", (), ("thing:old", "torch2.9.1", "torch2.11.0")),
        (["thing:one", "thing:twin"], "", (), ("thing:one, thing:twin", "two wheels of one")),
        (["thing:src"], "", (), ("thing:src", "cuda_source")),
        (["thing:gone"], "", (), ("names no target", "gone")),
        ([], "", (), ("`wheels` is empty",)),
        (["thing:one"], 'requirements="gone.txt"', (), ("gone.txt", "no file")),
        (["thing:one"], 'requirements="thing/setup.py"', (), ("pins nothing",)),
        (["thing:one"], 'output_path="../x"', (), ("'../x'", "`--distdir`")),
        (
            ["thing:one", "thing:no"],
            "",
            ("--cuda-wheels-gpu-archs=9.0",),
            ("thing:one (9.0 of 8.0 9.0)", "allow_narrowed=True"),
        ),
        (
            ["thing:one", "thing:two"],
            "",
            ("--cuda-wheels-gpu-archs=9.0",),
            ("narrows thing:one, thing:two (9.0 of 8.0 9.0), and",),
        ),
    ]
    for wheels, more, options, words in cases:
        (problem,) = problems(rule_runner, wheels, more, options)
        for word in words:
            assert word in problem
    several = problems(rule_runner, ["thing:old", "thing:src", "thing:gone"], 'output_path="."')
    assert len(several) == 4


def test_narrowed_wheels_are_taken_where_that_is_meant(rule_runner: RuleRunner) -> None:
    narrow = "--cuda-wheels-gpu-archs=9.0"
    assert problems(rule_runner, ["thing:one"], "allow_narrowed=True", (narrow,)) == ()
    allowed = (narrow, "--cuda-wheels-allow-narrowed")
    assert problems(rule_runner, ["thing:one"], "", allowed) == ()


@pytest.mark.parametrize(
    ("path", "good"),
    [
        ("linux-amd64/cu130", True),
        ("", False),
        (".", False),
        ("/abs", False),
        ("a/../b", False),
        ("..", False),
        ("a/", False),
    ],
)
def test_what_is_replaced_is_a_folder_of_its_own(path: str, good: bool) -> None:
    assert (path_problems(path) == ()) is good


def finished(
    rule_runner: RuleRunner, package: str, *, sha256: str | None = None, **facts: Any
) -> FallibleCudaWheel:
    """A wheel whose file holds its name, with facts that fit."""
    name = f"{package}-1.0+cu130-cp312-cp312-manylinux_2_28_x86_64.whl"
    content = package.encode()
    measured = WheelFacts(
        filename=name,
        name=package,
        version="1.0+cu130",
        python_tag="cp312",
        abi_tag="cp312",
        platform_tags=("manylinux_2_28_x86_64",),
        sha256=sha256 or hashlib.sha256(content).hexdigest(),
        size=len(content),
        **facts,
    )
    document = {
        "wheel": measured.to_json(),
        "origin": "compiled",
        "source": "files",
        "gpu_archs": ["8.0", "9.0"],
        "toolchain": {"identity": "ab", "local": True},
        "compile": {"gcc": "12.2.0"},
    }
    files = [FileContent(name, content)]
    facts_file = [FileContent(f"{package}.facts.json", json.dumps(document).encode())]
    return FallibleCudaWheel(
        Address("thing", target_name=package),
        name=name,
        wheel=rule_runner.request(Digest, [CreateDigest(files)]),
        facts=rule_runner.request(Digest, [CreateDigest(facts_file)]),
    )


def failed(package: str, stage: str, message: str) -> FallibleCudaWheel:
    return FallibleCudaWheel(
        Address("thing", target_name=package), failure=StageFailure(stage, message)
    )


_PLACE = ProcessExecutionEnvironment(
    environment_name=None,
    platform="linux_x86_64",
    docker_image=None,
    remote_execution=False,
    remote_execution_extra_platform_properties=[],
)
HOST = Host("x86_64", None, "3.12", True, True, None, None, None, None)


@rule
async def describe(request: ProgramProcess) -> FallibleProcessResult:
    """Hands the request of a program on, as the only file that it writes."""
    assert request.program == "wheelhouse"
    request_file = FileContent("wheelhouse/request.json", request.request.encode())
    return FallibleProcessResult(
        stdout=b"",
        stdout_digest=EMPTY_FILE_DIGEST,
        stderr=b"",
        stderr_digest=EMPTY_FILE_DIGEST,
        exit_code=0,
        output_digest=await Get(Digest, CreateDigest([request_file])),
        metadata=ProcessResultMetadata(None, _PLACE, "ran", 0),
    )


@rule
async def no_host() -> Host:
    return HOST


@pytest.fixture
def assembling() -> RuleRunner:
    """A runner whose programs only hand their request on."""
    runner = RuleRunner(
        rules=[
            *core_rules(),
            *environments.rules(),
            assemble_wheelhouse,
            describe,
            no_host,
            QueryRule(FallibleWheelhouse, [FinishedWheels]),
        ],
        target_types=register.target_types(),
        objects=dict(register.build_file_aliases().objects),
    )
    runner.write_files({"thing/setup.py": "", "thing/BUILD": WHEELS})
    return runner


def assembled(
    rule_runner: RuleRunner, *wheels: FallibleCudaWheel, requirements: str = ""
) -> FallibleWheelhouse:
    targets = tuple(
        CudaWheelFieldSet.create(rule_runner.get_target(wheel.address)) for wheel in wheels
    )
    fields = house(rule_runner, [wheel.address.spec for wheel in wheels])
    checked = CheckedWheelhouse(targets, requirements, EMPTY_DIGEST, ())
    return rule_runner.request(FallibleWheelhouse, [FinishedWheels(fields, checked, wheels)])


def test_what_is_finished_is_put_together_and_the_rest_recorded(assembling: RuleRunner) -> None:
    one, free = finished(assembling, "one"), finished(assembling, "free")
    result = assembled(
        assembling,
        one,
        free,
        failed("no", "skip", "It cannot."),
        failed("two", "compile", "It broke.\nline 1 of the log"),
    )
    assert result.failure is None
    assert [wheel.address.target_name for wheel in result.failed] == ["two"]
    files = {file.path: file.content for file in assembling.request(DigestContents, [result.files])}
    assert {name for name in files if name.endswith(".whl")} == {one.name, free.name}
    request = json.loads(files["request.json"])
    assert request["name"] == "linux-amd64/cu130/torch2.11.0-cp312"
    assert request["tags"]["verified"] == {"8.0": "built", "9.0": "built"}
    manifest = request["manifest"]
    assert manifest["skipped"] == [{"package": "no", "reason": "It cannot."}]
    assert manifest["failed"] == [{"package": "two", "stage": "compile", "message": "It broke."}]
    assert [wheel["file"] for wheel in manifest["wheels"]] == sorted([one.name, free.name])


def test_a_set_with_faults_is_refused(assembling: RuleRunner) -> None:
    result = assembled(
        assembling,
        finished(assembling, "one", requires_dist=("two<1", "torch<2")),
        finished(assembling, "two", sha256="ab" * 32),
    )
    assert result.files == EMPTY_DIGEST
    assert result.failure and result.failure.stage == "wheelhouse"
    for word in ("`two<1`", "`torch<2`", "thing:two", "other bytes"):
        assert word in (result.error or "")


def test_nothing_built_is_no_wheelhouse(assembling: RuleRunner) -> None:
    result = assembled(assembling, failed("no", "skip", "It cannot."))
    assert "None of its wheels was built" in (result.error or "")


def packaged(fields: CudaWheelhouseFieldSet, result: FallibleWheelhouse) -> Any:
    return run_rule_with_mocks(
        package_wheelhouse,
        rule_args=[fields],
        mock_gets=[
            MockGet(FallibleWheelhouse, (WheelhouseRequest,), lambda _: result),
            MockGet(Digest, (AddPrefix,), lambda _: EMPTY_DIGEST),
        ],
    )


def test_package_is_all_or_nothing(assembling: RuleRunner) -> None:
    fields = house(assembling, ["thing:one", "thing:two", "thing:no"])
    skipped = failed("no", "skip", "It cannot.")
    whole = FallibleWheelhouse(fields.address, fields.path, (finished(assembling, "one"), skipped))
    built = packaged(fields, whole)
    (artifact,) = built.artifacts
    assert artifact.relpath == "linux-amd64/cu130/torch2.11.0-cp312"
    assert "thing:no is skipped" in artifact.extra_log_lines[0]
    broken = (failed("one", "compile", "why one"), failed("two", "check", "why two"), skipped)
    with pytest.raises(WheelhouseError) as caught:
        packaged(fields, FallibleWheelhouse(fields.address, fields.path, broken))
    for word in ("why one", "why two", "cuda-build house:h"):
        assert word in str(caught.value)
    assert "It cannot" not in str(caught.value)
