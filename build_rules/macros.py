"""BUILD prelude: the matrix of wheels, and the macro that expands a package over it.

Preludes cannot import. Adding a row is adding a line to `MATRIX`.
"""

# Rows of these versions are named `<arch>-<accel>` alone; others say their version.
DEFAULT_TORCH = "2.9.1"
DEFAULT_PYTHON = "3.12"

# arch, accel, torch, python, cuda_arch: the GPU capabilities that the row's wheels promise.
MATRIX = (
    ("amd64", "cu126", "2.9.1", "3.12", "8.0 8.6 8.9 9.0"),
    ("amd64", "cu128", "2.9.1", "3.12", "8.0 8.6 8.9 9.0 10.0 12.0"),
    ("amd64", "cu129", "2.9.1", "3.12", "8.0 8.6 8.9 9.0 10.0 10.3 12.0"),
    ("amd64", "cu130", "2.9.1", "3.12", "8.0 8.6 8.9 9.0 10.0 10.3 12.0"),
    ("amd64", "cu130", "2.11.0", "3.12", "8.0 8.6 8.9 9.0 10.0 10.3 12.0"),
    ("amd64", "cu130", "2.13.0", "3.12", "8.0 8.6 8.9 9.0 10.0 10.3 12.0"),
    ("amd64", "cpu", "2.9.1", "3.12", ""),
    ("arm64", "cu126", "2.9.1", "3.12", "8.0 8.6 8.9 9.0"),
    ("arm64", "cu128", "2.9.1", "3.12", "8.0 8.6 8.9 9.0 10.0 12.0"),
    ("arm64", "cu129", "2.9.1", "3.12", "8.0 8.6 8.9 9.0 10.0 10.3 12.0 12.1"),
    ("arm64", "cu130", "2.9.1", "3.12", "8.0 8.6 8.9 9.0 10.0 10.3 12.0 12.1"),
    ("arm64", "cu130", "2.11.0", "3.12", "8.0 8.6 8.9 9.0 10.0 10.3 12.0 12.1"),
    ("arm64", "cu130", "2.13.0", "3.12", "8.0 8.6 8.9 9.0 10.0 10.3 12.0 12.1"),
    ("arm64", "cpu", "2.9.1", "3.12", ""),
)


def row_name(arch, accel, torch, python):
    """The target name of a row: `amd64-cu130`, `amd64-cu130-torch2.11.0`, `amd64-cu130-cp311`.

    `torch` is None for a wheel that does not link it: rows that differ in torch share its name.
    """
    parts = [arch, accel]
    if torch not in (None, DEFAULT_TORCH):
        parts.append(f"torch{torch}")
    if python != DEFAULT_PYTHON:
        parts.append(f"cp{python.replace('.', '')}")
    return "-".join(parts)


def native_package(
    package,
    version,
    *,
    source,
    sources=None,
    skipped=None,
    prebuilt=None,
    env=None,
    cpu_env=None,
    build_requires=(),
    links_torch=True,
    **fields,
):
    """`:src`, a `cuda_source`, and one `cuda_wheel` for each row of `MATRIX`.

    With `links_torch=False` rows that differ in torch alone are one wheel. `skipped` maps an
    accelerator to why the package cannot serve it; `cpu_env` is `env` of the rows without CUDA.
    `prebuilt` maps the name of a row, or (arch, accel), to upstream's `prebuilt_wheel(...)` for it.
    `build_requires` names directories of packages, whose wheels for the same row are required.
    `fields` are fields of `cuda_wheel` that all rows share.
    """
    cuda_source(name="src", source=source, **({"sources": sources} if sources is not None else {}))
    shared = {}
    for arch, accel, torch, python, cuda_arch in MATRIX:
        torch = torch if links_torch else None
        name = row_name(arch, accel, torch, python)
        row = (arch, accel, torch, python, cuda_arch)
        if not links_torch and shared.get(name) == row:
            continue
        shared[name] = row
        stand_in = (prebuilt or {}).get(name, (prebuilt or {}).get((arch, accel)))
        cuda_wheel(
            name=name,
            package=package,
            version=version,
            source=":src",
            arch=arch,
            accel=accel,
            torch=torch,
            python=python,
            cuda_arch=cuda_arch.split(),
            environment=f"{arch}-{accel}",
            links_torch=links_torch,
            build_requires=[f"{directory}:{name}" for directory in build_requires],
            env=(cpu_env if accel == "cpu" else env) or {},
            **({"skipped": skipped[accel]} if accel in (skipped or {}) else {}),
            **({"prebuilt": stand_in} if stand_in else {}),
            **fields,
        )


def wheelhouses(packages, *, without_torch=(), requirements=None, **fields):
    """One `cuda_wheelhouse` for each row of `MATRIX`, of these packages' wheels for it.

    `packages` are their directories, `without_torch` those whose wheels do not link it.
    `requirements` is the lock of the pure packages. `fields` are shared by all rows.
    """
    for arch, accel, torch, python, cuda_arch in MATRIX:
        name = row_name(arch, accel, torch, python)
        shared = row_name(arch, accel, None, python)
        cuda_wheelhouse(
            name=name,
            wheels=[
                *(f"{directory}:{name}" for directory in packages),
                *(f"{directory}:{shared}" for directory in without_torch),
            ],
            requirements=requirements,
            arch=arch,
            accel=accel,
            torch=torch,
            python=python,
            cuda_arch=cuda_arch.split(),
            **fields,
        )
