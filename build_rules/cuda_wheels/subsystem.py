"""The `[cuda-wheels]` options."""

from __future__ import annotations

from pants.option.option_types import BoolOption, DictOption, StrOption
from pants.option.subsystem import Subsystem
from pants.util.strutil import help_text, softwrap


class CudaWheelsSubsystem(Subsystem):
    options_scope = "cuda-wheels"
    help = help_text("""
        Builds native CUDA wheels hermetically: pinned sources, locked build environments, repaired
        and inspected results.
        """)

    gpu_archs = StrOption(
        default="",
        metavar="'9.0'",
        help=softwrap("""
            Narrow every wheel to these GPU capabilities, for instance `"9.0"` or `"8.0 9.0"`, or
            `native` for the GPUs of this machine. Each must be one that the target promises.

            A narrowed wheel says so in its version (`2.1.2+cu130.torch2.11.0.sm90`).
            The default builds what each target declares.
            """),
    )
    allow_narrowed = BoolOption(
        default=False,
        help=softwrap("""
            Let every wheelhouse take wheels that `gpu_archs` narrows, as `allow_narrowed` of a
            `cuda_wheelhouse` does for one. Its `tags.json` then names only what they were compiled
            for.
            """),
    )
    platform_policy = StrOption(
        default="manylinux_2_28",
        help=softwrap("""
            The platform tag that wheels are repaired to: a manylinux policy such as
            `manylinux_2_28`, or `auto` for the oldest one that the compiled code allows.

            With `auto` the tag depends on the host's compiler and C library. Where a wheel is
            compiled in a toolchain image, and this is not set, it is the policy that the image
            declares.
            """),
    )
    local_version = BoolOption(
        default=True,
        help=softwrap("""
            Add a local version that names the row, for instance `+cu130.torch2.11.0`.

            Without it wheels of different rows have the same file name.
            """),
    )
    prefer_prebuilt = BoolOption(
        default=False,
        help=softwrap("""
            Take the wheel that a target's `prebuilt` field names instead of compiling it, if it is
            as good as a compiled one: it is for the row's platform, Python and torch, can be
            repaired to `platform_policy`, passes inspection, and its GPU code serves all that the
            target promises. Otherwise the wheel is compiled; its facts, and the closing table of
            `cuda-build`, say why.

            A prebuilt whose hash is not the pinned one, or that cannot be had, is an error: it is
            not compiled in silence. Wheels that are compiled against each other are taken together
            or not at all, so that they come from one compiler.
            """),
    )
    source_mirrors = DictOption[str](
        help=softwrap("""
            Rewrites the beginning of source addresses, those of git submodules included, for
            instance `{"https://example.com/": "https://mirror.example.org/"}`. The longest match
            applies. The pin of the content stays the declared one, so the mirrors are in no cache
            key. An address with a token belongs in a file of your own (`.pants.rc`).

            The address of the PyTorch index, which has the torch wheels with a local version such
            as `2.9.1+cu126`, is rewritten too: when an environment is locked and when it is made.
            """),
    )
    cuda_home = StrOption(
        default=None,
        help=softwrap("""
            An installed CUDA toolkit to compile with, instead of the one from the build
            environment's lock. Its version must be that of the target's accelerator. Needed
            locally for CUDA 12, whose compiler is not on PyPI.
            """),
        advanced=True,
    )
    c_compiler = StrOption(
        default="gcc",
        help=softwrap("""The host's C compiler: a name to look up on PATH, or a path."""),
        advanced=True,
    )
    cxx_compiler = StrOption(
        default="g++",
        help=softwrap("""
            The host's C++ compiler: a name to look up on PATH, for instance `g++-13`, or a path.
            Its version must be in the range that the row's nvcc accepts.
            """),
        advanced=True,
    )
