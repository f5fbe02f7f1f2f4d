"""The accelerator for the machine at hand: what its GPU and driver leave of the matrix.

Nothing is guessed where the machine does not tell: the problems then say what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cuda_wheels.tables.accelerators import (
    ACCELERATORS,
    DRIVER_FLOORS,
    MACHINES,
    cuda_version,
    driver_floor,
)
from cuda_wheels.tables.gpu_archs import nvcc_problem
from cuda_wheels.tables.rows import Row, row_problems, version_key

_FLOORS = ", ".join(f"CUDA {major} needs {floor}" for major, floor in DRIVER_FLOORS.items())


@dataclass(frozen=True)
class Machine:
    """What a machine tells of itself, and nvidia-smi of its GPUs; what is not told is None.

    `cuda` is the newest CUDA that the driver runs, `major.minor`.
    """

    name: str  # x86_64
    nvidia_smi: str | None
    gpus: tuple[str, ...]
    driver: str | None
    cuda: str | None

    @property
    def arch(self) -> str | None:
        """Our name of the architecture, None for one that nothing is built for."""
        return next((arch for arch, name in MACHINES.items() if name == self.name), None)

    @property
    def description(self) -> str:
        """`x86_64, GPU 9.0, driver 580.95.05 (CUDA 13.0)`"""
        driver = f"driver {self.driver or 'unknown'} (CUDA {self.cuda or 'unknown'})"
        return f"{self.name}, GPU {' '.join(self.gpus) or 'unknown'}, {driver}"


@dataclass(frozen=True)
class HostChoice:
    """The accelerator for a machine, or everything that is missing to tell one."""

    accel: str | None
    problems: tuple[str, ...] = ()


def choose_accel(machine: Machine, rows: Iterable[Row]) -> HostChoice:
    """The newest accelerator of `rows` that the machine's driver runs and whose rows name its GPUs.

    Rows that cannot work are not considered. Rows for the CPU are never chosen in a GPU's place.
    """
    problems = _unknown(machine)
    if problems:
        return HostChoice(None, problems)
    sound = [row for row in rows if row.arch == machine.arch and not row_problems(row)]
    # Newest first; without a CUDA version there is nothing that a driver has to run.
    accels = [
        accel.name
        for accel in reversed(ACCELERATORS)
        if accel.cuda_version and any(row.accel == accel.name for row in sound)
    ]
    if not accels:
        return HostChoice(
            None, (f"No row of the selection with CUDA can work on {machine.arch}: see the table.",)
        )
    allowed = [accel for accel in accels if _runs(machine, accel)]
    for accel in allowed:
        if any(covers(row, machine.gpus) for row in sound if row.accel == accel):
            return HostChoice(accel)
    covering = [
        accel
        for accel in accels
        if any(covers(row, machine.gpus) for row in sound if row.accel == accel)
    ]
    if covering:
        return HostChoice(None, (_driver_too_old(machine, covering[-1]),))
    return HostChoice(None, (*_not_covered(machine, accels, sound),))


def covers(row: Row, gpus: Iterable[str]) -> bool:
    """Whether a row names each of the GPUs, as those do who choose wheels by `cuda_arch`."""
    return all(gpu in row.cuda_arch and nvcc_problem(row.accel, gpu) is None for gpu in gpus)


def _unknown(machine: Machine) -> tuple[str, ...]:
    problems = []
    if machine.arch is None:
        problems.append(
            f"This machine is {machine.name}; there are wheels for {', '.join(MACHINES.values())}."
        )
    if machine.nvidia_smi is None:
        problems.append(
            "nvidia-smi is not on PATH, so neither the GPU nor the driver of this machine is "
            f"known. Install NVIDIA's driver ({_FLOORS} or newer), or choose by hand with "
            "`--arch` and `--accel`."
        )
        return tuple(problems)
    if not machine.gpus:
        problems.append(
            f"{machine.nvidia_smi} tells no GPU's compute capability. Run "
            "`nvidia-smi --query-gpu=compute_cap --format=csv`: it says whether there is no GPU, "
            "the driver is not loaded, or it is too old to tell. Or choose by hand with `--arch` "
            "and `--accel`."
        )
    if machine.cuda is None:
        problems.append(
            f"{machine.nvidia_smi} tells no CUDA version of the driver"
            f"{f' {machine.driver}' if machine.driver else ''}. It stands in the first lines of "
            "`nvidia-smi`; N/A there means that libcuda.so is not visible here. Or choose by hand "
            "with `--arch` and `--accel`."
        )
    return tuple(problems)


def _runs(machine: Machine, accel: str) -> bool:
    return version_key(cuda_version(accel) or "") <= version_key(machine.cuda or "")


def _driver_too_old(machine: Machine, accel: str) -> str:
    """`accel` is the oldest accelerator that would do."""
    problem = (
        f"The driver {machine.driver} runs CUDA up to {machine.cuda}; the oldest row here for GPU "
        f"{' '.join(machine.gpus)} is {accel}, CUDA {cuda_version(accel)}. Install a newer driver "
        f"({_FLOORS} or newer)."
    )
    floor = driver_floor(accel)
    if floor is not None and version_key(machine.driver or "")[0] >= floor:
        problem += (
            " Within a major release an older driver still runs machine code, but no PTX: "
            f"`--accel={accel}` chooses the row by hand."
        )
    return problem


def _not_covered(machine: Machine, accels: list[str], sound: list[Row]) -> tuple[str, ...]:
    named = {
        accel: dict.fromkeys(gpu for row in sound if row.accel == accel for gpu in row.cuda_arch)
        for accel in accels
    }
    lists = "; ".join(f"{accel}: {' '.join(gpus)}" for accel, gpus in named.items())
    gpus = " and ".join(machine.gpus)
    together = " together" if len(machine.gpus) > 1 else ""
    return (
        f"No row for {machine.arch} names GPU {gpus}{together} in its `cuda_arch` ({lists}). Add "
        "the capability to a row whose nvcc can emit it, or choose by hand with `--accel`.",
    )
