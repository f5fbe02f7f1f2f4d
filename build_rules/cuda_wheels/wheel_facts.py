"""What was measured in a wheel: frozen data, its JSON and a table for people.

`sandbox/inspect_wheel.py` measures, `wheel_checks.py` compares with what a target declared. This
module knows neither how a value was found nor whether it is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

# The layout of the JSON document. Facts of another layout are refused, never half understood.
FORMAT = 1

# How a library gets its C++ runtime: `LibraryFacts.libstdcxx`.
LIBSTDCXX_UNUSED = "unused"
LIBSTDCXX_NEEDED = "needed"
LIBSTDCXX_LINKED_IN = "linked in"
LIBSTDCXX_UNLISTED = "unlisted"


class FactsFormatError(ValueError):
    """A document that is not the JSON of wheel facts, or of another layout."""


@dataclass(frozen=True)
class VersionNeed:
    """One symbol version that a library asks for, and which symbols ask for it.

    `symbols` is empty for versions that every supported platform has.
    """

    family: str
    version: str
    symbols: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The version as the linker spells it, `GLIBC_2.34`."""
        return f"{self.family}_{self.version}"

    @property
    def number(self) -> tuple[int, ...]:
        """The version for comparison."""
        return version_number(self.version)


@dataclass(frozen=True)
class LibraryFacts:
    """One ELF file of a wheel.

    `needed` is DT_NEEDED; `unlisted_needs` are libraries that the version needs name but DT_NEEDED
    does not; `images` counts the device images, cubins as `sm_90`, PTX as `compute_90`. `rpaths` are
    absolute ones only, `build_paths` source files outside the system's directories.
    """

    path: str
    size: int
    machine: str
    soname: str = ""
    needed: tuple[str, ...] = ()
    version_needs: tuple[VersionNeed, ...] = ()
    unlisted_needs: tuple[str, ...] = ()
    libstdcxx: str = LIBSTDCXX_UNUSED
    images: tuple[tuple[str, int], ...] = ()
    rpaths: tuple[str, ...] = ()
    build_paths: tuple[str, ...] = ()

    @property
    def cubins(self) -> tuple[str, ...]:
        """The GPU archs with machine code, `sm_90`."""
        return tuple(name for name, _ in self.images if name.startswith("sm_"))

    @property
    def ptx(self) -> tuple[str, ...]:
        """The virtual archs with PTX, `compute_120`."""
        return tuple(name for name, _ in self.images if name.startswith("compute_"))

    def newest(self, family: str) -> VersionNeed | None:
        """The newest version of `family` (GLIBC, GLIBCXX, CXXABI, GCC) that it asks for."""
        needs = [need for need in self.version_needs if need.family == family]
        return max(needs, key=lambda need: need.number, default=None)


@dataclass(frozen=True)
class WheelFacts:
    """A wheel, from its bytes alone.

    `name`, `version` and `requires_dist` are METADATA's, the tags those of the file name, and
    `wheel_tags` those of the WHEEL file. `policy` is auditwheel's verdict, `symbol_policy` the part
    of it that symbol versions decide; both are empty where there is none, for the reason that
    `policy_problem` gives. `unprovided` are the libraries that neither the platform nor the wheel
    has and that are not left out on purpose. `bytecode` are compiled Python files, `.pyc`.
    """

    filename: str
    name: str
    version: str
    python_tag: str
    abi_tag: str
    platform_tags: tuple[str, ...]
    sha256: str
    size: int
    wheel_tags: tuple[str, ...] = ()
    root_is_purelib: bool = False
    record_problems: tuple[str, ...] = ()
    requires_dist: tuple[str, ...] = ()
    policy: str = ""
    symbol_policy: str = ""
    policy_problem: str = ""
    unprovided: tuple[str, ...] = ()
    grafted: tuple[str, ...] = ()
    bytecode: tuple[str, ...] = ()
    libraries: tuple[LibraryFacts, ...] = ()

    @property
    def record_ok(self) -> bool:
        """True if RECORD lists every member with its right hash and size, and nothing else."""
        return not self.record_problems

    def to_json(self) -> dict[str, Any]:
        """The facts as a JSON object with sorted keys; equal facts give equal objects."""
        document = {"format": FORMAT, **asdict(self)}
        for library in document["libraries"]:
            library["images"] = dict(library["images"])
        return dict(_lists(document))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> WheelFacts:
        """The facts of an object that `to_json` made."""
        found = document.get("format") if isinstance(document, Mapping) else None
        if found != FORMAT:
            raise FactsFormatError(
                f"Wheel facts of format {found!r}; this version reads format {FORMAT}. "
                "Inspect the wheel again: `./pants cuda-inspect --format=json -- WHEEL`."
            )
        try:
            fields = {key: value for key, value in document.items() if key != "format"}
            libraries = tuple(_library_from_json(item) for item in fields.pop("libraries"))
            return cls(**_tuples(fields), libraries=libraries)
        except (KeyError, TypeError, ValueError) as error:
            raise FactsFormatError(
                f"Wheel facts with a missing or unknown field: {error}."
            ) from error

    @property
    def cubins(self) -> tuple[str, ...]:
        """The GPU archs with machine code in any library."""
        return gpu_order({arch for library in self.libraries for arch in library.cubins})

    @property
    def ptx(self) -> tuple[str, ...]:
        """The virtual archs with PTX in any library."""
        return gpu_order({arch for library in self.libraries for arch in library.ptx})


def version_number(text: str) -> tuple[int, ...]:
    """A dotted version for comparison; a part that is no number counts as 0."""
    return tuple(int(part) if part.isdigit() else 0 for part in text.split("."))


def gpu_order(archs: Iterable[str]) -> tuple[str, ...]:
    """GPU archs in the order of their number, `sm_90` before `sm_90a` before `sm_120`."""

    def key(arch: str) -> tuple[str, int, str]:
        kind, _, value = arch.partition("_")
        digits = value.rstrip("abcdefghijklmnopqrstuvwxyz")
        return kind, int(digits) if digits.isdigit() else 0, value

    return tuple(sorted(archs, key=key))


def _library_from_json(document: Mapping[str, Any]) -> LibraryFacts:
    item = dict(document)
    needs = tuple(VersionNeed(**_tuples(need)) for need in item.pop("version_needs"))
    images = item.pop("images")
    return LibraryFacts(
        **_tuples(item),
        version_needs=needs,
        images=tuple((arch, images[arch]) for arch in gpu_order(images)),
    )


def _tuples(item: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in item.items()}


def _lists(item: Any) -> Any:
    """The same, as JSON has it: lists for tuples."""
    if isinstance(item, dict):
        return {key: _lists(item[key]) for key in sorted(item)}
    return [_lists(part) for part in item] if isinstance(item, tuple) else item


def format_text(facts: WheelFacts) -> str:
    """The facts as a table for people."""
    rows = [
        ("wheel", f"{facts.filename} ({_size(facts.size)})"),
        ("sha256", facts.sha256),
        ("distribution", f"{facts.name} {facts.version}"),
        ("tags", f"{facts.python_tag}-{facts.abi_tag}-{'.'.join(facts.platform_tags)}"),
        ("measured", _measured(facts)),
        ("GPU code", ", ".join((*facts.cubins, *facts.ptx)) or "none"),
        ("requires", ", ".join(facts.requires_dist) or "nothing"),
        ("grafted", ", ".join(facts.grafted) or "nothing"),
        *([("bytecode", f"{len(facts.bytecode)} files")] if facts.bytecode else []),
        ("RECORD", "right" if facts.record_ok else "; ".join(facts.record_problems)),
    ]
    lines = _aligned(rows)
    for library in facts.libraries:
        lines += ["", library.path, *("  " + line for line in _aligned(_library_rows(library)))]
    return "\n".join(lines) + "\n"


def _measured(facts: WheelFacts) -> str:
    if not facts.libraries:
        return "no library"
    text = facts.policy or f"no verdict: {facts.policy_problem}"
    if facts.symbol_policy and facts.symbol_policy != facts.policy:
        text += f" ({facts.symbol_policy} by symbol versions)"
    if facts.unprovided:
        text += f"; from outside: {', '.join(facts.unprovided)}"
    return text


def _library_rows(library: LibraryFacts) -> list[tuple[str, str]]:
    rows = [
        ("machine", f"{library.machine}, {_size(library.size)}"),
        ("needs", ", ".join(library.needed) or "no library"),
        ("versions", ", ".join(_newest(library)) or "none"),
        ("libstdc++", library.libstdcxx),
        ("GPU code", ", ".join(f"{arch} x {n}" for arch, n in library.images) or "none"),
    ]
    if library.unlisted_needs:
        rows.append(("unlisted", ", ".join(library.unlisted_needs)))
    if library.rpaths:
        rows.append(("rpath", ", ".join(library.rpaths)))
    if library.build_paths:
        more = ", ..." if len(library.build_paths) > 2 else ""
        rows.append(("build paths", ", ".join(library.build_paths[:2]) + more))
    return rows


def _newest(library: LibraryFacts) -> list[str]:
    texts = []
    for family in ("GLIBC", "GLIBCXX", "CXXABI", "GCC"):
        need = library.newest(family)
        if need is not None:
            symbols = ", ".join(need.symbols[:2]) + (", ..." if len(need.symbols) > 2 else "")
            texts.append(f"{need.name} ({symbols})" if symbols else need.name)
    return texts


def _aligned(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(label) for label, _ in rows)
    return [f"{label:<{width}}  {value}" for label, value in rows]


def _size(size: int) -> str:
    if size < 1_000_000:
        return f"{size / 1000:.1f} kB"
    return f"{size / 1_000_000:.1f} MB"
