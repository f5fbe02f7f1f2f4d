"""Hermetic CUDA wheels: `cuda_source` and `cuda_wheel` targets, and the goals that build them.

`./pants help cuda_wheel` and `./pants help cuda-wheels` describe the targets and the options;
`docs/architecture.md` describes the way of a wheel through the rules.
"""

from __future__ import annotations

from pants.build_graph.build_file_aliases import BuildFileAliases

from cuda_wheels.goals import (
    build,
    doctor,
    inspect,
    lock,
    matrix,
    pin_images,
    publish,
    publish_image,
    shell,
)
from cuda_wheels.rules import (
    addresses,
    build_env,
    compile,
    container,
    image_index,
    place,
    prebuilt,
    programs,
    repair,
    session_settings,
    source,
    source_wheel,
    spec,
    status,
    toolchain,
    toolchain_image,
    wheel,
    wheel_environment,
    wheelhouse,
)
from cuda_wheels.rules import inspect as inspect_rules
from cuda_wheels.rules import shell as shell_rules
from cuda_wheels.sources import BUILD_FILE_OBJECTS
from cuda_wheels.target_types import (
    CudaSourceTarget,
    CudaWheelhouseTarget,
    CudaWheelTarget,
    SourceWheelTarget,
    ToolchainImageIndexTarget,
    ToolchainImageTarget,
)


def rules():
    return [
        *addresses.rules(),
        *build.rules(),
        *build_env.rules(),
        *compile.rules(),
        *container.rules(),
        *doctor.rules(),
        *image_index.rules(),
        *inspect.rules(),
        *inspect_rules.rules(),
        *lock.rules(),
        *matrix.rules(),
        *pin_images.rules(),
        *place.rules(),
        *prebuilt.rules(),
        *programs.rules(),
        *publish.rules(),
        *publish_image.rules(),
        *repair.rules(),
        *session_settings.rules(),
        *shell.rules(),
        *shell_rules.rules(),
        *source.rules(),
        *source_wheel.rules(),
        *spec.rules(),
        *status.rules(),
        *toolchain.rules(),
        *toolchain_image.rules(),
        *wheel.rules(),
        *wheel_environment.rules(),
        *wheelhouse.rules(),
    ]


def target_types():
    return [
        CudaSourceTarget,
        CudaWheelTarget,
        CudaWheelhouseTarget,
        SourceWheelTarget,
        ToolchainImageIndexTarget,
        ToolchainImageTarget,
    ]


def build_file_aliases() -> BuildFileAliases:
    return BuildFileAliases(objects=BUILD_FILE_OBJECTS)
