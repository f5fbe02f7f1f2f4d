"""The compile step: the patched tree and the build environment in, the raw wheel out."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shlex
from dataclasses import dataclass
from typing import Any

from pants.engine.fs import (
    EMPTY_DIGEST,
    AddPrefix,
    Digest,
    DigestContents,
    DigestSubset,
    MergeDigests,
    PathGlobs,
    RemovePrefix,
    Snapshot,
)
from pants.engine.process import FallibleProcessResult
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.option.global_options import GlobalOptions
from pants.util.logging import LogLevel

from cuda_wheels.rules.build_env import BuildEnvLock
from cuda_wheels.rules.place import Place
from cuda_wheels.rules.programs import CACHE_NAME, ProgramProcess
from cuda_wheels.rules.spec import WheelSpec
from cuda_wheels.rules.stage import StageFailure, program_failure
from cuda_wheels.rules.toolchain import Host
from cuda_wheels.tables.epoch import SOURCE_DATE_EPOCH
from cuda_wheels.tables.glibc import shims_for

logger = logging.getLogger(__name__)

OUT = "dist"
LOG = "build.log"
FACTS = "compile.json"
# More than any machine has: Pants gives a process what is free, up to this.
_ALL_CORES = 1024


@dataclass(frozen=True)
class CompileRequest:
    """A wheel's patched tree, and all that compiles it; `wheels` are its build requirements."""

    spec: WheelSpec
    tree: Digest
    lock: BuildEnvLock
    host: Host
    wheels: Snapshot


@dataclass(frozen=True)
class CompileInputs:
    """What the compile program is given: its JSON file, and all files that this names."""

    request: str
    log: str
    files: Digest


@dataclass(frozen=True)
class CompiledWheel:
    """The raw wheel and how it came to be, or why there is none; `log` holds `build.log`."""

    name: str = ""
    digest: Digest = EMPTY_DIGEST
    facts: str = "{}"
    log: Digest = EMPTY_DIGEST
    failure: StageFailure | None = None


def compile_env(spec: WheelSpec) -> dict[str, str]:
    """The variables that the target and its row set; what the target says wins."""
    return {**dict(spec.applied.env), **dict(spec.env)}


def compile_document(request: CompileRequest) -> dict[str, Any]:
    """The JSON file of the compile program. It is a part of the wheel's cache key, so nothing of
    the machine but its toolchain is in it."""
    spec, host = request.spec, request.host
    assert host.gcc is not None and host.gxx is not None
    return {
        "distribution": spec.distribution,
        "version": spec.version,
        "variant": spec.row.variant,
        "source": "source",
        "build_lock": request.lock.path,
        "wheels": list(request.wheels.files),
        "toolchain": {
            "gcc": host.gcc.path,
            "gxx": host.gxx.path,
            "cuda_home": host.cuda_home.path if host.cuda_home else None,
            "identity": host.identity_with(spec.system_headers),
        },
        "env": compile_env(spec),
        "memory_per_job_gb": spec.memory_per_job_gb,
        "glibc_shims": list(shims_for(spec.platform)),
        "source_date_epoch": SOURCE_DATE_EPOCH,
        "out": OUT,
    }


def log_name(spec: WheelSpec, document: dict[str, Any], tree: Digest) -> str:
    """A log file's name, the same for the same inputs, so that a resumed build appends to it."""
    key = json.dumps([document, tree.fingerprint], sort_keys=True)
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]
    return f"{spec.distribution}-{spec.version}-{spec.row.variant}-{digest}.log"


def _tell_log(description: str, log: str, options: GlobalOptions, place: Place) -> None:
    """Say where the log of a compile step grows, where the user can reach it."""
    if place.is_local:
        path = os.path.join(options.named_caches_dir, CACHE_NAME, "logs", log)
        logger.info(
            f"Unless {description} is cached, its log grows here: tail -f {shlex.quote(path)}"
        )


@rule
async def compile_inputs(request: CompileRequest) -> CompileInputs:
    document = compile_document(request)
    document["log"] = log_name(request.spec, document, request.tree)
    tree = await Get(Digest, AddPrefix(request.tree, "source"))
    files = await Get(Digest, MergeDigests([tree, request.lock.digest, request.wheels.digest]))
    return CompileInputs(json.dumps(document), document["log"], files)


@rule(desc="Compile a CUDA wheel", level=LogLevel.DEBUG)
async def compile_wheel(
    request: CompileRequest, options: GlobalOptions, place: Place
) -> CompiledWheel:
    spec = request.spec
    inputs = await Get(CompileInputs, CompileRequest, request)
    _tell_log(spec.description, inputs.log, options, place)
    result = await Get(
        FallibleProcessResult,
        ProgramProcess,
        ProgramProcess.create(
            "compile",
            json.loads(inputs.request),
            description=f"Compile {spec.address}",
            locks=("bootstrap_lock",),
            input_digest=inputs.files,
            output_files=(LOG, FACTS),
            output_directories=(OUT,),
            timeout=spec.timeout,
            concurrency=_ALL_CORES,
        ),
    )
    log, wheels, contents = await MultiGet(
        Get(Digest, DigestSubset(result.output_digest, PathGlobs([LOG]))),
        Get(Snapshot, DigestSubset(result.output_digest, PathGlobs([f"{OUT}/*.whl"]))),
        Get(DigestContents, DigestSubset(result.output_digest, PathGlobs([FACTS]))),
    )
    failure = program_failure("compile", result, timeout=spec.timeout)
    if failure:
        return CompiledWheel(log=log, failure=StageFailure(failure.stage, failure.message, log))
    (path,) = wheels.files
    return CompiledWheel(
        name=path[len(OUT) + 1 :],
        digest=await Get(Digest, RemovePrefix(wheels.digest, OUT)),
        facts=contents[0].content.decode(),
        log=log,
    )


def rules():
    return collect_rules()
