from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from uv import find_uv_bin

from cuda_wheels.sandbox import environment, lock
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.testutil import Index, serving, sha256, unused_address, wheel_bytes


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bootstrap environment with the uv of the test environment."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bootstrap/bin").mkdir(parents=True)
    (tmp_path / "bootstrap/bin/uv").symlink_to(find_uv_bin())
    monkeypatch.setattr(environment, "ensure_bootstrap", lambda *_: tmp_path / "bootstrap")


@pytest.fixture
def index() -> Iterator[Index]:
    with serving(Index()) as served:
        served.add("beta", "beta-1.0-py3-none-any.whl", wheel_bytes("beta", "1.0"))
        served.add("beta", "beta-2.0-py3-none-any.whl", wheel_bytes("beta", "2.0"))
        yield served


def run(
    configured: list[str],
    *requirements: str,
    torch_indexes: dict[str, str] | None = None,
    **request: object,
) -> str:
    Path("cache").mkdir(exist_ok=True)
    settings = {"indexes": configured, "torch_indexes": torch_indexes or {}}
    Path("cache/settings.json").write_text(json.dumps(settings))
    lock.main(
        {
            "cache": "cache",
            "bootstrap_lock": "unused",
            "requirements": list(requirements),
            "python": "3.12",
            "arch": "amd64",
            "out": "locks/row.txt",
            **request,
        }
    )
    return Path("locks/row.txt").read_text()


def failure(
    configured: list[str],
    *requirements: str,
    torch_indexes: dict[str, str] | None = None,
    **request: object,
) -> str:
    with pytest.raises(ProgramError) as raised:
        run(configured, *requirements, torch_indexes=torch_indexes, **request)
    assert "s3cret" not in str(raised.value)
    return str(raised.value)


def test_lock_has_versions_and_hashes_and_no_address(index: Index) -> None:
    alpha = wheel_bytes("alpha", "1.0", requires="beta")
    sha = index.add("alpha", "alpha-1.0-py3-none-any.whl", alpha)
    text = run([index.url], "alpha==1.0")
    assert text.startswith("alpha==1.0 \\\n") and f"--hash=sha256:{sha}" in text
    assert "beta==2.0 \\\n" in text
    assert "127.0.0.1" not in text and "#" not in text


@pytest.mark.parametrize(
    ("arch", "platform"), [("amd64", "x86_64"), ("arm64", "aarch64")], ids=["amd64", "arm64"]
)
def test_each_arch_takes_its_own_wheels(index: Index, arch: str, platform: str) -> None:
    tag = f"manylinux_2_28_{platform}"
    wheel = wheel_bytes("gamma", "1.0")
    index.add("gamma", f"gamma-1.0-cp312-cp312-{tag}.whl", wheel)
    assert "gamma==1.0" in run([index.url], "gamma", arch=arch)
    other = "arm64" if arch == "amd64" else "amd64"
    assert "gamma" in failure([index.url], "gamma", arch=other)


TORCH = "torch-2.9.1+cu126-cp312-cp312-manylinux_2_28_x86_64.whl"
TORCH_METADATA = """\
Metadata-Version: 2.1
Name: torch
Version: 2.9.1+cu126
Requires-Dist: beta==2.0; platform_system == "Linux"
"""


def test_a_torch_of_the_pytorch_index_is_locked_without_being_downloaded(index: Index) -> None:
    with serving(Index()) as pytorch:
        pytorch.announce("torch", TORCH, "ab" * 32, TORCH_METADATA)
        # A copy of what the package index has, of other bytes, and something newer.
        copy = pytorch.add("beta", "beta-2.0-py3-none-any.whl", wheel_bytes("beta", "2.0") + b"!")
        text = run([index.url], "torch==2.9.1+cu126", torch_indexes={"cu126": pytorch.url})
        assert not [path for path in pytorch.requested if path.endswith(".whl")]
    assert f"torch==2.9.1+cu126 \\\n    --hash=sha256:{'ab' * 32}" in text
    assert f"--hash=sha256:{sha256(wheel_bytes('beta', '2.0'))}" in text
    assert copy not in text
    assert "://" not in text


def test_an_earlier_index_of_several_still_comes_first(index: Index) -> None:
    with serving(Index()) as first, serving(Index()) as pytorch:
        pytorch.announce("torch", TORCH, "ab" * 32, TORCH_METADATA)
        text = run(
            [first.url, index.url], "torch==2.9.1+cu126", torch_indexes={"cu126": pytorch.url}
        )
    assert sha256(wheel_bytes("beta", "2.0")) in text


def test_the_pytorch_index_is_asked_for_its_own_torch_alone(index: Index) -> None:
    with serving(Index()) as pytorch:
        indexes = {"cu126": pytorch.url, "cu128": pytorch.url}
        run([index.url], "beta==2.0", torch_indexes=indexes)
        message = failure([index.url], "torch==2.9.1+cu130", torch_indexes=indexes)
        assert pytorch.requested == []
    assert "torch==2.9.1+cu130 is not on the package index" in message


def test_a_pytorch_index_out_of_reach_says_how_to_name_a_mirror(index: Index) -> None:
    address = unused_address()
    message = failure([index.url], "torch==2.9.1+cu126", torch_indexes={"cu126": address})
    assert "torch==2.9.1+cu126 is not on the package index" in message
    assert address.split("@")[1] in message
    assert "[cuda-wheels].source_mirrors" in message


def test_nothing_is_built_for_a_lock(index: Index) -> None:
    index.add("delta", "delta-1.0.tar.gz", b"not even an archive")
    assert "delta" in failure([index.url], "delta")


def test_no_solution_gives_uvs_reason_and_keeps_the_old_lock(index: Index) -> None:
    old = run([index.url], "beta==1.0")
    message = failure([index.url], "beta==3.0")
    assert "No lock for amd64, Python 3.12" in message
    assert "wanted: beta==3.0" in message
    assert "there is no version of beta==3.0" in message
    assert Path("locks/row.txt").read_text() == old
    assert [path.name for path in Path("locks").iterdir()] == ["row.txt"]


def test_index_out_of_reach() -> None:
    address = unused_address()
    message = failure([address], "beta")
    assert address.split("@")[1] in message


def test_an_address_as_requirement_is_refused(index: Index) -> None:
    address = index.url.replace("/simple", "/files/beta/beta-2.0-py3-none-any.whl")
    message = failure([index.url], f"beta @ {address}")
    assert "name==version" in message
    assert not Path("locks/row.txt").exists()


def test_unknown_arch() -> None:
    assert "known are amd64, arm64" in failure([], "beta", arch="riscv64")


def test_a_long_reason_is_cut() -> None:
    text = lock.reason("\n".join(f"line {number}" for number in range(50)))
    assert "line 0" in text and "line 49" not in text and "35 more lines" in text
