from __future__ import annotations

import csv
import errno
import io
import os
import re
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.sandbox import repair
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.wheel_testutil import (
    MATH,
    ONCE,
    ONE,
    as_aarch64,
    library,
    measure,
    members_of,
    pack,
    refusal_of,
)
from cuda_wheels.tables.libraries import EXCLUDED_LIBRARIES

MACHINE = os.uname().machine
PLATFORM = f"manylinux_2_28_{MACHINE}"


def repaired(wheel: Path, out: Path, *, platform: str = PLATFORM, local: str | None = None) -> Path:
    made = repair.repair(
        wheel, out, platform=platform, exclude=EXCLUDED_LIBRARIES, local_version=local
    )
    assert [path.name for path in out.iterdir()] == [made.name]
    return made


def native(tmp_path: Path, source: str = MATH, **kwargs: Any) -> Path:
    so = library(tmp_path / "a.so", source, "-lm")
    return pack(tmp_path / "raw", {"demo/__init__.py": b"", "demo/a.so": so}, **kwargs)


def test_the_declared_platform_alone_becomes_the_tag(tmp_path: Path) -> None:
    facts = measure(repaired(native(tmp_path), tmp_path / "out"))
    assert facts.platform_tags == (PLATFORM,)
    assert facts.wheel_tags == (f"cp312-cp312-{PLATFORM}",)
    assert facts.record_ok


def test_auto_finds_the_oldest_platform(tmp_path: Path) -> None:
    wheel = repaired(native(tmp_path, ONCE), tmp_path / "out", platform="auto")
    assert measure(wheel).platform_tags == (f"manylinux_2_34_{MACHINE}",)


def test_a_wheel_for_another_machine_is_repaired(tmp_path: Path) -> None:
    so = as_aarch64(library(tmp_path / "a.so", ONE))
    wheel = pack(tmp_path / "raw", {"demo/a.so": so}, tag="cp312-cp312-linux_aarch64")
    made = repaired(wheel, tmp_path / "out", platform="manylinux_2_28_aarch64")
    assert measure(made).platform_tags == ("manylinux_2_28_aarch64",)


def test_symbols_newer_than_the_platform_are_listed(tmp_path: Path) -> None:
    with pytest.raises(ProgramError) as caught:
        repaired(native(tmp_path, ONCE), tmp_path / "out")
    message = str(caught.value)
    assert f"cannot be repaired to {PLATFORM}" in message
    assert "demo/a.so needs GLIBC_2.34 for pthread_once" in message
    assert 'platform_policy = "auto"' in message
    assert "container" in message
    assert str(tmp_path) not in message
    assert list((tmp_path / "out").iterdir()) == []


def test_a_library_of_another_machine_than_the_platform_is_named(tmp_path: Path) -> None:
    so = as_aarch64(library(tmp_path / "a.so", ONE))
    wheel = pack(tmp_path / "raw", {"demo/a.so": so}, tag=f"cp312-cp312-linux_{MACHINE}")
    with pytest.raises(ProgramError, match="demo/a.so is for aarch64"):
        repaired(wheel, tmp_path / "out", platform="manylinux_2_28_x86_64")


def linked_to(tmp_path: Path, *sonames: str, found: bool = False) -> Path:
    """A wheel whose library needs these, where a loader finds them or does not."""
    for soname in sonames:
        library(tmp_path / "elsewhere" / soname, ONE, soname=soname)
    links = [str(tmp_path / "elsewhere" / soname) for soname in sonames]
    if found:
        links.append(f"-Wl,-rpath,{tmp_path / 'elsewhere'}")
    so = library(tmp_path / "a.so", MATH, "-Wl,--no-as-needed", *links, "-lm")
    return pack(tmp_path / "raw", {"demo/a.so": so})


@pytest.mark.parametrize(
    "soname",
    [
        "libcudart.so.12",
        "libcudart.so.13",
        "libnvrtc.so.12",
        "libnvrtc-builtins.so.13.0",
        "libcublas.so.12",
        "libcublasLt.so.13",
        "libcusparse.so.12",
        "libcufft.so.12",
        "libcuda.so.1",
        "libcufile.so.0",
        "libnccl.so.2",
        "libtorch_cuda.so",
        "libc10.so",
        "libgomp.so.1",
    ],
)
def test_what_others_provide_is_needed_and_not_put_in(tmp_path: Path, soname: str) -> None:
    facts = measure(repaired(linked_to(tmp_path, soname), tmp_path / "out"))
    assert facts.grafted == ()
    assert [lib.path for lib in facts.libraries] == ["demo/a.so"]
    assert soname in facts.libraries[0].needed


def test_what_nobody_provides_is_put_in(tmp_path: Path) -> None:
    raw = linked_to(tmp_path, "libsecret.so.1", found=True)
    facts = measure(repaired(raw, tmp_path / "out"))
    assert len(facts.grafted) == 1
    assert re.fullmatch(r"demo\.libs/libsecret-[0-9a-f]{8}\.so\.1", facts.grafted[0])
    assert facts.grafted[0].removeprefix("demo.libs/") in facts.libraries[1].needed
    assert facts.unprovided == ()
    assert [lib.rpaths for lib in facts.libraries] == [(), ()]
    assert [lib.unlisted_needs for lib in facts.libraries] == [(), ()]
    assert facts.record_ok


def test_what_nobody_has_is_an_error_with_its_own_way_out(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="libsecret.so.1") as caught:
        repaired(linked_to(tmp_path, "libsecret.so.1"), tmp_path / "out")
    assert "install the library" in str(caught.value)
    assert "platform_policy" not in str(caught.value)


def failing(error: Exception) -> Callable[..., Any]:
    """A function that raises."""

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    return fail


def test_a_failing_patchelf_is_an_error_that_names_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = subprocess.CalledProcessError(1, ["patchelf", "--set-rpath"])
    monkeypatch.setattr("auditwheel.main_repair.execute", failing(error))
    with pytest.raises(ProgramError, match="demo-1.2-.*cannot be repaired.*(?s:.*)patchelf"):
        repaired(native(tmp_path), tmp_path / "out")


def test_a_full_disk_is_said_to_be_full_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr("auditwheel.main_repair.execute", failing(full))
    with pytest.raises(ProgramError, match="Disk full"):
        run_program(tmp_path, monkeypatch)
    assert list((tmp_path / "repaired").iterdir()) == []


def test_nothing_is_ever_stripped(tmp_path: Path) -> None:
    arguments = repair.audit_arguments(tmp_path, tmp_path, platform=PLATFORM, exclude=["libx*"])
    assert arguments.STRIP is False
    assert arguments.EXCLUDE == ["libx*"]
    so = library(tmp_path / "a.so", MATH, "-lm")
    wheel = repaired(pack(tmp_path / "raw", {"demo/a.so": so}), tmp_path / "out")
    assert b".symtab" in members_of(wheel)["demo/a.so"]


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    wheel = linked_to(tmp_path, "libsecret.so.1", found=True)
    shuffled = tmp_path / "shuffled" / wheel.name
    shuffled.parent.mkdir()
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(shuffled, "w") as target:
        for member in reversed(source.infolist()):
            data = source.read(member)
            member.date_time = (2020, 5, 17, 3, 2, 1)
            member.external_attr = 0o100775 << 16
            target.writestr(member, data)
    first = repaired(wheel, tmp_path / "first", local="cu130")
    old = os.umask(0o077)
    try:
        second = repaired(shuffled, tmp_path / "second", local="cu130")
    finally:
        os.umask(old)
    assert first.read_bytes() == second.read_bytes()


def test_another_source_date_dates_the_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    wheel = repaired(native(tmp_path), tmp_path / "out")
    with zipfile.ZipFile(wheel) as archive:
        assert {member.date_time for member in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        pytest.param("2.1.2", "2.1.2+cu130.torch2.11.0", id="plain"),
        pytest.param("2.1.2+mine", "2.1.2+mine.cu130.torch2.11.0", id="local"),
        pytest.param("2.8.3.post2", "2.8.3.post2+cu130.torch2.11.0", id="post"),
    ],
)
def test_the_local_version_is_everywhere(tmp_path: Path, version: str, expected: str) -> None:
    so = library(tmp_path / "a.so", MATH, "-lm")
    raw = pack(
        tmp_path / "raw",
        {"demo/a.so": so, f"demo-{version}.data/data/share/x": b"x"},
        version=version,
    )
    wheel = repaired(raw, tmp_path / "out", local="cu130.torch2.11.0")
    assert wheel.name == f"demo-{expected}-cp312-cp312-{PLATFORM}.whl"
    members = members_of(wheel)
    assert {name.split("/")[0] for name in members} == {
        "demo",
        f"demo-{expected}.data",
        f"demo-{expected}.dist-info",
    }
    metadata = members[f"demo-{expected}.dist-info/METADATA"].decode()
    assert f"\nVersion: {expected}\n" in metadata
    # What the description says of versions stays.
    assert metadata.endswith("\nVersion: of what?\n")
    facts = measure(wheel)
    assert facts.version == expected
    assert facts.record_problems == ()
    record = csv.reader(io.StringIO(members[f"demo-{expected}.dist-info/RECORD"].decode()))
    assert {row[0] for row in record} == set(members)


def test_without_a_local_version_the_name_stays(tmp_path: Path) -> None:
    wheel = repaired(native(tmp_path, version="1.2+mine"), tmp_path / "out")
    assert wheel.name == f"demo-1.2+mine-cp312-cp312-{PLATFORM}.whl"


def test_a_local_version_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="no version"):
        repaired(native(tmp_path), tmp_path / "out", local="cu13_!")


def test_a_pure_wheel_passes_with_its_tag(tmp_path: Path) -> None:
    raw = pack(tmp_path / "raw", {"demo/__init__.py": b""}, tag="py3-none-any", purelib=True)
    wheel = repaired(raw, tmp_path / "out", local="cu130")
    assert wheel.name == "demo-1.2+cu130-py3-none-any.whl"
    assert measure(wheel).record_ok


def test_a_wheel_with_a_wrong_record_is_refused(tmp_path: Path) -> None:
    raw = pack(tmp_path / "raw", {"demo/a.py": b"pass"}, record={"demo/a.py": ""})
    with pytest.raises(ProgramError, match="demo/a.py"):
        repaired(raw, tmp_path / "out")


def test_a_member_outside_its_folder_is_refused(tmp_path: Path) -> None:
    raw = pack(tmp_path / "raw", {"../escaped.py": b"pass"})
    with pytest.raises(ProgramError, match=r"\.\./escaped\.py"):
        repaired(raw, tmp_path / "out")
    assert not list(tmp_path.rglob("escaped.py"))


def test_an_executable_stays_one(tmp_path: Path) -> None:
    wheel = repaired(native(tmp_path), tmp_path / "out")
    with zipfile.ZipFile(wheel) as archive:
        modes = {m.filename: (m.external_attr >> 16) & 0o777 for m in archive.infolist()}
    assert modes["demo/a.so"] == 0o755


def run_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair.environment, "reexec_in_tools", lambda *given: None)
    request = {
        "cache": "c",
        "bootstrap_lock": "b",
        "tools_lock": "t",
        "wheel": str(native(tmp_path)),
        "platform": PLATFORM,
        "exclude": list(EXCLUDED_LIBRARIES),
        "local_version": None,
        "out": str(tmp_path / "repaired"),
    }
    repair.main(request)


def test_the_program_writes_into_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_program(tmp_path, monkeypatch)
    assert [path.suffix for path in (tmp_path / "repaired").iterdir()] == [".whl"]


def test_it_runs_as_a_program_and_names_all_that_a_request_lacks(tmp_path: Path) -> None:
    said = refusal_of("repair", tmp_path)
    assert "bootstrap_lock, tools_lock, wheel" in said
