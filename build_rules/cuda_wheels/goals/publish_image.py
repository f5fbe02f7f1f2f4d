"""What `./pants publish` does with toolchain images: pushes them, and writes indexes over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pants.core.goals.publish import (
    PublishFieldSet,
    PublishPackages,
    PublishProcesses,
    PublishRequest,
)
from pants.engine.fs import Digest, MergeDigests
from pants.engine.process import InteractiveProcess, Process
from pants.engine.rules import Get, collect_rules, rule
from pants.engine.target import Field

from cuda_wheels.rules.programs import ProgramProcess
from cuda_wheels.rules.toolchain import Host
from cuda_wheels.rules.toolchain_image import IMAGE_LOCKS, CudaImagesSubsystem, DockerEnvironment
from cuda_wheels.target_types import (
    ImageBakedLocksField,
    ImagePublishToField,
    IndexedImagesField,
)


class PublishImageRequest(PublishRequest):
    pass


@dataclass(frozen=True)
class PublishImageFieldSet(PublishFieldSet):
    """The field of a `toolchain_image` that says where it goes."""

    publish_request_type = PublishImageRequest
    required_fields: ClassVar[tuple[type[Field], ...]] = (ImageBakedLocksField, ImagePublishToField)

    # The program that publishes what `package` described.
    program: ClassVar[str] = "image_publish"

    publish_to: ImagePublishToField


@dataclass(frozen=True)
class PublishIndexFieldSet(PublishImageFieldSet):
    """The field of a `toolchain_image_index` that says where it goes."""

    required_fields = (IndexedImagesField, ImagePublishToField)

    program: ClassVar[str] = "image_index"


@rule
async def publish_image(
    request: PublishImageRequest, options: CudaImagesSubsystem, docker: DockerEnvironment
) -> PublishProcesses:
    fields = request.field_set
    assert isinstance(fields, PublishImageFieldSet)
    (path,) = (
        artifact.relpath
        for package in request.packages
        for artifact in package.artifacts
        if artifact.relpath
    )
    to = fields.publish_to.value or options.publish_to
    if not to:
        where = "neither `publish_to` nor `[cuda-images].publish_to` names a registry"
        return PublishProcesses([PublishPackages((path,), description=where)])
    files = await Get(Digest, MergeDigests(package.digest for package in request.packages))
    # The host's probe hands this session's indexes to the program, which may have to make its tools.
    await Get(Host)
    process = await Get(
        Process,
        ProgramProcess,
        ProgramProcess.create(
            fields.program,
            {"package": path, "to": to, "dry_run": options.dry_run},
            description=f"Publish {fields.address}",
            locks=IMAGE_LOCKS,
            input_digest=files,
            env=docker.variables,
        ),
    )
    pushed = InteractiveProcess(
        process.argv,
        env=process.env,
        input_digest=process.input_digest,
        append_only_caches=process.append_only_caches,
    )
    # Pants writes "published to" before it, whatever the process did.
    where = f"{to}: not yet, this was a dry run" if options.dry_run else to
    return PublishProcesses([PublishPackages((path,), pushed, description=where)])


def rules():
    return [*collect_rules(), *PublishImageFieldSet.rules(), *PublishIndexFieldSet.rules()]
