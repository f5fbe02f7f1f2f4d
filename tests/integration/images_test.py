"""Toolchain images as users make them: built, published and pinned, with a real daemon and registry."""

from __future__ import annotations

import hashlib
import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from cuda_wheels.sandbox.servers_testutil import oci_registry
from images.stand_in import base_image
from integration.checkout import Checkout, Run
from integration.containers import docker_daemon

# Small, and locked like a build environment.
BAKED = "3rdparty/python/wheelhouse-tools.txt"
IMAGE = "tests/fixtures/image:amd64-baked"
daemon = docker_daemon  # a fixture


@pytest.fixture(scope="module")
def checkout(
    daemon: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Checkout]:
    base = daemon.images.get(base_image(daemon)).id
    with Checkout(tmp_path_factory.mktemp("images") / "checkout") as checkout:
        checkout.write(
            "tests/fixtures/image/BUILD",
            "toolchain_image(\n"
            '    name="amd64-baked", arch="amd64", accel="cu130", os="debian11",\n'
            f'    base_image="{base}", baked_locks=["{BAKED}"],\n'
            ")\n",
        )
        yield checkout


def _pants(checkout: Checkout, *arguments: str) -> Run:
    run = checkout.pants(*arguments)
    assert run.returncode == 0, "\n" + run.output
    return run


def _pins(checkout: Checkout) -> tuple[dict[str, str], dict[str, str]]:
    found = runpy.run_path(str(checkout.root / "images/pins.py"), {"pins": dict})
    return found["BASE_PINS"], found["IMAGE_PINS"]


def _package(checkout: Checkout) -> dict[str, Any]:
    _pants(checkout, "package", IMAGE)
    facts: dict[str, Any] = json.loads((checkout.dist / "images/amd64-baked.json").read_text())
    return facts


def _in_image(daemon: docker.DockerClient, image: str, script: str) -> str:
    output = daemon.containers.run(image, ["sh", "-c", script], remove=True)
    return str(output.decode())


def test_an_image_is_built_once_and_has_what_it_says(
    checkout: Checkout, daemon: docker.DockerClient
) -> None:
    facts = _package(checkout)
    image = daemon.images.get(facts["name"])
    assert image.id == facts["id"]
    assert image.labels["cuda-wheels.accel"] == "cu130"
    assert image.labels["cuda-wheels.gcc"] == "10"

    described = json.loads(_in_image(daemon, image.id, "cat /etc/cuda-wheels/image.json"))
    assert described == {key: facts[key] for key in described}
    assert described["platform_policy"] == "manylinux_2_31"
    assert _in_image(daemon, image.id, f"{described['gxx']} -dumpversion").strip() == "10"
    certificates = _in_image(daemon, image.id, f"grep -c BEGIN {described['ca_certs']}")
    assert int(certificates) > 1
    assert "g++-10\t" in _in_image(daemon, image.id, "cat /etc/cuda-wheels/packages.txt")

    # The locked environments are there, whole, and nothing that made them is.
    listed = _in_image(daemon, image.id, "cd /opt/cuda-wheels && ls -a . && ls -d */*/.complete")
    digest = hashlib.sha256((checkout.root / BAKED).read_bytes()).hexdigest()[:16]
    assert f"envs/{digest}-cp312-" in listed
    assert listed.count(".complete") == 3
    assert listed.split()[:4] == [".", "..", "envs", "tools"]
    assert "uv " in _in_image(daemon, image.id, "/opt/cuda-wheels/tools/*/bin/uv --version")

    assert _package(checkout) == facts


def test_an_image_is_published_and_pinned_by_its_digest(
    checkout: Checkout, daemon: docker.DockerClient, tmp_path: Path
) -> None:
    before = (checkout.root / "images/pins.py").read_text()
    facts = _package(checkout)
    try:
        with oci_registry(tmp_path / "server") as server:
            to = f"{server.url.removeprefix('http://')}/team"
            option = f"--cuda-images-publish-to={to}"
            early = checkout.pants(option, "cuda-pin-images", IMAGE)
            assert early.returncode == 1 and "`./pants publish`" in early.output
            assert (checkout.root / "images/pins.py").read_text() == before

            _pants(checkout, option, "publish", IMAGE)
            _pants(checkout, option, "cuda-pin-images", IMAGE)
            bases, images = _pins(checkout)
            assert bases == {} and images.keys() == {"amd64-baked"}
            name, _, digest = images["amd64-baked"].partition("@")
            assert name == f"{to}/amd64-baked"
            assert daemon.images.get_registry_data(f"{name}@{digest}").id == digest
            published = daemon.images.get(facts["id"]).attrs["RepoDigests"]
            assert images["amd64-baked"] in published
            # What is written is what the file's other readers take.
            _pants(checkout, "list", "images/environments:")

            base = facts["name"].replace("cuda-wheels/", f"{to}/")
            checkout.write(
                "images/other/BUILD",
                f'toolchain_image(name="x", arch="amd64", accel="cpu", base_image="{base}")\n',
            )
            refused = checkout.pants("package", "images/other:x")
            assert refused.returncode == 1 and "has no digest" in refused.output
            daemon.images.remove(base)
    finally:
        checkout.write("images/pins.py", before)


def _push_empty(daemon: docker.DockerClient, folder: Path, name: str, arch: str) -> str:
    """Push an image of an architecture with nothing in it but a file; its name with its digest."""
    folder.mkdir()
    (folder / "file").write_text(arch)
    (folder / "Dockerfile").write_text("FROM scratch\nCOPY file /file\n")
    daemon.images.build(path=str(folder), tag=name, platform=f"linux/{arch}")
    daemon.images.push(name)
    digest = daemon.images.get_registry_data(name).id
    daemon.images.remove(name)
    return f"{name}@{digest}"


def test_one_name_is_published_for_two_architectures(
    checkout: Checkout, daemon: docker.DockerClient, tmp_path: Path
) -> None:
    before = (checkout.root / "images/pins.py").read_text()
    index = "tests/fixtures/index:cu130"
    checkout.write(
        "tests/fixtures/index/BUILD",
        'toolchain_image(name="amd64-cu130", arch="amd64", accel="cu130")\n'
        'toolchain_image(name="arm64-cu130", arch="arm64", accel="cu130")\n'
        'toolchain_image_index(name="cu130", images=[":amd64-cu130", ":arm64-cu130"])\n',
    )
    try:
        with oci_registry(tmp_path / "server") as server:
            to = f"{server.url.removeprefix('http://')}/team"
            option = f"--cuda-images-publish-to={to}"
            early = checkout.pants("package", index)
            assert early.returncode == 1 and "Traceback" not in early.output
            assert "arm64-cu130 is not pinned in images/pins.py" in early.output
            pins = {
                f"{arch}-cu130": _push_empty(daemon, tmp_path / arch, f"{to}/{arch}-cu130", arch)
                for arch in ("amd64", "arm64")
            }
            checkout.write("images/pins.py", f"BASE_PINS = pins({{}})\nIMAGE_PINS = pins({pins})\n")
            _pants(checkout, "package", index)
            facts = json.loads((checkout.dist / "images/cu130.json").read_text())
            assert facts["images"] == {name[:5]: pin for name, pin in pins.items()}

            _pants(checkout, option, "publish", index)
            _pants(checkout, option, "cuda-pin-images", index)
            pinned = _pins(checkout)[1]
            assert pinned == {**pins, "cu130": pinned["cu130"]}
            for arch in ("amd64", "arm64"):
                image = daemon.images.pull(pinned["cu130"], platform=f"linux/{arch}")
                assert image.attrs["Architecture"] == arch
                daemon.images.remove(image.id, force=True)
    finally:
        checkout.write("images/pins.py", before)


def test_an_image_of_this_machine_is_pinned_by_its_name(checkout: Checkout) -> None:
    before = (checkout.root / "images/pins.py").read_text()
    facts = _package(checkout)
    try:
        _pants(checkout, "cuda-pin-images", "--local", IMAGE)
        assert _pins(checkout)[1] == {"amd64-baked": facts["name"]}
    finally:
        checkout.write("images/pins.py", before)


def test_what_cannot_be_built_is_refused_with_what_to_do(checkout: Checkout) -> None:
    run = checkout.pants("package", "images:amd64-cu130")
    assert run.returncode == 1 and "Traceback" not in run.output
    assert "`./pants cuda-pin-images --bases images:amd64-cu130`" in run.output
    nowhere = checkout.pants("cuda-pin-images", IMAGE)
    assert nowhere.returncode == 1 and "`[cuda-images].publish_to`" in nowhere.output
    nothing = checkout.pants("cuda-pin-images", "//:local")
    assert nothing.returncode == 1 and "No `toolchain_image` is named" in nothing.output
