"""A wheelhouse that lies is caught; each lie is one change of a good one, which passes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Callable

import pytest

from cuda_wheels.audit import fake_wheelhouse as fake
from cuda_wheels.audit import wheelhouse
from cuda_wheels.audit.fake_lies import LIES


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


def test_a_release_under_another_date(tmp_path: Path) -> None:
    folder = fake.write_wheelhouse(tmp_path, date="2026.11.30")
    row = folder.relative_to(tmp_path)
    release = tmp_path / "index" / row / "2026.11.30"
    shutil.copytree(folder, release)
    assert wheelhouse.problems(release) == ()
    later = Path(shutil.move(str(release), release.with_name("2026.12.01")))
    assert "but manifest.json says 2026.11.30" in "\n".join(wheelhouse.problems(later))


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


def test_a_summary_says_what_is_missing_and_why(tmp_path: Path) -> None:
    folder = fake.write_wheelhouse(tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["skipped"] = [{"package": "flash-attn", "reason": "No kernels for it."}]
    manifest["failed"] = [{"package": "swin3d", "stage": "compile", "message": "no space left"}]
    fake.write_json(folder / "manifest.json", manifest)
    assert wheelhouse.read_summary(folder).skipped == (
        ("flash-attn", "No kernels for it."),
        ("swin3d", "it could not be built: no space left"),
    )
