"""BUILD prelude: the matrix of wheels, and the macro that expands a package over it.

Preludes cannot import. Adding a row is adding a line to `MATRIX`.
"""

# Rows of these versions are named `<arch>-<accel>` alone; others say their version.
DEFAULT_TORCH = "2.9.1"
DEFAULT_PYTHON = "3.12"

# arch, accel, torch, python, cuda_arch: the GPU capabilities that the row's wheels promise.
MATRIX = (
    ("amd64", "cu130", "2.11.0", "3.12", "8.0 8.6 8.9 9.0 10.0 10.3 12.0"),
    ("arm64", "cu130", "2.11.0", "3.12", "8.0 8.6 8.9 9.0 10.0 10.3 12.0 12.1"),
)


def row_name(arch, accel, torch, python):
    """The target name of a row: `amd64-cu130`, `amd64-cu130-torch2.11.0`, `amd64-cu130-cp311`."""
    parts = [arch, accel]
    if torch != DEFAULT_TORCH:
        parts.append(f"torch{torch}")
    if python != DEFAULT_PYTHON:
        parts.append(f"cp{python.replace('.', '')}")
    return "-".join(parts)


def native_package(package, version, *, source, sources=None, **fields):
    """`:src`, a `cuda_source`, and one `cuda_wheel` for each row of `MATRIX`.

    `fields` are fields of `cuda_wheel` that all rows share.
    """
    cuda_source(name="src", source=source, **({"sources": sources} if sources is not None else {}))
    for arch, accel, torch, python, cuda_arch in MATRIX:
        cuda_wheel(
            name=row_name(arch, accel, torch, python),
            package=package,
            version=version,
            source=":src",
            arch=arch,
            accel=accel,
            torch=torch,
            python=python,
            cuda_arch=cuda_arch.split(),
            environment=f"{arch}-{accel}",
            **fields,
        )
