"""BUILD prelude: what the toolchain images are made of and where they are, pinned by content.

`./pants cuda-pin-images` writes this file. Look at the change before you commit it.
"""

# Base image -> the digest of its index, which serves every architecture: what images are built on.
BASE_PINS = pins({})

# `toolchain_image` of `images/` -> the image that wheels are compiled in: published,
# `registry.example/team/amd64-cu130@sha256:...`, or of this machine alone, `name:tag`.
IMAGE_PINS = pins({})
