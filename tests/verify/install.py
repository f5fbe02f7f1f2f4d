"""The stage that installs a wheelhouse: into a fresh venv, or beside an installed torch."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

from cuda_wheels.audit.wheelhouse import REQUIREMENTS, Tags, problems, read_summary
from cuda_wheels.tables.accelerators import find_accelerator
from cuda_wheels.tables.names import canonical_name
from cuda_wheels.tables.upstreams import torch_index
from verify.environment import Environment, installed, run
from verify.report import FAILED, PASSED, WARNING, Line, Stage

TIMEOUT_S = 3600
_PIP = ["-m", "pip", "install", "--disable-pip-version-check", "--no-input"]


@dataclass(frozen=True)
class Origins:
    """Where torch and what the wheels require come from.

    `torch_index` None stands for the PyTorch index of the wheelhouse's accelerator. With
    `find_links` a folder of wheels is all there is: torch too, and no index is asked.
    """

    torch_index: str | None = None
    find_links: Path | None = None

    def options(self, index: str | None = None) -> list[str]:
        if self.find_links:
            return ["--no-index", "--find-links", str(self.find_links)]
        return ["--index-url", index] if index else []


class _Failed(Exception):
    """A step of the installation failed; the line is in the table."""


class _Steps:
    """The table that grows while the steps run."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def passed(
        self, subject: str, check: str, detail: str = "", version: str | None = None
    ) -> None:
        self.lines.append(Line(subject, check, PASSED, detail, version))

    def failed(self, subject: str, check: str, detail: str) -> _Failed:
        self.lines.append(Line(subject, check, FAILED, detail))
        return _Failed()

    def pip(
        self, environment: Environment, what: str, arguments: list[str], advice: str = ""
    ) -> None:
        ended = run(environment, [*_PIP, *arguments], TIMEOUT_S)
        if ended.returncode != 0:
            tail = "\n".join(ended.output.strip().splitlines()[-12:]) or ended.reason
            raise self.failed(what, "pip install", f"{tail}\n{advice}".strip())
        self.passed(what, "pip install")


def install_venv(
    wheelhouse: Path, venv: Path, python: Path, origins: Origins, sums: str | None = None
) -> tuple[Stage, Environment | None]:
    """torch, then the pinned pure packages, then all wheels, into `venv`, which must be new.

    Fails if the installation of the wheels put another torch in the place of the first.
    """
    steps = _Steps()
    try:
        tags = _checked(steps, wheelhouse, sums)
        environment = _new_venv(steps, venv, python)
        index = origins.torch_index or torch_index(tags.accel)
        # An index that was named may have a password in its address.
        asked = origins.find_links or ("`--torch-index`" if origins.torch_index else index)
        advice = f"It was asked of {asked}. `--torch-index` and `--find-links` name another place."
        steps.pip(environment, "torch", [*origins.options(index), f"torch=={tags.torch}"], advice)
        torch = installed(environment).get("torch")
        _right_torch(steps, tags, torch)
        requirements = wheelhouse / REQUIREMENTS
        if requirements.is_file() and _has_requirements(requirements):
            options = [*origins.options(), "--no-deps", "--require-hashes", "-r"]
            steps.pip(environment, REQUIREMENTS, [*options, str(requirements)])
        wheels = [str(wheel) for wheel in sorted(wheelhouse.glob("*.whl"))]
        steps.pip(environment, f"{len(wheels)} wheels", [*origins.options(), *wheels])
        _same_torch(steps, torch, installed(environment).get("torch"))
        _all_there(steps, wheelhouse, environment)
    except _Failed:
        return Stage("install", tuple(steps.lines)), None
    return Stage("install", tuple(steps.lines)), environment


def install_beside(
    wheelhouse: Path, target: Path, python: Path, origins: Origins, sums: str | None = None
) -> tuple[Stage, Environment | None]:
    """The wheels without what they require into `target`, which is put before `python`'s packages.

    That Python has torch already, and nothing in it changes. Works without pip too.
    """
    steps = _Steps()
    try:
        tags = _checked(steps, wheelhouse, sums)
        bare = Environment(python)
        _right_torch(steps, tags, installed(bare).get("torch"))
        wheels = sorted(wheelhouse.glob("*.whl"))
        into = ["--no-deps", "--no-compile", "--target", str(target)]
        if run(bare, ["-m", "pip", "--version"]).returncode == 0:
            steps.pip(bare, f"{len(wheels)} wheels", ["--no-index", *into, *map(str, wheels)])
            requirements = wheelhouse / REQUIREMENTS
            if requirements.is_file() and _has_requirements(requirements):
                options = [*origins.options(), *into, "--upgrade", "--require-hashes", "-r"]
                ended = run(bare, [*_PIP, *options, str(requirements)], TIMEOUT_S)
                verdict = PASSED if ended.returncode == 0 else WARNING
                detail = "" if ended.returncode == 0 else f"not installed: {ended.reason}"
                steps.lines.append(Line(REQUIREMENTS, "pip install", verdict, detail))
        else:
            for wheel in wheels:
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(target)
            steps.passed(f"{len(wheels)} wheels", "unzip", "this Python has no pip")
        environment = Environment(python, target)
        _all_there(steps, wheelhouse, environment)
    except _Failed:
        return Stage("install", tuple(steps.lines)), None
    return Stage("install", tuple(steps.lines)), environment


def _checked(steps: _Steps, wheelhouse: Path, sums: str | None) -> Tags:
    wrong = problems(wheelhouse, sums)
    if wrong:
        raise steps.failed(str(wheelhouse), "is as it says", "\n".join(wrong))
    steps.passed(str(wheelhouse), "is as it says")
    return read_summary(wheelhouse).tags


def _new_venv(steps: _Steps, venv: Path, python: Path) -> Environment:
    if venv.exists() and (not venv.is_dir() or any(venv.iterdir())):
        raise steps.failed(
            str(venv), "fresh venv", "It is there already. Name another folder, or remove it."
        )
    ended = run(Environment(python, isolated=True), ["-m", "venv", str(venv)])
    if ended.returncode != 0:
        raise steps.failed(
            str(venv),
            "fresh venv",
            f"{python} -m venv failed: {ended.reason}\n"
            "On Debian and Ubuntu the package python3-venv, or python3.12-venv, has what it needs.",
        )
    steps.passed(str(venv), "fresh venv")
    return Environment((venv / "bin/python").absolute(), isolated=True)


def _right_torch(steps: _Steps, tags: Tags, torch: tuple[str, str] | None) -> None:
    """The installed torch is that of the tags, and of their CUDA where its version says one."""
    if torch is None:
        raise steps.failed("torch", "is installed", f"The wheels are for torch {tags.torch}.")
    version, _, local = torch[0].partition("+")
    accel = find_accelerator(tags.accel)
    wanted = accel.torch_index if accel else tags.accel
    if version != tags.torch or (local and local != wanted):
        raise steps.failed(
            "torch",
            "is that of the wheels",
            f"torch {torch[0]} is installed, the wheels are for {tags.torch} and {wanted}.",
        )
    steps.passed("torch", "is that of the wheels", version=torch[0])


def _same_torch(
    steps: _Steps, before: tuple[str, str] | None, after: tuple[str, str] | None
) -> None:
    if before != after:
        raise steps.failed(
            "torch",
            "was not replaced",
            f"It was {before[0] if before else 'not there'} before the wheels were installed, and "
            f"is {after[0] if after else 'not there'} now, with other files: a requirement of one "
            "of them asks for another torch.",
        )
    steps.passed("torch", "was not replaced")


def _all_there(steps: _Steps, wheelhouse: Path, environment: Environment) -> None:
    """Each wheel is installed in the very version that lies in the wheelhouse."""
    found = installed(environment)
    for wheel in sorted(wheelhouse.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        there = found.get(canonical_name(name), ("not there", ""))[0]
        if there != version:
            raise steps.failed(name, "is installed", f"{version} was to be, {there} is.")
        steps.passed(canonical_name(name), "is installed", version=version)


def _has_requirements(file: Path) -> bool:
    lines = file.read_text(encoding="utf-8").splitlines()
    return any(line.strip() and not line.strip().startswith("#") for line in lines)
