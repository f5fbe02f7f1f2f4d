from __future__ import annotations

import errno
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_wheels.sandbox import environment, inspect_wheel
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
    record_row,
    refusal_of,
    zipped,
)
from cuda_wheels.wheel_facts import WheelFacts


def test_the_facts_of_a_sound_wheel(tmp_path: Path) -> None:
    so = library(tmp_path / "a.so", MATH, "-lm")
    wheel = pack(
        tmp_path / "dist",
        {"demo/__init__.py": b"", "demo/a.so": so, "demo.libs/libx-1a2b3c4d.so.1": so},
        name="Demo_Pkg",
        version="1.2+cu130",
        tag="cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64",
        metadata="Requires-Dist: torch\nRequires-Dist: numpy>1\n",
    )
    facts = measure(wheel)
    assert (facts.name, facts.version) == ("Demo_Pkg", "1.2+cu130")
    assert (facts.python_tag, facts.abi_tag) == ("cp312", "cp312")
    assert facts.platform_tags == ("manylinux2014_x86_64", "manylinux_2_17_x86_64")
    assert facts.wheel_tags == (
        "cp312-cp312-manylinux2014_x86_64",
        "cp312-cp312-manylinux_2_17_x86_64",
    )
    assert facts.requires_dist == ("torch", "numpy>1")
    assert facts.grafted == ("demo.libs/libx-1a2b3c4d.so.1",)
    assert [lib.path for lib in facts.libraries] == ["demo.libs/libx-1a2b3c4d.so.1", "demo/a.so"]
    assert facts.record_ok
    assert not facts.root_is_purelib
    assert facts.size == wheel.stat().st_size
    assert WheelFacts.from_json(json.loads(json.dumps(facts.to_json()))) == facts


@pytest.mark.parametrize("tag", ["linux_x86_64", "manylinux_2_17_x86_64", "manylinux_2_99_x86_64"])
def test_the_measured_platform_does_not_follow_the_file_name(tmp_path: Path, tag: str) -> None:
    so = library(tmp_path / "a.so", ONCE)
    facts = measure(pack(tmp_path, {"demo/a.so": so}, tag=f"cp312-cp312-{tag}"))
    assert facts.policy == facts.symbol_policy == "manylinux_2_34_x86_64"


def test_a_library_from_outside_is_named_and_cuda_is_not(tmp_path: Path) -> None:
    sonames = ("libcudart.so.13", "libtorch_cpu.so", "libsecret.so.1")
    for soname in sonames:
        library(tmp_path / soname, ONE, soname=soname)
    links = ["-Wl,--no-as-needed", *(str(tmp_path / soname) for soname in sonames)]
    so = library(tmp_path / "a.so", MATH, *links, "-lm")
    facts = measure(pack(tmp_path / "dist", {"demo/a.so": so}))
    assert facts.unprovided == ("libsecret.so.1",)
    assert facts.policy == "linux_x86_64"
    assert facts.symbol_policy.startswith("manylinux_")


def test_a_wheel_for_another_machine_is_measured(tmp_path: Path) -> None:
    so = as_aarch64(library(tmp_path / "a.so", MATH, "-lm"))
    facts = measure(pack(tmp_path, {"demo/a.so": so}))
    assert [lib.machine for lib in facts.libraries] == ["aarch64"]
    assert facts.policy.endswith("_aarch64")


def test_a_library_is_known_by_its_content_not_its_name(tmp_path: Path) -> None:
    so = library(tmp_path / "a.so", ONE)
    facts = measure(pack(tmp_path, {"demo/plugin.bin": so, "demo/text.so": b"INPUT(libx.so)"}))
    assert [lib.path for lib in facts.libraries] == ["demo/plugin.bin"]


def test_bytecode_is_found(tmp_path: Path) -> None:
    files = {"demo/__init__.py": b"", "demo/__pycache__/a.cpython-312.pyc": b"", "demo/pyc": b""}
    facts = measure(pack(tmp_path, {**files, "demo/a.so": library(tmp_path / "a.so", ONE)}))
    assert facts.bytecode == ("demo/__pycache__/a.cpython-312.pyc",)
    assert measure(pack(tmp_path / "other", {"demo/__init__.py": b""})).bytecode == ()


def test_a_wheel_without_libraries_has_no_platform(tmp_path: Path) -> None:
    facts = measure(pack(tmp_path, {"demo/__init__.py": b""}, tag="py3-none-any", purelib=True))
    assert (facts.policy, facts.libraries, facts.root_is_purelib) == ("", (), True)
    assert facts.policy_problem == "it has no library"


def test_everything_wrong_with_record_is_found_at_once(tmp_path: Path) -> None:
    wheel = pack(
        tmp_path,
        {f"demo/{name}.py": b"pass\n" for name in ("good", "changed", "unlisted", "weak", "size")},
        record={
            "demo/changed.py": record_row("demo/changed.py", b"fail\n"),
            "demo/unlisted.py": "",
            "demo/weak.py": "demo/weak.py,md5=abc,5",
            "demo/size.py": record_row("demo/size.py", b"pass\n")[:-1] + "6",
            "demo/gone.py": record_row("demo/gone.py", b""),
        },
    )
    facts = measure(wheel)
    assert not facts.record_ok
    assert set(facts.record_problems) == {
        "demo/changed.py has another sha256 than listed",
        "demo/unlisted.py is not listed",
        "demo/weak.py has md5 hash, not sha256",
        "demo/size.py has 5 bytes, 6 are listed",
        "demo/gone.py is listed but not there",
    }


@pytest.mark.parametrize(
    "name", ["../escaped.py", "/tmp/escaped.py", "demo/../../escaped.py", "demo/x/../../../e.so"]
)
def test_a_member_outside_its_folder_is_refused_by_name(tmp_path: Path, name: str) -> None:
    good = pack(tmp_path / "good", {"demo/__init__.py": b""})
    members = [*members_of(good).items(), (name, b"\x7fELF evil")]
    wheel = zipped(tmp_path / good.name, members)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ProgramError, match="refused") as caught:
        measure(wheel)
    assert name in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_symbolic_link_is_refused_by_name(tmp_path: Path) -> None:
    wheel = zipped(
        tmp_path / "demo-1-py3-none-any.whl", [("demo/link", b"/etc/passwd")], mode=0o120777
    )
    with pytest.raises(ProgramError, match=r"demo/link \(a symbolic link\)"):
        measure(wheel)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(lambda data: b"", "damaged zip archive", id="empty"),
        pytest.param(lambda data: data[: len(data) // 2], "damaged zip archive", id="cut short"),
        pytest.param(
            lambda data: data.replace(b"HELLO", b"JELLO", 1), "damaged zip archive", id="bit rot"
        ),
    ],
)
def test_a_damaged_archive_is_an_error_that_names_it(
    tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    wheel = tmp_path / "demo-1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in members_of(pack(tmp_path / "good", {"demo/a.txt": b"HELLO"})).items():
            archive.writestr(name, data)
    wheel.write_bytes(damage(wheel.read_bytes()))
    with pytest.raises(ProgramError, match=message) as caught:
        measure(wheel)
    assert wheel.name in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("torch.whl", "not the file name of a wheel", id="no tags"),
        pytest.param("demo-1.2-py3-none-any.zip", "not the file name of a wheel", id="no wheel"),
        pytest.param("demo-1.2-py3-none-any.whl", "no wheel", id="no dist-info"),
    ],
)
def test_what_is_no_wheel_is_an_error(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        measure(zipped(tmp_path / name, [("demo/__init__.py", b"")]))


def test_a_wheel_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    # A pattern that matched nothing comes as it was written: that it is no name is not the point.
    for name in ("demo-1.2-py3-none-any.whl", "*.whl"):
        with pytest.raises(ProgramError, match="There is no file"):
            measure(tmp_path / name)


def test_a_directory_is_no_wheel(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="is a directory"):
        measure(tmp_path)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_wheel_with_any_byte_changed(tmp_path: Path, method: int) -> None:
    wheel = tmp_path / "demo-1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", method) as archive:
        members = members_of(pack(tmp_path / "good", {"demo/\u00e4.txt": b"HELLO" * 9}))
        for name, data in members.items():
            archive.writestr(name, data)
    content = wheel.read_bytes()
    refused = 0
    for position in range(0, len(content), max(1, len(content) // 60)):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        wheel.write_bytes(damaged)
        try:
            assert measure(wheel).filename == wheel.name
        except ProgramError:
            refused += 1
    assert refused


def test_a_record_that_is_no_table(tmp_path: Path) -> None:
    wheel = tmp_path / "demo-1.2-py3-none-any.whl"
    members = members_of(pack(tmp_path / "good", {"demo/a.txt": b"HELLO"}))
    members["demo-1.2.dist-info/RECORD"] = b"x" * 200_000
    problems = measure(zipped(wheel, list(members.items()))).record_problems
    assert any("RECORD cannot be read to its end" in problem for problem in problems)


def test_the_program_prints_the_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    locks = []
    monkeypatch.setattr(environment, "reexec_in_tools", lambda *given: locks.append(given))
    wheel = pack(tmp_path, {"demo/a.so": library(tmp_path / "a.so", ONE)})
    request = {"cache": "c", "bootstrap_lock": "b.txt", "tools_lock": "t.txt", "wheel": str(wheel)}
    inspect_wheel.main(request)
    assert locks == [(Path("c"), Path("b.txt"), Path("t.txt"))]
    assert WheelFacts.from_json(json.loads(capsys.readouterr().out)) == measure(wheel)


def test_a_full_disk_is_no_fact_about_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(environment, "reexec_in_tools", lambda *given: None)
    monkeypatch.setattr("auditwheel.wheel_abi.analyze_wheel_abi", fail)
    wheel = pack(tmp_path, {"demo/a.so": library(tmp_path / "a.so", ONE)})
    request = {"cache": "c", "bootstrap_lock": "b.txt", "tools_lock": "t.txt", "wheel": str(wheel)}
    with pytest.raises(ProgramError, match="Disk full"):
        inspect_wheel.main(request)


def test_libraries_where_pure_files_belong_have_no_platform(tmp_path: Path) -> None:
    so = library(tmp_path / "a.so", ONE)
    facts = measure(pack(tmp_path, {"demo-1.2.data/purelib/demo/a.so": so}))
    assert facts.policy == ""
    assert "purelib" in facts.policy_problem


def test_it_runs_as_a_program_and_names_all_that_a_request_lacks(tmp_path: Path) -> None:
    said = refusal_of("inspect_wheel", tmp_path)
    assert "bootstrap_lock, tools_lock, wheel" in said
