"""Builds cumm from its own wheel, which carries the whole generator and all headers.

Everything that the wheel's metadata says stays as it is; the native module is made anew by pccm.
"""

from email.parser import HeaderParser
from pathlib import Path

from pccm.extension import PCCMBuild, PCCMExtension
from setuptools import find_packages, setup

from cumm.csrc.arrayref import ArrayPtr
from cumm.common import CompileInfo
from cumm.tensorview_bind import TensorViewBind

HERE = Path(__file__).resolve().parent
PACKAGE = HERE / "cumm"

(METADATA,) = HERE.glob("*.dist-info/METADATA")
METADATA = HeaderParser().parsestr(METADATA.read_text(encoding="utf-8"))


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
    packages=find_packages(include=["cumm", "cumm.*"]),
    package_data={"cumm": list(data_files())},
    cmdclass={"build_ext": PCCMBuild},
    ext_modules=[
        PCCMExtension(
            [ArrayPtr(), TensorViewBind(), CompileInfo()],
            "cumm/core_cc",
            PACKAGE,
            # CUDA 13's CCCL refuses the default, C++14.
            std="c++17",
            # A precompiled header is not kept by the compiler cache.
            disable_pch=True,
            verbose=True,
        )
    ],
)
