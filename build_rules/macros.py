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


ROW_FIELDS = ("arch", "accel", "torch", "python", "cuda_arch")


def matrix_rows():
    """The lines of `MATRIX` that are rows, and a sentence for each other one.

    A prelude must not raise: that would break every goal that reads BUILD files.
    """
    rows, problems, lines = [], [], {}
    for number, row in enumerate(MATRIX, 1):
        place = f"Line {number} of `MATRIX`, {row!r},"
        if not isinstance(row, (tuple, list)) or len(row) != len(ROW_FIELDS):
            count = f"{len(row)} fields" if isinstance(row, (tuple, list)) else "no fields"
            problems.append(
                f"{place} has {count}. A line has {len(ROW_FIELDS)}: {', '.join(ROW_FIELDS)}."
            )
            continue
        wrong = [name for name, value in zip(ROW_FIELDS, row) if not isinstance(value, str)]
        if wrong:
            problems.append(f"{place} has what is no text as {', '.join(wrong)}. Put it in quotes.")
            continue
        name = row_name(*row[:4])
        if name in lines:
            problems.append(
                f"{place} has the name of line {lines[name]}, {name}. Rows differ in arch, accel, "
                "torch or python: take one of them out."
            )
            continue
        lines[name] = number
        rows.append(tuple(row))
    return rows, problems


def of_kind(field, value, kinds, example):
    """`value`, or an empty one with a sentence where it is of none of the `kinds`."""
    if value is None or isinstance(value, kinds):
        return value or kinds[0](), []
    return kinds[0](), [f"`{field}` of `native_package` is {value!r}. Write it like {example}."]


def unmatched_keys(field, keys, known):
    """A sentence for each of the `keys` that is not `known`."""
    written = ", ".join(repr(key) if isinstance(key, tuple) else f'"{key}"' for key in known)
    return [
        f"`{field}` of `native_package` names {key!r}, which is of no row. What matches: {written}."
        for key in keys
        if key not in known
    ]


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
    accelerator of a row to why the package cannot serve it; `cpu_env` is `env` of the rows without CUDA.
    `prebuilt` maps the name of a row, or (arch, accel), to upstream's `prebuilt_wheel(...)` for it.
    `build_requires` names directories of packages, whose wheels for the same row are required.
    `fields` are fields of `cuda_wheel` that all rows share.
    """
    rows, problems = matrix_rows()
    skipped, wrong_skipped = of_kind("skipped", skipped, (dict,), '{"cpu": "It has no CPU code."}')
    prebuilt, wrong_prebuilt = of_kind(
        "prebuilt", prebuilt, (dict,), '{("amd64", "cu130"): prebuilt_wheel(...)}'
    )
    build_requires, wrong_requires = of_kind(
        "build_requires", build_requires, (list, tuple), '["packages/cumm"]'
    )
    problems += [*wrong_skipped, *wrong_prebuilt, *wrong_requires]
    wheels = {}
    for arch, accel, torch, python, cuda_arch in rows:
        torch = torch if links_torch else None
        name = row_name(arch, accel, torch, python)
        row = (arch, accel, torch, python, cuda_arch)
        if wheels.setdefault(name, row) != row:
            problems.append(
                f"The rows named {name} differ in `cuda_arch`, {wheels[name][4]!r} and "
                f"{cuda_arch!r}, but this package does not link torch: its wheel is one for both. "
                "Give them the same."
            )
    accels = dict.fromkeys(row[1] for row in wheels.values())
    pairs = dict.fromkeys(row[:2] for row in wheels.values())
    problems += unmatched_keys("skipped", skipped, [*accels])
    problems += unmatched_keys("prebuilt", prebuilt, [*pairs, *wheels])
    cuda_source(
        name="src",
        source=source,
        **({"sources": sources} if sources is not None else {}),
        **({"problems": problems} if problems else {}),
    )
    for name, (arch, accel, torch, python, cuda_arch) in wheels.items():
        stand_in = prebuilt.get(name, prebuilt.get((arch, accel)))
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
            **({"skipped": skipped[accel]} if accel in skipped else {}),
            **({"prebuilt": stand_in} if stand_in else {}),
            **fields,
        )


def wheelhouses(packages, *, without_torch=(), requirements=None, **fields):
    """One `cuda_wheelhouse` for each row of `MATRIX`, of these packages' wheels for it.

    `packages` are their directories, `without_torch` those whose wheels do not link it.
    `requirements` is the lock of the pure packages. `fields` are shared by all rows.
    """
    # Whatever is wrong with the matrix, the wheels say.
    for arch, accel, torch, python, cuda_arch in matrix_rows()[0]:
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


def toolchain_images(*, baked_locks=None, **fields):
    """One `toolchain_image` for each architecture and accelerator: `amd64-cu130`.

    And a `toolchain_image_index` over both architectures where an accelerator exists for both: `cu130`.

    `baked_locks` maps such a name to the locks whose build environments are in that image. `fields`
    are shared by all.
    """
    names = {}
    for arch, accel in toolchain_image_variants():
        name = f"{arch}-{accel}"
        names.setdefault(accel, []).append(name)
        toolchain_image(
            name=name,
            arch=arch,
            accel=accel,
            baked_locks=(baked_locks or {}).get(name),
            **fields,
        )
    for accel, images in names.items():
        if len(images) > 1:
            toolchain_image_index(
                name=accel,
                images=[f":{name}" for name in images],
                publish_to=fields.get("publish_to"),
            )
