"""The `cuda_source`, `cuda_wheel`, `source_wheel`, `cuda_wheelhouse` and `toolchain_image` targets.

Fields check the shape of a value only. Whether the values of one target go together is decided by
`rules.spec`, which reports every fault of a target at once when the target is packaged: an
exception while targets are read would break every goal, `list` included.
"""

from __future__ import annotations

from typing import Any, ClassVar, Iterable, Optional

from pants.core.goals.package import OutputPathField
from pants.core.util_rules.environments import EnvironmentField
from pants.engine.addresses import Address
from pants.engine.fs import GlobMatchErrorBehavior
from pants.engine.target import (
    COMMON_TARGET_FIELDS,
    BoolField,
    DictStringToStringField,
    Field,
    FloatField,
    IntField,
    InvalidFieldTypeException,
    MultipleSourcesField,
    SpecialCasedDependencies,
    StringField,
    StringSequenceField,
    Target,
)
from pants.util.strutil import help_text

from cuda_wheels.sources import SOURCE_ALIASES, SOURCE_TYPES, PrebuiltWheel, Source
from cuda_wheels.tables.accelerators import ACCELERATORS
from cuda_wheels.tables.gpu_archs import GPU_ARCH_RULES
from cuda_wheels.tables.images import DEFAULT_SYSTEM, LIBRARIES, SYSTEMS
from cuda_wheels.tables.system_headers import SYSTEM_HEADERS

# --------------------------------------------------------------------------------------------
# cuda_source
# --------------------------------------------------------------------------------------------


class SourceOriginField(Field):
    alias: ClassVar[str] = "source"
    required = True
    value: Source
    help = help_text("""
        Where the source comes from, pinned by its content. One of:

          * `sdist_source("torch-scatter", "2.1.2", sha256="...")`: a source distribution of the
            package index in `[python-repos]`; none of its code is run to fetch it
          * `wheel_source("cumm", "0.8.2", sha256="...")`: a wheel of that index that carries the
            package's source, unpacked whole
          * `archive_source("https://...tar.gz", sha256="...")`: a tar or zip archive
          * `git_source(github("Pointcept/Pointcept"), commit="...", subdirectory="libs/pointops")`:
            a commit of a git repository with its submodules, or one folder of it. A tag or a
            branch is no pin: `git ls-remote URL TAG` prints the commit
          * `files_source("vecadd")`: files of this repository; `sources` names them

        A missing or malformed hash or commit is reported when a wheel of this source is packaged.
        """)

    @classmethod
    def compute_value(cls, raw_value: Any, address: Address) -> Source:
        value = super().compute_value(raw_value, address)
        if not isinstance(value, SOURCE_TYPES):
            raise InvalidFieldTypeException(
                address,
                cls.alias,
                raw_value,
                expected_type=f"one of {', '.join(f'`{alias}(...)`' for alias in SOURCE_ALIASES)}",
            )
        return value


class SourceFilesField(MultipleSourcesField):
    alias: ClassVar[str] = "sources"
    default = ("patches/*.patch", "overlay/**/*")
    # A package without patches and without an overlay is the usual case.
    default_glob_match_error_behavior = GlobMatchErrorBehavior.ignore
    help = help_text("""
        The files of this repository that belong to the source:

          * `patches/NNNN-why.patch`: applied in the order of their numbers, with `git apply`,
            strictly. Before its first `---` line a patch says `Reason: ...` and, where it is not
            for every wheel, `CUDA: >=13.0` or `Torch: >=2.9` (PEP 440 specifiers);
            `Relaxes: cumm<0.8.0` where it loosens a requirement. A patch that
            does not apply, or that no wheel of the source selects, is an error.
          * `overlay/...`: files of ours that are added to the tree before patches are applied.
            They never replace a file of upstream.
          * for `files_source(root)`: the files below `root`.
        """)


class DeclarationProblemsField(StringSequenceField):
    alias: ClassVar[str] = "problems"
    help = help_text("""
        What is wrong with a call of `native_package` or with `MATRIX`, one sentence each.
        `native_package` sets it.

        The wheels of this source are refused with it: an error while targets are read would break
        every goal, `list` included.
        """)


class CudaSourceTarget(Target):
    alias: ClassVar[str] = "cuda_source"
    core_fields = (
        *COMMON_TARGET_FIELDS,
        SourceOriginField,
        SourceFilesField,
        DeclarationProblemsField,
    )
    help = help_text("""
        The pinned source of a native package: an archive, a source distribution, a commit or files
        of this repository, with the patches that make it build.

        `cuda_wheel` targets name it in their `source` field. It is fetched once, its hash is
        verified before anything is unpacked, and each wheel gets the patches that match its row.
        """)


# --------------------------------------------------------------------------------------------
# cuda_wheel
# --------------------------------------------------------------------------------------------


class PackageField(StringField):
    alias: ClassVar[str] = "package"
    required = True
    value: str
    help = help_text("""
        The name of the distribution, as its own metadata gives it, for instance `torch-scatter`.

        Compared after normalisation (`torch_scatter` is the same name). A wheel with another name
        is refused.
        """)


class VersionField(StringField):
    alias: ClassVar[str] = "version"
    required = True
    value: str
    help = help_text("""
        The version that the package's own metadata gives, for instance `2.1.2`.

        The wheel's version is this one with a local part that names its row, for instance
        `2.1.2+cu130.torch2.11.0`; see `[cuda-wheels].local_version`.
        """)


class SourceAddressField(SpecialCasedDependencies):
    alias: ClassVar[str] = "source"
    required = True
    help = help_text("""
        The address of the `cuda_source` that this wheel is built from, as one string, for instance
        `":src"`.
        """)

    @classmethod
    def compute_value(
        cls, raw_value: Optional[Iterable[str]], address: Address
    ) -> Optional[tuple[str, ...]]:
        if isinstance(raw_value, str):
            return (raw_value,)
        raise InvalidFieldTypeException(address, cls.alias, raw_value, expected_type="an address")


class WheelSourceField(SourceAddressField):
    pass


class ArchField(StringField):
    alias: ClassVar[str] = "arch"
    required = True
    value: str
    help = help_text("""
        The processor architecture of the host: `amd64` or `arm64` (not `x86_64` or `aarch64`,
        which are the names in wheel tags).

        Wheels are built natively: a target whose `arch` is not its environment's platform is
        refused before anything is fetched.
        """)


class AccelField(StringField):
    alias: ClassVar[str] = "accel"
    required = True
    value: str
    help = help_text(f"""
        The accelerator, by the name that PyTorch's wheels use: one of
        {', '.join(f'`{accel.name}`' for accel in ACCELERATORS)}.

        `cu130` is CUDA 13.0; `cpu` builds no device code. An unknown name is refused together with
        the nearest known one, and so is an accelerator that `arch` or the platform does not have.
        """)


class TorchField(StringField):
    alias: ClassVar[str] = "torch"
    help = help_text("""
        The torch release that the wheel is compiled against: three numbers without a local
        version, for instance `2.11.0`.

        Required, but not read with `links_torch=False`. A release older than the accelerator's
        first one is refused, and so is one without a locked build environment in
        `3rdparty/torch/`, which `cuda-lock` writes.
        """)


class PythonField(StringField):
    alias: ClassVar[str] = "python"
    default = "3.12"
    value: str
    help = help_text("""
        The Python version that the wheel is for, as `major.minor`.

        Build environments are made with the Python that runs the build programs, 3.12: any other
        version is refused.
        """)


class CudaArchField(StringSequenceField):
    alias: ClassVar[str] = "cuda_arch"
    value: Optional[tuple[str, ...]]
    help = help_text("""
        The GPU capabilities that the wheel promises to run on, for instance `["8.0", "9.0"]`.

        Required for CUDA, and empty for `cpu`. Each must be one that this row's nvcc can emit,
        written without `sm_`, suffix or `+PTX`. What is compiled for each is decided by
        `gpu_arch_rule`; the finished wheel's device code is read back and must be exactly that.
        Narrow it for a quick build with `--cuda-wheels-gpu-archs="9.0"`.
        """)


class GpuArchRuleField(StringField):
    alias: ClassVar[str] = "gpu_arch_rule"
    default = "torch"
    value: str
    help = help_text(f"""
        How this package is told its GPU architectures: one of
        {', '.join(f'`{name}`' for name in GPU_ARCH_RULES)}.

          * `torch`: by `TORCH_CUDA_ARCH_LIST`, which torch's own extension builder reads
          * `flash-attn`: by `FLASH_ATTN_CUDA_ARCHS`, which knows 80, 90, 100 and 120
          * `cumm`: by `CUMM_CUDA_ARCH_LIST`

        A rule also says which architectures the package knows, and what stands in for one that it
        does not know. All of that is a row of `tables/gpu_archs.py`: for a package with a variable
        of its own, add one. An unknown rule is refused when the wheel is packaged.
        """)


class BuildRequiresField(SpecialCasedDependencies):
    alias: ClassVar[str] = "build_requires"
    help = help_text("""
        Addresses of `cuda_wheel` targets that must be installed while this one is compiled, for
        instance `["packages/cumm:amd64-cu130"]`. They are installed beside the build environment,
        not into it.

        Another target, or a wheel of another row, is refused. A wheel with `links_torch=False`
        serves every torch.
        """)


class LinksTorchField(BoolField):
    alias: ClassVar[str] = "links_torch"
    default = True
    help = help_text("""
        Whether the package is compiled against torch.

        With `False` the build environment has no torch, and neither the wheel's version nor its
        cache key names one: rows that differ in torch alone share the wheel. A wheel that is found
        to differ from this is refused.
        """)


class NativeField(BoolField):
    alias: ClassVar[str] = "native"
    default = True
    help = help_text("""
        Whether the wheel must contain device code: exactly what `gpu_arch_rule` makes of
        `cuda_arch`.

        With `False` it must still be a platform wheel for its row, but with host code alone (for
        instance a torch `CppExtension`): device code in it is refused. With `accel="cpu"` this is
        always so.
        """)


class SkippedField(StringField):
    alias: ClassVar[str] = "skipped"
    help = help_text("""
        Why the package cannot serve this row, for instance `"It has no code for the CPU alone."`;
        not set where it can. `native_package` sets it.

        The wheel is then not built: `cuda-matrix` and `cuda-build` show it as skipped with this
        reason, and `package` refuses it. Nothing else of the target is checked. A wheel for whose
        GPUs `gpu_arch_rule` leaves nothing to compile is skipped without this field.
        """)


class EnvField(DictStringToStringField):
    alias: ClassVar[str] = "env"
    help = help_text("""
        Environment variables of the compile step, for instance `{"FORCE_CUDA": "1"}`. Nothing of
        the user's own environment reaches it.

        They win over the compiler flags (`CFLAGS`, `CXXFLAGS`, `NVCC_THREADS`) and the variable of
        `gpu_arch_rule` that the rules set. `PATH`, `PYTHONPATH`, `HOME`, `TMPDIR`, `CUDA_HOME`,
        `MAX_JOBS`, `SOURCE_DATE_EPOCH` and ccache's variables stay as the rules set them.

        Part of the cache key.
        """)


class SystemHeadersField(StringSequenceField):
    alias: ClassVar[str] = "system_headers"
    value: Optional[tuple[str, ...]]
    help = help_text(f"""
        Headers of the system that this package includes, beside those of the C and C++ libraries,
        for instance `["google/dense_hash_map"]`. Known:
        {', '.join(f'`{name}`' for name in SYSTEM_HEADERS)}; another one is a row of
        `tables/system_headers.py`.

        A missing one is reported before anything is fetched, with the package that has it. Their
        content is part of the cache key of this wheel alone.
        """)


class MemoryPerJobField(FloatField):
    alias: ClassVar[str] = "memory_per_job_gb"
    default = 3.0
    value: float
    help = help_text("""
        The memory in GB (10^9 bytes) that one compiler process of this package needs at its peak.

        The number of jobs is the smaller of the cores that Pants gives this process and of its
        share of the free memory divided by this. That number is never in the cache key; this value
        is: another one compiles again, from the objects in the compiler cache.
        """)


class TimeoutField(IntField):
    alias: ClassVar[str] = "timeout"
    default = 6 * 60 * 60
    value: int
    help = help_text("""
        The seconds after which the compile step is ended, a year at most; the default is six hours.
        Objects that were finished stay in the compiler cache, so that the next attempt resumes.

        Pants puts it into the cache key: another value compiles again, from those objects.
        """)


class PrebuiltField(Field):
    alias: ClassVar[str] = "prebuilt"
    default = None
    value: Optional[PrebuiltWheel]
    help = help_text("""
        A wheel that upstream publishes for this row, pinned by its content, for instance
        `prebuilt_wheel("cumm-cu126", "0.8.2", sha256="...")`, or with `index="pyg"` one of PyG's:
        `prebuilt_wheel("torch-scatter", "2.1.2+pt29cu130", sha256="...", index="pyg")`.

        It is looked at with `[cuda-wheels].prefer_prebuilt` alone, whose help says when it stands
        in for a compiled wheel. It keeps upstream's name and version, which others require it by.
        Apart from a local part, that version must be the target's.
        """)

    @classmethod
    def compute_value(cls, raw_value: Any, address: Address) -> Optional[PrebuiltWheel]:
        value = super().compute_value(raw_value, address)
        if value is not None and not isinstance(value, PrebuiltWheel):
            raise InvalidFieldTypeException(
                address, cls.alias, raw_value, expected_type="a `prebuilt_wheel(...)`"
            )
        return value


class CudaWheelEnvironmentField(EnvironmentField):
    help = help_text("""
        The environment of `[environments-preview.names]` that compiles, repairs and inspects this
        wheel. `native_package` sets it to `<arch>-<accel>`.
        """)


class WheelOutputPathField(OutputPathField):
    help = help_text("""
        The directory below `--distdir` that the wheel and its facts are written to. The default
        is `--distdir` itself: the names of wheels are unique, unless
        `[cuda-wheels].local_version` is off.
        """)


class CudaWheelTarget(Target):
    alias: ClassVar[str] = "cuda_wheel"
    core_fields = (
        *COMMON_TARGET_FIELDS,
        PackageField,
        VersionField,
        WheelSourceField,
        ArchField,
        AccelField,
        TorchField,
        PythonField,
        CudaArchField,
        GpuArchRuleField,
        BuildRequiresField,
        LinksTorchField,
        NativeField,
        SkippedField,
        EnvField,
        SystemHeadersField,
        MemoryPerJobField,
        TimeoutField,
        PrebuiltField,
        CudaWheelEnvironmentField,
        WheelOutputPathField,
    )
    help = help_text("""
        One wheel of a native package for one row of the matrix: architecture, accelerator, torch
        and Python.

        `./pants package` fetches and patches its source, compiles it in the build environment of
        its row, repairs it with auditwheel to the declared platform, and inspects the result: the
        platform tag, the GPU code, the libraries it needs and its metadata must be what the target
        declares. A wheel that differs is not written.

        `native_package` in a BUILD file expands to one of these a row.
        """)


# --------------------------------------------------------------------------------------------
# source_wheel
# --------------------------------------------------------------------------------------------


class SourceWheelVersionField(StringField):
    alias: ClassVar[str] = "version"
    required = True
    value: str
    help = help_text("""
        The version that the commit comes after, with the number of commits since: for the answer
        `v1.7.0-8-g9f37497` of `git describe` it is `1.7.0.post8`.

        The wheel's version is this one with a local part that names the commit, for instance
        `1.7.0.post8+g9f37497`, so that no two commits make a file of one name.
        """)


class SourceWheelSourceField(SourceAddressField):
    pass


class ContentsField(DictStringToStringField):
    alias: ClassVar[str] = "contents"
    required = True
    help = help_text("""
        The directories of the source that go into the wheel, each with its place there, for
        instance `{"pointcept": "pointcept", "configs": "pointcept/configs"}`.

        A directory goes in with every file below it. One that is missing or empty, two files for
        one place, a link and a compiled file are errors, all reported at once.
        """)


class MetadataField(DictStringToStringField):
    alias: ClassVar[str] = "metadata"
    help = help_text("""
        Further lines of the wheel's METADATA, for instance `{"Requires-Python": ">=3.10"}`. The
        wheel requires no other distribution.
        """)


class SourceWheelTarget(Target):
    alias: ClassVar[str] = "source_wheel"
    core_fields = (
        *COMMON_TARGET_FIELDS,
        PackageField,
        SourceWheelVersionField,
        SourceWheelSourceField,
        ContentsField,
        MetadataField,
        WheelOutputPathField,
    )
    help = help_text("""
        One wheel, for every machine, of directories of a source as they are: a code base of Python
        that has no packaging of its own, or none that takes all of its files.

        None of the source's code runs. One commit gives the same bytes everywhere: members are
        sorted, and have one date and one mode.
        """)


# --------------------------------------------------------------------------------------------
# cuda_wheelhouse
# --------------------------------------------------------------------------------------------


class WheelhouseWheelsField(SpecialCasedDependencies):
    alias: ClassVar[str] = "wheels"
    required = True
    help = help_text("""
        The addresses of the row's `cuda_wheel` targets, for instance
        `["packages/torch-scatter:amd64-cu130", "packages/cumm:amd64-cu130"]`.

        A wheel of another row, and a second one of a distribution, are refused. A wheel with
        `links_torch=False` serves every torch of its row. One that is skipped is recorded with its
        reason.
        """)


class WheelhouseRequirementsField(StringField):
    alias: ClassVar[str] = "requirements"
    help = help_text("""
        The lock of what belongs to the wheels and comes from the package index, by its path from
        the top of the repository, for instance `"3rdparty/python/pypi.txt"`: pip's format, each
        line a pin with hashes. It becomes `requirements-pypi.txt`. Where there is one, it must pin
        all that the wheels require; without it an installer resolves that.
        """)


class WheelhouseTorchField(TorchField):
    required = True
    value: str
    help = help_text("""
        The torch release that the wheels are for: three numbers without a local version, for
        instance `2.11.0`.
        """)


class WheelhouseCudaArchField(CudaArchField):
    help = help_text("""
        The GPU capabilities that the row promises, for instance `["8.0", "9.0"]`: those of each of
        its wheels. `tags.json` repeats them, without those that narrowed wheels lack.
        """)


class AllowNarrowedField(BoolField):
    alias: ClassVar[str] = "allow_narrowed"
    default = False
    help = help_text("""
        Whether wheels that `[cuda-wheels].gpu_archs` narrows may be in the wheelhouse.

        They are refused otherwise, before anything is built. With it, or with
        `[cuda-wheels].allow_narrowed`, the tags name only those GPU capabilities that all wheels
        were compiled for.
        """)


class WheelhouseOutputPathField(OutputPathField):
    help = help_text("""
        The directory below `--distdir` that becomes the wheelhouse; what is in it is replaced. The
        default is `linux-<arch>/<accel>/torch<version>-cp<python>`.
        """)


class PublishToField(StringSequenceField):
    alias: ClassVar[str] = "publish_to"
    value: Optional[tuple[str, ...]]
    help = help_text("""
        The indexes that `publish` adds the wheelhouse to: a folder (`file:///srv/wheels`), an OCI
        registry (`oci://registry.example/team/wheels`) or an upload API
        (`pypi:https://wheels.example/`). A release stays as it is in each of them. The default is
        `[cuda-publish].to`. An address of another kind, or one with a password in it, is refused when
        the wheelhouse is published.
        """)


class CudaWheelhouseTarget(Target):
    alias: ClassVar[str] = "cuda_wheelhouse"
    core_fields = (
        *COMMON_TARGET_FIELDS,
        WheelhouseWheelsField,
        WheelhouseRequirementsField,
        ArchField,
        AccelField,
        WheelhouseTorchField,
        PythonField,
        WheelhouseCudaArchField,
        AllowNarrowedField,
        PublishToField,
        WheelhouseOutputPathField,
    )
    help = help_text("""
        All wheels of one row of the matrix as a folder that pip and uv install from: the wheels,
        `requirements-pypi.txt`, `manifest.json`, `tags.json`, `SHA256SUMS`, a CycloneDX SBOM and an
        index (`simple/`).

        `package` writes it whole or not at all. `cuda-build` writes what could be built, records
        the rest in the manifest as failed, and exits with 1. Equal inputs give equal bytes.

        `wheelhouses` in a BUILD file expands to one of these a row.
        """)


# --------------------------------------------------------------------------------------------
# toolchain_image
# --------------------------------------------------------------------------------------------


class ImageSystemField(StringField):
    alias: ClassVar[str] = "os"
    help = help_text(f"""
        The Linux that the image is built on, one of {', '.join(f'`{name}`' for name in SYSTEMS)}.
        The default is `{DEFAULT_SYSTEM}`, which is Rocky Linux 8; for ROCm it is `ubuntu24.04`,
        since AMD publishes nothing for another.

        It decides the platform tag of the wheels: those of Ubuntu have none, and run on that
        release or a newer one.
        """)


class ImageBaseField(StringField):
    alias: ClassVar[str] = "base_image"
    help = help_text("""
        An image of your own to build on, with its digest: `NAME@sha256:...`, or the id of an image
        that only this machine has, `sha256:...`. It must be a Linux of `os`.

        By default it is the published image of the accelerator, with the digest that `BASE_PINS` of
        `images/pins.py` has. A base without a digest is refused.
        """)


class ImageCudaHomeField(StringField):
    alias: ClassVar[str] = "cuda_home"
    help = help_text("""
        The directory of the CUDA toolkit in a `base_image`; not set if it has none, and the compiler
        comes with the build environment.
        """)


class ImageLibrariesField(StringSequenceField):
    alias: ClassVar[str] = "libraries"
    value: Optional[tuple[str, ...]]
    help = help_text(f"""
        Libraries of the system that are installed beside the compilers: any of
        {', '.join(f'`{name}`' for name in LIBRARIES)}. Headers that recipes name in
        `system_headers` are always there.
        """)


class ImageBakedLocksField(StringSequenceField):
    alias: ClassVar[str] = "baked_locks"
    value: Optional[tuple[str, ...]]
    help = help_text("""
        Locks whose build environments are part of the image, by their paths from the top of the
        repository, for instance `["3rdparty/torch/amd64-cu130-torch2.9.1-cp312.txt"]`. Each adds
        several gigabytes.

        By default none: a build environment is made in the container's volume when it is first
        needed.
        """)


class ImagePublishToField(StringField):
    alias: ClassVar[str] = "publish_to"
    help = help_text("""
        The place in a registry that `publish` pushes the image to, for instance
        `registry.example/team`: it becomes `registry.example/team/<name of the target>:<tag>`. The
        default is `[cuda-images].publish_to`.
        """)


class ImageOutputPathField(OutputPathField):
    help = help_text("""
        The file below `--distdir` that says what was built. The default is
        `images/<name of the target>.json`.
        """)


class ToolchainImageTarget(Target):
    alias: ClassVar[str] = "toolchain_image"
    core_fields = (
        *COMMON_TARGET_FIELDS,
        ArchField,
        AccelField,
        ImageSystemField,
        ImageBaseField,
        ImageCudaHomeField,
        ImageLibrariesField,
        ImageBakedLocksField,
        ImagePublishToField,
        ImageOutputPathField,
    )
    help = help_text("""
        A container image that compiles the wheels of one architecture and accelerator: the CUDA
        toolkit, a gcc that its nvcc accepts, CPython 3.12, uv, and a description of itself.

        `./pants package` builds it with the Docker daemon, under a tag that stands for everything
        it is made of; `./pants publish` pushes it; `./pants cuda-pin-images` writes its digest into
        `images/pins.py`. `toolchain_images` in a BUILD file expands to all of them.
        """)


# --------------------------------------------------------------------------------------------
# toolchain_image_index
# --------------------------------------------------------------------------------------------


class IndexedImagesField(SpecialCasedDependencies):
    alias: ClassVar[str] = "images"
    required = True
    help = help_text("""
        The addresses of the `toolchain_image` targets that the name serves, one an architecture, for
        instance `[":amd64-cu130", ":arm64-cu130"]`. Each must be pinned in `images/pins.py` by the
        digest under which it is published.
        """)


class IndexPublishToField(ImagePublishToField):
    help = help_text("""
        The place in a registry that `publish` writes the index to, for instance
        `registry.example/team`: it becomes `registry.example/team/<name of the target>:<tag>`. The
        images must be in the same registry. The default is `[cuda-images].publish_to`.
        """)


class IndexOutputPathField(ImageOutputPathField):
    help = help_text("""
        The file below `--distdir` that says which images the index is over. The default is
        `images/<name of the target>.json`.
        """)


class ToolchainImageIndexTarget(Target):
    alias: ClassVar[str] = "toolchain_image_index"
    core_fields = (
        *COMMON_TARGET_FIELDS,
        IndexedImagesField,
        IndexPublishToField,
        IndexOutputPathField,
    )
    help = help_text("""
        One name for the toolchain images of an accelerator on every architecture: an image index, in
        which a daemon finds the image of its own machine.

        The images are built natively, published and pinned first, each from its own machine.
        `./pants package` then writes which ones the index is over, `./pants publish` writes the
        index to the registry, and `./pants cuda-pin-images` its digest into `images/pins.py`.
        """)
