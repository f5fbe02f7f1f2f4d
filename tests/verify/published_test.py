"""Wheelhouses that were published, taken by the tool from real servers: a registry and an index."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any, Callable

import pytest

from cuda_wheels.audit import fake_wheelhouse as fake
from cuda_wheels.sandbox import publish_oci, publish_pypi
from cuda_wheels.sandbox.credentials import Credentials
from cuda_wheels.sandbox.publish_oci import Repository
from cuda_wheels.sandbox.publish_pypi import PackageIndex
from cuda_wheels.sandbox.servers_testutil import (
    PASSWORD,
    USER,
    Server,
    oci_registry,
    package_index,
    token_server,
)
from verify import main as tool
from verify.host import Host
from verify.package_index import links
from verify.registry import MANIFEST_TYPE, next_page
from verify.testutil import find_python
from verify.web import Answer

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
TAGS = {"accel": "cpu", "cuda_arch": "", "python": PYTHON}
ROW = f"linux-amd64/cpu/torch2.11.0-cp{PYTHON.replace('.', '')}"
NOBODY = Credentials()


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Host("Linux", "x86_64", "2.35", PYTHON, None, None, (), 100.0, "/c", True)
    monkeypatch.setattr(tool, "read_host", lambda python, folder: at)
    for name in ("ORAS_USER", "ORAS_PASS", "TWINE_USERNAME", "TWINE_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def house(root: Path, content: str | None = None, **tags: str) -> Path:
    all_tags = {"torch": "2.11.0", **TAGS, **tags}
    local = f"cpu.torch{all_tags['torch']}"
    return fake.write_wheelhouse(root, all_tags, local, "py3", content=content)


def _silent(text: str) -> None:
    """Only the tool's own words are looked at."""


def publish(
    server: Server, kind: str, folder: Path, date: str, known: Credentials = NOBODY
) -> None:
    scratch = server.files.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    row = "/".join(folder.parts[-3:])
    if kind == "oci":
        to = Repository(server.url, "team/wheels", known, scratch)
        publish_oci.publish(folder, to, row, date=date, say=_silent)
    else:
        index = PackageIndex(f"{server.url}/", f"{server.url}/simple/", known, scratch)
        publish_pypi.publish(folder, index, row, date=date, say=_silent)


def address(server: Server, kind: str) -> str:
    return f"oci:{server.url}/team/wheels" if kind == "oci" else f"pypi:{server.url}/"


@pytest.fixture(params=["oci", "pypi"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(tmp_path: Path, kind: str) -> Iterator[Server]:
    start = oci_registry if kind == "oci" else package_index
    with start(tmp_path / "server") as running:
        yield running


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, dict[str, Any]]:
    code = tool.main([*map(str, argv), "--json"])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else {}


def checks(document: dict[str, Any], stage: str = "select") -> dict[str, str]:
    (found,) = [one for one in document["stages"] if one["stage"] == stage]
    return {line["subject"]: line["check"] for line in found["lines"]}


def test_select_among_releases(
    tmp_path: Path, server: Server, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(server, kind, house(tmp_path / "a"), "2026.11.29")
    newer = house(tmp_path / "b")
    fake.write_requirements(newer, "# other\n")
    publish(server, kind, newer, "2026.11.30")
    publish(server, kind, house(tmp_path / "c", torch="2.12.0", arch="arm64"), "2026.11.30")
    code, found = run(capsys, "select", address(server, kind))
    assert code == 0
    chosen = found["wheelhouse"]
    assert (chosen["date"], chosen["tags"]["torch"]) == ("2026.11.30", "2.11.0")
    words = checks(found)
    assert sorted(words.values()) == ["chosen", "fits", "rejected"]
    assert words[chosen["path"]] == "chosen"
    # The sums that it names are those of the release.
    code, got = run(capsys, "select", address(server, kind), "--download", tmp_path / "got")
    folder = tmp_path / "got" / ROW / "2026.11.30"
    assert (code, got["wheelhouse"]["path"]) == (0, str(folder))
    assert chosen["sha256sums"] == fake.sha256(folder / "SHA256SUMS")
    assert (folder / "requirements-pypi.txt").read_text() == "# other\n"
    # Each of its names stands for one release, whatever fits.
    older = next(path for path, word in words.items() if word == "fits")
    code, one = run(capsys, "check", older)
    assert (code, one["wheelhouse"]["date"]) == (0, "2026.11.29")
    arm = next(path for path, word in words.items() if word == "rejected")
    assert run(capsys, "check", arm)[0] == 0
    code, one = run(capsys, "doctor", arm)
    assert code == 1 and "this machine is x86_64" in json.dumps(one)


def test_doctor_reads_the_manifest_and_no_wheel(
    tmp_path: Path, server: Server, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = house(tmp_path)
    manifest = json.loads((made / "manifest.json").read_text())
    manifest["skipped"] = [{"package": "flash-attn", "reason": "no kernels for it."}]
    fake.write_json(made / "manifest.json", manifest)
    fake.write_sums(made)
    publish(server, kind, made, "2026.11.30")
    code, found = run(capsys, "doctor", address(server, kind))
    assert code == 0 and "Without flash-attn: no kernels for it." in json.dumps(found)
    wheel = next(made.glob("torch_scatter*.whl"))
    blob = fake.sha256(wheel) if kind == "oci" else wheel.name
    got = [line for line in server.said().splitlines() if blob in line and '"GET ' in line]
    assert got == []


def test_installed_from_a_server(
    tmp_path: Path, server: Server, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(server, kind, house(tmp_path), "2026.11.30")
    links = tmp_path / "links"
    links.mkdir()
    fake.write_wheel(links, "torch", "2.11.0+cpu", "py3-none-any", {"torch.py": "x = 1\n"})
    fake.write_wheel(links, *fake.LEAF)
    venv = tmp_path / "venv"
    options = ["--venv", venv, "--find-links", links]
    code, found = run(capsys, "install", address(server, kind), *options)
    assert code == 0, found
    said = subprocess.run(
        [venv / "bin/python", "-c", "import spconv, torch_scatter; print(spconv.version)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "2.3.8+cpu.torch2.11.0\n"


def swap_blob(server: Server, wheel: Path) -> None:
    """Other bytes where the registry keeps a file."""
    digest = fake.sha256(wheel)
    path = server.files / f"docker/registry/v2/blobs/sha256/{digest[:2]}/{digest}/data"
    path.write_bytes(b"x" * path.stat().st_size)


def swap_file(server: Server, wheel: Path) -> None:
    (server.files / wheel.name).write_bytes(b"other")


@pytest.mark.parametrize("command", ["check", "install"])
def test_a_server_that_lies(
    tmp_path: Path, server: Server, kind: str, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    made = house(tmp_path / "h")
    publish(server, kind, made, "2026.11.30")
    options = ["--venv", str(tmp_path / "venv")] if command == "install" else []
    assert run(capsys, "check", address(server, kind))[0] == 0
    swap = swap_blob if kind == "oci" else swap_file
    swap(server, next(made.glob("torch_scatter*.whl")))
    assert tool.main([command, address(server, kind), *options]) == 2
    assert "sha256" in capsys.readouterr().err
    assert not (tmp_path / "venv").exists()


def test_a_release_that_lacks_a_wheel(
    tmp_path: Path, server: Server, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = house(tmp_path / "h")
    publish(server, kind, made, "2026.11.30")
    wheel = next(made.glob("torch_scatter*.whl"))
    if kind == "oci":
        digest = fake.sha256(wheel)
        shutil.rmtree(server.files / f"docker/registry/v2/blobs/sha256/{digest[:2]}/{digest}")
    else:
        (server.files / wheel.name).unlink()
    got = tmp_path / "got"
    assert tool.main(["select", address(server, kind), "--download", str(got)]) == 2
    assert ("cannot be fetched" if kind == "oci" else "lacks torch_scatter") in (
        capsys.readouterr().err
    )
    # No half wheelhouse is left.
    assert not [path for path in got.rglob("*") if path.is_file()]


def test_nothing_is_there(server: Server, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["select", address(server, kind)]) == 2
    said = "no such repository" if kind == "oci" else "no version of cuda-wheelhouse"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("password", [None, "wrong-battery", PASSWORD])
def test_a_password_is_sent_and_never_printed(
    tmp_path: Path,
    kind: str,
    password: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    start: Callable[..., Any] = oci_registry
    more: dict[str, Any] = {"password": True}
    if kind == "pypi":
        start, more = package_index, {"password": True, "guarded": "update,list,download"}
    with start(tmp_path / "server", **more) as server:
        publish(server, kind, house(tmp_path / "h"), "2026.11.30", Credentials(USER, PASSWORD))
        names = (
            ("ORAS_USER", "ORAS_PASS") if kind == "oci" else ("TWINE_USERNAME", "TWINE_PASSWORD")
        )
        if password:
            monkeypatch.setenv(names[0], USER)
            monkeypatch.setenv(names[1], password)
        argv = ["select", address(server, kind), "--download", str(tmp_path / "got")]
        code = tool.main(argv)
        printed = "".join(capsys.readouterr())
        assert code == (0 if password == PASSWORD else 2), printed
        assert (f"Set {names[0]} and {names[1]}" in printed) == (password != PASSWORD)
        assert not password or password not in printed + server.said()


def test_a_token_is_asked_for_reading_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    with token_server(tmp_path / "tokens", seen) as tokens:
        with oci_registry(tmp_path / "server") as open_to_all:
            publish(open_to_all, "oci", house(tmp_path / "h"), "2026.11.30")
        with oci_registry(tmp_path / "server", tokens=tokens) as server:
            argv = ["select", address(server, "oci"), "--download", str(tmp_path / "got")]
            assert tool.main(argv) == 2
            capsys.readouterr()
            monkeypatch.setenv("ORAS_USER", USER)
            monkeypatch.setenv("ORAS_PASS", PASSWORD)
            seen.clear()
            assert tool.main(argv) == 0
            printed = "".join(capsys.readouterr())
    # Once is enough for all files of a repository.
    assert len(seen) == 1 and "scope=repository%3Ateam%2Fwheels%3Apull" in seen[0]
    assert PASSWORD not in printed


def test_a_digest_names_one_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with oci_registry(tmp_path / "server") as server:
        publish(server, "oci", house(tmp_path / "h"), "2026.11.30")
        revisions = "docker/registry/v2/repositories/team/wheels/_manifests/revisions/sha256"
        (digest,) = [path.name for path in (server.files / revisions).iterdir()]
        one = f"{address(server, 'oci')}@sha256:{digest}"
        code, found = run(capsys, "check", one)
        assert (code, found["wheelhouse"]["date"]) == (0, "2026.11.30")
        assert tool.main(["check", f"{address(server, 'oci')}@sha256:{'0' * 64}"]) == 2
        # What the registry gives out under a digest must have it.
        blob = server.files / f"docker/registry/v2/blobs/sha256/{digest[:2]}/{digest}/data"
        blob.write_bytes(blob.read_bytes().replace(b"2026.11.30", b"2030.11.30"))
        assert tool.main(["check", one]) == 2


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("cuda_arch", "7.5", "its own tags say another row or other GPUs"),
        ("torch", "2.12.0", "its annotations say linux-amd64/cpu/torch2.12.0"),
        ("os", None, "its tags lack os"),
        ("verified", "{", "Expecting"),
    ],
)
def test_annotations_that_lie(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    key: str,
    value: str | None,
    said: str,
) -> None:
    """They are what a release is chosen by, and are no file of it."""
    with oci_registry(tmp_path / "server") as server:
        publish(server, "oci", house(tmp_path / "h"), "2026.11.30")
        got = ["select", address(server, "oci"), "--download"]
        assert run(capsys, *got, tmp_path / "good")[0] == 0
        (tag,) = json.loads(ask(server, "tags/list"))["tags"]
        document = json.loads(ask(server, f"manifests/{tag}"))
        document["annotations"][key] = value
        if value is None:
            del document["annotations"][key]
        ask(server, f"manifests/{tag}", json.dumps(document).encode())
        assert tool.main([*map(str, got), str(tmp_path / "bad")]) == 2
        assert said in capsys.readouterr().err
        assert not [*(tmp_path / "bad").glob("*")]


def ask(server: Server, path: str, content: bytes | None = None) -> bytes:
    request = urllib.request.Request(
        f"{server.url}/v2/team/wheels/{path}",
        data=content,
        headers={"Accept": MANIFEST_TYPE, "Content-Type": MANIFEST_TYPE},
        method="PUT" if content else "GET",
    )
    with urllib.request.urlopen(request) as answer:
        return bytes(answer.read())


def test_a_release_under_the_name_of_another_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with package_index(tmp_path / "server") as server:
        publish(server, "pypi", house(tmp_path / "h"), "2026.11.30")
        assert run(capsys, "check", address(server, "pypi"))[0] == 0
        (release,) = server.files.glob("cuda_wheelhouse-*.whl")
        release.rename(release.with_name(release.name.replace("torch2.11.0", "torch2.12.0")))
        assert tool.main(["check", address(server, "pypi")]) == 2
        assert f"its tags are those of {ROW}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "said"),
    [
        pytest.param("oci://ada:secret@registry.example/w", "//***@", id="password-registry"),
        pytest.param("pypi:https://ada:secret@wheels.example/", "//***@", id="password-index"),
        pytest.param("https://ada:secret@wheels.example/tree", "//***@", id="password-tree"),
        pytest.param("oci://registry.example", "is no repository", id="no-repository"),
        pytest.param("oci:registry.example/w", "is no repository", id="no-scheme"),
        pytest.param("oci://registry.example/UPPER", "is no repository", id="upper-case"),
        pytest.param("pypi:wheels.example", "is no package index", id="no-address"),
        pytest.param("pypi:file:///srv", "is no package index", id="a-folder"),
    ],
)
def test_addresses_that_are_none(
    source: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(["select", source]) == 2
    err = capsys.readouterr().err
    assert said in err and "secret" not in err


def test_the_oldest_python_reads_them_too(tmp_path: Path, server: Server, kind: str) -> None:
    python = find_python("3.9")
    if python is None:
        pytest.skip("there is no Python 3.9 here")
    publish(server, kind, house(tmp_path), "2026.11.30")
    roots = [Path(tool.__file__).parents[1], Path(fake.__file__).parents[2]]
    done = subprocess.run(
        [python, "-m", "verify.main", "select", address(server, kind), "--json"],
        env={"PYTHONPATH": ":".join(map(str, roots)), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    # It is for another Python, and that is what it says.
    assert done.returncode == 1, done.stderr
    assert f"It is for Python {PYTHON}, here it is 3.9." in done.stdout


def answer(body: str, kind: str, address: str, **more: str) -> Answer:
    headers = Message()
    headers["Content-Type"] = kind
    for name, value in more.items():
        headers[name] = value
    return Answer(body.encode(), headers, address)


def test_a_list_that_goes_on() -> None:
    here = "https://r.example/v2/w/tags/list"
    link = '</v2/w/tags/list?last=b&n=2>; rel="next"'
    assert next_page(answer("", "x", here, Link=link)) == f"{here}?last=b&n=2"
    assert next_page(answer("", "x", here)) is None
    other = '<https://other.example/v2/w/tags/list>; rel="next"'
    assert next_page(answer("", "x", here, Link=other)) is None


def test_pages_of_both_forms() -> None:
    here = "https://i.example/simple/spconv/"
    digest = "a" * 64
    text = (
        f'<base href="https://i.example/files/"><a href="x%2B1.whl#sha256={digest}">x</a><a>y</a>'
    )
    (file,) = links(answer(text, "text/html; charset=utf-8", here))
    assert (file.name, file.address) == ("x+1.whl", "https://i.example/files/x%2B1.whl")
    document = {"files": [{"filename": "x+1.whl", "url": "../../x%2B1.whl", "hashes": {}}]}
    kind = "application/vnd.pypi.simple.v1+json"
    (other,) = links(answer(json.dumps(document), kind, here))
    assert (other.address, other.digest) == ("https://i.example/x%2B1.whl", None)
    assert file.digest == digest
