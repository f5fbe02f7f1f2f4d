"""A `toolchain_image` target's way: from the tables to a build context, and to the Docker daemon.

Nothing of it is cached by Pants: the daemon is asked for the image each time, and answers at once
where it has one of that name. The tag in the name stands for the whole context.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Mapping

from pants.core.goals.package import BuiltPackage, BuiltPackageArtifact, PackageFieldSet
from pants.engine.addresses import Address
from pants.engine.env_vars import EnvironmentVars, EnvironmentVarsRequest
from pants.engine.fs import (
    EMPTY_DIGEST,
    AddPrefix,
    CreateDigest,
    Digest,
    DigestContents,
    FileContent,
    GlobMatchErrorBehavior,
    MergeDigests,
    PathGlobs,
)
from pants.engine.process import FallibleProcessResult, ProcessCacheScope
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.engine.unions import UnionRule
from pants.option.option_types import BoolOption, StrOption
from pants.option.subsystem import Subsystem
from pants.util.frozendict import FrozenDict
from pants.util.logging import LogLevel
from pants.util.strutil import help_text, softwrap

from cuda_wheels import image_pins
from cuda_wheels.rules.programs import (
    PROGRAM_ENV,
    TOOL_LOCKS,
    ProgramProcess,
    ToolLock,
    ToolLockRequest,
    program_files,
)
from cuda_wheels.rules.session_settings import PROXIES, SessionSettings
from cuda_wheels.rules.stage import program_failure
from cuda_wheels.rules.toolchain import Host
from cuda_wheels.tables.accelerators import image_name
from cuda_wheels.tables.dockerfile import BAKED, render
from cuda_wheels.tables.images import Image, default_system, image_problems
from cuda_wheels.tables.names import pins_of
from cuda_wheels.target_checks import output_path_problems
from cuda_wheels.target_types import (
    AccelField,
    ArchField,
    ImageBakedLocksField,
    ImageBaseField,
    ImageCudaHomeField,
    ImageLibrariesField,
    ImageOutputPathField,
    ImagePublishToField,
    ImageSystemField,
)

CONTEXT = "context"
OUT = "image.json"

LOCAL_REPOSITORY = "cuda-wheels"
"""What the names of images of this machine begin with."""

IMAGE_LOCKS = ("bootstrap_lock", "image_lock")

# What an image brings for the programs that run in it: uv and ccache, and what repairs and reads
# wheels.
_BOOTSTRAP_LOCK = TOOL_LOCKS["bootstrap_lock"]
_TOOLS_LOCKS = (TOOL_LOCKS["tools_lock"],)

# How the Docker client finds its daemon and its passwords.
DOCKER_VARIABLES = (
    "HOME",
    "DOCKER_HOST",
    "DOCKER_TLS_VERIFY",
    "DOCKER_CERT_PATH",
    "DOCKER_CONFIG",
    "XDG_RUNTIME_DIR",
    *PROXIES,
)


class ToolchainImageError(Exception):
    """A toolchain image cannot be built; the message has everything that is wrong with it."""


class CudaImagesSubsystem(Subsystem):
    options_scope = "cuda-images"
    help = help_text("""
        How toolchain images are built, and where they are published.
        """)

    publish_to = StrOption(
        default="",
        help=softwrap("""
            The place in a registry that `publish` pushes images to whose target has no
            `publish_to`, and where `cuda-pin-images` looks for them, for instance
            `registry.example/team`. `docker login` takes the password.
            """),
    )
    network = StrOption(
        default="",
        help=softwrap("""
            The network of a build, as `docker build --network` has it, for instance `host`, where
            the default network of the daemon does not reach the packages.
            """),
    )
    rebuild = BoolOption(
        default=False,
        help=softwrap("""
            Build an image again that the daemon has already, without its layers: with the versions
            of packages that the distribution has today.
            """),
    )
    dry_run = BoolOption(
        default=False,
        help=softwrap("""Only say what `publish` would push where. The images are still built."""),
    )


@dataclass(frozen=True)
class PublishedFieldSet(PackageFieldSet):
    """The fields of what has a name in a registry: an image, or an index over images."""

    publish_to: ImagePublishToField
    output_path: ImageOutputPathField

    @property
    def name(self) -> str:
        """What it is called in a registry, and in `images/pins.py`."""
        return self.address.target_name

    @property
    def path(self) -> str:
        """The file below `--distdir` that says what it is."""
        return self.output_path.value or f"images/{self.name}.json"

    def place(self, options: CudaImagesSubsystem) -> str:
        """The place in a registry that it is published to; empty where none is named."""
        return self.publish_to.value or options.publish_to


@dataclass(frozen=True)
class ToolchainImageFieldSet(PublishedFieldSet):
    """The fields of a `toolchain_image` target."""

    required_fields = (ImageSystemField, ImageBakedLocksField)

    arch: ArchField
    accel: AccelField
    system: ImageSystemField
    base: ImageBaseField
    cuda_home: ImageCudaHomeField
    libraries: ImageLibrariesField
    baked_locks: ImageBakedLocksField

    @property
    def repository(self) -> str:
        """The name of the image on this machine, without its tag."""
        return f"{LOCAL_REPOSITORY}/{self.name}"

    @property
    def published_base(self) -> str | None:
        """The base that is pinned in `images/pins.py`; None where the target names its own."""
        if self.base.value:
            return None
        return image_name(self.accel.value, self.system.value or default_system(self.accel.value))

    def image(self, pins: image_pins.Pins) -> Image:
        """The image that the fields declare, on the pinned base."""
        base = self.base.value
        published = self.published_base
        if published and published in pins.bases:
            base = f"{published}@{pins.bases[published]}"
        return Image(
            arch=self.arch.value,
            accel=self.accel.value,
            system=self.system.value or default_system(self.accel.value),
            base=base,
            own_base=bool(self.base.value),
            cuda_home=self.cuda_home.value,
            libraries=tuple(self.libraries.value or ()),
            baked_locks=tuple(self.baked_locks.value or ()),
        )


@dataclass(frozen=True)
class ImageContextRequest:
    """The image whose build context is wanted."""

    field_set: ToolchainImageFieldSet


@dataclass(frozen=True)
class ImageContext:
    """The build context below `CONTEXT/`, and the part of a program's request that goes with it.

    Empty where the image has `problems`.
    """

    address: Address
    digest: Digest
    request: FrozenDict[str, Any]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class DockerEnvironment:
    """The variables of a program that talks to the Docker daemon; what runs with them is not cached."""

    variables: tuple[tuple[str, str], ...]


@rule
async def docker_environment() -> DockerEnvironment:
    found = await Get(EnvironmentVars, EnvironmentVarsRequest(DOCKER_VARIABLES))
    return DockerEnvironment(tuple(sorted({**found, **PROGRAM_ENV}.items())))


@rule
async def find_pins() -> image_pins.Pins:
    found = await Get(
        DigestContents,
        PathGlobs([image_pins.PATH], glob_match_error_behavior=GlobMatchErrorBehavior.ignore),
    )
    return image_pins.parse(found[0].content.decode()) if found else image_pins.Pins()


def bake_request(locks: tuple[str, ...]) -> dict[str, Any]:
    """The request of `sandbox/bake.py`, which runs in the image while that is built."""
    return {
        "cache": BAKED,
        "wheels": "wheels",
        "bootstrap_lock": _BOOTSTRAP_LOCK,
        "tools_locks": list(_TOOLS_LOCKS),
        "locks": list(locks),
    }


def context_files(
    image: Image, locks: Mapping[str, bytes], programs: Mapping[str, bytes], *, site_ca: bool
) -> dict[str, bytes]:
    """Path -> content of a build context; `locks` are those of the tools and of environments.

    The image has no problems. Its name, the certificates of the site and the wheels are added where
    it is built.
    """
    versions = pins_of(locks[_BOOTSTRAP_LOCK].decode())
    return {
        "Dockerfile": render(image, versions, site_ca=site_ca).encode(),
        OUT: json_bytes(image.description("")),
        "bake/request.json": json_bytes(bake_request(image.baked_locks)),
        **{f"bake/{path}": content for path, content in locks.items()},
        **{f"bake/{path}": content for path, content in programs.items()},
    }


def json_bytes(document: Mapping[str, Any]) -> bytes:
    """A document as it is written: equal for equal ones."""
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()


@rule(desc="Collect what a toolchain image is made of", level=LogLevel.DEBUG)
async def image_context(
    request: ImageContextRequest, pins: image_pins.Pins, settings: SessionSettings
) -> ImageContext:
    fields = request.field_set
    image = fields.image(pins)
    baked = await Get(
        DigestContents,
        PathGlobs(image.baked_locks, glob_match_error_behavior=GlobMatchErrorBehavior.ignore),
    )
    tools = await MultiGet(
        Get(ToolLock, ToolLockRequest(path)) for path in (_BOOTSTRAP_LOCK, *_TOOLS_LOCKS)
    )
    missing = sorted(set(image.baked_locks) - {file.path for file in baked})
    problems = (
        *image_problems(image),
        *output_path_problems(fields.output_path),
        *(
            f"`baked_locks` names {path!r}, which is no file of this repository. Name a lock by its "
            "path from the top, for instance `3rdparty/torch/amd64-cu130-torch2.9.1-cp312.txt`."
            for path in missing
        ),
    )
    if problems:
        return ImageContext(fields.address, EMPTY_DIGEST, FrozenDict(), problems)
    tool_files = await Get(
        DigestContents, Digest, await Get(Digest, MergeDigests(one.digest for one in tools))
    )
    ca_certs = json.loads(settings.content)["ca_certs"]
    files = context_files(
        image,
        {file.path: file.content for file in (*tool_files, *baked)},
        program_files("bake"),
        site_ca=bool(ca_certs),
    )
    digest = await Get(
        Digest, CreateDigest(FileContent(path, content) for path, content in files.items())
    )
    return ImageContext(
        fields.address,
        await Get(Digest, AddPrefix(digest, CONTEXT)),
        FrozenDict({"context": CONTEXT, "repository": fields.repository, "ca_certs": ca_certs}),
    )


@rule(desc="Build a toolchain image", level=LogLevel.DEBUG)
async def package_image(
    fields: ToolchainImageFieldSet, options: CudaImagesSubsystem, environment: DockerEnvironment
) -> BuiltPackage:
    context = await Get(ImageContext, ImageContextRequest(fields))
    require_sound(context)
    # The host's probe hands this session's indexes to the program, which fetches wheels.
    await Get(Host)
    result = await Get(
        FallibleProcessResult,
        ProgramProcess,
        ProgramProcess.create(
            "image_build",
            {
                **context.request,
                "arch": fields.arch.value,
                "network": options.network,
                "rebuild": options.rebuild,
                "log": f"image-{fields.name}.log",
                "out": OUT,
            },
            description=f"Build {fields.address}",
            locks=IMAGE_LOCKS,
            input_digest=context.digest,
            output_files=(OUT,),
            cache_scope=ProcessCacheScope.PER_SESSION,
            env=environment.variables,
        ),
    )
    failure = program_failure("image", result)
    if failure:
        raise ToolchainImageError(f"{fields.address} was not built:\n{failure.message}")
    (file,) = await Get(DigestContents, Digest, result.output_digest)
    facts = json.loads(file.content)
    written = await Get(Digest, CreateDigest([FileContent(fields.path, file.content)]))
    return BuiltPackage(
        written,
        (
            BuiltPackageArtifact(
                fields.path,
                extra_log_lines=(
                    f"image {facts['name']}, {facts['size'] / 1e9:.2f} GB",
                    f"id {facts['id']}",
                ),
            ),
        ),
    )


def require_sound(context: ImageContext) -> None:
    """Raises ToolchainImageError with everything that is wrong with an image."""
    if context.problems:
        found = "\n".join(f"* {problem}" for problem in context.problems)
        raise ToolchainImageError(f"{context.address} cannot be built:\n{found}")


def rules():
    return [*collect_rules(), UnionRule(PackageFieldSet, ToolchainImageFieldSet)]
