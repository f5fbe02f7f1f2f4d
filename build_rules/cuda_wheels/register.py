"""Hermetic CUDA wheels: `cuda_source` and `cuda_wheel` targets, and the goals that build them.

`./pants help cuda_wheel` and `./pants help cuda-wheels` describe the targets and the options;
`docs/architecture.md` describes the way of a wheel through the rules.
"""

from __future__ import annotations

from pants.build_graph.build_file_aliases import BuildFileAliases

from cuda_wheels.goals import build, inspect, lock
from cuda_wheels.rules import build_env, compile, programs, repair, source, spec, toolchain, wheel
from cuda_wheels.rules import inspect as inspect_rules
from cuda_wheels.sources import BUILD_FILE_OBJECTS
from cuda_wheels.target_types import CudaSourceTarget, CudaWheelTarget


def rules():
    return [
        *build.rules(),
        *build_env.rules(),
        *compile.rules(),
        *inspect.rules(),
        *inspect_rules.rules(),
        *lock.rules(),
        *programs.rules(),
        *repair.rules(),
        *source.rules(),
        *spec.rules(),
        *toolchain.rules(),
        *wheel.rules(),
    ]


def target_types():
    return [CudaSourceTarget, CudaWheelTarget]


def build_file_aliases() -> BuildFileAliases:
    return BuildFileAliases(objects=BUILD_FILE_OBJECTS)
