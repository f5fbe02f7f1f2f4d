"""Wheelhouses that lie, each by one change of a good one, and what is to be said of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Callable

from cuda_wheels.audit import fake_wheelhouse as fake

SCATTER = "torch_scatter-2.1.2+cu130.torch2.11.0-cp312-cp312-manylinux_2_28_x86_64.whl"


def edit(path: Path, change: Callable[[Any], None]) -> None:
    document = json.loads(path.read_text())
    change(document)
    fake.write_json(path, document)


def swap_wheel(folder: Path) -> None:
    """Other code under the same name: sums and manifest are those of before."""
    fake.write_wheel(
        folder,
        "torch_scatter",
        "2.1.2+cu130.torch2.11.0",
        "cp312-cp312-" + fake.PLATFORM,
        {"x.py": ""},
    )


def swap_wheel_and_sums(folder: Path) -> None:
    swap_wheel(folder)
    fake.write_sums(folder)


def widen_tags(folder: Path) -> None:
    edit(folder / "tags.json", lambda tags: tags.update(cuda_arch="7.5 8.0 9.0 12.1"))
    fake.write_sums(folder)


def widen_tags_and_manifest(folder: Path) -> None:
    for name in ("tags.json", "manifest.json"):
        edit(
            folder / name,
            lambda found: found.get("tags", found).update(cuda_arch="7.5 8.0 9.0 12.1"),
        )
    fake.write_sums(folder)


def widen_everywhere_but_in_the_code(folder: Path) -> None:
    widen_tags_and_manifest(folder)

    def ask(manifest: Any) -> None:
        for wheel in manifest["wheels"]:
            wheel["gpu_archs"]["asked"].append("7.5")

    edit(folder / "manifest.json", ask)
    fake.write_sums(folder)


def index_of_another_line(folder: Path) -> None:
    page = folder / "simple/torch-scatter/index.html"
    page.write_text(page.read_text().replace("../../", "../../../../cu128/torch2.11.0-cp312/"))
    fake.write_sums(folder)


def index_names_another_line(folder: Path) -> None:
    page = folder / "simple/torch-scatter/index.json"
    page.write_text(page.read_text().replace("cu130", "cu128"))
    fake.write_sums(folder)


def index_with_another_hash(folder: Path) -> None:
    page = folder / "simple/torch-scatter/index.html"
    page.write_text(page.read_text().replace(fake.sha256(folder / SCATTER), "0" * 64))
    fake.write_sums(folder)


def edit_manifest(folder: Path) -> None:
    edit(folder / "manifest.json", lambda manifest: manifest["wheels"][1].update(version="2.1.3"))


def edit_manifest_and_sums(folder: Path) -> None:
    edit_manifest(folder)
    fake.write_sums(folder)


def lower_glibc(folder: Path) -> None:
    edit(folder / "manifest.json", lambda manifest: manifest.update(glibc="2.17"))
    fake.write_sums(folder)


def rename_wheel(folder: Path) -> None:
    """The platform tag of a file's name alone promises an older C library."""
    name = SCATTER.replace("2_28", "2_17")
    (folder / SCATTER).rename(folder / name)
    for file in (
        "manifest.json",
        *(f"simple/torch-scatter/index.{kind}" for kind in ("html", "json")),
    ):
        path = folder / file
        old, new = SCATTER, name
        path.write_text(
            path.read_text()
            .replace(old, new)
            .replace(old.replace("+", "%2B"), new.replace("+", "%2B"))
        )
    fake.write_sums(folder)


def another_accelerator(folder: Path) -> None:
    for name in ("tags.json", "manifest.json"):
        edit(folder / name, lambda found: found.get("tags", found).update(accel="cu128"))
    fake.write_sums(folder)


def add_wheel(folder: Path) -> None:
    shutil.copy(folder / SCATTER, folder / SCATTER.replace("torch_scatter", "torch_sparse"))
    fake.write_sums(folder)


def remove_wheel(folder: Path) -> None:
    (folder / SCATTER).unlink()


def edit_sbom(folder: Path) -> None:
    edit(folder / "sbom.cdx.json", lambda sbom: sbom["components"][1].update(version="9"))
    fake.write_sums(folder)


def claim_verified(folder: Path) -> None:
    edit(folder / "tags.json", lambda tags: tags["verified"].update({"10.0": "runs"}))
    fake.write_sums(folder)


def leave_the_folder(folder: Path) -> None:
    with (folder / "SHA256SUMS").open("a") as file:
        file.write(f"{'0' * 64}  ../outside\n")


def cut_json(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"schema": 1')
    fake.write_sums(folder)


LIES = [
    (swap_wheel, "but SHA256SUMS says"),
    (swap_wheel_and_sums, "but manifest.json says"),
    (widen_tags, "tags.json says cuda_arch '7.5 8.0 9.0 12.1', but manifest.json says"),
    (widen_tags_and_manifest, "it was compiled for 8.0 9.0 12.1, but the tags say 7.5 too"),
    (widen_everywhere_but_in_the_code, "the tags say 7.5, but it holds code for"),
    (index_of_another_line, "outside of this wheelhouse"),
    (index_names_another_line, "which is none of its wheels"),
    (index_with_another_hash, "simple/*/index.html says sha256 0000"),
    (edit_manifest, "manifest.json has sha256"),
    (edit_manifest_and_sums, "manifest.json says that it is torch-scatter 2.1.3"),
    (lower_glibc, "manifest.json says glibc 2.17"),
    (rename_wheel, "its WHEEL says cp312-cp312-manylinux_2_28_x86_64"),
    (another_accelerator, "it is for cu130, but the tags say cu128"),
    (add_wheel, "is there, but not in manifest.json"),
    (remove_wheel, "which is not there"),
    (edit_sbom, "sbom.cdx.json names another torch-scatter"),
    (claim_verified, "tags.json says of GPU 10.0 'runs'"),
    (leave_the_folder, "which names no file inside"),
    (cut_json, "is not JSON"),
]
