"""Against a registry of the test's own, with an image for each of two architectures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.sandbox import image_build, image_index, image_pin
from cuda_wheels.sandbox.docker_testutil import LABEL, docker_client, told
from cuda_wheels.sandbox.servers_testutil import Server, oci_registry, open_registry

ARCHES = ("amd64", "arm64")
NAME = "cuda-wheels/cu130:0123456789abcdef"
client = docker_client  # a fixture
registry = open_registry  # a fixture


def place(server: Server) -> str:
    return f"{server.url.removeprefix('http://')}/team"


def push(client: Any, folder: Path, to: str) -> dict[str, str]:
    """An image that copies one file, for each architecture; its name with its digest."""
    pushed = {}
    for arch in ARCHES:
        context = folder / arch
        context.mkdir(parents=True)
        (context / "file").write_text(arch)
        (context / "Dockerfile").write_text(f"FROM scratch\nCOPY file /file\nLABEL {LABEL}\n")
        name = f"{to}/{arch}-cu130:1"
        image_build.build(
            client,
            context,
            name,
            platform=f"linux/{arch}",
            network=None,
            log=folder / "build.log",
            fresh=False,
        )
        client.images.push(name)
        pushed[arch] = image_pin.published(client, name, to)
        client.images.remove(name)
    return pushed


def test_a_daemon_finds_the_image_of_its_architecture(
    client: Any, registry: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    monkeypatch.setenv("DOCKER_CONFIG", str(config))
    to = place(registry)
    images = push(client, tmp_path / "contexts", to)
    index = {"name": NAME, "images": images}
    said = image_index.publish(index, to, dry_run=True)
    assert f"{to}/cu130:0123456789abcdef would be written" in said
    assert "no digest" in told(lambda: image_pin.published(client, NAME, to))

    said = image_index.publish(index, to, dry_run=False)
    pinned = image_pin.published(client, NAME, to)
    assert pinned == f"{to}/cu130@{pinned.rpartition('@')[2]}"
    assert f"was written, {pinned.rpartition('@')[2]}." in said
    for arch, single in images.items():
        pulled = client.images.pull(pinned, platform=f"linux/{arch}")
        assert pulled.attrs["Architecture"] == arch
        assert pulled.id == client.images.pull(single).id
        client.images.remove(pulled.id, force=True)
    # The same again is the same, and nothing of it is left with the client.
    assert image_index.publish(index, to, dry_run=False) == said
    assert not config.exists()


def test_a_name_for_the_wrong_architecture_is_refused(
    client: Any, registry: Server, tmp_path: Path
) -> None:
    to = place(registry)
    images = push(client, tmp_path / "contexts", to)
    swapped = {"amd64": images["arm64"], "arm64": images["amd64"]}
    message = told(
        lambda: image_index.publish({"name": NAME, "images": swapped}, to, dry_run=False)
    )
    assert f"{images['arm64']} is declared for amd64, but the registry has it as arm64" in message
    assert f"{images['amd64']} is declared for arm64" in message
    assert "no digest" in told(lambda: image_pin.published(client, NAME, to))


def test_an_image_that_the_registry_lacks_is_told(
    client: Any, registry: Server, tmp_path: Path
) -> None:
    to = place(registry)
    images = push(client, tmp_path / "contexts", to)
    images["arm64"] = f"{to}/arm64-cu130@sha256:{'0' * 64}"
    message = told(lambda: image_index.publish({"name": NAME, "images": images}, to, dry_run=False))
    assert images["arm64"] in message and "`./pants publish`" in message
    assert "no digest" in told(lambda: image_pin.published(client, NAME, to))


def test_an_index_and_its_images_are_in_one_registry() -> None:
    images = {"amd64": f"one.example/team/a@sha256:{'0' * 64}"}
    message = told(
        lambda: image_index.publish({"name": NAME, "images": images}, "two.example", dry_run=True)
    )
    assert "two.example/cu130:0123456789abcdef cannot be over one.example/team/a" in message


def test_a_registry_that_wants_a_password_says_how_to_log_in(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with oci_registry(tmp_path / "server", password=True) as server:
        to = place(server)
        images = {arch: f"{to}/{arch}-cu130@sha256:{'0' * 64}" for arch in ARCHES}
        index = {"name": NAME, "images": images}
        message = told(lambda: image_index.publish(index, to, dry_run=False))
    assert "docker login" in message


def test_no_client_is_told(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    images = {"amd64": f"registry.example/a@sha256:{'0' * 64}"}
    message = told(
        lambda: image_index.publish(
            {"name": NAME, "images": images}, "registry.example", dry_run=False
        )
    )
    assert "apt-get install docker.io" in message
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("registry", "insecure"),
    [
        ("127.0.0.1:5000", True),
        ("localhost:5000", True),
        ("plain.example:5000", True),
        ("registry.example", False),
        ("10.0.0.1:5000", False),
        ("[::1]:5000", False),
    ],
)
def test_tls_is_left_out_where_the_daemon_leaves_it_out(registry: str, insecure: bool) -> None:
    config = {
        "InsecureRegistryCIDRs": ["127.0.0.0/8"],
        "IndexConfigs": {"plain.example:5000": {"Secure": False}},
    }
    assert image_index.is_insecure(registry, {"RegistryConfig": config}) is insecure
