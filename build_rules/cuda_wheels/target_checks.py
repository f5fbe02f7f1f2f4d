"""What is wrong with a `cuda_wheel` target by its fields alone, beside what its row is: pure functions.

Each gives a sentence a fault, and `rules.spec` reports those of all of them at once.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from typing import Iterable, Mapping

from packaging.version import Version
from pants.core.goals.package import OutputPathField
from pants.core.util_rules.environments import LOCAL_ENVIRONMENT_MATCHER
from pants.engine.addresses import Address
from pants.engine.target import Target

from cuda_wheels.field_sets import CudaWheelFieldSet, row_of
from cuda_wheels.sources import PYG, name_problem, version_problem
from cuda_wheels.tables.gpu_archs import AppliedArchs, is_capability, parse_archs, rule_problem
from cuda_wheels.tables.rows import BUILD_PYTHON, PYTHONS, Row
from cuda_wheels.tables.system_headers import unknown_header

# The value of `[cuda-wheels].gpu_archs` that stands for the GPUs of this machine.
NATIVE = "native"

# Of a number of seconds that its engine cannot count Pants dies, and its client waits for ever.
MAX_TIMEOUT = 365 * 24 * 60 * 60

# Linux's MAX_ARG_STRLEN, for `NAME=value` and the NUL behind it.
MAX_VARIABLE = 32 * 4096

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def narrow(
    promised: tuple[str, ...], option: str, gpus: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The GPU capabilities to compile for, and what is wrong with the option's value.

    `option` is `[cuda-wheels].gpu_archs`, `gpus` the capabilities of this machine's GPUs.
    """
    if not option.strip() or not promised:
        return promised, ()
    if option.strip() == NATIVE:
        if not gpus:
            return promised, (
                "`[cuda-wheels].gpu_archs` is `native`, but nvidia-smi shows no GPU here. Name "
                'the capabilities instead, for instance `--cuda-wheels-gpu-archs="9.0"`.',
            )
        wanted = tuple(dict.fromkeys(gpus))
    else:
        wanted = parse_archs(option)
        wrong = [arch for arch in wanted if not is_capability(arch)]
        if wrong or not wanted:
            return promised, (
                f"`[cuda-wheels].gpu_archs` is {option!r}, which names "
                f"{', '.join(map(repr, wrong)) or 'nothing'}: GPU capabilities are written like "
                '9.0, for instance `--cuda-wheels-gpu-archs="8.0 9.0"`.',
            )
    outside = [arch for arch in wanted if arch not in promised]
    if outside:
        return promised, (
            f"`[cuda-wheels].gpu_archs` names {', '.join(outside)}, which the target does not "
            f"promise: its `cuda_arch` is {' '.join(promised)}. Choose from those, or add it to "
            "the target.",
        )
    return tuple(arch for arch in promised if arch in wanted), ()


def dropped_problems(applied: AppliedArchs) -> tuple[str, ...]:
    """Why the package cannot keep a part of what `cuda_arch` promises; empty if it can.

    What is no capability at all, or is missing, `row_problems` reports, and `nothing_left` that
    the package can keep no part of it.
    """
    if nothing_left(applied) or not all(is_capability(arch) for arch, _ in applied.dropped):
        return ()
    return tuple(
        f"`cuda_arch` promises {arch}, but nothing would be compiled for it: {reason}. Take it "
        "out of the target."
        for arch, reason in applied.dropped
    )


def nothing_left(applied: AppliedArchs) -> str | None:
    """Why the package has no device code for any of the GPUs that are asked for; None if it has."""
    if not applied.dropped or not all(is_capability(arch) for arch, _ in applied.dropped):
        return None
    return applied.skipped


def skipped_problems(field_set: CudaWheelFieldSet) -> tuple[str, ...]:
    """A sentence if `skipped` is set and says nothing."""
    if field_set.skipped.value is None or field_set.skipped.value.strip():
        return ()
    return (
        "`skipped` is empty. Say why the package cannot serve the row, or leave the field out.",
    )


def torch_problems(field_set: CudaWheelFieldSet) -> tuple[str, ...]:
    """A sentence if a package that links torch does not say which; `row_problems` says the rest."""
    if field_set.links_torch.value and field_set.torch.value is None:
        return (
            "`torch` is not set, but the package links torch. Set it, for instance "
            '`torch="2.11.0"`, or `links_torch=False` if the package does not.',
        )
    return ()


def python_problems(row: Row) -> tuple[str, ...]:
    """A sentence if a Python that exists is not the one of the build environments."""
    if row.python not in PYTHONS or row.python == BUILD_PYTHON:
        return ()
    return (
        f"`python` is {row.python}, but build environments are made with the Python that runs the "
        f"build, {BUILD_PYTHON}. Set it to that.",
    )


def gpu_arch_rule_problems(field_set: CudaWheelFieldSet) -> tuple[str, ...]:
    """A sentence if `gpu_arch_rule` names none."""
    problem = rule_problem(field_set.gpu_arch_rule.value)
    return (problem,) if problem else ()


def build_requires_problems(row: Row, targets: Iterable[Target]) -> tuple[str, ...]:
    """A sentence for each of `build_requires` that is no wheel of this row.

    One may do without torch where this wheel needs it: it then serves every torch.
    """
    problems = []
    for target in targets:
        if not CudaWheelFieldSet.is_applicable(target):
            problems.append(
                f"`build_requires` names {target.address}, a `{target.alias}`. Name a `cuda_wheel`."
            )
            continue
        fields = CudaWheelFieldSet.create(target)
        other = row_of(fields)
        if fields.skipped.value:
            problems.append(
                f"`build_requires` names {target.address}, which is skipped: "
                f"{fields.skipped.value} Set `skipped` here too, or do without it."
            )
        if (other.arch, other.accel, other.python) != (row.arch, row.accel, row.python) or (
            other.torch not in (None, row.torch)
        ):
            problems.append(
                f"`build_requires` names {target.address}, which is for {other.variant}, but this "
                f"wheel is for {row.variant}. Name that package's wheel for this row."
            )
    return tuple(problems)


def cycle_problems(
    start: Address, requires: Mapping[Address, tuple[Address, ...]]
) -> tuple[str, ...]:
    """A sentence if `build_requires` leads from a wheel back to it.

    `requires` has what each wheel requires, for every one that `start` leads to.
    """
    ways: list[tuple[Address, ...]] = [(start,)]
    seen = {start}
    for way in ways:
        for address in requires.get(way[-1], ()):
            if address == start:
                text = " -> ".join(str(step) for step in (*way, start))
                return (
                    f"`build_requires` leads back to this wheel: {text}. None of them can be "
                    "built first. Take one of these steps out.",
                )
            if address not in seen:
                seen.add(address)
                ways.append((*way, address))
    return ()


def identity_problems(field_set: CudaWheelFieldSet) -> tuple[str, ...]:
    """A sentence for a name or version that no wheel can have: nothing is compiled to find out."""
    problems = (
        name_problem("`package`", field_set.package.value),
        version_problem("`version`", field_set.version.value),
    )
    return tuple(problem for problem in problems if problem)


def env_problems(field_set: CudaWheelFieldSet) -> tuple[str, ...]:
    """A sentence for each variable of `env` that a process cannot have."""
    problems = []
    for name, value in sorted((field_set.env.value or {}).items()):
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            problems.append(
                f"`env` sets {name!r} to {value!r}. A variable's name is of letters, "
                "digits and `_`, and no value holds a NUL. Correct it."
            )
        elif len(f"{name}={value}".encode()) >= MAX_VARIABLE:
            problems.append(
                f"`env` sets {name!r} to {len(value)} characters: Linux starts no process with a "
                f"variable of {MAX_VARIABLE} bytes or more. Put it into a file of the source, by an "
                "overlay or a patch."
            )
    return tuple(problems)


def system_header_problems(field_set: CudaWheelFieldSet) -> tuple[str, ...]:
    """A sentence for each of `system_headers` that is in no table."""
    problems = (unknown_header(name) for name in field_set.system_headers.value or ())
    return tuple(problem for problem in problems if problem)


def output_path_problems(field: OutputPathField) -> tuple[str, ...]:
    """A sentence if a target would be written outside of `--distdir`."""
    path = field.value or ""
    if not os.path.isabs(path) and ".." not in path.split("/"):
        return ()
    return (
        f"`output_path` is {path!r}, which leads out of `--distdir`. Name a place below it, or "
        "change `[GLOBAL].pants_distdir`.",
    )


def environment_problems(field_set: CudaWheelFieldSet, names: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence if `environment` is none of the option's `names`."""
    name = field_set.environment.value
    if name == LOCAL_ENVIRONMENT_MATCHER or name in names:
        return ()
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return (
        f"`environment` is {name!r}, which `[environments-preview.names]` does not have.{hint} Add "
        f"it there; there are {', '.join(sorted(names)) or 'none'}.",
    )


def prebuilt_problems(field_set: CudaWheelFieldSet) -> tuple[str, ...]:
    """Everything wrong with the wheel that may stand in, whether or not it is preferred."""
    prebuilt, version = field_set.prebuilt.value, field_set.version.value
    if prebuilt is None:
        return ()
    problems = prebuilt.problems()
    if not problems and version_problem("", version) is None:
        found, declared = (Version(Version(one).public) for one in (prebuilt.version, version))
        if found != declared:
            problems = (
                f"`prebuilt` is {prebuilt.name} {prebuilt.version}, but `version` is {version}: "
                "that is other code. Name upstream's wheel of this version, or none.",
            )
    if prebuilt.index == PYG and not field_set.links_torch.value:
        problems = (
            *problems,
            "`prebuilt` is of PyG's index, which lists wheels by the torch that they link, but "
            "`links_torch` is False. Leave its `index` out, or correct `links_torch`.",
        )
    return problems


def mirror_problems(mirrors: Mapping[str, object]) -> tuple[str, ...]:
    """A sentence for each mirror of an option that is no text; Pants takes any value there."""
    return tuple(
        f"`[cuda-wheels].source_mirrors` has {mirror!r} for {prefix!r}: an address is needed."
        for prefix, mirror in sorted(mirrors.items())
        if not isinstance(mirror, str)
    )


def number_problems(field_set: CudaWheelFieldSet) -> tuple[str, ...]:
    """A sentence for each number that is out of its range."""
    problems = []
    memory, timeout = field_set.memory_per_job_gb.value, field_set.timeout.value
    if memory is None or not 0 < memory < math.inf:
        problems.append(
            f"`memory_per_job_gb` is {memory}: it must be a number greater than zero, for instance "
            "3.0."
        )
    if timeout is None or not 0 < timeout <= MAX_TIMEOUT:
        problems.append(
            f"`timeout` is {timeout}: it must be greater than zero, and at most {MAX_TIMEOUT} "
            "seconds, a year."
        )
    return tuple(problems)
