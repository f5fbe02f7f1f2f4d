"""What a host tells of itself: system, C library, Python, driver, GPUs, disk, CUDA's cache."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from cuda_wheels.tables.accelerators import MACHINES
from cuda_wheels.tables.rows import version_key

_TIMEOUT_S = 60


UNKNOWN = "unknown"


@dataclass(frozen=True)
class Gpu:
    """One GPU; `capability` is written `9.0`, None where the driver does not tell."""

    name: str
    capability: str | None


@dataclass(frozen=True)
class Host:
    """A host as it was read, or as a test records it. What is not known is None.

    `cuda` is the newest CUDA that the driver runs, `12.4`. `glibc` is None for another C library.
    `python` is the version that wheels would be installed for, `3.12`, or `UNKNOWN`.
    `disk_free_gb` is where they would be installed. `cache` is the folder where the driver keeps what it compiled from
    PTX, and `cache_writable` whether it can.
    """

    system: str  # Linux
    machine: str  # x86_64
    glibc: str | None
    python: str
    driver: str | None = None
    cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    disk_free_gb: float | None = None
    cache: str | None = None
    cache_writable: bool = True

    @property
    def arch(self) -> str | None:
        """Our name of the architecture, None for one that nothing is built for."""
        return next((arch for arch, name in MACHINES.items() if name == self.machine), None)

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The capability of each GPU, each once, in ascending order."""
        found = {gpu.capability for gpu in self.gpus if gpu.capability}
        return tuple(sorted(found, key=version_key))


def read_host(python: Path, at: Path) -> Host:
    """This host, for wheels of the interpreter `python` that are installed at `at`."""
    driver, cuda, gpus = read_driver()
    cache = Path(
        os.environ.get("CUDA_CACHE_PATH") or Path("~/.nv/ComputeCache").expanduser()
    ).absolute()
    return Host(
        system=platform.system(),
        machine=platform.machine(),
        glibc=_glibc(),
        python=_python_version(python),
        driver=driver,
        cuda=cuda,
        gpus=gpus,
        disk_free_gb=round(shutil.disk_usage(_existing(at)).free / 1e9, 1),
        cache=str(cache),
        cache_writable=os.access(_existing(cache), os.W_OK | os.X_OK),
    )


def read_driver() -> tuple[str | None, str | None, tuple[Gpu, ...]]:
    """Driver, its CUDA and the GPUs: from nvidia-smi, and from libcuda what that does not say."""
    smi = shutil.which("nvidia-smi")
    driver = cuda = None
    gpus: tuple[Gpu, ...] = ()
    if smi:
        query = [smi, "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
        driver, gpus = parse_query(_output(query))
        banner = _output([smi])
        cuda = parse_cuda(banner)
        driver = driver or parse_driver(banner)
    if not (gpus and cuda):
        cuda_of_library, found = _ask_libcuda()
        cuda, gpus = cuda or cuda_of_library, gpus or found
    return driver, cuda, gpus


def parse_query(text: str) -> tuple[str | None, tuple[Gpu, ...]]:
    """Driver and GPUs in the lines of nvidia-smi's query; an old one does not know `compute_cap`."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    good = [row for row in rows if len(row) == 3 and re.fullmatch(r"\d+\.\d+", row[1])]
    return (good[0][2] if good else None), tuple(Gpu(row[0], row[1]) for row in good)


def parse_cuda(banner: str) -> str | None:
    """The CUDA version in what nvidia-smi prints; None for `N/A`."""
    found = re.search(r"CUDA (?:UMD )?Version\s*:\s*(\d+\.\d+)", banner)
    return found.group(1) if found else None


def parse_driver(banner: str) -> str | None:
    found = re.search(r"(?:Driver|KMD) Version\s*:\s*(\d+(?:\.\d+)+)", banner)
    return found.group(1) if found else None


# A process of its own asks the driver's library: a broken driver may end it.
_LIBCUDA = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
version, count = ctypes.c_int(), ctypes.c_int()
known = cuda.cuDriverGetVersion(ctypes.byref(version)) == 0
gpus = []
if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0:
    for number in range(count.value):
        name, device = ctypes.create_string_buffer(256), ctypes.c_int()
        cuda.cuDeviceGet(ctypes.byref(device), number)
        cuda.cuDeviceGetName(name, 256, device)
        parts = []
        for attribute in (75, 76):  # compute capability, major and minor
            part = ctypes.c_int()
            cuda.cuDeviceGetAttribute(ctypes.byref(part), attribute, device)
            parts.append(str(part.value))
        gpus.append([name.value.decode(), ".".join(parts)])
number = version.value
print(json.dumps([f"{number // 1000}.{number % 1000 // 10}" if known else None, gpus]))
"""


def _ask_libcuda() -> tuple[str | None, tuple[Gpu, ...]]:
    # A selection of GPUs for CUDA programs must not hide one from this question.
    environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    text = _output([sys.executable, "-c", _LIBCUDA], environment)
    try:
        cuda, gpus = json.loads(text)
    except ValueError:
        return None, ()
    return cuda, tuple(Gpu(name, capability) for name, capability in gpus)


def _glibc() -> str | None:
    try:
        version = ctypes.CDLL(None).gnu_get_libc_version
    except (AttributeError, OSError):
        return None
    version.restype = ctypes.c_char_p
    return str(version().decode())


def _python_version(python: Path) -> str:
    text = _output([str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    return text.strip() or UNKNOWN


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that there is."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _output(argv: list[str], environment: dict[str, str] | None = None) -> str:
    """What a program prints; nothing where it fails, is not there or does not end."""
    try:
        done = subprocess.run(
            argv,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
