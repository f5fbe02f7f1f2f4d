"""Builds spconv from its own wheel, which carries the whole generator.

Everything that the wheel's metadata says stays as it is; the native module is made anew by pccm,
from the same classes that `spconv/build.py` names.
"""

import ctypes
import os
from email.parser import HeaderParser
from pathlib import Path

from pccm.extension import PCCMBuild, PCCMExtension
from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent
PACKAGE = HERE / "spconv"

# cumm's native module needs them; at run time torch has loaded them.
for library in ("libcudart.so", "libnvrtc.so", "libnvrtc-builtins.so"):
    ctypes.CDLL(str(Path(os.environ["CUDA_HOME"], "lib64", library)), mode=ctypes.RTLD_GLOBAL)

from cumm.common import CompileInfo  # noqa: E402
from cumm.conv.main import ConvMainUnitTest  # noqa: E402
from cumm.gemm.main import GemmMainUnitTest  # noqa: E402
from spconv.core import (  # noqa: E402
    IMPLGEMM_AMPERE_PARAMS,
    IMPLGEMM_SIMT_PARAMS,
    IMPLGEMM_TURING_PARAMS,
    IMPLGEMM_VOLTA_PARAMS,
    SHUFFLE_AMPERE_PARAMS,
    SHUFFLE_SIMT_PARAMS,
    SHUFFLE_TURING_PARAMS,
    SHUFFLE_VOLTA_PARAMS,
)
from spconv.csrc.hash.core import HashTable  # noqa: E402
from spconv.csrc.sparse.all import SpconvOps  # noqa: E402
from spconv.csrc.sparse.alloc import ExternalAllocator  # noqa: E402
from spconv.csrc.sparse.convops import (  # noqa: E402
    ConvGemmOps,
    ConvTunerSimple,
    ExternalSpconvMatmul,
    GemmTunerSimple,
    SimpleExternalSpconvMatmul,
)
from spconv.csrc.sparse.inference import InferenceOps  # noqa: E402
from spconv.csrc.utils import BoxOps, PointCloudCompress  # noqa: E402

(METADATA,) = HERE.glob("*.dist-info/METADATA")
METADATA = HeaderParser().parsestr(METADATA.read_text(encoding="utf-8"))


def in_namespace(unit, namespace):
    """A unit of generated code, in the namespace that spconv's Python code finds it by."""
    unit.namespace = namespace
    return unit


def units():
    """The classes of spconv's native module."""
    gemm = in_namespace(
        GemmMainUnitTest(
            SHUFFLE_SIMT_PARAMS
            + SHUFFLE_VOLTA_PARAMS
            + SHUFFLE_TURING_PARAMS
            + SHUFFLE_AMPERE_PARAMS
        ),
        "cumm.gemm.main",
    )
    conv = in_namespace(
        ConvMainUnitTest(
            IMPLGEMM_SIMT_PARAMS
            + IMPLGEMM_VOLTA_PARAMS
            + IMPLGEMM_TURING_PARAMS
            + IMPLGEMM_AMPERE_PARAMS
        ),
        "cumm.conv.main",
    )
    gemm_tuner = in_namespace(GemmTunerSimple(gemm), "csrc.sparse.convops.gemmops")
    conv_tuner = in_namespace(ConvTunerSimple(conv), "csrc.sparse.convops.convops")
    return [
        gemm,
        conv,
        gemm_tuner,
        conv_tuner,
        in_namespace(ConvGemmOps(gemm_tuner, conv_tuner), "csrc.sparse.convops.spops"),
        SpconvOps(),
        BoxOps(),
        HashTable(),
        CompileInfo(),
        ExternalAllocator(),
        ExternalSpconvMatmul(),
        SimpleExternalSpconvMatmul(),
        InferenceOps(),
        PointCloudCompress(),
    ]


def data_files():
    """What the wheel holds beside modules, without the native module and its stubs.

    Nor the bytecode that the imports above have left, which holds the times of its sources.
    """
    for path in sorted(PACKAGE.rglob("*")):
        inside = path.relative_to(PACKAGE)
        module = path.suffix in (".py", ".pyc", ".so")
        if path.is_file() and not module and inside.parts[0] != "core_cc":
            yield str(inside)


setup(
    name=METADATA["Name"],
    version=METADATA["Version"],
    description=METADATA["Summary"],
    url=METADATA["Home-page"],
    license=METADATA["License"],
    license_files=[str(path.relative_to(HERE)) for path in HERE.glob("*.dist-info/**/LICENSE")],
    python_requires=METADATA["Requires-Python"],
    install_requires=METADATA.get_all("Requires-Dist"),
    packages=find_packages(include=["spconv", "spconv.*"]),
    package_data={"spconv": list(data_files())},
    cmdclass={"build_ext": PCCMBuild},
    ext_modules=[
        PCCMExtension(
            units(),
            "spconv/core_cc",
            PACKAGE,
            # CUDA 13's CCCL refuses the default, C++14.
            std="c++17",
            # A precompiled header is not kept by the compiler cache.
            disable_pch=True,
            verbose=True,
        )
    ],
)
