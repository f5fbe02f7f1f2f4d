from __future__ import annotations

import json
import multiprocessing
import os
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.audit import fake_wheelhouse as fake
from cuda_wheels.audit.fake_lies import LIES
from cuda_wheels.sandbox import publish_oci
from cuda_wheels.sandbox.credentials import Credentials
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.publish_oci import Repository
from cuda_wheels.sandbox.servers_testutil import PASSWORD, USER, Server, oci_registry, open_registry
from cuda_wheels.sandbox.wheel_testutil import refusal_of

NOBODY = Credentials()
ROW = "linux-amd64/cu130/torch2.11.0-cp312"
TAG = "linux-amd64-cu130-torch2.11.0-cp312-2026.11.30"
WHEEL = "spconv-2.3.8+cu130.torch2.11.0-cp312-cp312-manylinux_2_28_x86_64.whl"
server = open_registry  # a fixture


def repository(server: Server, scratch: Path, known: Credentials = NOBODY) -> Repository:
    scratch.mkdir(exist_ok=True)
    return Repository(server.url, "team/wheels", known, scratch)


def publish(house: Path, server: Server, date: str = "2026.11.30", **more: Any) -> str:
    scratch = house.parent / f"scratch-{os.getpid()}"
    here = repository(server, scratch, more.pop("known", NOBODY))
    return publish_oci.publish(house, here, ROW, date=date, **more)


def get(server: Server, path: str) -> bytes:
    request = urllib.request.Request(
        f"{server.url}/v2/team/wheels/{path}", headers={"Accept": publish_oci.MANIFEST_TYPE}
    )
    with urllib.request.urlopen(request) as answer:
        return bytes(answer.read())


def tags(server: Server) -> list[str]:
    return sorted(json.loads(get(server, "tags/list"))["tags"])


def pulled(server: Server, tag: str) -> dict[str, bytes]:
    """Path -> content of a release, each blob as the registry gives it out."""
    manifest = json.loads(get(server, f"manifests/{tag}"))
    return {
        layer["annotations"]["org.opencontainers.image.title"]: get(
            server, f"blobs/{layer['digest']}"
        )
        for layer in manifest["layers"]
    }


def test_files_are_layers_and_tags_are_annotations(tmp_path: Path, server: Server) -> None:
    house = fake.write_wheelhouse(tmp_path)
    text = publish(house, server)
    (tag,) = tags(server)
    assert tag.startswith(TAG) and text.endswith(f"as 2026.11.30. Its tag: {tag}")
    found = pulled(server, tag)
    names = {str(path.relative_to(house)) for path in house.rglob("*") if path.is_file()}
    assert found.keys() == names
    assert found[WHEEL] == (house / WHEEL).read_bytes()
    assert json.loads(found["manifest.json"])["date"] == "2026.11.30"
    document = json.loads(get(server, f"manifests/{tag}"))
    assert document["annotations"] == {
        **json.loads((house / "manifest.json").read_text())["tags"],
        "verified": '{"9.0": "runs"}',
        "glibc": "2.28",
        "org.opencontainers.image.version": "2026.11.30",
    }
    types = {
        one["annotations"]["org.opencontainers.image.title"]: one for one in document["layers"]
    }
    assert types[WHEEL]["mediaType"] == "application/vnd.pypa.wheel"
    # What was packaged is as it was.
    assert "date" not in json.loads((house / "manifest.json").read_text())


def test_the_same_again_is_nothing(tmp_path: Path, server: Server) -> None:
    house = fake.write_wheelhouse(tmp_path)
    publish(house, server)
    said: list[str] = []
    assert "already as 2026.11.30" in publish(house, server, date="2026.12.01", say=said.append)
    assert said == [] and len(tags(server)) == 1


def test_what_a_registry_has_is_not_sent_again(tmp_path: Path, server: Server) -> None:
    house = fake.write_wheelhouse(tmp_path)
    publish(house, server)
    fake.write_requirements(house, f"six==1.17.0 --hash=sha256:{'0' * 64}\n")
    said: list[str] = []
    assert "as 2026.11.30.1. " in publish(house, server, say=said.append)
    sent = {line.split()[1] for line in said}
    assert sent == {"manifest.json", "SHA256SUMS", "requirements-pypi.txt", "sbom.cdx.json"}
    assert len(tags(server)) == 2


def test_a_large_file_is_sent_in_pieces(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = fake.write_wheelhouse(tmp_path, content="x" * 10_000)
    monkeypatch.setattr(publish_oci, "CHUNK", 4096)
    sent: list[tuple[str, int]] = []
    client = repository(server, tmp_path / "scratch")._client
    request = type(client).do_request

    def recorded(self: Any, url: str, method: str = "GET", data: Any = None, **more: Any) -> Any:
        sent.append((method, len(data or b"")))
        return request(self, url, method, data=data, **more)

    monkeypatch.setattr(type(client), "do_request", recorded)
    publish(house, server)
    pieces = [size for method, size in sent if method == "PATCH"]
    # Two wheels of more than 10 kB each.
    assert len(pieces) >= 6 and max(pieces) == 4096
    assert all(size <= 4096 for method, size in sent)
    (tag,) = tags(server)
    assert pulled(server, tag)[WHEEL] == (house / WHEEL).read_bytes()


def test_a_dry_run_says_what_would_go_where(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    house = fake.write_wheelhouse(tmp_path)
    text = publish(house, server, dry_run=True)
    said = capsys.readouterr().out
    assert f"{WHEEL} would be sent" in said
    assert f"would be added to oci:{server.url}/team/wheels as 2026.11.30" in text
    assert not list(server.files.rglob("*"))
    publish(house, server)
    assert "nothing would be done" in publish(house, server, dry_run=True)


def test_a_killed_upload_is_completed_by_the_next(tmp_path: Path, server: Server) -> None:
    house = fake.write_wheelhouse(tmp_path)

    def killed() -> None:
        def say(text: str) -> None:
            if "SHA256SUMS" in text:
                os.kill(os.getpid(), signal.SIGKILL)

        publish(house, server, say=say)

    process = multiprocessing.get_context("fork").Process(target=killed)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert repository(server, tmp_path / "scratch").tags() == []
    said: list[str] = []
    publish(house, server, say=said.append)
    # The wheels, which are larger, were there already.
    assert not any(".whl" in line for line in said) and any("SHA256SUMS" in one for one in said)
    assert len(tags(server)) == 1


def test_a_file_that_the_registry_lost_is_sent_again(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = fake.write_wheelhouse(tmp_path)
    here = repository(server, tmp_path / "scratch")
    digest = f"sha256:{fake.sha256(house / WHEEL)}"
    has, answers = Repository.has, [True]
    monkeypatch.setattr(publish_oci, "PAUSE_S", 0)
    monkeypatch.setattr(
        Repository,
        "has",
        lambda self, layer: (
            answers.pop() if layer["digest"] == digest and answers else has(self, layer)
        ),
    )
    publish_oci.publish(house, here, ROW, date="2026.11.30")
    (tag,) = tags(server)
    assert pulled(server, tag)[WHEEL] == (house / WHEEL).read_bytes()


def test_publishers_at_once_lose_nothing(tmp_path: Path, server: Server) -> None:
    houses = [fake.write_wheelhouse(tmp_path / str(one), content=str(one)) for one in range(4)]
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=publish, args=(one, server)) for one in houses]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    found = {pulled(server, tag)[WHEEL] for tag in tags(server)}
    assert found == {(house / WHEEL).read_bytes() for house in houses}


def test_a_registry_whose_disk_is_full_has_no_half_release(tmp_path: Path) -> None:
    small = fake.write_wheelhouse(tmp_path / "small")
    large = fake.write_wheelhouse(tmp_path / "large", content="y" * 400_000)
    with oci_registry(tmp_path / "server", disk="600k") as server:
        publish(small, server)
        before = tags(server)
        with pytest.raises(ProgramError, match="answers|cannot be used"):
            publish(large, server)
        assert tags(server) == before


@pytest.mark.parametrize("known", [NOBODY, Credentials(USER, "wrong-battery")])
def test_a_refused_password_is_told_and_not_printed(tmp_path: Path, known: Credentials) -> None:
    house = fake.write_wheelhouse(tmp_path)
    with oci_registry(tmp_path / "server", password=True) as server:
        with pytest.raises(ProgramError) as caught:
            publish(house, server, known=known)
        assert "ORAS_PASS" in str(caught.value) and "keyring set 127.0.0.1" in str(caught.value)
        assert "wrong-battery" not in str(caught.value)
        publish(house, server, known=Credentials(USER, PASSWORD))
        right = repository(server, tmp_path / "scratch", Credentials(USER, PASSWORD))
        assert len(right.tags()) == 1
        assert PASSWORD not in server.said()


def test_a_registry_that_is_not_there(tmp_path: Path) -> None:
    with oci_registry(tmp_path / "server") as server:
        pass
    with pytest.raises(ProgramError, match="cannot be used"):
        publish(fake.write_wheelhouse(tmp_path), server)


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with oci_registry(tmp_path_factory.mktemp("one") / "server") as server:
        yield server


@pytest.mark.parametrize(("lie", "finding"), LIES, ids=[lie.__name__ for lie, _ in LIES])
def test_a_wheelhouse_that_lies_is_refused(
    tmp_path: Path, one_server: Server, lie: Callable[[Path], None], finding: str
) -> None:
    publish(fake.write_wheelhouse(tmp_path / "good"), one_server)
    house = fake.write_wheelhouse(tmp_path / "bad")
    lie(house)
    before = one_server.said().count("PUT")
    with pytest.raises(ProgramError) as caught:
        publish(house, one_server)
    assert finding in str(caught.value)
    assert one_server.said().count("PUT") == before


def test_the_program_names_what_its_request_lacks(tmp_path: Path) -> None:
    assert "repository" in refusal_of("publish_oci", tmp_path)
