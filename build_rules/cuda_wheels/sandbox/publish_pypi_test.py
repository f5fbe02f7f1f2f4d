from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.audit import fake_wheelhouse as fake
from cuda_wheels.audit.fake_lies import LIES
from cuda_wheels.sandbox import credentials, publish_pypi
from cuda_wheels.sandbox.credentials import Credentials
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.publish_pypi import PackageIndex
from cuda_wheels.sandbox.servers_testutil import PASSWORD, USER, Server, package_index
from cuda_wheels.sandbox.wheel_testutil import refusal_of
from cuda_wheels.tables.publish_addresses import TWINE

NOBODY = Credentials()
ROW = "linux-amd64/cu130/torch2.11.0-cp312"
RELEASE = "cuda_wheelhouse-2026.11.30{}+linux.amd64.cu130.torch2.11.0.cp312-py3-none-any.whl"
WHEELS = [
    "spconv-2.3.8+cu130.torch2.11.0-cp312-cp312-manylinux_2_28_x86_64.whl",
    "torch_scatter-2.1.2+cu130.torch2.11.0-cp312-cp312-manylinux_2_28_x86_64.whl",
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with package_index(tmp_path / "server") as server:
        yield server


def index(server: Server, scratch: Path, known: Credentials = NOBODY) -> PackageIndex:
    scratch.mkdir(exist_ok=True)
    return PackageIndex(f"{server.url}/", f"{server.url}/simple/", known, scratch)


def publish(house: Path, server: Server, date: str = "2026.11.30", **more: Any) -> str:
    known = more.pop("known", NOBODY)
    scratch = house.parent / f"scratch-{os.getpid()}"
    return publish_pypi.publish(house, index(server, scratch, known), ROW, date=date, **more)


def files(server: Server) -> list[str]:
    return sorted(path.name for path in server.files.iterdir())


def times(server: Server) -> dict[str, int]:
    """A file that is sent again has another time."""
    return {path.name: path.stat().st_mtime_ns for path in server.files.iterdir()}


def test_wheels_and_a_release_are_uploaded(tmp_path: Path, server: Server) -> None:
    house = fake.write_wheelhouse(tmp_path)
    assert publish(house, server).endswith("as 2026.11.30.")
    assert files(server) == [RELEASE.format(""), *WHEELS]
    assert all((server.files / name).read_bytes() == (house / name).read_bytes() for name in WHEELS)


def test_the_same_again_is_nothing(tmp_path: Path, server: Server) -> None:
    house = fake.write_wheelhouse(tmp_path)
    publish(house, server)
    before = times(server)
    assert "already as 2026.11.30" in publish(house, server, date="2026.12.01")
    assert times(server) == before


def test_another_release_of_a_day_sends_only_what_is_new(tmp_path: Path, server: Server) -> None:
    house = fake.write_wheelhouse(tmp_path)
    publish(house, server)
    fake.write_requirements(house, f"six==1.17.0 --hash=sha256:{'0' * 64}\n")
    before, said = times(server), list[str]()
    assert publish(house, server, say=said.append).endswith("as 2026.11.30.1.")
    assert said == []
    assert times(server).items() > before.items()
    assert RELEASE.format(".1") in files(server)


def test_a_file_with_another_hash_is_named_and_nothing_is_sent(
    tmp_path: Path, server: Server
) -> None:
    publish(fake.write_wheelhouse(tmp_path / "a", content="x"), server)
    before = {name: (server.files / name).read_bytes() for name in files(server)}
    other = fake.write_wheelhouse(tmp_path / "b", content="y")
    with pytest.raises(ProgramError) as caught:
        publish(other, server)
    assert all(name in str(caught.value) for name in WHEELS)
    assert fake.sha256(other / WHEELS[0]) in str(caught.value)
    assert {name: (server.files / name).read_bytes() for name in files(server)} == before


def test_an_index_that_tells_no_hash_is_asked_for_the_file(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = fake.write_wheelhouse(tmp_path)
    publish(house, server)
    here = index(server, tmp_path / "scratch")
    (file,) = here._files("spconv")
    assert file.digests["sha256"] == fake.sha256(house / WHEELS[0])
    file.digests.clear()
    monkeypatch.setattr(PackageIndex, "_files", lambda self, project: [file])
    assert here.digest(WHEELS[0]) == fake.sha256(house / WHEELS[0])


def test_a_dry_run_says_what_would_go_where(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    house = fake.write_wheelhouse(tmp_path)
    shutil.copy(house / WHEELS[0], server.files)
    text = publish(house, server, dry_run=True)
    said = capsys.readouterr().out
    assert f"{WHEELS[0]} is there already" in said and f"{WHEELS[1]} would be uploaded" in said
    assert f"would be added to {server.url}/ as 2026.11.30" in text
    assert files(server) == [WHEELS[0]]
    publish(house, server)
    assert "nothing would be done" in publish(house, server, dry_run=True)


def test_a_killed_upload_is_completed_by_the_next(tmp_path: Path, server: Server) -> None:
    house = fake.write_wheelhouse(tmp_path)

    def killed() -> None:
        def say(text: str) -> None:
            if WHEELS[1] in text:
                os.kill(os.getpid(), signal.SIGKILL)

        publish(house, server, say=say)

    process = multiprocessing.get_context("fork").Process(target=killed)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    # Without the release nobody selects what is half there.
    assert files(server) == [WHEELS[0]]
    before = times(server)
    publish(house, server)
    assert files(server) == [RELEASE.format(""), *WHEELS]
    assert times(server).items() > before.items()


def test_publishers_at_once_lose_nothing(tmp_path: Path, server: Server) -> None:
    houses = []
    for number in range(4):
        house = fake.write_wheelhouse(tmp_path / str(number))
        fake.write_requirements(house, f"six==1.{number} --hash=sha256:{'0' * 64}\n")
        houses.append(house)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=publish, args=(one, server)) for one in houses]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    names = [RELEASE.format(number) for number in ("", ".1", ".2", ".3")]
    assert sorted(files(server)) == sorted([*names, *WHEELS])
    there = [
        index(server, tmp_path / "s").release_of(ROW, publish_pypi.identity(one)) for one in houses
    ]
    assert sorted(map(str, there)) == [f"2026.11.30{number}" for number in ("", ".1", ".2", ".3")]


def test_an_index_whose_disk_is_full_has_no_release(tmp_path: Path) -> None:
    large = fake.write_wheelhouse(tmp_path / "large", content="y" * 400_000)
    with package_index(tmp_path / "server", disk="600k") as server:
        for _ in range(2):
            # The server keeps what it could write of the wheel, which is told by its hash.
            with pytest.raises(ProgramError) as caught:
                publish(large, server)
            assert WHEELS[1] in str(caught.value) and "broke off" in str(caught.value)
        assert index(server, tmp_path / "scratch").dates(ROW) == []


@pytest.mark.parametrize("known", [NOBODY, Credentials(USER, "wrong-battery")])
def test_a_refused_password_is_told_and_not_printed(tmp_path: Path, known: Credentials) -> None:
    house = fake.write_wheelhouse(tmp_path)
    with package_index(tmp_path / "server", password=True) as server:
        with pytest.raises(ProgramError) as caught:
            publish(house, server, known=known)
        assert "TWINE_PASSWORD" in str(caught.value) and "keyring set" in str(caught.value)
        assert "wrong-battery" not in str(caught.value)
        assert files(server) == []
        publish(house, server, known=Credentials(USER, PASSWORD))
        assert len(files(server)) == 3
        assert PASSWORD not in server.said()


def test_where_credentials_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    import keyring
    import keyring.backend
    import keyring.backends.fail

    class Ring(keyring.backend.KeyringBackend):
        priority = 1

        def get_password(self, service: str, username: str) -> str | None:
            return "of-the-ring" if (service, username) == ("http://x/", "ada") else None

        def set_password(self, service: str, username: str, password: str) -> None: ...

        def delete_password(self, service: str, username: str) -> None: ...

    before = keyring.get_keyring()
    try:
        for name in ("TWINE_USERNAME", "TWINE_PASSWORD"):
            monkeypatch.delenv(name, raising=False)
        keyring.set_keyring(keyring.backends.fail.Keyring())
        assert not credentials.find("http://x/", TWINE)
        keyring.set_keyring(Ring())
        monkeypatch.setenv("TWINE_USERNAME", "ada")
        found = credentials.find("http://x/", TWINE)
        assert (found.user, found.password) == ("ada", "of-the-ring")
        assert "of-the-ring" not in repr(found)
        monkeypatch.setenv("TWINE_PASSWORD", "of-the-shell")
        assert credentials.find("http://x/", TWINE).password == "of-the-shell"
    finally:
        keyring.set_keyring(before)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with package_index(tmp_path / "server") as server:
        pass
    with pytest.raises(ProgramError, match="cannot be used"):
        publish(fake.write_wheelhouse(tmp_path), server)


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with package_index(tmp_path_factory.mktemp("one") / "server") as server:
        yield server


@pytest.mark.parametrize(("lie", "finding"), LIES, ids=[lie.__name__ for lie, _ in LIES])
def test_a_wheelhouse_that_lies_is_refused(
    tmp_path: Path, one_server: Server, lie: Callable[[Path], None], finding: str
) -> None:
    publish(fake.write_wheelhouse(tmp_path / "good"), one_server)
    house = fake.write_wheelhouse(tmp_path / "bad")
    lie(house)
    before = one_server.said().count("POST")
    with pytest.raises(ProgramError) as caught:
        publish(house, one_server)
    assert finding in str(caught.value)
    assert one_server.said().count("POST") == before


def test_pip_installs_a_release_by_its_name(tmp_path: Path, server: Server) -> None:
    tags = {"accel": "cpu", "cuda_arch": "", "torch": ""}
    house = fake.write_wheelhouse(tmp_path, tags, "cpu", "py3")
    row = "linux-amd64/cpu/torch-cp312"
    scratch = tmp_path / "scratch"
    publish_pypi.publish(house, index(server, scratch), row, date="2026.01.05")
    fake.write_wheel(server.files, *fake.LEAF)
    venv.create(tmp_path / "venv", with_pip=True)
    pip = [str(tmp_path / "venv/bin/python"), "-m", "pip"]
    options = ["--isolated", "--no-cache-dir", "--index-url", f"{server.url}/simple/"]
    release = "cuda-wheelhouse==2026.1.5+linux.amd64.cpu.torch.cp312"
    subprocess.run([*pip, "install", *options, release], check=True)
    listed = subprocess.run([*pip, "list", "--format=json"], capture_output=True, check=True)
    found = {one["name"].replace("_", "-"): one["version"] for one in json.loads(listed.stdout)}
    assert (found["spconv"], found["torch-scatter"]) == ("2.3.8+cpu", "2.1.2+cpu")
    assert found["leaf"] == "1.0"


def test_the_program_names_what_its_request_lacks(tmp_path: Path) -> None:
    assert "upload" in refusal_of("publish_pypi", tmp_path)
