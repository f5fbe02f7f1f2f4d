from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.testutil import tar_bytes, zip_bytes
from cuda_wheels.sandbox.unpack import unpack

# Does not compress: a cut falls within the data.
NOISE = "".join(hashlib.sha256(bytes([number])).hexdigest() for number in range(200))


def link_tar(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        tar.addfile(member)
    return buffer.getvalue()


def modes(tree: Path) -> dict[str, int]:
    return {str(p.relative_to(tree)): p.stat().st_mode & 0o7777 for p in sorted(tree.rglob("*"))}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(tar_bytes({"t/d/f": ""}, mode=0o600), 0o644, id="tar-private"),
        pytest.param(tar_bytes({"t/d/f": ""}, mode=0o4775), 0o755, id="tar-setuid"),
        pytest.param(tar_bytes({"t/d/f": ""}, mode=0o444), 0o644, id="tar-read-only"),
        pytest.param(zip_bytes({"t/d/f": ""}, mode=0o100600), 0o644, id="zip-private"),
        pytest.param(zip_bytes({"t/d/f": ""}, mode=0o100700), 0o755, id="zip-executable"),
        pytest.param(zip_bytes({"t/d/f": ""}, mode=0), 0o644, id="zip-without-modes"),
    ],
)
def test_modes_are_the_same_everywhere(tmp_path: Path, content: bytes, expected: int) -> None:
    (tmp_path / "archive").write_bytes(content)
    unpack(tmp_path / "archive", tmp_path / "out")
    assert modes(tmp_path / "out") == {"d": 0o755, "d/f": expected}


def test_links_inside_are_kept(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(link_tar("top/link", "target"))
    unpack(tmp_path / "archive", tmp_path / "out")
    assert (tmp_path / "out/link").readlink() == Path("target")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(tar_bytes({"ok": "", "../escaped": "x"}), id="tar-parent"),
        pytest.param(tar_bytes({"/escaped": "x"}), id="tar-absolute"),
        pytest.param(tar_bytes({"a/../../escaped": "x"}), id="tar-inner-parent"),
        pytest.param(link_tar("escaped", "../../target"), id="tar-link"),
        pytest.param(link_tar("escaped", "/target"), id="tar-absolute-link"),
        pytest.param(link_tar("escaped", "", tarfile.CHRTYPE), id="tar-device"),
        pytest.param(zip_bytes({"ok": "", "../escaped": "x"}), id="zip-parent"),
        pytest.param(zip_bytes({"/escaped": "x"}), id="zip-absolute"),
    ],
)
def test_members_outside_are_refused(tmp_path: Path, content: bytes) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "archive").write_bytes(content)
    with pytest.raises(ProgramError, match="outside its own folder") as raised:
        unpack(inner / "archive", inner / "out")
    assert "escaped" in str(raised.value)
    assert [path.name for path in tmp_path.rglob("*")] == ["inner", "archive"]


def test_all_bad_members_are_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(zip_bytes({"../one": "", "/two": ""}))
    with pytest.raises(ProgramError, match=r"(?s)\.\./one.*/two"):
        unpack(tmp_path / "archive", tmp_path / "out")


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(zip_bytes({"top/link": "/etc"}, mode=0o120777))
    with pytest.raises(ProgramError, match="top/link"):
        unpack(tmp_path / "archive", tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"<html>", "neither a zip nor a tar", id="no-archive"),
        pytest.param(tar_bytes({}), "is empty", id="empty"),
        pytest.param(tar_bytes({"t/a": NOISE})[:5000], "damaged", id="cut-off"),
    ],
)
def test_what_is_no_archive(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "archive").write_bytes(content)
    with pytest.raises(ProgramError, match=words):
        unpack(tmp_path / "archive", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(zip_bytes({"t/a": "", "t/a/b": ""}), id="a file that is a directory too"),
        pytest.param(zip_bytes({f"t/{'x' * 300}": ""}), id="a name that is too long"),
    ],
)
def test_names_that_no_file_can_have(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "archive").write_bytes(content)
    with pytest.raises(ProgramError, match="archive cannot be unpacked: t/"):
        unpack(tmp_path / "archive", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_a_tar_archive_with_any_byte_changed(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        member = tarfile.TarInfo("t/a")
        member.pax_headers = {"comment": "a" * 200}
        member.size = 300
        tar.addfile(member, io.BytesIO(NOISE.encode()[:300]))
    _damage_everywhere(compress(packed.getvalue()), tmp_path)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_archive_with_any_byte_changed(tmp_path: Path, method: int) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        archive.writestr("t/\u00e4", NOISE[:100])
    _damage_everywhere(packed.getvalue(), tmp_path)


def _damage_everywhere(content: bytes, tmp_path: Path) -> None:
    """Whatever byte is wrong: the tree is there, or there is an error that a user can read."""
    refused = 0
    for position in range(0, len(content), max(1, len(content) // 60)):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        (tmp_path / "archive").write_bytes(damaged)
        out = tmp_path / f"out{position}"
        try:
            unpack(tmp_path / "archive", out)
        except ProgramError:
            refused += 1
            assert not out.exists()
        else:
            assert out.exists()
    assert refused
