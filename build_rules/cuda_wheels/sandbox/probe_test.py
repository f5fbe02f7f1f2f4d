from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cuda_wheels.sandbox import probe, session_settings
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.testutil import GCC, GXX, script

SETTINGS = {"indexes": ["https://u:p@example.org/simple"], "find_links": [], "ca_certs": None}


def fake_gxx(folder: Path, *, version: str = "12.2.0", real: str = "cc1plus v1") -> Path:
    """A driver with the three programs that it would run."""
    for name in ("cc1plus", "as", "ld"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(real if name == "cc1plus" else name)
    driver = script(
        folder / "g++",
        f'case "$1" in -print-prog-name=*) echo {folder}/${{1#*=}};; *) echo {version};; esac',
    )
    return Path(driver)


def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], **request: object) -> dict:
    probe.main({"cache": str(tmp_path / "cache"), "settings": None, "cuda_home": None, **request})
    return json.loads(capsys.readouterr().out)


def test_settings_are_private_and_written_only_when_changed(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "settings.json"
    assert probe.save_settings(tmp_path / "cache", SETTINGS)
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text()) == SETTINGS
    assert not probe.save_settings(tmp_path / "cache", SETTINGS)
    assert probe.save_settings(tmp_path / "cache", {**SETTINGS, "indexes": []})
    assert json.loads(path.read_text())["indexes"] == []
    assert [p.name for p in path.parent.iterdir()] == ["settings.json"]


def test_settings_that_others_can_read_are_written_again(tmp_path: Path) -> None:
    probe.save_settings(tmp_path, SETTINGS)
    (tmp_path / "settings.json").chmod(0o644)
    assert probe.save_settings(tmp_path, SETTINGS)
    assert (tmp_path / "settings.json").stat().st_mode & 0o777 == 0o600


def test_settings_that_no_session_uses_are_forgotten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, cache, links = tmp_path / "settings", tmp_path / "cache", tmp_path / "links"
    for directory in (settings, cache, links):
        directory.mkdir()
    monkeypatch.setattr(session_settings, "LINKS", str(links))
    (links / "mine").symlink_to(settings)
    stale = (settings / "theirs.json", settings / ".theirs.json.half", cache / "settings.json")
    for path in (settings / "mine.json", *stale, settings / "recent.json", cache / "other.json"):
        path.write_text(json.dumps(SETTINGS))
        path.chmod(0o600)
        if path.name != "recent.json":
            os.utime(path, (1, 1))
    run(tmp_path, capsys, settings=SETTINGS)
    assert sorted(p.name for p in settings.iterdir()) == ["mine.json", "recent.json"]
    assert not (cache / "settings.json").exists() and (cache / "other.json").exists()
    # It was used now, so it stays for another month.
    assert (settings / "mine.json").stat().st_mtime > 1


def test_without_settings_the_file_stays_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, capsys)
    assert not (tmp_path / "cache" / "settings.json").exists()


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(ProgramError, match=r"cannot be written.*\n.*named_caches_dir"):
        probe.main({"cache": str(tmp_path / "cache"), "settings": SETTINGS})


def test_facts_of_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(tmp_path, capsys)
    assert found["machine"] == os.uname().machine
    assert found["python"]["version"].startswith("3.")
    assert found["disk_free_gb"] > 0
    assert found["cuda_home"] is None


def test_absent_things_are_null(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = run(tmp_path, capsys, cuda_home=str(tmp_path / "none"))
    assert [found[name] for name in ("gcc", "gxx", "git", "cuda_home")] == [None] * 4
    assert found["gpus"] == []
    assert [found[name] for name in ("nvidia_smi", "driver", "driver_cuda")] == [None] * 3


def test_compiler_is_found_by_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gxx = fake_gxx(tmp_path / "bin", version="13.3.1")
    found = run(tmp_path, capsys, compilers={"gcc": "no-such-compiler", "gxx": str(gxx)})
    assert found["gxx"]["path"] == str(gxx)
    assert found["gxx"]["version"] == "13.3.1"
    # It tells nothing of what it would link.
    assert found["gxx"]["links_cxx"] is True
    assert found["gcc"] is None


@pytest.mark.parametrize(("name", "links"), [(GXX, True), (GCC, False)], ids=["g++", "gcc"])
def test_a_c_compiler_does_not_link_the_library_of_cxx(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, links: bool
) -> None:
    wrapper = script(tmp_path / "g++", f'exec {name} -Wl,--as-needed "$@"')
    for command in (name, wrapper):
        found = run(tmp_path, capsys, compilers={"gcc": GCC, "gxx": command})
        assert found["gxx"]["links_cxx"] is links
        assert "links_cxx" not in found["gcc"]


def test_fingerprint_follows_the_real_compiler(tmp_path: Path) -> None:
    """A distribution's update may replace cc1plus alone."""

    def digest() -> str:
        facts = probe.compiler_facts(
            str(tmp_path / "bin/g++"), probe.GXX_PARTS, probe.FileHashes(tmp_path)
        )
        assert facts is not None
        return facts["sha256"]

    fake_gxx(tmp_path / "bin", real="cc1plus v1")
    first = digest()
    assert digest() == first
    fake_gxx(tmp_path / "bin", real="cc1plus v1.1")
    assert digest() != first


def test_a_driver_that_fails_is_absent(tmp_path: Path) -> None:
    broken = script(tmp_path / "g++", "exit 1")
    assert probe.compiler_facts(broken, (), probe.FileHashes(tmp_path)) is None


def test_hashes_are_remembered_until_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("one")
    hashes = probe.FileHashes(tmp_path)
    first = hashes.sha256(file)
    hashes.save()

    def unreadable(*args: object, **kwargs: object) -> None:
        raise AssertionError("the file was read again")

    with monkeypatch.context() as patched:
        patched.setattr(probe.hashlib, "file_digest", unreadable)
        assert probe.FileHashes(tmp_path).sha256(file) == first
    file.write_text("three")
    assert probe.FileHashes(tmp_path).sha256(file) != first


def test_a_header_is_known_by_all_that_it_is_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    monkeypatch.setattr(probe, "INCLUDE_DIRS", (first, second))
    content = {"google/map": ["google/map", "sparse"], "other/map": ["other"]}

    def facts() -> dict[str, str]:
        return probe.header_facts(content, probe.FileHashes(tmp_path))

    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    assert facts() == {}
    write(second / "google/map", "#include <sparse/inner/map>")
    write(second / "google/unrelated", "of another library")
    write(second / "sparse/inner/map", "one")
    before = facts()
    assert list(before) == ["google/map"]
    write(second / "google/unrelated", "changed")
    assert facts() == before
    write(second / "sparse/inner/map", "another")
    assert facts() != before
    # The compiler takes the first one that it finds.
    write(first / "google/map", "of the first directory")
    write(second / "sparse/inner/map", "one")
    assert facts() != before


@pytest.mark.parametrize("content", ["", "[1]", "{broken"])
def test_a_damaged_hash_file_is_ignored(tmp_path: Path, content: str) -> None:
    (tmp_path / probe.HASHES_FILE).write_text(content)
    assert len(probe.FileHashes(tmp_path).sha256(tmp_path / probe.HASHES_FILE)) == 64


def test_cuda_home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script(tmp_path / "cuda/bin/nvcc", "echo Cuda compilation tools, release 13.0, V13.0.88")
    found = run(tmp_path, capsys, cuda_home=str(tmp_path / "cuda"))["cuda_home"]
    assert found["nvcc_version"] == "13.0.88"
    script(tmp_path / "cuda/nvvm/bin/cicc", "true")
    again = run(tmp_path, capsys, cuda_home=str(tmp_path / "cuda"))["cuda_home"]
    assert again["sha256"] != found["sha256"]


@pytest.mark.parametrize(
    ("listing", "banner", "expected"),
    [
        pytest.param(
            # As an H200 tells it.
            "echo 9.0, 580.159.04",
            "| NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |",
            (["9.0"], "580.159.04", "13.0"),
            id="one",
        ),
        pytest.param(
            "echo 12.0, 570.1; echo 9.0, 570.1; echo 9.0, 570.1",
            "CUDA Version: 12.8",
            (["9.0", "12.0"], "570.1", "12.8"),
            id="several",
        ),
        pytest.param(
            "echo 9.0, 590.44.01",
            "KMD Version: 590.44.01  CUDA UMD Version: 13.1",
            (["9.0"], "590.44.01", "13.1"),
            id="newer banner",
        ),
        pytest.param(
            "echo No devices were found", "No devices were found", ([], None, None), id="none"
        ),
        pytest.param(
            "echo 9.0, 580.95; exit 9", "CUDA Version: 13.0", ([], None, "13.0"), id="broken"
        ),
        pytest.param(
            "echo 'Field \"compute_cap\" is not a valid field to query.'; exit 2",
            "| Driver Version: 470.82.01  CUDA Version: 11.4 |",
            ([], "470.82.01", "11.4"),
            id="too old to tell",
        ),
        pytest.param(
            "echo 9.0, 580.95", "CUDA Version: N/A", (["9.0"], "580.95", None), id="no libcuda"
        ),
    ],
)
def test_gpus_and_driver(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    listing: str,
    banner: str,
    expected: tuple[list[str], str | None, str | None],
) -> None:
    path = script(
        tmp_path / "nvidia-smi", f'if [ $# = 0 ]; then echo "{banner}"; exit; fi; {listing}'
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    found = probe.gpu_facts()
    assert (found["gpus"], found["driver"], found["driver_cuda"]) == expected
    assert found["nvidia_smi"] == path


def test_a_hanging_driver_does_not_hang_the_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "nvidia-smi", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(probe, "COMMAND_TIMEOUT_S", 0.2)
    found = probe.gpu_facts()
    assert (found["gpus"], found["driver"], found["driver_cuda"]) == ([], None, None)


def test_free_disk_of_a_cache_that_is_not_there_yet(tmp_path: Path) -> None:
    assert probe.free_disk_gb(tmp_path / "a/b/c") == pytest.approx(
        probe.free_disk_gb(tmp_path), abs=1.0
    )


def test_the_finished_build_environments_are_named(tmp_path: Path) -> None:
    assert probe.environments(tmp_path) == []
    for name in ("0123456789abcdef-cp312-1217066f", ".0123456789abcdef-cp312-1217066f.half"):
        (tmp_path / "envs" / name).mkdir(parents=True)
    assert probe.environments(tmp_path) == ["0123456789abcdef-cp312-1217066f"]


def test_the_build_environments_of_an_image_are_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "BAKED", tmp_path / "image")
    for name in ("cache/envs/b", "cache/envs/c", "image/envs/a", "image/envs/b"):
        (tmp_path / name).mkdir(parents=True)
    assert probe.environments(tmp_path / "cache") == ["a", "b", "c"]


def test_an_image_s_own_compilers_are_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gxx = fake_gxx(tmp_path / "image")
    described = {"gcc": str(gxx), "gxx": str(gxx), "cuda_home": None, "ca_certs": None}
    (tmp_path / "image.json").write_text(json.dumps(described))
    monkeypatch.setattr(probe.image_facts, "__defaults__", (tmp_path / "image.json",))
    found = run(
        tmp_path, capsys, compilers={"gcc": "no-gcc", "gxx": "no-g++"}, cuda_home="/opt/cuda"
    )
    assert found["image"] == described
    assert found["gcc"]["path"] == found["gxx"]["path"] == str(gxx)
    assert found["cuda_home"] is None


def test_a_machine_that_is_no_image_says_so(tmp_path: Path) -> None:
    assert probe.image_facts(tmp_path / "image.json") is None


def test_an_image_s_broken_description_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "image.json").write_text("{")
    with pytest.raises(ProgramError, match="cannot be read"):
        probe.image_facts(tmp_path / "image.json")


def test_files_of_the_user_s_machine_are_no_settings_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    web = "https://example.org/simple"
    settings = {
        "indexes": [web, (tmp_path / "wheels").as_uri(), "file:///nowhere/simple"],
        "find_links": [str(tmp_path / "wheels"), "/nowhere/wheels", "https://example.org/links"],
        "ca_certs": "/nowhere/ca.pem",
        "proxies": {"https_proxy": "http://proxy"},
    }
    assert probe.settings_here(settings, {"ca_certs": "/etc/site.pem"}) == {
        "indexes": [web, (tmp_path / "wheels").as_uri()],
        "find_links": [str(tmp_path / "wheels"), "https://example.org/links"],
        "ca_certs": "/etc/site.pem",
        "proxies": {"https_proxy": "http://proxy"},
    }
    assert probe.settings_here(settings, None)["ca_certs"] is None
    (tmp_path / "ca.pem").touch()
    there = {**settings, "ca_certs": str(tmp_path / "ca.pem")}
    assert probe.settings_here(there, {"ca_certs": "/x"})["ca_certs"] == str(tmp_path / "ca.pem")
