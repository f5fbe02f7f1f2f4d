"""Wheelhouses that lie, each by one change of a good one, and what is to be said of it."""

from __future__ import annotations

import json
import shutil
import zipfile
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


def raise_a_tag(key: str, value: str) -> Callable[[Path], None]:
    """Tags and manifest say another value of one of the six, and agree."""

    def lie(folder: Path) -> None:
        for name in ("tags.json", "manifest.json"):
            edit(folder / name, lambda found: found.get("tags", found).update({key: value}))
        fake.write_sums(folder)

    lie.__name__ = f"another_{key}"
    return lie


def edit_wheel_and_everything_that_has_its_hash(folder: Path) -> None:
    """Other code in a wheel: sums, manifest, index and SBOM are written again, RECORD is not."""
    path = folder / SCATTER
    digest, size = fake.sha256(path), path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        members = {one: archive.read(one) for one in archive.namelist()}
    members["torch_scatter.py"] = b"import os\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    rewrite(
        folder, {digest: fake.sha256(path), f'"size": {size}': f'"size": {path.stat().st_size}'}
    )


def add_a_file_to_a_wheel(folder: Path) -> None:
    path = folder / SCATTER
    digest, size = fake.sha256(path), path.stat().st_size
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(zipfile.ZipInfo("sitecustomize.py"), "import os\n")
    rewrite(
        folder, {digest: fake.sha256(path), f'"size": {size}': f'"size": {path.stat().st_size}'}
    )


def wheels_that_change_places(folder: Path) -> None:
    """Each of two wheels lies under the other's name, and all hashes are right."""
    spconv = folder / SCATTER.replace("torch_scatter-2.1.2", "spconv-2.3.8")
    scatter = folder / SCATTER
    digests = fake.sha256(spconv), fake.sha256(scatter)
    sizes = spconv.stat().st_size, scatter.stat().st_size
    spconv.rename(folder / "x")
    scatter.rename(spconv)
    (folder / "x").rename(scatter)
    marks = "<one>", "<other>"
    rewrite(folder, {**dict(zip(digests, marks)), **{f'"size": {sizes[0]}': '"size": <n>'}})
    rewrite(folder, {**dict(zip(marks, reversed(digests)))})
    rewrite(
        folder,
        {f'"size": {sizes[1]}': f'"size": {sizes[0]}', '"size": <n>': f'"size": {sizes[1]}'},
    )


def rewrite(folder: Path, texts: dict[str, str]) -> None:
    """Replace texts in all that describes the wheels, and write the sums again."""
    for file in folder.rglob("*"):
        if file.suffix in (".json", ".html"):
            content = file.read_text()
            for before, after in texts.items():
                content = content.replace(before, after)
            file.write_text(content)
    fake.write_sums(folder)


def wrong_size(folder: Path) -> None:
    edit(folder / "manifest.json", lambda manifest: manifest["wheels"][0].update(size=1))
    fake.write_sums(folder)


def wrong_platform(folder: Path) -> None:
    edit(
        folder / "manifest.json",
        lambda manifest: manifest["wheels"][0].update(platform="manylinux_2_17_x86_64"),
    )
    fake.write_sums(folder)


def two_of_one_distribution(folder: Path) -> None:
    """A second spconv, listed wherever the first is."""
    version = "2.3.9+" + fake.LOCAL
    wheel = fake.write_wheel(folder, "spconv", version, "cp312-cp312-" + fake.PLATFORM)
    entry = fake.entry(wheel)
    edit(folder / "manifest.json", lambda manifest: manifest["wheels"].append(entry))
    fake.write_index(folder, [entry])
    fake.write_sums(folder)


def remove_from_the_index(folder: Path) -> None:
    (folder / "simple/spconv/index.html").unlink()
    fake.write_sums(folder)


def edit_sums(folder: Path) -> None:
    path = folder / "SHA256SUMS"
    path.write_text(path.read_text().replace(fake.sha256(folder / SCATTER), "0" * 64))


def shorten_sums(folder: Path) -> None:
    path = folder / "SHA256SUMS"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "requirements-pypi.txt" not in line))


def add_a_file(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("import os\n")
    fake.write_sums(folder)


def link_to_a_wheel(folder: Path) -> None:
    """The same bytes, for now, from a place that somebody else may write to."""
    outside = folder.parent / f"{folder.name}.outside"
    shutil.copy(folder / SCATTER, outside)
    (folder / SCATTER).unlink()
    (folder / SCATTER).symlink_to(outside)


def pin_another_version(folder: Path) -> None:
    path = folder / "requirements-pypi.txt"
    path.write_text(path.read_text().replace("leaf==1.0", "leaf==2.0"))
    fake.write_sums(folder)


def pin_without_a_hash(folder: Path) -> None:
    fake.write_requirements(folder, "leaf==1.0\n")


def require_from_elsewhere(folder: Path) -> None:
    path = folder / "requirements-pypi.txt"
    path.write_text(f"--extra-index-url https://elsewhere.example/simple\n{path.read_text()}")
    fake.write_sums(folder)


def hide_from_the_sbom(folder: Path) -> None:
    edit(folder / "sbom.cdx.json", lambda sbom: sbom["components"].pop())
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
    (hide_from_the_sbom, "sbom.cdx.json does not name leaf"),
    (raise_a_tag("os", "darwin"), "tags.json says os 'darwin'"),
    (raise_a_tag("arch", "arm64"), "it is for manylinux_2_28_x86_64, but the tags say arm64"),
    (raise_a_tag("torch", "2.12.0"), "it is for torch 2.11.0, but the tags say 2.12.0"),
    (raise_a_tag("python", "3.11"), "it is for cp312, but the tags say Python 3.11"),
    (edit_wheel_and_everything_that_has_its_hash, "torch_scatter.py in it has another hash"),
    (add_a_file_to_a_wheel, "sitecustomize.py is in it, but not in its RECORD"),
    (wheels_that_change_places, "its METADATA says torch_scatter 2.1.2"),
    (wrong_size, "bytes, but manifest.json says 1"),
    (wrong_platform, "manifest.json says that it is for manylinux_2_17_x86_64"),
    (two_of_one_distribution, "manifest.json has two wheels of spconv"),
    (remove_from_the_index, "simple/*/index.html does not list spconv"),
    (edit_sums, "but SHA256SUMS says 0000"),
    (shorten_sums, "requirements-pypi.txt is there, but not in SHA256SUMS"),
    (add_a_file, "sitecustomize.py is there, and no part of a wheelhouse"),
    (link_to_a_wheel, "is a link"),
    (pin_another_version, "sbom.cdx.json names leaf 1.0, requirements-pypi.txt pins 2.0"),
    (pin_without_a_hash, "requirements-pypi.txt has no hash of leaf"),
    (require_from_elsewhere, "which pins nothing"),
    (claim_verified, "tags.json says of GPU 10.0 'runs'"),
    (leave_the_folder, "which names no file inside"),
    (cut_json, "is not JSON"),
]
