from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.sandbox import git as program_git
from cuda_wheels.sandbox.git_testutil import (
    Repository,
    answering,
    git,
    serving_files,
    serving_git,
)
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.testutil import silent_server, unused_address

FORGE = "https://forge.example/"
MISSING = "0123456789" * 4


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(program_git, "PAUSE_S", 0.0)
    here = tmp_path / "sandbox"
    here.mkdir()
    monkeypatch.chdir(here)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "forge/owner/name", {"setup.py": "x\n", "libs/ops/op.cu": "y\n"})


def run(
    url: str,
    commit: str,
    subdirectory: str = "",
    mirrors: dict[str, str] | None = None,
    **settings: Any,
) -> Path:
    """Run the program in the current directory; the tree that it made is returned."""
    cache = Path("cache")
    cache.mkdir(exist_ok=True)
    (cache / "settings.json").write_text(json.dumps({"source_mirrors": mirrors or {}, **settings}))
    program_git.main(
        {
            "cache": "cache",
            "url": url,
            "commit": commit,
            "subdirectory": subdirectory,
            "out": "source",
        }
    )
    assert [path.name for path in Path().iterdir() if path.name.startswith(".")] == []
    return Path("source")


def failure(url: str, commit: str, subdirectory: str = "", **more: Any) -> str:
    with pytest.raises(ProgramError) as raised:
        run(url, commit, subdirectory, **more)
    assert not Path("source").exists()
    assert "s3cret" not in str(raised.value)
    return str(raised.value)


def files(tree: Path) -> dict[str, str]:
    return {
        str(path.relative_to(tree)): path.read_bytes().decode()
        for path in sorted(tree.rglob("*"))
        if path.is_file()
    }


# --------------------------------------------------------------------------------------------
# Which commit
# --------------------------------------------------------------------------------------------


def test_a_commit_and_not_the_branch(repository: Repository) -> None:
    pinned = repository.head
    repository.commit({"setup.py": "newer\n"})
    tree = run(repository.url, pinned)
    assert files(tree) == {"setup.py": "x\n", "libs/ops/op.cu": "y\n"}
    assert not list(tree.rglob(".git"))


@pytest.mark.parametrize("second_protocol", [True, False], ids=["version 2", "version 0"])
def test_over_http(repository: Repository, tmp_path: Path, second_protocol: bool) -> None:
    pinned = repository.head
    repository.commit({"setup.py": "newer\n"})
    with serving_git(tmp_path / "forge", second_protocol=second_protocol) as server:
        tree = run(f"{server}/owner/name/.git", pinned)
    assert files(tree)["setup.py"] == "x\n"


def test_the_history_is_left_where_it_is(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(repository.url, repository.commit({"setup.py": "newer\n"}))
    assert "whole history" not in capsys.readouterr().err


def test_a_server_that_gives_out_no_bare_commit(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pinned = repository.head
    repository.commit({"setup.py": "newer\n"})
    with serving_git(tmp_path / "forge", second_protocol=False) as server:
        run(f"{server}/owner/name/.git", pinned)
    assert "whole history" in capsys.readouterr().err


def test_plain_files_behind_http(repository: Repository, tmp_path: Path) -> None:
    pinned = repository.head
    repository.commit({"setup.py": "newer\n"})
    git(repository.folder, "update-server-info")
    with serving_files(tmp_path / "forge") as server:
        assert files(run(f"{server}/owner/name/.git", pinned))["setup.py"] == "x\n"


def test_a_commit_that_only_a_tag_has(repository: Repository) -> None:
    pinned = repository.commit({"setup.py": "released\n"})
    git(repository.folder, "tag", "v1.0")
    git(repository.folder, "reset", "--quiet", "--hard", "HEAD^")
    assert files(run(repository.url, pinned))["setup.py"] == "released\n"


def test_a_forced_push_leaves_the_commit_for_a_while(repository: Repository) -> None:
    pinned = repository.commit({"setup.py": "to be replaced\n"})
    git(repository.folder, "reset", "--quiet", "--hard", "HEAD^")
    assert files(run(repository.url, pinned))["setup.py"] == "to be replaced\n"


@pytest.mark.parametrize("second_protocol", [True, False], ids=["version 2", "version 0"])
def test_a_commit_that_was_pushed_away(
    repository: Repository, tmp_path: Path, second_protocol: bool
) -> None:
    pinned = repository.commit({"setup.py": "to be replaced\n"})
    repository.forget()
    with serving_git(tmp_path / "forge", second_protocol=second_protocol) as server:
        message = failure(f"{server}/owner/name/.git", pinned)
    assert f"has no commit {pinned}" in message and "force push" in message
    assert "git ls-remote" in message and "[cuda-wheels].source_mirrors" in message


def test_the_hash_of_an_annotated_tag_names_the_commit(repository: Repository) -> None:
    git(repository.folder, "tag", "--annotate", "--message=x", "v1.0")
    tag = git(repository.folder, "rev-parse", "v1.0")
    message = failure(repository.url, tag)
    assert f"{tag} is an annotated tag" in message
    assert f"{repository.head}: declare that" in message


def test_a_file_is_no_commit(repository: Repository) -> None:
    blob = git(repository.folder, "rev-parse", "HEAD:setup.py")
    assert f"has no commit {blob}" in failure(repository.url, blob)


def test_a_repository_of_sha256(tmp_path: Path) -> None:
    folder = tmp_path / "long"
    folder.mkdir()
    git(folder, "init", "--quiet", "--object-format=sha256")
    (folder / "setup.py").write_text("x\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=x")
    pinned = git(folder, "rev-parse", "HEAD")
    assert len(pinned) == 64
    assert files(run(folder.as_uri(), pinned)) == {"setup.py": "x\n"}


def test_a_commit_of_the_other_length(repository: Repository) -> None:
    message = failure(repository.url, "ab" * 32)
    assert "another length" in message and "40 digits" in message


# --------------------------------------------------------------------------------------------
# The tree
# --------------------------------------------------------------------------------------------


def test_the_tree_is_what_the_commit_holds(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {
        "windows.txt": b"a\r\nb\r\n",
        "unix.txt": b"a\nb\n",
        "mixed.bat": b"a\nb\r\n",
        "keyword.txt": b"$Id$ $Format:%h %d$\n",
        "wide.txt": "ä\n".encode(),
        "large.bin": b"version https://lfs.example/spec/v1\n",
        "left-out.txt": b"here\n",
    }
    for name, data in content.items():
        (repository.folder / name).write_bytes(data)
    repository.commit()
    # Into the index alone: in the folder git would convert the files before it stores them.
    attributes = tmp_path / "attributes"
    attributes.write_text(
        "*.txt text eol=crlf\n*.bat eol=crlf\nunix.txt text=auto\nkeyword.txt ident export-subst\n"
        "wide.txt working-tree-encoding=UTF-16\nlarge.bin filter=shout\nleft-out.txt export-ignore\n"
    )
    blob = git(repository.folder, "hash-object", "-w", str(attributes))
    git(repository.folder, "update-index", "--add", "--cacheinfo", f"100644,{blob},.gitattributes")
    git(repository.folder, "commit", "--quiet", "--message=x")
    pinned = repository.head
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        '[core]\n\tautocrlf = true\n\teol = crlf\n[filter "shout"]\n\tsmudge = tr a-z A-Z\n'
        "\trequired = true\n"
    )
    monkeypatch.setenv("HOME", str(home))
    tree = run(repository.url, pinned)
    assert {name: (tree / name).read_bytes() for name in content} == content


def test_modes_are_the_same_everywhere(repository: Repository) -> None:
    (repository.folder / "run.sh").write_text("x")
    (repository.folder / "run.sh").chmod(0o755)
    pinned = repository.commit()
    mask = os.umask(0o077)
    try:
        tree = run(repository.url, pinned)
    finally:
        os.umask(mask)
    modes = {
        str(p.relative_to(tree)): stat.S_IMODE(p.stat().st_mode) for p in (tree, *tree.rglob("*"))
    }
    assert modes == {
        ".": 0o755,
        "setup.py": 0o644,
        "run.sh": 0o755,
        "libs": 0o755,
        "libs/ops": 0o755,
        "libs/ops/op.cu": 0o644,
    }


def test_no_hook_and_no_template_of_the_user_runs(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = tmp_path / "templates/hooks/post-checkout"
    hook.parent.mkdir(parents=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(hook.parent.parent))
    run(repository.url, repository.head)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("subdirectory", ["libs/ops", "./libs/ops/", "libs//ops"])
def test_a_subdirectory(repository: Repository, subdirectory: str) -> None:
    assert files(run(repository.url, repository.head, subdirectory)) == {"op.cu": "y\n"}


@pytest.mark.parametrize("subdirectory", [".", ""])
def test_no_subdirectory(repository: Repository, subdirectory: str) -> None:
    assert "setup.py" in files(run(repository.url, repository.head, subdirectory))


def test_a_subdirectory_that_is_not_there(repository: Repository) -> None:
    message = failure(repository.url, repository.head, "libs/pointops")
    assert "no folder libs/pointops" in message and "folders in libs/: ops" in message
    message = failure(repository.url, repository.head, "setup.py")
    assert "no folder setup.py" in message and "folders in the top folder: libs" in message


def test_a_subdirectory_is_no_link(repository: Repository) -> None:
    (repository.folder / "link").symlink_to("libs")
    message = failure(repository.url, repository.commit(), "link/ops")
    assert "no folder link/ops" in message


@pytest.mark.parametrize(
    ("subdirectory", "target"),
    [
        ("", "/etc/passwd"),
        ("", "../../outside"),
        ("", "ops/../../../outside"),
        ("", "up/../outside"),
        ("libs", "../setup.py"),
    ],
)
def test_a_link_that_leads_out_is_refused(
    repository: Repository, subdirectory: str, target: str
) -> None:
    (repository.folder / "libs/bad").symlink_to(target)
    if not subdirectory:
        (repository.folder / "libs/up").symlink_to("..")
    message = failure(repository.url, repository.commit(), subdirectory)
    assert f"bad -> {target}" in message and "libs/up" not in message


def test_links_inside_are_kept(repository: Repository) -> None:
    (repository.folder / "here").symlink_to("libs/ops")
    (repository.folder / "libs/ops/back").symlink_to("../../setup.py")
    tree = run(repository.url, repository.commit())
    assert os.readlink(tree / "here") == "libs/ops"
    assert (tree / "here/back").read_text() == "x\n"


# --------------------------------------------------------------------------------------------
# Submodules
# --------------------------------------------------------------------------------------------


@pytest.fixture
def nested(repository: Repository, tmp_path: Path) -> Repository:
    """`repository` with a submodule in a submodule, by relative and by whole addresses."""
    inner = Repository(tmp_path / "forge/other/inner", {"inner.h": "1\n"})
    middle = Repository(tmp_path / "forge/owner/middle", {"middle.h": "2\n"})
    middle.add_submodule("third_party/inner", f"{FORGE}other/inner", inner.head)
    repository.add_submodule("libs/ops/middle", "../middle", middle.head)
    # What the branches hold later must not matter.
    inner.commit({"inner.h": "newer\n"})
    middle.commit({"middle.h": "newer\n"})
    return repository


WITH_SUBMODULES = {
    "setup.py": "x\n",
    "libs/ops/op.cu": "y\n",
    "libs/ops/middle/middle.h": "2\n",
    "libs/ops/middle/third_party/inner/inner.h": "1\n",
}


def without_git_files(tree: Path) -> dict[str, str]:
    return {name: text for name, text in files(tree).items() if ".gitmodules" not in name}


def test_submodules_at_their_commits_through_mirrors(nested: Repository, tmp_path: Path) -> None:
    mirrors = {FORGE: f"{(tmp_path / 'forge').as_uri()}/"}
    tree = run(f"{FORGE}owner/name", nested.head, mirrors=mirrors)
    assert without_git_files(tree) == WITH_SUBMODULES
    assert not list(tree.rglob(".git"))


def test_a_mirror_may_be_a_folder(nested: Repository, tmp_path: Path) -> None:
    tree = run(f"{FORGE}owner/name", nested.head, mirrors={FORGE: f"{tmp_path}/forge/"})
    assert without_git_files(tree) == WITH_SUBMODULES


def test_submodules_of_a_subdirectory_alone(nested: Repository, tmp_path: Path) -> None:
    nested.add_submodule("docs/theme", f"{FORGE}nobody/theme", MISSING)
    mirrors = {FORGE: f"{(tmp_path / 'forge').as_uri()}/"}
    tree = run(f"{FORGE}owner/name", nested.head, "libs/ops", mirrors=mirrors)
    assert without_git_files(tree) == {
        name.removeprefix("libs/ops/"): text
        for name, text in WITH_SUBMODULES.items()
        if name.startswith("libs/ops/")
    }


def test_a_subdirectory_inside_a_submodule(nested: Repository, tmp_path: Path) -> None:
    mirrors = {FORGE: f"{(tmp_path / 'forge').as_uri()}/"}
    folder = "libs/ops/middle/third_party"
    tree = run(f"{FORGE}owner/name", nested.head, folder, mirrors=mirrors)
    assert files(tree) == {"inner/inner.h": "1\n"}


def test_a_submodule_out_of_reach(repository: Repository) -> None:
    address = unused_address()
    repository.add_submodule("dep", f"{FORGE}dep", MISSING)
    message = failure(repository.url, repository.head, mirrors={FORGE: f"{address}/"})
    assert f"The submodule dep ({FORGE}dep) of {repository.url}" in message
    assert "out of reach" in message
    assert f'[cuda-wheels].source_mirrors: {{"{FORGE}": ' in message
    assert f"looked for at {address.replace('someone:s3cret', '***')}/dep" in message


def test_a_submodule_whose_commit_is_gone(repository: Repository, tmp_path: Path) -> None:
    dep = Repository(tmp_path / "dep", {"a": "1"})
    gone = dep.commit({"a": "2"})
    repository.add_submodule("dep", dep.url, gone)
    dep.forget()
    message = failure(repository.url, repository.head)
    assert "The submodule dep" in message and f"has no commit {gone}" in message
    assert "its parent records" in message


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ext::sh -c touch% ran", "white space"),
        ("ext::touch", "only https, http, ssh and file"),
        ("git://forge.example/dep", "only https, http, ssh and file"),
        ("dep", "only https, http, ssh and file"),
    ],
)
def test_submodules_that_are_not_asked_for_are_named_at_once(
    repository: Repository, url: str, words: str
) -> None:
    repository.add_submodule("one", url, MISSING)
    repository.add_submodule("two", url, MISSING)
    message = failure(repository.url, repository.head)
    assert "The submodule one of" in message and "The submodule two of" in message
    assert words in message and "[cuda-wheels].source_mirrors" in message


def test_a_submodule_like_an_option_is_refused(repository: Repository) -> None:
    repository.add_submodule("dep", "--upload-pack=touch", MISSING)
    message = failure(repository.url, repository.head)
    assert "made to do harm" in message and "gitmodulesUrl" in message


def test_an_address_of_ssh_leads_to_a_mirror(repository: Repository, tmp_path: Path) -> None:
    dep = Repository(tmp_path / "forge/other/dep", {"a": "1"})
    repository.add_submodule("one", "git@forge.example:other/dep", dep.head)
    repository.add_submodule("two", "git://forge.example/other/dep", dep.head)
    forge = f"{(tmp_path / 'forge').as_uri()}/"
    tree = run(
        repository.url,
        repository.head,
        mirrors={"git@forge.example:": forge, "git://forge.example/": forge},
    )
    assert (tree / "one/a").read_text() == (tree / "two/a").read_text() == "1"


def test_a_submodule_is_no_folder_of_this_machine(repository: Repository, tmp_path: Path) -> None:
    dep = Repository(tmp_path / "dep", {"a": "1"})
    repository.add_submodule("dep", dep.url, dep.head)
    with serving_git(tmp_path / "forge") as server:
        message = failure(f"{server}/owner/name/.git", repository.head)
    assert "a folder of this machine" in message


def test_a_submodule_without_an_address(repository: Repository) -> None:
    git(repository.folder, "update-index", "--add", "--cacheinfo", f"160000,{MISSING},dep")
    git(repository.folder, "commit", "--quiet", "--message=x")
    message = failure(repository.url, repository.head)
    assert "The submodule dep" in message and "no address in .gitmodules" in message


@pytest.mark.parametrize(
    ("parent", "url", "whole"),
    [
        (f"{FORGE}owner/name", "../dep", f"{FORGE}owner/dep"),
        (f"{FORGE}owner/name/", "../../other/dep.git", f"{FORGE}other/dep.git"),
        (f"{FORGE}owner/name", "./dep", f"{FORGE}owner/name/dep"),
        ("git@forge.example:owner/name", "../dep", "git@forge.example:owner/dep"),
        ("git@forge.example:owner/name", "../../dep", "git@forge.example:dep"),
        ("/srv/git/name", "../dep", "/srv/git/dep"),
        (f"{FORGE}owner/name", "ssh://git@h/dep", "ssh://git@h/dep"),
    ],
)
def test_relative_addresses(parent: str, url: str, whole: str) -> None:
    assert program_git.resolve(parent, url) == whole


# --------------------------------------------------------------------------------------------
# What goes wrong
# --------------------------------------------------------------------------------------------


def test_no_password_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asking = tmp_path / "ask"
    asking.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\necho x\n")
    asking.chmod(0o755)
    for name in ("GIT_ASKPASS", "SSH_ASKPASS"):
        monkeypatch.setenv(name, str(asking))
    with answering(401, {"WWW-Authenticate": 'Basic realm="x"'}) as server:
        message = failure(f"{server}/owner/private", MISSING)
    assert not (tmp_path / "asked").exists()
    host = server.removeprefix("http://")
    assert f"{host} asks for a user with a password" in message
    assert f'{{"http://{host}/": "https://USER:TOKEN@HOST/"}}' in message
    assert ".pants.rc" in message


def test_a_wrong_password_is_not_shown() -> None:
    with answering(401, {"WWW-Authenticate": 'Basic realm="x"'}) as server:
        secret = server.replace("http://", "http://someone:s3cret@")
        message = failure(f"{FORGE}x", MISSING, mirrors={FORGE: f"{secret}/"})
    assert "asks for a user with a password" in message and "***@127.0.0.1" in message


def test_a_host_out_of_reach() -> None:
    message = failure(f"{FORGE}owner/name", MISSING, mirrors={FORGE: f"{unused_address()}/"})
    assert "out of reach" in message and "Check the network" in message
    assert f'[cuda-wheels].source_mirrors: {{"{FORGE}": "https://MIRROR/"}}' in message


def test_a_host_without_an_address() -> None:
    message = failure("https://nowhere.invalid/owner/name", MISSING)
    assert "nowhere.invalid is out of reach" in message


def test_a_server_error_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    run_git = program_git.Git.run

    def counting(self: Any, *arguments: str, **more: Any) -> program_git.Answer:
        asked.append(arguments)
        return run_git(self, *arguments, **more)

    monkeypatch.setattr(program_git.Git, "run", counting)
    with answering(503) as server:
        message = failure(f"{server}/owner/name", MISSING)
    assert "503" in message
    assert sum("fetch" in arguments for arguments in asked) == program_git.ATTEMPTS


def test_a_host_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_git, "LOW_SPEED_TIME_S", 1)
    with silent_server() as address:
        message = failure(f"{FORGE}x", MISSING, mirrors={FORGE: f"{address}/"})
    assert "sent nothing for 1 seconds" in message and '"https://MIRROR/"' in message


def test_a_download_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_git, "TIMEOUT_S", 2.0)
    with silent_server() as address:
        message = failure(f"{FORGE}x", MISSING, mirrors={FORGE: f"{address}/"})
    assert "minutes and was ended" in message


def test_no_repository_at_the_address(tmp_path: Path) -> None:
    message = failure((tmp_path / "none").as_uri(), MISSING)
    assert "there is no repository at that address" in message
    with answering(404) as server:
        message = failure(f"{server}/owner/name", MISSING)
    assert "there is no repository at that address" in message


def test_without_git(monkeypatch: pytest.MonkeyPatch, repository: Repository) -> None:
    url, commit = repository.url, repository.head
    monkeypatch.setenv("PATH", "/nonexistent")
    message = failure(url, commit)
    assert "was not found on PATH" in message and "apt-get install git" in message


@pytest.mark.parametrize(
    "url", ["--upload-pack=touch", "ext::touch", "git://h/x", "-x:y", "ftp://h/x", "name", "a\nb"]
)
def test_what_git_is_not_asked_for(url: str) -> None:
    assert "is no address of a git repository" in failure(url, MISSING)


def test_a_mirror_that_is_no_address() -> None:
    message = failure(f"{FORGE}x", MISSING, mirrors={FORGE: "ext::touch "})
    assert "is no address of a git repository" in message
    assert "[cuda-wheels].source_mirrors leads" in message


def test_damage_on_the_way_is_found(repository: Repository, tmp_path: Path) -> None:
    commit = repository.head
    blob = git(repository.folder, "rev-parse", "HEAD:setup.py")
    other = git(repository.folder, "rev-parse", "HEAD:libs/ops/op.cu")
    objects = repository.folder / ".git/objects"
    victim = objects / blob[:2] / blob[2:]
    victim.chmod(0o644)
    victim.write_bytes((objects / other[:2] / other[2:]).read_bytes())
    git(repository.folder, "update-server-info")
    with serving_files(tmp_path / "forge") as server:
        message = failure(f"{server}/owner/name/.git", commit)
    assert "cannot be fetched" in message and "damaged" in message


def test_a_full_disk_is_said_to_be_one(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = program_git.Answer(128, "", "fatal: write error: No space left on device\n")
    monkeypatch.setattr(program_git.Fetcher, "_ask", lambda *arguments: full)
    with pytest.raises(OSError, match="No space left"):
        run(repository.url, repository.head)


def test_proxies_and_certificates_come_from_the_settings() -> None:
    message = failure(
        "http://forge.example/x", MISSING, proxies={"http_proxy": "http://127.0.0.1:9"}
    )
    assert "127.0.0.1 port 9" in message
    message = failure("https://forge.example/x", MISSING, ca_certs="/nonexistent/ca.pem")
    assert "/nonexistent/ca.pem" in message or "out of reach" in message
