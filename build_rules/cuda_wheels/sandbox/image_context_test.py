from __future__ import annotations

import json
from pathlib import Path

import pytest

from cuda_wheels.sandbox import docker_state, environment, probe
from cuda_wheels.sandbox.docker_testutil import told
from cuda_wheels.sandbox.image_context import complete, platform_flags
from cuda_wheels.tables import dockerfile

FILES = {
    "Dockerfile": "FROM scratch\n",
    "image.json": '{"name": "", "arch": "amd64"}\n',
    "bake/request.json": "{}\n",
    "bake/lock.txt": "uv==1\n",
}


def write(folder: Path, **changes: str) -> Path:
    for name, text in {**FILES, **changes}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_the_image_is_told_its_name(tmp_path: Path) -> None:
    context = write(tmp_path / "context")
    name = complete(context, "cuda-wheels/amd64-cpu", None)
    repository, _, tag = name.partition(":")
    assert repository == "cuda-wheels/amd64-cpu" and len(tag) == 16
    assert json.loads((context / "image.json").read_text()) == {"name": name, "arch": "amd64"}
    assert not (context / "site-ca.crt").exists()


def test_the_tag_stands_for_every_file_and_not_for_the_name(tmp_path: Path) -> None:
    def tag(number: int, ca: str | None = None, repository: str = "a", **changes: str) -> str:
        return complete(write(tmp_path / str(number), **changes), repository, ca).split(":")[1]

    (tmp_path / "ca.pem").write_text("certificate")
    first = tag(1)
    assert tag(2, repository="b") == first
    others = {
        tag(3, Dockerfile="FROM scratch\nUSER 0\n"),
        tag(4, **{"bake/lock.txt": "uv==2\n"}),
        tag(5, **{"image.json": '{"name": "", "arch": "arm64"}\n'}),
        tag(6, str(tmp_path / "ca.pem")),
    }
    assert len({first, *others}) == 5
    assert (tmp_path / "6/site-ca.crt").read_text() == "certificate"


def test_certificates_that_are_not_there_are_told(tmp_path: Path) -> None:
    message = told(lambda: complete(write(tmp_path), "a", str(tmp_path / "none.pem")))
    assert "`[GLOBAL].ca_certs_path`" in message and "none.pem" in message


@pytest.mark.parametrize(("arch", "machine"), [("amd64", "x86_64"), ("arm64", "aarch64")])
def test_wheels_are_those_of_the_images_machine_and_its_oldest_c_library(
    arch: str, machine: str
) -> None:
    flags = platform_flags(arch)
    platforms = [value for flag, value in zip(flags, flags[1:]) if flag == "--platform"]
    assert all(platform.endswith(f"_{machine}") for platform in platforms)
    assert platforms[0] == f"manylinux_2_28_{machine}"
    assert f"manylinux2014_{machine}" in platforms


def test_programs_and_tables_name_the_places_in_an_image_alike() -> None:
    assert {environment.BAKED, probe.BAKED} == {Path(dockerfile.BAKED)}
    assert probe.IMAGE_FILE == Path(dockerfile.DESCRIPTION)
    assert docker_state.LABEL == f"{dockerfile.LABEL}.accel"
