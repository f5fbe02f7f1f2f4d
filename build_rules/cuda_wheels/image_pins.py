"""`images/pins.py`: the digests of bases, and the images that wheels are compiled in."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from pants.util.frozendict import FrozenDict

PATH = "images/pins.py"

_TEXT = '''\
"""BUILD prelude: what the toolchain images are made of and where they are, pinned by content.

`./pants cuda-pin-images` writes this file. Look at the change before you commit it.
"""

# Base image -> the digest of its index, which serves every architecture: what images are built on.
BASE_PINS = pins({bases})

# `toolchain_image` of `images/` -> the image that wheels are compiled in: published,
# `registry.example/team/amd64-cu130@sha256:...`, or of this machine alone, `name:tag`.
IMAGE_PINS = pins({images})
'''


class PinsError(Exception):
    """The file of pins cannot be read."""


@dataclass(frozen=True)
class Pins:
    """`bases`: name of a base image -> `sha256:...`. `images`: name of a target -> image."""

    bases: FrozenDict[str, str] = FrozenDict()
    images: FrozenDict[str, str] = FrozenDict()

    def with_bases(self, found: Mapping[str, str]) -> Pins:
        """These, with the digests that were found."""
        return Pins(FrozenDict({**self.bases, **found}), self.images)

    def with_images(self, found: Mapping[str, str]) -> Pins:
        """These, with the images that were found."""
        return Pins(self.bases, FrozenDict({**self.images, **found}))

    @property
    def text(self) -> str:
        """The file that has them."""
        return _TEXT.format(bases=_written(self.bases), images=_written(self.images))


def parse(text: str) -> Pins:
    """The pins of a file's text; raises PinsError where it is not what `cuda-pin-images` writes."""
    found: dict[str, FrozenDict[str, str]] = {}
    try:
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                assert isinstance(node.value, ast.Call)
                value = ast.literal_eval(node.value.args[0])
                assert all(isinstance(part, str) for pair in value.items() for part in pair)
                found[node.targets[0].id] = FrozenDict(value)
        return Pins(found["BASE_PINS"], found["IMAGE_PINS"])
    except (AssertionError, AttributeError, IndexError, KeyError, SyntaxError, ValueError) as error:
        raise PinsError(
            f"{PATH} is not as `./pants cuda-pin-images` writes it: `BASE_PINS = pins({{...}})` and "
            "`IMAGE_PINS = pins({...})`, with names and values in quotes. Restore it from version "
            "control."
        ) from error


def _written(pins: Mapping[str, str]) -> str:
    if not pins:
        return "{}"
    lines = "".join(f'        "{name}": "{pins[name]}",\n' for name in sorted(pins))
    return f"\n    {{\n{lines}    }}\n"
