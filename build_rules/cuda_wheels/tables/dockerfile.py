"""The Dockerfile of every toolchain image: one template, and what each package manager adds.

The build context has, beside the Dockerfile: `image.json`, what the image says of itself;
`bake/`, the program that makes environments, its request, locks and wheels; and `site-ca.crt` where
the site has certificates of its own. No index address, proxy or password is in any of them.
"""

from __future__ import annotations

import string
from collections.abc import Mapping

from cuda_wheels.tables.accelerators import find_accelerator
from cuda_wheels.tables.images import (
    APT,
    DNF,
    DNF_REPOSITORIES,
    FROM_UV,
    PYTHON,
    SYSTEMS,
    UV_PYTHON,
    Image,
    ca_bundle,
)

BAKED = "/opt/cuda-wheels"
"""The same as in `sandbox/environment.py`."""

DESCRIPTION = "/etc/cuda-wheels/image.json"
"""The same as in `sandbox/probe.py`."""

PACKAGE_LIST = "/etc/cuda-wheels/packages.txt"
SITE_CA = "site-ca.crt"
LABEL = "cuda-wheels"
"""What the names of our own labels begin with."""

# The programs that gcc calls. It looks for them on PATH, where the system's own are older.
_BINUTILS = ("ar", "as", "ld", "ld.bfd", "nm", "objcopy", "objdump", "ranlib", "readelf", "strip")

_TEMPLATE = string.Template("""\
# What compiles wheels for $arch and $accel. Rendered by tables/dockerfile.py: change it there.
FROM $base AS toolchain
SHELL ["/bin/bash", "-o", "errexit", "-o", "pipefail", "-c"]
# Pants writes its sandboxes and caches in the container as root, whatever the base is set to.
# hadolint ignore=DL3002
USER 0
$site_ca
# The packages' versions are those of the day; packages.txt has them, and the image's digest pins them.
# hadolint ignore=DL3008,DL3041
RUN $install
$links
FROM toolchain AS environments
WORKDIR /bake
COPY bake/ ./
$python
RUN python$python_version -m cuda_wheels.sandbox.bake request.json

FROM toolchain
$copy_python
COPY --from=environments $baked $baked
COPY image.json $description
LABEL $labels
""")

_SITE_CA = {
    DNF: f"COPY {SITE_CA} /etc/pki/ca-trust/source/anchors/{SITE_CA}\nRUN update-ca-trust extract\n",
    # Where the package that reads them is not there yet, its installation does.
    APT: (
        f"COPY {SITE_CA} /usr/local/share/ca-certificates/{SITE_CA}\n"
        "RUN if command -v update-ca-certificates; then update-ca-certificates; fi\n"
    ),
}


def render(image: Image, versions: Mapping[str, str], *, site_ca: bool) -> str:
    """The Dockerfile of an image that has no problems.

    `versions`: name and version of each tool that comes as a wheel, for the labels. `site_ca`:
    whether the build context has certificates of the site.
    """
    system = SYSTEMS[image.system]
    text = _TEMPLATE.substitute(
        arch=image.arch,
        accel=image.accel,
        base=image.base,
        site_ca=_SITE_CA[system.manager] if site_ca else "",
        install=_lines(_install(image)),
        links=_links(image),
        python=_uv_python(image) if system.python == FROM_UV else "",
        copy_python=_COPY_UV_PYTHON if system.python == FROM_UV else "",
        python_version=PYTHON,
        baked=BAKED,
        description=DESCRIPTION,
        labels=_labels(image, versions),
    )
    # What a system does not need leaves empty lines; one before each stage is enough.
    lines = [line for line in text.splitlines() if line]
    return (
        "\n".join(f"\n{line}" if line.startswith("FROM toolchain") else line for line in lines)
        + "\n"
    )


def labels(image: Image, versions: Mapping[str, str]) -> dict[str, str]:
    """The labels of an image: what it is for, what it is built on, and every version."""
    accel = find_accelerator(image.accel)
    system = SYSTEMS[image.system]
    name, _, digest = (image.base or "").rpartition("@")
    return {
        "org.opencontainers.image.title": f"Toolchain for {image.arch} and {image.accel}",
        **({"org.opencontainers.image.base.name": name} if name else {}),
        "org.opencontainers.image.base.digest": digest,
        f"{LABEL}.arch": image.arch,
        f"{LABEL}.accel": image.accel,
        f"{LABEL}.system": image.system,
        f"{LABEL}.platform-policy": system.platform_policy or "none",
        **(
            {f"{LABEL}.{accel.kind}": accel.full_version}
            if accel and accel.full_version and not image.own_base
            else {}
        ),
        f"{LABEL}.gcc": str(image.gcc),
        f"{LABEL}.python": UV_PYTHON if system.python == FROM_UV else PYTHON,
        **{f"{LABEL}.{name}": version for name, version in sorted(versions.items())},
        f"{LABEL}.packages": " ".join(image.packages),
        **({f"{LABEL}.baked-locks": " ".join(image.baked_locks)} if image.baked_locks else {}),
    }


def _labels(image: Image, versions: Mapping[str, str]) -> str:
    found = (f'{name}="{value}"' for name, value in labels(image, versions).items())
    return " \\\n      ".join(found)


def _lines(commands: tuple[str, ...]) -> str:
    return " \\\n && ".join(commands)


def _listed(command: str, names: tuple[str, ...]) -> str:
    return " \\\n      ".join((command, *names))


def _install(image: Image) -> tuple[str, ...]:
    if SYSTEMS[image.system].manager == DNF:
        return (
            f"dnf install -y {' '.join(DNF_REPOSITORIES)}",
            "dnf config-manager --set-enabled powertools",
            _listed("dnf install -y --setopt=install_weak_deps=False", image.packages),
            "dnf clean all",
            f"mkdir -p {DESCRIPTION.rsplit('/', 1)[0]}",
            f"rpm -qa | sort > {PACKAGE_LIST}",
        )
    return (
        "apt-get update",
        _listed(
            "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends",
            image.packages,
        ),
        "rm -rf /var/lib/apt/lists/*",
        f"mkdir -p {DESCRIPTION.rsplit('/', 1)[0]}",
        f"dpkg-query --show > {PACKAGE_LIST}",
    )


def _links(image: Image) -> str:
    """The gcc-toolset's binutils before the system's: a process has no PATH of the image's."""
    if SYSTEMS[image.system].manager != DNF:
        return ""
    programs = image.compilers[0].rsplit("/", 1)[0]
    paths = tuple(f"{programs}/{name}" for name in _BINUTILS)
    return f"RUN {_listed('ln -s -t /usr/local/bin', paths)}\n"


_UV_PYTHON_DIR = "/opt/python"
_UV_PYTHON_LINK = f"ln -s {_UV_PYTHON_DIR}/cpython-{UV_PYTHON}-*/bin/python{PYTHON} /usr/local/bin/"


def _uv_python(image: Image) -> str:
    """What installs CPython from the wheel of uv that the context has."""
    commands = (
        "python3 -m zipfile -e wheels/uv-*.whl uv",
        "install uv/uv-*.data/scripts/uv uv/program",
        f"SSL_CERT_FILE={ca_bundle(image.system)} UV_PYTHON_INSTALL_DIR={_UV_PYTHON_DIR} "
        f"uv/program python install --no-bin {UV_PYTHON}",
        _UV_PYTHON_LINK,
    )
    return f"RUN {_lines(commands)}\n"


_COPY_UV_PYTHON = (
    f"COPY --from=environments {_UV_PYTHON_DIR} {_UV_PYTHON_DIR}\nRUN {_UV_PYTHON_LINK}"
)
