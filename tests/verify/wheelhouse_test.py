"""A wheelhouse that lies is caught; each lie is one change of a good one, which passes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Callable

import pytest

from verify import fake_wheelhouse as fake
from verify import wheelhouse

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


@pytest.mark.parametrize(("lie", "finding"), LIES, ids=[lie.__name__ for lie, _ in LIES])
def test_a_lie_is_caught(tmp_path: Path, lie: Callable[[Path], None], finding: str) -> None:
    folder = fake.write_wheelhouse(tmp_path)
    assert wheelhouse.problems(folder) == ()
    lie(folder)
    assert finding in "\n".join(wheelhouse.problems(folder))


def test_a_wheelhouse_that_was_forged_throughout_has_other_sums(tmp_path: Path) -> None:
    folder = fake.write_wheelhouse(tmp_path / "good")
    sums = fake.sha256(folder / "SHA256SUMS")
    assert wheelhouse.problems(folder, sums) == ()
    forged = fake.write_wheelhouse(tmp_path / "forged", date="2030.01.01")
    assert wheelhouse.problems(forged) == ()
    assert "was expected" in wheelhouse.problems(forged, sums)[0]


def test_a_folder_of_another_row(tmp_path: Path) -> None:
    folder = fake.write_wheelhouse(tmp_path)
    moved = tmp_path / "linux-amd64/cu128/torch2.11.0-cp312"
    shutil.move(str(folder), moved)
    assert "it lies in linux-amd64/cu128/" in "\n".join(wheelhouse.problems(moved))
    release = shutil.move(str(moved), tmp_path / "linux-amd64/cu126/torch2.11.0-cp312/2026.11.30")
    assert "it lies in linux-amd64/cu126/" in "\n".join(wheelhouse.problems(Path(release)))


def test_a_narrowed_wheel_serves_fewer_gpus_than_the_tags(tmp_path: Path) -> None:
    narrowed = fake.write_wheelhouse(tmp_path / "a", {"cuda_arch": "9.0"}, fake.LOCAL + ".sm90")
    assert wheelhouse.problems(narrowed) == ()
    wider = fake.write_wheelhouse(tmp_path / "b", {"cuda_arch": "8.0 9.0"}, fake.LOCAL + ".sm90")
    assert "narrowed to sm90, but the tags say 8.0 too" in "\n".join(wheelhouse.problems(wider))


def test_an_empty_folder_is_none(tmp_path: Path) -> None:
    assert "lacks SHA256SUMS, manifest.json, tags.json" in wheelhouse.problems(tmp_path)[0]


def test_a_summary_says_who_is_served_by_ptx_alone(tmp_path: Path) -> None:
    summary = wheelhouse.read_summary(fake.write_wheelhouse(tmp_path, date="2026.11.30"))
    assert summary.ptx_for == ("12.1",)
    assert (summary.glibc, summary.date) == ("2.28", "2026.11.30")
    assert summary.packages == ("spconv", "torch-scatter")
