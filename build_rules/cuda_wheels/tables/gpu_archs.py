"""GPU architectures: what each nvcc emits, and how each package is told what to compile.

A GPU architecture is written as its compute capability, `9.0`; `9.0+PTX` adds PTX, which drivers
compile for newer GPUs. Source of every value that names none: the tables of the build script that
this project replaces.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

_TO_9_0 = tuple("5.0 5.2 5.3 6.0 6.1 6.2 7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0".split())
_CUDA_13 = tuple("7.5 8.0 8.6 8.7 8.8 8.9 9.0 10.0 10.3 11.0 12.0 12.1".split())

# What each toolkit's nvcc can emit: membership, not a range; the lists have holes.
NVCC_GPU_ARCHS: dict[str, tuple[str, ...]] = {
    "cu118": ("3.5", "3.7", *_TO_9_0),
    "cu121": _TO_9_0,
    "cu124": _TO_9_0,
    "cu126": _TO_9_0,
    "cu128": (*_TO_9_0, "10.0", "10.1", "12.0"),
    "cu129": (*_TO_9_0, "10.0", "10.1", "10.3", "12.0", "12.1"),
    "cu130": _CUDA_13,
    "cu131": _CUDA_13,
    "cu132": _CUDA_13,
}

# (architecture, accelerator) -> the usual GPUs, for a target that names none to choose from. Source:
# the defaults of Pointcept's build_wheels.sh.
DEFAULT_GPU_ARCHS: dict[tuple[str, str], tuple[str, ...]] = {
    ("amd64", "cu118"): ("7.0", "7.5", "8.0", "8.6"),
    ("amd64", "cu121"): ("7.0", "7.5", "8.0", "8.6", "8.9", "9.0"),
    ("amd64", "cu124"): ("7.0", "7.5", "8.0", "8.6", "8.9", "9.0"),
    ("amd64", "cu126"): ("7.0", "7.5", "8.0", "8.6", "8.9", "9.0"),
    ("amd64", "cu128"): ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"),
    ("amd64", "cu129"): ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"),
    ("amd64", "cu130"): ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"),
    ("amd64", "cu131"): ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"),
    ("amd64", "cu132"): ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"),
    ("arm64", "cu126"): ("8.7", "9.0"),
    ("arm64", "cu128"): ("8.7", "9.0", "10.0", "12.0"),
    ("arm64", "cu129"): ("8.7", "9.0", "10.0", "12.0", "12.1"),
    ("arm64", "cu130"): ("8.7", "9.0", "10.0", "11.0", "12.0", "12.1"),
    ("arm64", "cu131"): ("8.7", "9.0", "10.0", "11.0", "12.0", "12.1"),
    ("arm64", "cu132"): ("8.7", "9.0", "10.0", "11.0", "12.0", "12.1"),
    ("amd64", "rocm6.3"): ("gfx90a", "gfx942", "gfx1100"),
    ("amd64", "rocm6.4"): ("gfx90a", "gfx942", "gfx1100"),
}

# `supported_arches` of torch/utils/cpp_extension.py, read in the wheels of torch 2.9.1, 2.10.0,
# 2.11.0 and 2.13.0, which agree; its variants with the suffix `a` are left out. Anything else is
# `ValueError: Unknown CUDA arch`.
TORCH_EXTENSION_ARCHS: tuple[str, ...] = (
    *("3.5", "3.7"),
    *_TO_9_0,
    *("10.0", "10.3", "11.0", "12.0", "12.1"),
)

# `supported_arches` of cumm/common.py in the wheel of cumm 0.8.2, which accepts each with `+PTX`.
CUMM_ARCHS: tuple[str, ...] = ("3.5", "3.7", *_TO_9_0, "10.0", "12.0")

# CUDA 13 calls the architecture 10.1 of CUDA 12 (Thor) 11.0.
_RENAMED: dict[str, str] = {"10.1": "11.0", "11.0": "10.1"}

_CAPABILITY = re.compile(r"(\d{1,2}\.\d)([af]?)(\+PTX)?")


@dataclass(frozen=True)
class GpuArchRule:
    """How a package is told its GPU architectures, and what stands in for one it does not know.

    `known`: what the package compiles as it is. `stand_ins`: what is compiled for another
    architecture in its place. `ptx_of_older`: whether any further architecture gets PTX of the
    newest known one below it. An architecture that none of these covers is dropped.
    `compact`: the package wants `90`, not `9.0`. `ptx_in_value`: the package understands `+PTX`;
    otherwise PTX is asked of nvcc itself, through NVCC_APPEND_FLAGS.
    """

    name: str
    variable: str
    known: tuple[str, ...]
    stand_ins: tuple[tuple[str, str], ...] = ()
    ptx_of_older: bool = False
    compact: bool = False
    ptx_in_value: bool = True
    unknown_because: str = ""

    def stand_in(self, arch: str) -> str | None:
        """What is compiled for `arch`: itself, another, one with `+PTX`, or nothing (None)."""
        if arch in self.known:
            return arch
        named = dict(self.stand_ins).get(arch)
        if named or not self.ptx_of_older:
            return named
        older = [known for known in self.known if _order(known) < _order(arch)]
        return f"{max(older, key=_order)}+PTX" if older else None


TORCH = GpuArchRule(
    name="torch",
    variable="TORCH_CUDA_ARCH_LIST",
    known=TORCH_EXTENSION_ARCHS,
    unknown_because="torch.utils.cpp_extension does not accept it",
)

CUMM = GpuArchRule(
    name="cumm",
    variable="CUMM_CUDA_ARCH_LIST",
    known=CUMM_ARCHS,
    ptx_of_older=True,
    unknown_because="cumm knows neither it nor an older architecture",
)

FLASH_ATTN = GpuArchRule(
    name="flash-attn",
    variable="FLASH_ATTN_CUDA_ARCHS",
    known=("8.0", "9.0", "10.0", "12.0"),  # setup.py of 2.8.3.post2; it ignores others silently
    stand_ins=(
        ("8.6", "8.0"),  # runs the machine code of 8.0
        ("8.7", "8.0"),  # runs the machine code of 8.0
        ("8.9", "8.0"),  # runs the machine code of 8.0
        ("10.3", "10.0+PTX"),  # another family of Blackwell: by the driver's compiler
        ("12.1", "12.0+PTX"),  # another family of Blackwell: by the driver's compiler
    ),
    compact=True,
    ptx_in_value=False,
    unknown_because="flash-attn 2 has no kernels for it",
)

GPU_ARCH_RULES: dict[str, GpuArchRule] = {rule.name: rule for rule in (TORCH, CUMM, FLASH_ATTN)}


def rule_problem(name: str) -> str | None:
    """Why `name` is no rule of this table, and which one may be meant; None if it is one."""
    if name in GPU_ARCH_RULES:
        return None
    close = difflib.get_close_matches(name.lower().replace("_", "-"), GPU_ARCH_RULES, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return (
        f"`gpu_arch_rule` is {name!r}, which is unknown.{hint} Known: {', '.join(GPU_ARCH_RULES)}. "
        "Another package's rule is a new row of `tables/gpu_archs.py`."
    )


@dataclass(frozen=True)
class AppliedArchs:
    """A rule applied to a list of architectures: what to set, and what the wheel then holds.

    `env`: variables of the build. `cubins` and `ptx`: the device code to expect, `sm_90` and
    `compute_120`. `dropped`: (architecture, reason) of what is not compiled.
    """

    rule: str
    env: tuple[tuple[str, str], ...]
    cubins: tuple[str, ...]
    ptx: tuple[str, ...]
    dropped: tuple[tuple[str, str], ...]

    @property
    def skipped(self) -> str | None:
        """Why there is nothing to compile, None if there is something."""
        if self.cubins or self.rule not in GPU_ARCH_RULES:
            return None
        if not self.dropped:
            return "No GPU architecture is given, so there is no device code to compile."
        reasons = "; ".join(f"{arch}: {reason}" for arch, reason in self.dropped)
        return (
            f"The GPU architecture rule `{self.rule}` leaves nothing to compile ({reasons}). It "
            f"compiles for {', '.join(covered_archs(GPU_ARCH_RULES[self.rule]))}."
        )


def apply_rule(rule: GpuArchRule, archs: Iterable[str]) -> AppliedArchs:
    """What `rule` compiles for `archs`; nothing raises, what does not work is dropped."""
    wanted: dict[str, bool] = {}  # architecture -> whether with PTX
    dropped = []
    for arch in archs:
        if not is_capability(arch):
            dropped.append((arch, "not a GPU capability, which is written like 9.0"))
            continue
        stand_in = rule.stand_in(normalize_arch(arch))
        if stand_in is None:
            dropped.append((arch, rule.unknown_because))
            continue
        # Never both X and X+PTX: the second holds the machine code too.
        base = normalize_arch(stand_in)
        wanted[base] = wanted.get(base, False) or has_ptx(stand_in) or has_ptx(arch)
    ordered = sorted(wanted, key=_order)
    with_ptx = [arch for arch in ordered if wanted[arch]]
    return AppliedArchs(
        rule=rule.name,
        env=_variables(rule, ordered, with_ptx) if ordered else (),
        cubins=tuple(f"sm_{digits(arch)}" for arch in ordered),
        ptx=tuple(f"compute_{digits(arch)}" for arch in with_ptx),
        dropped=tuple(dropped),
    )


def _variables(
    rule: GpuArchRule, archs: Iterable[str], with_ptx: Iterable[str]
) -> tuple[tuple[str, str], ...]:
    words = [
        (digits(arch) if rule.compact else arch)
        + ("+PTX" if rule.ptx_in_value and arch in with_ptx else "")
        for arch in archs
    ]
    value = (rule.variable, ";".join(words))
    flags = " ".join(
        f"-gencode arch=compute_{digits(arch)},code=compute_{digits(arch)}" for arch in with_ptx
    )
    return (value,) if rule.ptx_in_value or not flags else (value, ("NVCC_APPEND_FLAGS", flags))


def covered_archs(rule: GpuArchRule) -> tuple[str, ...]:
    """Every architecture of some toolkit for which `rule` compiles something."""
    return tuple(arch for arch in all_archs() if rule.stand_in(arch))


def all_archs() -> tuple[str, ...]:
    """Every architecture that some toolkit emits, in ascending order."""
    return tuple(sorted({arch for row in NVCC_GPU_ARCHS.values() for arch in row}, key=_order))


def toolkits_for(gpu_arch: str) -> tuple[str, ...]:
    """The accelerators whose nvcc emits `gpu_arch`, oldest first."""
    arch = normalize_arch(gpu_arch)
    return tuple(accel for accel, archs in NVCC_GPU_ARCHS.items() if arch in archs)


def nvcc_problem(accel: str, gpu_arch: str) -> str | None:
    """Why the nvcc of `accel` cannot emit `gpu_arch` and which toolkits can; None if it can."""
    arch = normalize_arch(gpu_arch)
    emitted = NVCC_GPU_ARCHS.get(accel)
    if emitted is None or arch in emitted:
        return None
    finding = f"GPU architecture {gpu_arch}: the nvcc of {accel} cannot emit it"
    toolkits = toolkits_for(arch)
    if not toolkits:
        return f"{finding}, nor can any other toolkit here. {accel} emits {', '.join(emitted)}."
    if _order(arch) < _order(emitted[0]):
        finding += f" (removed in CUDA {accel[2:4]})"
    elif arch in _RENAMED and _RENAMED[arch] in emitted:
        finding += f" (there it is called {_RENAMED[arch]})"
    return f"{finding}. These can: {', '.join(toolkits)}."


def parse_archs(text: str) -> tuple[str, ...]:
    """The architectures in a list separated by spaces, `;` or `,`, each once, in their order.

    Nothing is refused here: who knows where the list comes from says what is wrong with it.
    """
    return tuple(dict.fromkeys(word for word in re.split(r"[\s;,]+", text) if word))


def is_capability(arch: str) -> bool:
    """Whether `arch` is written as a compute capability, with or without suffix and `+PTX`."""
    return _CAPABILITY.fullmatch(arch) is not None


def has_ptx(arch: str) -> bool:
    """Whether `arch` asks for PTX too, as `9.0+PTX` does."""
    return arch.endswith("+PTX")


def normalize_arch(arch: str) -> str:
    """`arch` without `+PTX` and without the suffix `a` or `f`."""
    found = _CAPABILITY.fullmatch(arch)
    return found.group(1) if found else arch


def digits(arch: str) -> str:
    """`90` for `9.0`."""
    return normalize_arch(arch).replace(".", "")


def local_suffix(archs: Iterable[str]) -> str:
    """`sm80.sm90`: how a wheel's local version names the architectures it is narrowed to."""
    return ".".join(f"sm{digits(arch)}" for arch in sorted(archs, key=_order))


def runs_on(gpu_arch: str, cubins: Iterable[str], ptx: Iterable[str]) -> bool:
    """Whether a GPU of capability `gpu_arch` runs one of these device images.

    Machine code runs within its major on the same or a newer minor. From Blackwell on that is
    not relied on: there code for 12.0 was seen to be refused by a GPU of 12.1. PTX runs on every
    newer GPU, unless a suffix, as in `compute_90a`, ties it to its own.
    """
    gpu = _order(gpu_arch)
    codes = [_code_order(name) for name in cubins]
    if gpu in codes or any(_code_order(name) == gpu for name in ptx):
        return True
    if any(_code_order(name) < gpu for name in ptx if name[-1].isdigit()):
        return True
    return gpu[0] < 10 and any(code[0] == gpu[0] and code <= gpu for code in codes)


def image_runs_on(gpu_arch: str, image: str) -> bool:
    """Whether a GPU of capability `gpu_arch` runs a device image, `sm_90` or `compute_90`."""
    return runs_on(gpu_arch, *(([image], []) if image.startswith("sm_") else ([], [image])))


def _order(arch: str) -> tuple[int, ...]:
    if not is_capability(arch):
        return (0, 0)
    return tuple(int(part) for part in normalize_arch(arch).split("."))


def _code_order(name: str) -> tuple[int, ...]:
    number = re.sub(r"\D", "", name)
    return (int(number[:-1]), int(number[-1]))
