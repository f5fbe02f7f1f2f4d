"""Fetches a commit of a git repository with its submodules. Nothing of it runs.

The tree is what the commit holds, byte for byte: attributes that change line ends, expand keywords
or call filters do not apply, and git sees none of the user's settings. It names what it fetches by
its hash, so the commit pins all of it; a submodule is pinned by the commit that records it.

Request: `url`, `commit`, `subdirectory`, `out`, and the `cache` with the session's settings.
"""

from __future__ import annotations

import errno
import itertools
import os
import posixpath
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cuda_wheels.sandbox import environment, mirrors, program, unpack

LOW_SPEED_TIME_S = 60
"""A server that sends nothing for so long is given up. One that is still packing says so."""
TIMEOUT_S = 1800.0
ATTEMPTS = 3
PAUSE_S = 2.0
SSH = "ssh -oBatchMode=yes -oConnectTimeout=30 -oServerAliveInterval=15 -oServerAliveCountMax=4"

# `safe`: whoever owns a local repository, the hash decides. `fsck`: faults of old commits that say
# nothing of their content do not make them unusable.
_CONFIG = """\
[core]
	hooksPath = /dev/null
	attributesFile = /dev/null
	fsmonitor = false
[safe]
	directory = *
[fetch]
	fsckObjects = true
[fetch "fsck"]
	badTimezone = warn
	missingEmail = warn
	missingNameBeforeEmail = warn
	missingSpaceBeforeDate = warn
	missingSpaceBeforeEmail = warn
	zeroPaddedFilemode = warn
[gc]
	auto = 0
[maintenance]
	auto = false
[http]
	lowSpeedLimit = 1
	lowSpeedTime = {low_speed_time}
"""

# For `info/attributes` of our own copy, which no file of the commit overrides.
_ATTRIBUTES = "* -text !eol !crlf -ident -filter !working-tree-encoding\n"

# A server of git's first protocol, one of another make, or plain files behind http.
_REFUSED = re.compile(
    r"not our ref|unadvertised object|want [0-9a-f]+ not valid|dumb http|support shallow",
    re.IGNORECASE,
)
# What may be over at the next attempt.
_TRANSIENT = (
    r"[Cc]ould ?n[o']t resolve|Could not resolve|Failed to connect|Connection (refused|reset|closed)"
    r"|returned error: 5\d\d|early EOF|hung up unexpectedly|RPC failed|unexpected disconnect"
)


@dataclass(frozen=True)
class Repository:
    """A commit to fetch. `url` is as declared, before mirrors; `path` is its place in the tree."""

    url: str
    commit: str
    path: str = ""
    parent: str = ""

    @property
    def title(self) -> str:
        """The repository as messages name it, at the beginning of a sentence."""
        shown = environment.hide_credentials(self.url)
        if not self.parent:
            return f"The git repository {shown}"
        return f"The submodule {self.path} ({shown}) of {environment.hide_credentials(self.parent)}"


@dataclass(frozen=True)
class Answer:
    """How a git command ended; `late` if it was ended after its time."""

    returncode: int
    stdout: str
    stderr: str
    late: bool = False


class Git:
    """Runs git with settings of ours alone, which lie in `home`."""

    def __init__(self, home: Path, settings: environment.Settings) -> None:
        home.mkdir(parents=True)
        (home / ".gitconfig").write_text(_CONFIG.format(low_speed_time=LOW_SPEED_TIME_S))
        self._home = home
        self._environment = {
            **dict(settings.proxies),
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_ALLOW_PROTOCOL": "file:http:https:ssh",
            # Nobody is there to answer a prompt.
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "",
            "GIT_SSH_COMMAND": SSH,
        }
        if settings.ca_certs:
            self._environment["GIT_SSL_CAINFO"] = settings.ca_certs

    def run(self, *arguments: str, cwd: Path | None = None) -> Answer:
        """Run a git command; one that takes too long is ended."""
        # Files, not pipes: a helper that git left behind would hold a pipe open.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = subprocess.Popen(
                    ["git", *arguments],
                    cwd=cwd or self._home,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                )
            except FileNotFoundError as error:
                raise program.ProgramError(
                    "git is needed to fetch this source and was not found on PATH.\n"
                    "Install it (`apt-get install git`, `dnf install git`)."
                ) from error
            late = _wait(process)
            out.seek(0)
            err.seek(0)
            return Answer(
                process.returncode,
                os.fsdecode(out.read()),
                environment.hide_credentials(err.read().decode(errors="replace")),
                late,
            )


def _wait(process: subprocess.Popen[bytes]) -> bool:
    """Wait for a process; True if it had to be ended."""
    try:
        process.wait(TIMEOUT_S)
        return False
    except subprocess.TimeoutExpired:
        # git ends its helpers on this signal.
        process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return True


# --------------------------------------------------------------------------------------------
# Addresses
# --------------------------------------------------------------------------------------------


def is_local(url: str) -> bool:
    """Whether an address is one of this machine's file system."""
    return url.startswith(("/", "file://"))


def address_problem(url: str) -> str | None:
    """Why git is not asked for an address; None if it can be."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):(//|:)", url)
    if re.search(r"[\s\x00-\x1f]", url):
        return "white space is in it"
    if scheme and scheme.group(2) == "//" and scheme.group(1) in ("https", "http", "ssh", "file"):
        return None
    # `user@host:path` is how git writes ssh.
    if not scheme and (url.startswith("/") or re.match(r"[A-Za-z0-9_][^/:]*:[^:]", url)):
        return None
    return "only https, http, ssh and file are fetched"


def resolve(parent: str, url: str) -> str:
    """The address of a submodule, which may be relative to that of its parent."""
    if not url.startswith(("./", "../")):
        return url
    base = parent.rstrip("/")
    while url.startswith(("./", "../")):
        step, _, url = url.partition("/")
        if step == "..":
            base = re.sub(r"/[^/]*$|(?<=:)[^/:]*$", "", base)
    return f"{base}{'' if base.endswith(':') else '/'}{url}"


def _host(address: str) -> str:
    """The host of an address, or the address itself where it is a local path."""
    parts = urlsplit(address)
    if parts.hostname:
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    return address if is_local(address) else address.partition(":")[0].rpartition("@")[2]


# --------------------------------------------------------------------------------------------
# Errors
# --------------------------------------------------------------------------------------------

# What git prints, and what it means. The first row that matches decides.
_FAULTS = (
    (r"No space left on device|Disk quota exceeded", "disk"),
    (
        r"terminal prompts disabled|could not read (Username|Password)|Authentication failed"
        r"|Permission denied \(|Access denied|returned error: 40[13]",
        "password",
    ),
    (r"Operation too slow", "silent"),
    (r"certificate|SSL (connect|routines|peer)|SSL_", "certificate"),
    (r"Host key verification failed", "host key"),
    (
        r"[Rr]epository .*not found|returned error: 404|does not appear to be a git repository"
        r"|not a git repository|does not exist",
        "missing",
    ),
    (rf"{_TRANSIENT}|timed out|unreachable|No route to host", "network"),
    (r"mismatched algorithms", "algorithm"),
    (r"fsck error|index-pack failed|unpack-objects failed|bad object|bad hash|corrupt", "damaged"),
)

_REASONS = {
    "password": "{host} asks for a user with a password or a key, and nobody is there to be asked.\n"
    "Some hosts answer so for a repository that does not exist: check the address. A private one is "
    "reached through an address with access, named in a file of your own (`.pants.rc`):\n"
    "  {private}",
    "silent": "{host} accepted the connection and then sent nothing for {low_speed} seconds.\n"
    "Try again later, or name a mirror:\n  {mirror}",
    "late": "the download from {host} took more than {timeout} minutes and was ended.\n"
    "Try again later, or name a mirror:\n  {mirror}",
    "certificate": "the certificate of {host} is not trusted.\n"
    "[GLOBAL].ca_certs_path names the certificates; a mirror is named by\n  {mirror}",
    "host key": "ssh does not know the key of {host}.\n"
    "Connect to it once by hand (`ssh {host}`) and confirm the key, or name a mirror:\n  {mirror}",
    "missing": "there is no repository at that address.\n"
    "Check the address. If the repository was moved or deleted, name a mirror:\n  {mirror}",
    "network": "{host} is out of reach.\n"
    "Check the network and the proxy variables, or name a mirror:\n  {mirror}",
    "algorithm": "its commits have hashes of another length than the declared one.\n"
    "A commit has 40 digits, or 64 in a repository of sha256: `git ls-remote URL` prints them.",
    "damaged": "what {host} sent is damaged, or was made to do harm: git refuses it.\n"
    "Compare with another copy of the repository, which is named by\n  {mirror}",
    "other": "git failed.\nA mirror of the repository is named by\n  {mirror}",
}


def _failure(repository: Repository, address: str, answer: Answer) -> Exception:
    """The error that a failed command stands for."""
    kind = next((kind for pattern, kind in _FAULTS if re.search(pattern, answer.stderr)), "other")
    if kind == "disk":
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    reason = _REASONS["late" if answer.late else kind].format(
        host=environment.hide_credentials(_host(address)),
        low_speed=LOW_SPEED_TIME_S,
        timeout=round(TIMEOUT_S / 60),
        mirror=mirrors.example(repository.url),
        private=mirrors.example(repository.url, "https://USER:TOKEN@HOST/"),
    )
    lines = [f"{repository.title} cannot be fetched: {reason}", *_mirror_used(repository, address)]
    said = [line for line in answer.stderr.splitlines() if line.strip() and "hint:" not in line]
    lines += [f"  git: {line}" for line in said[-6:]]
    return program.ProgramError("\n".join(lines))


def _mirror_used(repository: Repository, address: str) -> list[str]:
    if address == repository.url:
        return []
    shown = environment.hide_credentials(address)
    return [f"It was looked for at {shown}, to which {mirrors.OPTION} leads."]


def _commit_missing(repository: Repository, address: str) -> program.ProgramError:
    shown = environment.hide_credentials(repository.url)
    by_whom = (
        "That is the commit which its parent records. Name a mirror that still has it, or pin"
        " another commit of the parent:"
        if repository.parent
        else "It was removed by a force push, or it belongs to a fork. Compare with upstream, then "
        f"pin a commit that is there (`git ls-remote {shown}`), or name a mirror that still has it:"
    )
    return program.ProgramError(
        "\n".join(
            [
                f"{repository.title} has no commit {repository.commit}: no branch and no tag "
                f"leads to it.\n{by_whom}",
                f"  {mirrors.example(repository.url)}",
                *_mirror_used(repository, address),
            ]
        )
    )


# --------------------------------------------------------------------------------------------
# Fetching
# --------------------------------------------------------------------------------------------


class Fetcher:
    """Fetches repositories into folders of `scratch`, each through the mirrors."""

    def __init__(self, git: Git, leads: Mapping[str, str], scratch: Path) -> None:
        self._git = git
        self._mirrors = leads
        self._scratch = scratch
        self._numbers = itertools.count()

    def fetch(self, repository: Repository, tree: Path, subdirectory: str) -> None:
        """Write the commit to `tree`, with the submodules that `subdirectory` has to do with."""
        address = mirrors.mirrored(repository.url, self._mirrors)
        problem = address_problem(address)
        if problem:
            shown = environment.hide_credentials(address)
            raise program.ProgramError(
                "\n".join(
                    [
                        f"{shown} is no address of a git repository: {problem}.",
                        *_mirror_used(repository, address),
                    ]
                )
            )
        folder = self._download(repository, address)
        self._check_out(repository, address, folder, tree)
        submodules = [
            submodule
            for submodule in self._submodules(repository, folder)
            if _concerns(submodule.path, subdirectory)
        ]
        _refuse_submodules(submodules, self._mirrors)
        for submodule in submodules:
            inner = f"{subdirectory}/".removeprefix(f"{submodule.path}/").rstrip("/")
            self.fetch(submodule, tree / submodule.path, "" if inner == subdirectory else inner)

    def _download(self, repository: Repository, address: str) -> Path:
        """Fetch the commit into a repository of our own, without its history if that can be."""
        folder = self._scratch / f"{next(self._numbers)}.git"
        long = ["--object-format=sha256"] if len(repository.commit) == 64 else []
        made = self._git.run("init", "--quiet", "--bare", "--template=", *long, str(folder))
        if made.returncode:
            raise _failure(repository, address, made)
        (folder / "info").mkdir(exist_ok=True)
        (folder / "info/attributes").write_text(_ATTRIBUTES)
        answer = self._ask(folder, "--depth=1", "--", address, repository.commit)
        if answer.returncode and _REFUSED.search(answer.stderr):
            print(f"{repository.title}: the whole history is fetched.", file=sys.stderr)
            refs = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
            answer = self._ask(folder, "--", address, *refs)
        if answer.returncode:
            raise _failure(repository, address, answer)
        return folder

    def _ask(self, folder: Path, *arguments: str) -> Answer:
        command = ["fetch", "--quiet", "--no-tags", "--no-recurse-submodules", *arguments]
        for attempt in range(1, ATTEMPTS + 1):
            answer = self._git.run(f"--git-dir={folder}", *command)
            if not (answer.returncode and re.search(_TRANSIENT, answer.stderr)) or answer.late:
                break
            if attempt < ATTEMPTS:
                time.sleep(PAUSE_S * attempt)
        return answer

    def _check_out(self, repository: Repository, address: str, folder: Path, tree: Path) -> None:
        commit = repository.commit
        found = self._git.run(
            f"--git-dir={folder}", "rev-parse", "--verify", f"{commit}^{{commit}}"
        )
        if found.returncode:
            raise _commit_missing(repository, address)
        if found.stdout.strip() != commit:
            raise program.ProgramError(
                f"{repository.title}: {commit} is an annotated tag and not a commit, so it is no "
                f"pin of one.\nThe commit that it names is {found.stdout.strip()}: declare that."
            )
        tree.mkdir(parents=True, exist_ok=True)
        done = self._git.run(
            f"--git-dir={folder}",
            f"--work-tree={tree}",
            *("checkout", "--quiet", "--force", "--detach", commit),
            cwd=tree,
        )
        head = self._git.run(f"--git-dir={folder}", "rev-parse", "HEAD")
        if done.returncode or head.stdout.strip() != commit:
            raise _failure(repository, address, done)

    def _submodules(self, repository: Repository, folder: Path) -> list[Repository]:
        """The submodules that the commit records, each with its commit and its whole address."""
        listed = self._git.run(
            f"--git-dir={folder}", "ls-tree", "-r", "-z", "--full-tree", repository.commit
        )
        entries = [entry.partition("\t") for entry in listed.stdout.split("\0")]
        links = {path: kind.split()[2] for kind, _, path in entries if kind.startswith("160000 ")}
        if not links:
            return []
        settings = self._git.run(
            f"--git-dir={folder}",
            *("config", "-z", "--blob", f"{repository.commit}:.gitmodules"),
            *("--get-regexp", r"^submodule\..*\.(path|url)$"),
        )
        values: dict[str, dict[str, str]] = {}
        for entry in settings.stdout.split("\0"):
            key, _, value = entry.partition("\n")
            name, _, variable = key.rpartition(".")
            values.setdefault(name, {})[variable] = value
        urls = {v["path"].rstrip("/"): v["url"] for v in values.values() if {"path", "url"} <= {*v}}
        return [
            Repository(
                resolve(repository.url, urls[path]) if path in urls else "",
                commit,
                path,
                repository.url,
            )
            for path, commit in sorted(links.items())
        ]


def _concerns(path: str, subdirectory: str) -> bool:
    """Whether the submodule at `path` lies in `subdirectory`, or the other way round."""
    inner, outer = f"{path}/", f"{subdirectory}/" if subdirectory else ""
    return inner.startswith(outer) or outer.startswith(inner)


def _refuse_submodules(submodules: list[Repository], leads: Mapping[str, str]) -> None:
    """Raise with every submodule whose address cannot be used, before one is fetched."""
    problems = []
    for submodule in submodules:
        shown = environment.hide_credentials(submodule.url)
        owner = f"The submodule {submodule.path} of {submodule.parent}"
        address = mirrors.mirrored(submodule.url, leads)
        if not submodule.url:
            problems.append(
                f"{owner} has no address in .gitmodules, so its files are nowhere to be had. Use "
                "an archive of the commit (`archive_source`) if the package builds without them."
            )
        elif address_problem(address):
            problems.append(
                f"{owner} has the address {shown}: {address_problem(address)}. Name a mirror:\n"
                f"  {mirrors.example(submodule.url)}"
            )
        elif is_local(address) and address == submodule.url and not is_local(submodule.parent):
            problems.append(
                f"{owner} has the address {shown}, which is a folder of this machine. Name a "
                f"mirror:\n  {mirrors.example(submodule.url)}"
            )
    if problems:
        raise program.ProgramError("\n".join(problems))


# --------------------------------------------------------------------------------------------
# The tree
# --------------------------------------------------------------------------------------------


def _folder_of(tree: Path, subdirectory: str, url: str) -> Path:
    """The folder of the tree that was asked for."""
    top = tree
    for name in subdirectory.split("/") if subdirectory else ():
        folders = sorted(p.name for p in top.iterdir() if p.is_dir() and not p.is_symlink())
        if name not in folders:
            where = f"{top.relative_to(tree)}/" if top != tree else "the top folder"
            raise program.ProgramError(
                f"The commit of {environment.hide_credentials(url)} has no folder {subdirectory} "
                "(a link does not count).\n"
                f"  folders in {where}: {', '.join(folders[:30]) or 'none'}"
            )
        top = top / name
    return top


def _refuse_links(top: Path, title: str) -> None:
    """Raise if a link leads out of the tree; the host's files are no part of a source."""
    root = os.path.realpath(top)
    bad = []
    for folder, directories, files in os.walk(top):
        for name in (*directories, *files):
            path = os.path.join(folder, name)
            if os.path.islink(path):
                target = os.readlink(path)
                inside = os.path.realpath(path) == root or os.path.realpath(path).startswith(
                    f"{root}{os.sep}"
                )
                if os.path.isabs(target) or not inside:
                    bad.append(f"{os.path.relpath(path, top)} -> {target}")
    if bad:
        shown = "".join(f"\n  {link}" for link in sorted(bad)[:10])
        raise program.ProgramError(
            f"{title} is refused: it has links that lead out of the tree:{shown}\n"
            "Check where it comes from. With a `subdirectory` a link to another folder leads out: "
            "take a folder that holds both."
        )


def main(request: Mapping[str, Any]) -> None:
    """Write the tree of the commit to `out`, or nothing at all."""
    cache, out = Path(request["cache"]), Path(request["out"]).absolute()
    repository = Repository(request["url"], request["commit"])
    folder = posixpath.normpath(request["subdirectory"] or ".")
    subdirectory = "" if folder == "." else folder
    settings, leads = environment.load_settings(cache), mirrors.load(cache)
    os.umask(0o022)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as scratch:
        tree = Path(scratch) / "tree"
        git = Git(Path(scratch) / "home", settings)
        Fetcher(git, leads, Path(scratch)).fetch(repository, tree, subdirectory)
        top = _folder_of(tree, subdirectory, repository.url)
        _refuse_links(top, repository.title)
        unpack.normalise_modes(top)
        os.replace(top, out)
    print(f"{repository.title}: commit {repository.commit}", file=sys.stderr)


if __name__ == "__main__":
    program.run(main)
