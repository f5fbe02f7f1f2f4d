"""What a compile request holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda_wheels.sandbox.program import ProgramError, require
from cuda_wheels.tables.epoch import SOURCE_DATE_EPOCH

REQUIRED = (
    "distribution",
    "version",
    "variant",
    "source",
    "build_lock",
    "bootstrap_lock",
    "toolchain",
    "memory_per_job_gb",
    "log",
)


@dataclass(frozen=True)
class Request:
    """A request with its defaults filled in and its paths made absolute."""

    distribution: str
    version: str
    variant: str
    source: Path
    build_lock: Path
    bootstrap_lock: Path
    cache: Path
    wheels: tuple[Path, ...]
    gcc: str
    gxx: str
    cuda_home: Path | None
    identity: str
    env: dict[str, str]
    memory_per_job_gb: float
    glibc_shims: tuple[str, ...]
    log: str
    source_date_epoch: int
    out: Path

    @classmethod
    def parse(cls, data: dict[str, Any]) -> Request:
        """Check the JSON request, reporting everything that is wrong with it."""
        require(data, *REQUIRED)
        tools = data["toolchain"]
        require(tools, "gcc", "gxx")
        request = cls(
            distribution=data["distribution"],
            version=data["version"],
            variant=data["variant"],
            source=Path(data["source"]).absolute(),
            build_lock=Path(data["build_lock"]).absolute(),
            bootstrap_lock=Path(data["bootstrap_lock"]).absolute(),
            # The real place: in a sandbox it is a link, which is gone when its log is looked for.
            cache=Path(data.get("cache", ".cuda_wheels")).resolve(),
            wheels=tuple(Path(wheel).absolute() for wheel in data.get("wheels", ())),
            gcc=tools["gcc"],
            gxx=tools["gxx"],
            cuda_home=Path(tools["cuda_home"]) if tools.get("cuda_home") else None,
            identity=tools.get("identity", ""),
            env=dict(data.get("env", {})),
            memory_per_job_gb=float(data["memory_per_job_gb"]),
            glibc_shims=tuple(data.get("glibc_shims", ())),
            log=data["log"],
            source_date_epoch=int(data.get("source_date_epoch", SOURCE_DATE_EPOCH)),
            out=Path(data.get("out", "dist")).absolute(),
        )
        inputs = (request.source, request.build_lock, request.bootstrap_lock, *request.wheels)
        missing = [str(path) for path in inputs if not path.exists()]
        if missing:
            raise ProgramError(f"The request names files that are not there: {', '.join(missing)}.")
        return request
