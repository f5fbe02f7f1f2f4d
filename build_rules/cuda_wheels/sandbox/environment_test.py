"""Environments from locks: a real uv and pip against an index that the tests serve."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from uv import find_uv_bin

from cuda_wheels.sandbox import environment
from cuda_wheels.sandbox.environment import Settings, ensure_environment, load_settings
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.testutil import (
    CHILD_ENV,
    Index,
    serving,
    sha256,
    unused_address,
    wheel_bytes,
)

Ensure = Callable[[Path], Path]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    path = tmp_path / "cache"
    path.mkdir()
    return path


@pytest.fixture
def bootstrap(tmp_path: Path) -> Path:
    path = tmp_path / "bootstrap"
    (path / "bin").mkdir(parents=True)
    (path / "bin/uv").symlink_to(find_uv_bin())
    return path


@pytest.fixture
def ensure(cache: Path, bootstrap: Path) -> Ensure:
    """The build environment of a lock, made where it is missing."""
    return functools.partial(ensure_environment, cache, bootstrap=bootstrap, kind="envs")


@pytest.fixture
def index(cache: Path) -> Iterator[Index]:
    """An index, which the settings name."""
    with serving(Index()) as served:
        configure(cache, served.url)
        yield served


def write_lock(path: Path, index: Index, name: str = "alpha", sha256: str | None = None) -> Path:
    served = index.add(name, f"{name}-1.0-py3-none-any.whl", wheel_bytes(name, "1.0"))
    path.write_text(f"{name}==1.0 --hash=sha256:{sha256 or served}\n")
    return path


def configure(cache: Path, *indexes: str, torch_indexes: dict[str, str] | None = None) -> None:
    settings = {"indexes": indexes, "torch_indexes": torch_indexes or {}}
    (cache / "settings.json").write_text(json.dumps(settings))


def torch_lock(path: Path, index: Index, pytorch: Index) -> Path:
    """A lock of a torch of the PyTorch index, and of a package that both indexes have."""
    torch = pytorch.add(
        "torch", "torch-2.9.1+cu126-py3-none-any.whl", wheel_bytes("torch", "2.9.1+cu126")
    )
    index.add("torch", "torch-2.9.1-py3-none-any.whl", wheel_bytes("torch", "2.9.1"))
    index.add("triton", "triton-3.5.1-py3-none-any.whl", wheel_bytes("triton", "3.5.1"))
    pytorch.add(
        "triton", "triton-3.5.1-py3-none-any.whl", wheel_bytes("triton", "3.5.1", requires="torch")
    )
    triton = sha256(wheel_bytes("triton", "3.5.1"))
    path.write_text(
        f"torch==2.9.1+cu126 \\\n    --hash=sha256:{torch}\n"
        f"triton==3.5.1 \\\n    --hash=sha256:{triton}\n"
    )
    return path


def test_an_environment_is_made_once(
    cache: Path, ensure: Ensure, index: Index, tmp_path: Path
) -> None:
    lock = write_lock(tmp_path / "lock.txt", index)
    path = ensure(lock)
    assert path.parent == cache / "envs"
    assert path.name.startswith(environment.lock_digest(lock))
    assert list(path.glob("lib/python3*/site-packages/alpha-1.0.dist-info"))
    python = path / "bin/python"
    prefix = subprocess.run(
        [python, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True
    )
    assert prefix.stdout.strip() == str(path)
    requests = len(index.requested)
    assert ensure(lock) == path
    assert len(index.requested) == requests
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_half_made_environment_is_made_again(
    ensure: Ensure, index: Index, tmp_path: Path
) -> None:
    lock = write_lock(tmp_path / "lock.txt", index)
    path = ensure(lock)
    (path / environment.COMPLETE).unlink()
    (path / "leftover").touch()
    (path.parent / f".{path.name}.killed").mkdir()
    assert ensure(lock) == path
    assert environment.is_complete(path)
    assert not (path / "leftover").exists()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_an_environment_whose_interpreter_went_is_made_again(
    ensure: Ensure, index: Index, tmp_path: Path
) -> None:
    lock = write_lock(tmp_path / "lock.txt", index)
    path = ensure(lock)
    (path / "bin/python").unlink()
    (path / "bin/python").symlink_to("/nowhere/python")
    assert environment.is_complete(ensure(lock))


def test_an_environment_of_the_image_is_used_where_it_is(
    ensure: Ensure, index: Index, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = write_lock(tmp_path / "lock.txt", index)
    made = ensure(lock)
    baked = tmp_path / "image"
    monkeypatch.setattr(environment, "BAKED", baked)
    (baked / "envs").mkdir(parents=True)
    made.rename(baked / "envs" / made.name)
    assert ensure(lock) == baked / "envs" / made.name
    assert not made.exists()
    # Half of one is none.
    (baked / "envs" / made.name / environment.COMPLETE).unlink()
    assert ensure(lock) == made


def test_a_failed_environment_leaves_nothing(
    cache: Path, ensure: Ensure, index: Index, tmp_path: Path
) -> None:
    lock = write_lock(tmp_path / "lock.txt", index, sha256="0" * 64)
    with pytest.raises(ProgramError, match="does not have the hash that the lock declares") as e:
        ensure(lock)
    assert "s3cret" not in str(e.value)
    assert "lock.txt" in str(e.value)
    assert list((cache / "envs").iterdir()) == []


def test_an_index_out_of_reach_is_named_without_credentials(
    cache: Path, ensure: Ensure, index: Index, tmp_path: Path
) -> None:
    address = unused_address()
    configure(cache, address)
    lock = write_lock(tmp_path / "lock.txt", index)
    with pytest.raises(ProgramError, match="is out of reach") as e:
        ensure(lock)
    assert "s3cret" not in str(e.value)
    assert address.split("@")[1] in str(e.value)


def test_a_package_that_no_index_has_is_explained(
    ensure: Ensure, index: Index, tmp_path: Path
) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(f"gamma==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(ProgramError, match="does not have every package"):
        ensure(lock)


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_an_empty_list_of_indexes_means_none(
    cache: Path, ensure: Ensure, index: Index, tmp_path: Path, tool: str
) -> None:
    def make(lock: Path) -> Path:
        if tool == "pip":
            return environment.ensure_bootstrap(cache, lock)
        return ensure(lock)

    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "alpha-1.0-py3-none-any.whl").write_bytes(wheel_bytes("alpha", "1.0"))
    (cache / "settings.json").write_text(json.dumps({"indexes": [], "find_links": [str(wheels)]}))
    # The default index has a `six`; it is not asked.
    absent = tmp_path / "absent.txt"
    absent.write_text(f"six==1.17.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(ProgramError, match="do not have every package") as e:
        make(absent)
    assert "no index is asked: [python-repos].indexes is empty" in str(e.value)
    made = make(write_lock(tmp_path / "lock.txt", index))
    assert list(made.glob("lib/python3*/site-packages/alpha-1.0.dist-info"))
    assert index.requested == []


def test_without_an_index_the_pytorch_index_is_not_asked_either(
    cache: Path, ensure: Ensure, index: Index, tmp_path: Path
) -> None:
    with serving(Index()) as pytorch:
        lock = torch_lock(tmp_path / "lock.txt", index, pytorch)
        configure(cache, torch_indexes={"cu126": pytorch.url})
        with pytest.raises(ProgramError, match="PyTorch index, which is not asked either"):
            ensure(lock)
        assert pytorch.requested == []


def test_a_torch_of_the_pytorch_index_is_installed_beside_the_package_index(
    cache: Path, ensure: Ensure, index: Index, tmp_path: Path
) -> None:
    with serving(Index()) as pytorch:
        lock = torch_lock(tmp_path / "lock.txt", index, pytorch)
        configure(cache, index.url, torch_indexes={"cu126": pytorch.url})
        path = ensure(lock)
    assert list(path.glob("lib/python3*/site-packages/torch-2.9.1+cu126.dist-info"))
    (triton,) = path.glob("lib/python3*/site-packages/triton-3.5.1.dist-info/METADATA")
    assert "Requires-Dist" not in triton.read_text()


def test_a_lock_may_hold_the_hashes_of_both_copies_and_never_the_other_alone(
    cache: Path, ensure: Ensure, index: Index, tmp_path: Path
) -> None:
    other = f"--hash=sha256:{sha256(wheel_bytes('triton', '3.5.1', requires='torch'))}"
    with serving(Index()) as pytorch:
        lock = torch_lock(tmp_path / "lock.txt", index, pytorch)
        text = lock.read_text()
        configure(cache, index.url, torch_indexes={"cu126": pytorch.url})
        lock.write_text(f"{text[:-1]} \\\n    {other}\n")
        path = ensure(lock)
        assert list(path.glob("lib/python3*/site-packages/triton-3.5.1.dist-info"))
        own = text[text.rindex("--hash") : -1]
        lock.write_text(text.replace(own, other))
        with pytest.raises(ProgramError, match="does not have the hash that the lock declares"):
            ensure(lock)


@pytest.mark.parametrize("down", ["package", "torch"])
def test_the_index_that_is_out_of_reach_is_named_and_no_other(
    cache: Path, ensure: Ensure, index: Index, tmp_path: Path, down: str
) -> None:
    address = unused_address()
    with serving(Index()) as pytorch:
        lock = torch_lock(tmp_path / "lock.txt", index, pytorch)
        if down == "torch":
            configure(cache, index.url, torch_indexes={"cu126": address})
        else:
            configure(cache, address, torch_indexes={"cu126": pytorch.url})
        with pytest.raises(ProgramError, match="is out of reach") as e:
            ensure(lock)
        sentences, _, _ = str(e.value).partition("The last lines of uv")
        up = index if down == "torch" else pytorch
        assert address.split("@")[1] in sentences and up.url.split("@")[1] not in sentences
    assert "s3cret" not in str(e.value)
    # What to do about the PyTorch index is said where it is that which is away.
    torch = ("The PyTorch index (", "source_mirrors", "torch==2.9.1+cu126 is not on the package")
    assert [part in sentences for part in torch] == [down == "torch"] * 3
    assert ("The package index (" in sentences) == (down == "package")


def test_a_host_of_files_that_is_out_of_reach_is_no_index(
    ensure: Ensure, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = write_lock(tmp_path / "lock.txt", index)
    page = index.page
    there = unused_address().partition("@")[2].partition("/")[0]
    moved = lambda project: page(project).replace('href="/', f'href="http://{there}/')  # noqa: E731
    monkeypatch.setattr(index, "page", moved)
    with pytest.raises(ProgramError) as e:
        ensure(lock)
    file = f"http://{there}/files/alpha/alpha-1.0-py3-none-any.whl"
    assert str(e.value).startswith(f"{file}, to which an index leads (the package index (")


A = "https://user:s3cret@a.example/simple"
TORCH = "https://torch.example/whl/cu126"
BOTH = Settings(indexes=(A,), torch_indexes=(("cu126", TORCH),))
PIN = "torch==2.9.1+cu126 \\\n    --hash=sha256:11\n"


@pytest.mark.parametrize(
    ("tool", "settings", "output", "beginning"),
    [
        (
            "uv",
            BOTH,
            f"Failed to fetch: `{TORCH}/torch/`\nHTTP status client error (403 Forbidden)",
            f"The PyTorch index ({TORCH}) refused to serve a package of a.txt. Check the user and "
            "password in [cuda-wheels].source_mirrors,",
        ),
        (
            "pip",
            BOTH,
            "NewConnectionError(\"HTTPSConnection(host='torch.example', port=443): Failed\")",
            f"The PyTorch index ({TORCH}) is out of reach",
        ),
        (
            "pip",
            BOTH,
            "NewConnectionError(\"HTTPSConnection(host='a.example', port=443): Failed\")",
            "The package index (https://***@a.example/simple) is out of reach",
        ),
        # Which of them does not have it, no tool says.
        (
            "uv",
            BOTH,
            "No solution found: torch was not found in the package registry",
            f"The package index (https://***@a.example/simple) and the PyTorch index ({TORCH}) do "
            "not have every package of a.txt",
        ),
        (
            "uv",
            Settings(torch_indexes=(("cu126", TORCH),)),
            "Failed to fetch: `https://default.example/simple/torch/`\ndns error",
            "The package index (uv's default) is out of reach",
        ),
        (
            "uv",
            Settings(torch_indexes=(("cu126", TORCH),)),
            f"Failed to fetch: `{TORCH}/torch/`\ndns error",
            f"The PyTorch index ({TORCH}) is out of reach",
        ),
        # One mirror has both, one below the other.
        (
            "uv",
            Settings(
                indexes=("https://m.example",), torch_indexes=(("cu126", "https://m.example/t"),)
            ),
            "Failed to fetch: `https://m.example/t/torch/`\ndns error",
            "The PyTorch index (https://m.example/t) is out of reach",
        ),
        (
            "uv",
            Settings(
                indexes=("https://m.example",), torch_indexes=(("cu126", "https://m.example/t"),)
            ),
            "Failed to fetch: `https://m.example/torch/`\ndns error",
            "The package index (https://m.example) is out of reach",
        ),
    ],
)
def test_whom_the_tools_blame(tool: str, settings: Settings, output: str, beginning: str) -> None:
    error = environment.install_error(tool, Path("a.txt"), Path("e"), settings, output, PIN)
    assert str(error).startswith(beginning)
    assert "s3cret" not in str(error)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("ERROR: [Errno 28] No space left on device", "Disk full"),
        ("THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "have the hash"),
        ("HTTP status client error (401 Unauthorized)", "refused"),
        (
            "NewConnectionError: [Errno 101] Network is unreachable\nNo matching distribution",
            "reach",
        ),
        ("ERROR: No matching distribution found for x", "does not have every package"),
        ("a new kind of fault", "could not install"),
    ],
)
def test_what_the_tools_print_is_understood(output: str, message: str, tmp_path: Path) -> None:
    error = environment.install_error("pip", Path("a.txt"), tmp_path, Settings(), output)
    assert message in str(error)


def test_a_full_disk_is_explained(cache: Path, tmp_path: Path) -> None:
    def make(path: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(ProgramError, match="Disk full(?s:.*)named_caches_dir") as e:
        environment._ensure(cache, cache / "envs/x", make)
    assert "GB free" in str(e.value)
    assert list((cache / "envs").iterdir()) == []


def test_two_at_once_make_it_once(cache: Path, tmp_path: Path) -> None:
    code = textwrap.dedent("""
        import os, sys, time
        from pathlib import Path
        from cuda_wheels.sandbox import environment
        cache = Path(sys.argv[1])
        def make(path):
            with open(cache / "made", "a") as handle:
                handle.write("x")
            time.sleep(0.3)
            (path / "bin").mkdir()
            (path / "bin/python").touch()
        environment._ensure(cache, cache / "envs/x", make)
        """)
    both = [
        subprocess.Popen([sys.executable, "-c", code, str(cache)], env=CHILD_ENV) for _ in range(2)
    ]
    assert [process.wait() for process in both] == [0, 0]
    assert (cache / "made").read_text() == "x"


def test_the_bootstrap_environment_comes_from_pip(
    cache: Path, index: Index, tmp_path: Path
) -> None:
    lock = write_lock(tmp_path / "lock.txt", index)
    path = environment.ensure_bootstrap(cache, lock)
    assert path.parent == cache / "tools"
    assert list(path.glob("lib/python3*/site-packages/alpha-1.0.dist-info"))
    other = write_lock(tmp_path / "other.txt", index, sha256="0" * 64)
    with pytest.raises(ProgramError, match="does not have the hash that the lock declares"):
        environment.ensure_bootstrap(cache, other)


def test_a_program_runs_itself_again_in_the_tools(
    cache: Path, bootstrap: Path, index: Index, tmp_path: Path
) -> None:
    lock = write_lock(tmp_path / "lock.txt", index)
    tools = ensure_environment(cache, lock, bootstrap=bootstrap, kind="tools")
    (tmp_path / "again.py").write_text(textwrap.dedent("""
            import sys
            from pathlib import Path
            from cuda_wheels.sandbox import environment
            environment.reexec_in_tools(Path(sys.argv[1]), Path("none"), Path(sys.argv[2]))
            print(sys.prefix, sys.argv[1:])
            """))
    done = subprocess.run(
        [sys.executable, "-m", "again", str(cache), str(lock)],
        cwd=tmp_path,
        env=CHILD_ENV,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"{tools} {[str(cache), str(lock)]}"


def test_settings_become_flags(cache: Path) -> None:
    assert load_settings(cache) == Settings()
    (cache / "settings.json").write_text(
        json.dumps({"indexes": ["a", "b"], "find_links": ["/w"], "ca_certs": "/ca.pem"})
    )
    settings = load_settings(cache)
    assert settings.pip_flags() == [
        *("--index-url", "a", "--extra-index-url", "b", "--find-links", "/w")
    ]
    assert settings.uv_flags() == [
        *("--default-index", "a", "--index", "b", "--find-links", "/w"),
        *("--index-strategy", "unsafe-best-match"),
    ]
    env = settings.environment({"PIP_INDEX_URL": "x", "UV_INDEX": "y", "LANG": "C"})
    assert env["SSL_CERT_FILE"] == env["PIP_CERT"] == "/ca.pem"
    assert env["LANG"] == "C"
    assert "PIP_INDEX_URL" not in env
    assert "UV_INDEX" not in env


def test_the_pytorch_index_comes_after_the_package_indexes() -> None:
    settings = Settings(indexes=("a", "b"), torch_indexes=(("cpu", "p"), ("cu126", "t")))
    lock = "numpy==2.0 \\\n    --hash=sha256:00\ntorch==2.9.1+cu126 \\\n    --hash=sha256:11\n"
    assert settings.uv_flags(lock) == [
        *("--default-index", "t", "--index", "b", "--index", "a"),
        *("--index-strategy", "unsafe-best-match"),
    ]
    assert settings.uv_flags("torch==2.9.1\n") == settings.uv_flags()
    # uv's own default index stays where none is configured.
    own = Settings(torch_indexes=(("cu126", "t"),))
    assert own.uv_flags(lock)[:2] == ["--index", "t"]


def test_a_mirror_of_the_pytorch_index_stands_for_it(cache: Path) -> None:
    settings = {
        "torch_indexes": {
            "cu126": "https://torch.example/whl/cu126",
            "cpu": "https://b.example/cpu",
        },
        "source_mirrors": {"https://torch.example/whl/": "https://mirror.example/", "https://b": 1},
    }
    (cache / "settings.json").write_text(json.dumps(settings))
    assert load_settings(cache).torch_indexes == (
        ("cpu", "https://b.example/cpu"),
        ("cu126", "https://mirror.example/cu126"),
    )


def test_without_settings_the_tools_keep_their_own(cache: Path) -> None:
    env = load_settings(cache).environment({"PIP_INDEX_URL": "x"})
    assert env["PIP_INDEX_URL"] == "x"
    assert "PIP_CONFIG_FILE" not in env


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:pw@host/simple", "https://***@host/simple"),
        ("https://token@host/simple", "https://***@host/simple"),
        ("https://host/a@b", "https://host/a@b"),
    ],
)
def test_credentials_are_hidden(text: str, shown: str) -> None:
    assert environment.hide_credentials(text) == shown


def test_the_proxies_of_the_session_reach_the_tools(tmp_path: Path) -> None:
    proxies = {"https_proxy": "http://proxy.example:3128", "no_proxy": "localhost"}
    (tmp_path / "settings.json").write_text(json.dumps({"proxies": proxies}))
    env = environment.load_settings(tmp_path).environment({"PATH": "/usr/bin"})
    assert proxies.items() <= env.items()
