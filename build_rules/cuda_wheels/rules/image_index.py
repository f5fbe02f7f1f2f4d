"""A `toolchain_image_index` target's way: from the pins of its images to what the index is over.

The index itself is written where it is published: a registry alone knows the images' manifests.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Iterable, Mapping

from pants.core.goals.package import BuiltPackage, BuiltPackageArtifact, PackageFieldSet
from pants.engine.addresses import Address
from pants.engine.fs import CreateDigest, Digest, FileContent
from pants.engine.rules import Get, collect_rules, rule
from pants.engine.target import Target
from pants.engine.unions import UnionRule
from pants.util.frozendict import FrozenDict

from cuda_wheels import image_pins
from cuda_wheels.rules.addresses import NamedTargets, NamedTargetsRequest
from cuda_wheels.rules.toolchain_image import (
    LOCAL_REPOSITORY,
    PublishedFieldSet,
    ToolchainImageFieldSet,
    json_bytes,
)
from cuda_wheels.target_checks import output_path_problems
from cuda_wheels.target_types import IndexedImagesField

_PUBLISHED = re.compile(r"[^@\s]+/[^@\s]+@sha256:[0-9a-f]{64}")
_TAG_LENGTH = 16


class ImageIndexError(Exception):
    """There can be no index over the images; the message has everything that is wrong with it."""


@dataclass(frozen=True)
class ImageIndexFieldSet(PublishedFieldSet):
    """The fields of a `toolchain_image_index` target."""

    required_fields = (IndexedImagesField,)

    images: IndexedImagesField


@dataclass(frozen=True)
class ImageIndexRequest:
    """The index that is wanted."""

    field_set: ImageIndexFieldSet


@dataclass(frozen=True)
class ImageIndex:
    """Architecture -> published image, by its digest. Empty where there are `problems`."""

    address: Address
    images: FrozenDict[str, str]
    problems: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name, whose tag stands for the images."""
        content = json.dumps(dict(self.images), sort_keys=True).encode()
        tag = hashlib.sha256(content).hexdigest()[:_TAG_LENGTH]
        return f"{LOCAL_REPOSITORY}/{self.address.target_name}:{tag}"

    def require_sound(self) -> None:
        """Raises ImageIndexError with everything that is wrong with it."""
        if self.problems:
            found = "\n".join(f"* {problem}" for problem in self.problems)
            raise ImageIndexError(f"{self.address} cannot be made:\n{found}")


def index_problems(
    images: Iterable[ToolchainImageFieldSet], others: Iterable[Target], pins: Mapping[str, str]
) -> tuple[str, ...]:
    """Every reason why there can be no index over what a target names, each with what to do.

    `others` are those of the named that are no images.
    """
    found = [
        f"`images` names {target.address}, which is a `{target.alias}`, not a `toolchain_image`."
        for target in others
    ]
    addresses: dict[str, list[str]] = {}
    for image in images:
        addresses.setdefault(image.arch.value, []).append(str(image.address))
        pin = pins.get(image.name)
        if pin is None:
            found.append(
                f"{image.address} is not pinned in {image_pins.PATH}. Publish it from a machine of "
                f"{image.arch.value}, and pin it: `./pants publish {image.address}`, then "
                f"`./pants cuda-pin-images {image.address}`."
            )
        elif not _PUBLISHED.fullmatch(pin):
            found.append(
                f"{image.address} is pinned as {pin}, an image of one machine alone. Publish it, and "
                f"pin its digest: `./pants publish {image.address}`, then `./pants cuda-pin-images "
                f"{image.address}`."
            )
    found += [
        f"`images` names {' and '.join(several)}, which are all for {arch}. An index has one image "
        "an architecture."
        for arch, several in sorted(addresses.items())
        if len(several) > 1
    ]
    if not addresses:
        found.append("`images` names no `toolchain_image`. `./pants list images:` lists them.")
    return tuple(found)


@rule
async def image_index(request: ImageIndexRequest, pins: image_pins.Pins) -> ImageIndex:
    fields = request.field_set
    named = await Get(NamedTargets, NamedTargetsRequest, NamedTargetsRequest.of(fields.images))
    is_image = ToolchainImageFieldSet.is_applicable
    images = [ToolchainImageFieldSet.create(one) for one in named.targets if is_image(one)]
    others = [one for one in named.targets if not is_image(one)]
    problems = (
        *named.problems,
        *index_problems(images, others, pins.images),
        *output_path_problems(fields.output_path),
    )
    if problems:
        return ImageIndex(fields.address, FrozenDict(), problems)
    return ImageIndex(
        fields.address,
        FrozenDict(sorted((image.arch.value, pins.images[image.name]) for image in images)),
    )


@rule
async def package_index(fields: ImageIndexFieldSet) -> BuiltPackage:
    index = await Get(ImageIndex, ImageIndexRequest(fields))
    index.require_sound()
    content = json_bytes({"name": index.name, "images": dict(index.images)})
    written = await Get(Digest, CreateDigest([FileContent(fields.path, content)]))
    lines = (f"{index.name}, not published yet", *index.images.values())
    return BuiltPackage(written, (BuiltPackageArtifact(fields.path, extra_log_lines=lines),))


def rules():
    return [*collect_rules(), UnionRule(PackageFieldSet, ImageIndexFieldSet)]
