from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.sandbox import environment, fetch
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.testutil import (
    Index,
    serving,
    sha256,
    silent_server,
    tar_bytes,
    unused_address,
    wheel_bytes,
    zip_bytes,
)

SETUP_PY = "raise SystemExit('a fetched source must not run')\n"
WHEEL = {
    "cumm/__init__.py": SETUP_PY,
    "cumm/include/tensorview.h": "int a;\n",
    "cumm-0.8.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: cumm\nVersion: 0.8.2\n",
}
SDIST = {"torch_scatter-2.1.2/setup.py": SETUP_PY, "torch_scatter-2.1.2/csrc/a.cpp": "int a;\n"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environment, "reexec_in_tools", lambda *locks: None)
    monkeypatch.setattr(fetch, "PAUSE_S", 0.0)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def index() -> Iterator[Index]:
    with serving(Index()) as served:
        yield served


def run(settings: dict[str, Any] | None = None, **request: Any) -> Path:
    """Run the program in the current directory; the tree that it made is returned."""
    cache = Path("cache")
    cache.mkdir(exist_ok=True)
    if settings is not None:
        (cache / "settings.json").write_text(json.dumps(settings))
    fetch.main(
        {"cache": "cache", "bootstrap_lock": "b", "tools_lock": "t", "out": "source", **request}
    )
    return Path("source")


def sdist(settings: dict[str, Any], sha: str, version: str = "2.1.2") -> Path:
    return run(settings, kind="sdist", name="torch-scatter", version=version, sha256=sha)


def failure(settings: dict[str, Any], sha: str, version: str = "2.1.2") -> str:
    with pytest.raises(ProgramError) as raised:
        sdist(settings, sha, version)
    assert not Path("source").exists()
    assert "s3cret" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("hashes", [True, False], ids=["announced", "unannounced"])
def test_sdist_by_its_hash(index: Index, hashes: bool) -> None:
    index.hashes = hashes
    index.add("torch-scatter", "torch_scatter-2.1.2-py3-none-any.whl", wheel_bytes("x", "2.1.2"))
    sha = index.add("torch-scatter", "torch_scatter-2.1.2.tar.gz", tar_bytes(SDIST))
    tree = sdist({"indexes": [index.url]}, sha)
    assert (tree / "setup.py").read_text() == SETUP_PY
    assert (tree / "csrc/a.cpp").read_text() == "int a;\n"
    assert not [path for path in index.requested if path.endswith(".whl")]


def test_only_the_file_with_the_pinned_hash_is_downloaded(index: Index) -> None:
    index.add("torch-scatter", "torch_scatter-2.1.2.zip", zip_bytes({"a/other": "code"}))
    sha = index.add("torch-scatter", "torch_scatter-2.1.2.tar.gz", tar_bytes(SDIST))
    sdist({"indexes": [index.url]}, sha)
    downloads = [path for path in index.requested if path.startswith("/files/")]
    assert downloads == ["/files/torch-scatter/torch_scatter-2.1.2.tar.gz"]


@pytest.mark.parametrize("hashes", [True, False], ids=["announced", "unannounced"])
def test_wrong_hash_names_both(index: Index, hashes: bool) -> None:
    index.hashes = hashes
    sha = index.add("torch-scatter", "torch_scatter-2.1.2.tar.gz", tar_bytes(SDIST))
    message = failure({"indexes": [index.url]}, "0" * 64)
    assert f"declared sha256: {'0' * 64}" in message
    assert f"found sha256:    {sha}" in message
    assert "torch_scatter-2.1.2.tar.gz" in message


def test_an_index_that_announces_the_pin_but_serves_other_bytes(index: Index) -> None:
    content = tar_bytes(SDIST)
    index.wrong_hashes["torch_scatter-2.1.2.tar.gz"] = "1" * 64
    index.add("torch-scatter", "torch_scatter-2.1.2.tar.gz", content)
    message = failure({"indexes": [index.url]}, "1" * 64)
    assert f"found sha256:    {sha256(content)}" in message


def test_the_second_index_has_it(index: Index) -> None:
    sha = index.add("torch-scatter", "torch_scatter-2.1.2.tar.gz", tar_bytes(SDIST))
    with serving(Index()) as first:
        assert sdist({"indexes": [first.url, index.url]}, sha).is_dir()


def test_an_index_out_of_reach_does_not_hide_the_next_one(index: Index) -> None:
    sha = index.add("torch-scatter", "torch_scatter-2.1.2.tar.gz", tar_bytes(SDIST))
    assert sdist({"indexes": [unused_address(), index.url]}, sha).is_dir()


def test_find_links_directory(tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    content = tar_bytes(SDIST)
    (links / "torch_scatter-2.1.2.tar.gz").write_bytes(content)
    assert sdist({"find_links": [str(links)]}, sha256(content)).is_dir()


def test_version_not_found_lists_the_ones_near(index: Index) -> None:
    for minor in range(12):
        index.add("torch-scatter", f"torch_scatter-2.{minor}.0.tar.gz", tar_bytes(SDIST))
    message = failure({"indexes": [index.url]}, "0" * 64, version="2.9.1")
    assert "no sdist of torch-scatter 2.9.1" in message
    assert "sdists there: 2.6.0, 2.7.0, 2.8.0, 2.9.0, 2.10.0, 2.11.0" in message
    assert "2.1.0" not in message


def test_unknown_package_says_what_the_index_answered(index: Index) -> None:
    message = failure({"indexes": [index.url]}, "0" * 64)
    assert "No sdist of torch-scatter was found" in message
    assert "404" in message


def test_index_out_of_reach_names_the_host_only() -> None:
    address = unused_address()
    message = failure({"indexes": [address]}, "0" * 64)
    host = address.split("@")[1].split("/")[0]
    assert f"Asking {host} failed (3 of 3 attempts)" in message
    assert "[python-repos].indexes" in message


def test_an_index_that_never_answers_ends_in_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "TIMEOUT_S", 0.2)
    with silent_server() as address:
        message = failure({"indexes": [address]}, "0" * 64)
    assert "ReadTimeout" in message


def test_a_server_error_is_tried_again(index: Index) -> None:
    index.broken = 2
    sha = index.add("torch-scatter", "torch_scatter-2.1.2.tar.gz", tar_bytes(SDIST))
    assert sdist({"indexes": [index.url]}, sha).is_dir()


def test_a_lasting_server_error_is_told(index: Index) -> None:
    index.broken = 1000
    message = failure({"indexes": [index.url]}, "0" * 64)
    assert "503" in message


def test_without_an_index_there_is_no_default_one() -> None:
    message = failure({"indexes": []}, "0" * 64)
    assert "No sdist of torch-scatter was found" in message
    assert "[python-repos].indexes is empty" in message


def wheel(settings: dict[str, Any], sha: str, version: str = "0.8.2") -> Path:
    return run(settings, kind="wheel", name="cumm", version=version, sha256=sha)


def wheel_failure(settings: dict[str, Any], sha: str, version: str = "0.8.2") -> str:
    with pytest.raises(ProgramError) as raised:
        wheel(settings, sha, version)
    assert not Path("source").exists()
    assert "s3cret" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("hashes", [True, False], ids=["announced", "unannounced"])
@pytest.mark.parametrize(
    "tag", ["py3-none-any", "cp39-cp39-manylinux_2_28_aarch64", "cp313-cp313-win_amd64"]
)
def test_a_wheel_by_its_hash_whatever_its_tag(index: Index, tag: str, hashes: bool) -> None:
    index.hashes = hashes
    index.add("cumm", "cumm-0.8.2.tar.gz", tar_bytes(SDIST))
    index.add("cumm", "cumm-0.8.2-cp310-cp310-linux_x86_64.whl", zip_bytes({"x": "other"}))
    index.add("cumm", f"cumm-0.8.1-{tag}.whl", zip_bytes({"x": "older"}))
    sha = index.add("cumm", f"cumm-0.8.2-{tag}.whl", zip_bytes(WHEEL))
    tree = wheel({"indexes": [index.url]}, sha)
    assert {str(p.relative_to(tree)): p.read_text() for p in tree.rglob("*") if p.is_file()} == (
        WHEEL
    )
    assert not [path for path in index.requested if "tar.gz" in path or "0.8.1" in path]


def test_a_wheel_with_one_folder_is_unpacked_whole(index: Index) -> None:
    sha = index.add("cumm", "cumm-0.8.2-py3-none-any.whl", wheel_bytes("cumm", "0.8.2"))
    assert (wheel({"indexes": [index.url]}, sha) / "cumm-0.8.2.dist-info/METADATA").is_file()


@pytest.mark.parametrize("hashes", [True, False], ids=["announced", "unannounced"])
def test_a_hash_that_no_wheel_has(index: Index, hashes: bool) -> None:
    index.hashes = hashes
    names = [f"cumm-0.8.2-cp{n}-cp{n}-linux_x86_64.whl" for n in (311, 312)]
    found = {name: index.add("cumm", name, zip_bytes({"x": name})) for name in names}
    message = wheel_failure({"indexes": [index.url]}, "0" * 64)
    assert "No wheel of cumm 0.8.2 is the one that is declared" in message
    for name, sha in found.items():
        assert f"found sha256:    {sha}  ({name}" in message


def test_a_package_without_that_wheel(index: Index) -> None:
    index.add("cumm", "cumm-0.8.2.tar.gz", tar_bytes(SDIST))
    assert "No wheel of cumm was found" in wheel_failure({"indexes": [index.url]}, "0" * 64)
    index.add("cumm", "cumm-0.7.11-py3-none-any.whl", zip_bytes(WHEEL))
    message = wheel_failure({"indexes": [index.url]}, "0" * 64)
    assert "no wheel of cumm 0.8.2" in message and "wheels there: 0.7.11" in message


def prebuilt(settings: dict[str, Any], sha: str, **more: Any) -> Path:
    (file,) = run(
        settings,
        kind="wheel",
        name="scatter",
        version="2.1.2+pt29cu130",
        sha256=sha,
        unpack=False,
        tags=["cp312", "x86_64"],
        **more,
    ).iterdir()
    return file


SCATTER = "scatter-2.1.2+pt29cu130-cp312-cp312-linux_x86_64.whl"


def test_a_wheel_stays_a_file(index: Index) -> None:
    content = wheel_bytes("scatter", "2.1.2+pt29cu130")
    sha = index.add("scatter", SCATTER, content)
    file = prebuilt({"indexes": [index.url]}, sha)
    assert file.name == SCATTER and file.read_bytes() == content


def _page(folder: Path, content: bytes, link: str = SCATTER) -> str:
    """A page of links without hashes; that of another Python's wheel comes first."""
    folder.mkdir()
    other = SCATTER.replace("cp312", "cp310")
    (folder / other).write_bytes(b"another wheel")
    (folder / SCATTER).write_bytes(content)
    page = folder / "torch-2.9.1+cu130.html"
    page.write_text("".join(f'<a href="{name}">{name}</a><br>' for name in (other, link)))
    return page.as_uri()


@pytest.mark.parametrize("link", [SCATTER, SCATTER.replace("+", "%2B")])
def test_a_wheel_of_a_page_of_links(
    index: Index, tmp_path: Path, link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = wheel_bytes("scatter", "2.1.2+pt29cu130")
    page = _page(tmp_path / "pages", content, link)
    index.add("scatter", SCATTER, b"what the configured index has does not count")
    hashed: list[str] = []
    sha256_of = fetch.sha256_of

    def noted(path: Path) -> str:
        hashed.append(path.name)
        return sha256_of(path)

    monkeypatch.setattr(fetch, "sha256_of", noted)
    file = prebuilt({"indexes": [index.url]}, sha256(content), page=page)
    assert file.name == SCATTER and file.read_bytes() == content
    # The page announces no hash: only the file with all the words of the name was downloaded.
    assert hashed == [SCATTER] and index.requested == []


def test_a_page_through_a_mirror(tmp_path: Path) -> None:
    content = wheel_bytes("scatter", "2.1.2+pt29cu130")
    _page(tmp_path / "pages", content)
    mirror = f"{(tmp_path / 'pages').as_uri()}/"
    settings = {"source_mirrors": {"https://pages.example/whl/": mirror}}
    page = "https://pages.example/whl/torch-2.9.1+cu130.html"
    assert prebuilt(settings, sha256(content), page=page).read_bytes() == content


def test_a_page_that_has_other_bytes_only(tmp_path: Path) -> None:
    page = _page(tmp_path / "pages", b"other bytes")
    with pytest.raises(ProgramError, match="No wheel of scatter .* is the one that is declared"):
        prebuilt({}, "0" * 64, page=page)
    assert not Path("source").exists()


def test_a_page_out_of_reach_says_which_and_what_would_help() -> None:
    page = unused_address().replace("simple", "torch-2.9.1+cu130.html")
    with pytest.raises(ProgramError) as raised:
        prebuilt({}, "0" * 64, page=page)
    message = str(raised.value)
    assert "torch-2.9.1+cu130.html" in message and "[cuda-wheels].source_mirrors" in message
    assert "s3cret" not in message and "[python-repos]" not in message


def test_a_wheel_that_leads_out_of_its_folder(index: Index) -> None:
    content = zip_bytes({**WHEEL, "../outside.py": "x"})
    sha = index.add("cumm", "cumm-0.8.2-py3-none-any.whl", content)
    assert "../outside.py" in wheel_failure({"indexes": [index.url]}, sha)
    assert not Path("outside.py").exists()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(tar_bytes({"top/a": "x", "top/b/c": "y"}), id="tar.gz"),
        pytest.param(tar_bytes({"top/a": "x", "top/b/c": "y"}, suffix="xz"), id="tar.xz"),
        pytest.param(zip_bytes({"top/a": "x", "top/b/c": "y"}), id="zip"),
        pytest.param(zip_bytes({"a": "x", "b/c": "y"}), id="no-top-directory"),
    ],
)
def test_archive(tmp_path: Path, content: bytes) -> None:
    archive = tmp_path / "download"
    archive.write_bytes(content)
    tree = run(kind="archive", url=archive.as_uri(), sha256=sha256(content))
    assert {str(p.relative_to(tree)) for p in tree.rglob("*") if p.is_file()} == {"a", "b/c"}


def test_archive_over_http(index: Index) -> None:
    sha = index.add("x", "x.zip", zip_bytes({"x/a": "1"}))
    url = index.url.replace("/simple", "/files/x/x.zip")
    assert (run(kind="archive", url=url, sha256=sha) / "a").read_text() == "1"


def test_archive_through_the_longest_mirror(tmp_path: Path) -> None:
    archive = tmp_path / "deep/x.zip"
    archive.parent.mkdir()
    archive.write_bytes(zip_bytes({"x/a": "1"}))
    mirrors = {
        "https://a.example/": "https://b.example/",
        "https://a.example/deep/": f"{archive.parent.as_uri()}/",
    }
    tree = run(
        {"source_mirrors": mirrors},
        kind="archive",
        url="https://a.example/deep/x.zip",
        sha256=sha256(archive.read_bytes()),
    )
    assert (tree / "a").read_text() == "1"


def archive_failure(url: str, sha: str) -> str:
    with pytest.raises(ProgramError) as raised:
        run(kind="archive", url=url, sha256=sha)
    assert not Path("source").exists()
    assert "s3cret" not in str(raised.value)
    return str(raised.value)


def test_archive_with_a_wrong_hash_is_not_unpacked(index: Index) -> None:
    sha = index.add("x", "x.zip", zip_bytes({"x/a": "1"}))
    message = archive_failure(index.url.replace("/simple", "/files/x/x.zip"), "0" * 64)
    assert "0" * 64 in message and sha in message


def test_archive_not_found(index: Index) -> None:
    message = archive_failure(index.url.replace("/simple", "/files/x/x.zip"), "0" * 64)
    assert "Downloading x.zip from 127.0.0.1" in message and "404" in message


def test_missing_local_archive(tmp_path: Path) -> None:
    assert "does not exist" in archive_failure((tmp_path / "none.zip").as_uri(), "0" * 64)


def test_address_of_no_archive() -> None:
    assert "no address of an archive" in archive_failure("git+https://example.org/x", "0" * 64)


@pytest.mark.parametrize(
    "url",
    ["http://[::1/x.zip", "http://127.0.0.1:99999/x.zip", "http://", "https:///x.zip", "x.zip"],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ProgramError, match="is no address"):
        run({}, kind="archive", url=url, sha256="0" * 64)
