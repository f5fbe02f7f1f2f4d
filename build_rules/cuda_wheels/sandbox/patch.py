"""Makes the tree that is compiled: the source, our added files, then the patches in order.

Overlay files come before the patches, so that a patch may wire a new file in. An overlay never
replaces a file of the source: that is a patch's work, which shows what changed and stops
applying when the source moves.

Request: `source`, `patches` (each with `name` and `path`), `overlay` (a directory, or null),
`out`. `git apply` is strict here: a hunk must match every line of its context, but it may have
moved.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda_wheels.sandbox import program, unpack


@dataclass(frozen=True)
class Hunk:
    """Where one hunk of a patch wants to go."""

    file: str
    number: int
    old_start: int
    header: str


def hunks(patch_text: str) -> list[Hunk]:
    """The hunks of a unified diff, numbered by file from 1."""
    found: list[Hunk] = []
    file, number, left_old, left_new = "", 0, 0, 0
    for line in patch_text.splitlines():
        if left_old > 0 or left_new > 0:
            left_old -= not line.startswith(("+", "\\"))
            left_new -= not line.startswith(("-", "\\"))
            continue
        if line.startswith("--- "):
            old = _stripped_name(line[4:])
        elif line.startswith("+++ "):
            new = _stripped_name(line[4:])
            file, number = (old if new == "/dev/null" else new), 0
        header = re.match(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@", line)
        if header:
            number += 1
            left_old = int(header.group(2) or 1)
            left_new = int(header.group(3) or 1)
            found.append(Hunk(file, number, int(header.group(1)), line.strip()))
    return found


def _stripped_name(name: str) -> str:
    """A file name of a diff header as git reads it with `-p1`."""
    path = name.split("\t")[0].strip().strip('"')
    return path if path == "/dev/null" else path.partition("/")[2] or path


def copy_overlay(overlay: Path, tree: Path) -> list[str]:
    """Add the files below `overlay` to `tree`; names that are there or below a file are returned."""
    clashes = []
    for path in sorted(overlay.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            continue
        name = path.relative_to(overlay)
        target = tree / name
        if target.is_symlink() or target.exists() or _below_no_directory(tree, name):
            clashes.append(str(name))
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target, follow_symlinks=False)
    return clashes


def _below_no_directory(tree: Path, name: Path) -> bool:
    """Whether a file lies where `name` has a directory, or a link, which leads elsewhere."""
    parents = [tree / parent for parent in name.parents if parent != Path(".")]
    return any(
        parent.is_symlink() or (parent.exists() and not parent.is_dir()) for parent in parents
    )


def git_environment(tree: Path, home: Path) -> dict[str, str]:
    """An environment in which git knows neither the user's settings nor a repository around us.

    In a subdirectory of a repository `git apply` silently skips files outside of it.
    """
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CEILING_DIRECTORIES": str(tree.resolve().parent),
    }


def apply(tree: Path, patch: Path, home: Path) -> str | None:
    """Apply one patch to `tree`; git's words if it does not apply (`tree` is then unchanged)."""
    argv = ["git", "apply", "--whitespace=nowarn", "--verbose", str(patch.resolve())]
    try:
        done = subprocess.run(
            argv,
            cwd=tree,
            env=git_environment(tree, home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        raise program.ProgramError(
            "git is needed to apply patches and was not found on PATH.\n"
            "Install it (`apt-get install git`, `dnf install git`)."
        ) from error
    return None if done.returncode == 0 else done.stdout


def failure(name: str, patch_text: str, git_words: str) -> str:
    """What to tell about a patch that does not apply: which hunk of which file, and git's words."""
    lines = [f"Patch {name} does not apply."]
    if "\r\n" in patch_text:
        lines.append(
            "  It has line ends of Windows (CRLF), which the lines of the source must too."
        )
    known = hunks(patch_text)
    if not known and "No valid patches" in git_words:
        lines.append("  It changes nothing: no `diff` is below its header.")
    for file, line in re.findall(r"^error: patch failed: (.+):(\d+)$", git_words, re.MULTILINE):
        for hunk in known:
            if hunk.file == file and hunk.old_start == int(line):
                lines.append(f"  {file}: hunk {hunk.number} ({hunk.header})")
    errors = [line for line in git_words.splitlines() if line.startswith(("error:", "fatal:"))]
    lines += [f"  git: {line}" for line in errors or git_words.splitlines()[-5:]]
    return "\n".join(lines)


def apply_all(tree: Path, patches: Sequence[Mapping[str, str]], home: Path) -> list[str]:
    """Apply the patches in order and return a message for each that fails."""
    problems = []
    for patch in patches:
        path = Path(patch["path"])
        if not path.is_file():
            problems.append(f"Patch {patch['name']} is missing: there is no file {path}.")
            continue
        git_words = apply(tree, path, home)
        if git_words is not None:
            text = path.read_bytes().decode(errors="replace")
            problems.append(failure(patch["name"], text, git_words))
    return problems


_ADVICE = (
    "The source does not look as the patch expects: it was made for another version, or an earlier "
    "patch of the series changed the same lines.\n"
    "Make the change again on the pinned source and refresh the patch (`git diff`, header kept)."
)


def main(request: Mapping[str, Any]) -> None:
    """Write the patched tree to `out`, or nothing at all."""
    out = Path(request["out"])
    out.parent.mkdir(parents=True, exist_ok=True)
    os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as scratch:
        tree, home = Path(scratch) / "tree", Path(scratch) / "home"
        home.mkdir()
        shutil.copytree(request["source"], tree, symlinks=True)
        overlay = request.get("overlay")
        clashes = copy_overlay(Path(overlay), tree) if overlay else []
        if clashes:
            raise program.ProgramError(
                f"The overlay would replace files of the source: {', '.join(clashes)}.\n"
                "An overlay only adds files. Change an existing file by a patch."
            )
        problems = apply_all(tree, request.get("patches") or (), home)
        if problems:
            raise program.ProgramError("\n\n".join([*problems, _ADVICE]))
        unpack.normalise_modes(tree)
        os.replace(tree, out)


if __name__ == "__main__":
    program.run(main)
