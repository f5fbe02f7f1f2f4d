"""Against the Docker daemon of this machine and a registry of the test's own."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.sandbox import daemon, image_build, image_pin, image_publish
from cuda_wheels.sandbox.docker_testutil import LABEL, docker_client, told
from cuda_wheels.sandbox.servers_testutil import Server, oci_registry, open_registry

client = docker_client  # a fixture
registry = open_registry  # a fixture


def context(folder: Path, dockerfile: str = "") -> Path:
    """The smallest image: one file, never the same twice."""
    folder.mkdir()
    (folder / "file").write_text(str(uuid.uuid4()))
    (folder / "Dockerfile").write_text(
        dockerfile or f"FROM scratch\nCOPY file /file\nLABEL {LABEL}\n"
    )
    return folder


def build(client: Any, folder: Path, name: str, fresh: bool = False) -> Any:
    return image_build.build(
        client,
        folder,
        name,
        platform=f"linux/{client.version()['Arch']}",
        network=None,
        log=folder.parent / "build.log",
        fresh=fresh,
    )


def a_name() -> str:
    return f"cuda-wheels-test/amd64-cpu:{uuid.uuid4().hex[:16]}"


def test_an_image_is_built_and_found_by_its_name(client: Any, tmp_path: Path) -> None:
    name = a_name()
    assert image_build.find(client, name) is None
    image = build(client, context(tmp_path / "context"), name)
    found = image_build.find(client, name)
    assert found is not None and found.id == image.id
    assert "COPY file" in (tmp_path / "build.log").read_text()
    # Its layers are used again, unless it shall be fresh.
    assert build(client, tmp_path / "context", name).id == image.id
    assert build(client, tmp_path / "context", name, fresh=True).id != image.id


def test_a_command_that_fails_is_told_with_the_end_of_the_log(client: Any, tmp_path: Path) -> None:
    base = a_name()
    build(client, context(tmp_path / "base"), base)
    # There is no shell in it.
    folder = context(tmp_path / "context", f"FROM {base}\nLABEL {LABEL}\nRUN make it\n")
    name = a_name()
    message = told(lambda: build(client, folder, name))
    assert f"{name} was not built" in message and "RUN make it" in message
    assert image_build.find(client, name) is None
    assert client.api.containers(all=True, filters={"label": LABEL}) == []


def test_a_base_that_is_nowhere_is_told(client: Any, tmp_path: Path) -> None:
    missing = f"127.0.0.1:1/none@sha256:{'0' * 64}"
    folder = context(tmp_path / "context", f"FROM {missing}\n")
    message = told(lambda: build(client, folder, a_name()))
    assert "127.0.0.1:1" in message and "was not built" in message


def test_an_image_of_another_architecture_is_refused_before_it_is_built(client: Any) -> None:
    here = client.version()["Arch"]
    image_build.require_architecture(client, here, "name")
    other = "arm64" if here == "amd64" else "amd64"
    message = told(lambda: image_build.require_architecture(client, other, "toolchain:tag"))
    assert f"toolchain:tag is for {other}" in message and "DOCKER_HOST" in message


def test_what_was_pushed_is_pinned_by_its_digest(
    client: Any, registry: Server, tmp_path: Path
) -> None:
    name = a_name()
    image = build(client, context(tmp_path / "context"), name)
    to = f"{registry.url.removeprefix('http://')}/team"
    published = image_publish.published_name(name, to)
    assert published == f"{to}/{name.rsplit('/', 1)[1]}"
    message = told(lambda: image_pin.published(client, name, to))
    assert "`./pants publish`" in message and "`--local`" in message

    digest = image_publish.push(client, {"name": name, "id": image.id}, published)
    assert digest.startswith("sha256:")
    pinned = image_pin.published(client, name, to)
    assert pinned == f"{to}/amd64-cpu@{digest}"
    assert image_pin.bases(client, [published]) == {published: digest}
    # It is that image, for whoever has nothing but the pin.
    client.images.remove(image.id, force=True)
    assert image_build.find(client, name) is None
    assert client.images.pull(pinned).id == image.id
    # And what is pinned as a base, with its tag beside the digest, is built on, pulled or not.
    base = f"{published}@{digest}"
    folder = context(tmp_path / "next", f"FROM {base}\nCOPY file /next\nLABEL {LABEL}\n")
    first = build(client, folder, a_name())
    assert first.attrs["RootFS"]["Layers"][:-1] == image.attrs["RootFS"]["Layers"]
    for leftover in (first.id, image.id):
        client.images.remove(leftover, force=True)
    assert build(client, folder, a_name()).attrs["RootFS"] == first.attrs["RootFS"]


def test_an_image_of_this_machine_is_pinned_by_its_name(client: Any, tmp_path: Path) -> None:
    name = a_name()
    assert "`./pants package` builds it" in told(lambda: image_pin.local(client, name))
    build(client, context(tmp_path / "context"), name)
    assert image_pin.local(client, name) == name


def test_an_image_that_is_gone_cannot_be_pushed(client: Any) -> None:
    facts = {"name": a_name(), "id": f"sha256:{'0' * 64}"}
    message = told(lambda: image_publish.push(client, facts, "127.0.0.1:1/a:b"))
    assert facts["name"] in message and "`./pants package` builds it again" in message


def test_all_bases_that_have_no_digest_are_told(client: Any) -> None:
    names = ["127.0.0.1:1/one:1", "127.0.0.1:1/two:2"]
    message = told(lambda: image_pin.bases(client, names))
    assert all(name in message for name in names)


def test_a_registry_that_wants_a_password_says_how_to_log_in(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    image = build(client, context(tmp_path / "context"), a_name())
    with oci_registry(tmp_path / "server", password=True) as server:
        place = f"{server.url.removeprefix('http://')}/team/amd64-cpu:1"
        facts = {"name": "it", "id": image.id}
        message = told(lambda: image_publish.push(client, facts, place))
    assert "docker login" in message


def test_a_daemon_that_is_not_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    message = told(daemon.connect)
    assert f"{tmp_path}/docker.sock" in message and "systemctl start docker" in message


def test_an_address_at_which_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://ada:secret@127.0.0.1:1")
    message = told(daemon.connect)
    assert "127.0.0.1:1" in message and "`docker version`" in message
    assert "secret" not in message


@pytest.mark.parametrize(
    ("said", "helps"),
    [
        ("write /var/lib/docker: no space left on device", "./pants cuda-doctor"),
        ("unauthorized: authentication required", "docker login"),
        ("denied: requested access to the resource is denied", "docker login"),
    ],
)
def test_what_a_daemon_says_comes_with_what_helps(said: str, helps: str) -> None:
    assert said in daemon.fault(said) and helps in daemon.fault(said)


def test_a_dry_run_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    facts = {"name": "cuda-wheels/amd64-cpu:1", "id": "sha256:1"}
    text = image_publish.publish(facts, "registry.example/team/", dry_run=True)
    assert text.endswith("would be pushed as registry.example/team/amd64-cpu:1.")
    assert "systemctl start docker" in told(
        lambda: image_publish.publish(facts, "registry.example/team", dry_run=False)
    )
