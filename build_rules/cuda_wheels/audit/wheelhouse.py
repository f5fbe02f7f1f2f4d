"""A wheelhouse as it lies on disk, and everything in which it contradicts itself."""

from __future__ import annotations

import hashlib
import html.parser
import json
import re
import urllib.parse
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda_wheels.audit.wheel_content import content_problems
from cuda_wheels.tables.accelerators import MACHINES, find_accelerator
from cuda_wheels.tables.gpu_archs import local_suffix, normalize_arch, runs_on
from cuda_wheels.tables.names import PIN, canonical_name, pins_of
from cuda_wheels.tables.rows import version_key

SUMS = "SHA256SUMS"
MANIFEST = "manifest.json"
TAGS = "tags.json"
REQUIREMENTS = "requirements-pypi.txt"
SBOM = "sbom.cdx.json"
TAG_KEYS = ("os", "arch", "accel", "torch", "python", "cuda_arch")
STATUSES = ("built", "runs")

# All that a wheelhouse has beside its wheels.
_OTHERS = re.compile(
    r"SHA256SUMS|manifest\.json|tags\.json|requirements-pypi\.txt|sbom\.cdx\.json"
    r"|simple/([^/]+/)?index\.(html|json)"
)
_SUM = re.compile(r"([0-9a-f]{64}) [ *](.+)")
# `linux-amd64/cu130/torch2.11.0-cp312`, and `/2026.11.30` in an index.
_PLACE = re.compile(
    r"(?<![^/])linux-([^/]+)/([^/]+)/torch([^/]+)-cp(\d)(\d+)(?:/(\d+(?:[.-]\d+)+))?$"
)
_GLIBC_TAG = re.compile(r"manylinux_(\d+)_(\d+)_(.+)")


class WheelhouseError(Exception):
    """A wheelhouse that cannot be read at all; the message is for the user."""


@dataclass(frozen=True)
class Tags:
    """What a wheelhouse is for, as the registry's tags say it."""

    os: str
    arch: str
    accel: str
    torch: str
    python: str
    cuda_arch: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.os}-{self.arch}/{self.accel}/torch{self.torch}-cp{''.join(self.python.split('.'))}"


@dataclass(frozen=True)
class Summary:
    """What is asked of a wheelhouse before it is chosen.

    `glibc` is the oldest C library that its wheels accept, None if their tags name none; `verified`
    tells of a GPU capability whether it "runs" or was only "built"; `skipped` has the packages that
    it does not hold, and why; `ptx_for` lists the capabilities that are served by PTX alone.
    """

    path: str
    tags: Tags
    glibc: str | None
    date: str | None = None
    verified: tuple[tuple[str, str], ...] = ()
    packages: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    sums: str | None = None  # sha256 of its SHA256SUMS, where an index says so
    ptx_for: tuple[str, ...] = ()


def parse_tags(document: Any) -> Tags:
    """Raises WheelhouseError where one of the six keys is missing or no string."""
    if not isinstance(document, dict):
        raise WheelhouseError("its tags are no JSON object.")
    wrong = [key for key in TAG_KEYS if not isinstance(document.get(key), str)]
    if wrong:
        raise WheelhouseError(f"its tags lack {', '.join(wrong)}, each of which is a string.")
    values = {key: document[key] for key in TAG_KEYS if key != "cuda_arch"}
    return Tags(cuda_arch=tuple(document["cuda_arch"].split()), **values)


def load(path: Path) -> Any:
    """A JSON file; raises WheelhouseError if it is missing or is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WheelhouseError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise WheelhouseError(f"{path} is not JSON: {error}.") from None


def read_summary(path: Path) -> Summary:
    """Raises WheelhouseError for a folder that is no wheelhouse."""
    document = load(path / TAGS)
    try:
        tags = parse_tags(document)
    except WheelhouseError as error:
        raise WheelhouseError(f"{path / TAGS}: {error}") from None
    return summarize(str(path), tags, document, load(path / MANIFEST))


def summarize(
    path: str, tags: Tags, tags_document: Any, manifest: Any, sums: str | None = None
) -> Summary:
    """What matters of the two documents; a manifest that is no object says nothing.

    `sums` is the sha256 that its SHA256SUMS must have, from whoever lists it.
    """
    manifest = manifest if isinstance(manifest, dict) else {}
    verified = tags_document.get("verified") if isinstance(tags_document, dict) else None
    wheels = _objects(manifest.get("wheels"))
    return Summary(
        path=path,
        tags=tags,
        glibc=_text(manifest.get("glibc")),
        date=_text(manifest.get("date")),
        verified=tuple(sorted(verified.items())) if isinstance(verified, dict) else (),
        packages=tuple(sorted(canonical_name(str(wheel.get("name"))) for wheel in wheels)),
        skipped=(
            *(
                (str(one.get("package")), str(one.get("reason")))
                for one in _objects(manifest.get("skipped"))
            ),
            *(
                (str(one.get("package")), f"it could not be built: {one.get('message')}")
                for one in _objects(manifest.get("failed"))
            ),
        ),
        sums=sums,
        ptx_for=tuple(arch for arch in tags.cuda_arch if any(_by_ptx(w, arch) for w in wheels)),
    )


def problems(path: Path, expected_sums: str | None = None) -> tuple[str, ...]:
    """Everything that is wrong with a wheelhouse: files, sums, manifest, tags, wheels, index.

    `expected_sums` is the sha256 that SHA256SUMS must have, from whoever published the wheelhouse:
    without it a wheelhouse that was forged throughout, sums included, is one that agrees.
    """
    missing = [name for name in (SUMS, MANIFEST, TAGS) if not (path / name).is_file()]
    if missing:
        return (f"{path} lacks {', '.join(missing)}: it is no wheelhouse, or not a complete one.",)
    found = [*_sum_problems(path, expected_sums)]
    try:
        tags_document, manifest = load(path / TAGS), load(path / MANIFEST)
        tags = parse_tags(tags_document)
    except WheelhouseError as error:
        return (*found, str(error))
    if not isinstance(manifest, dict) or manifest.get("schema") != 1:
        return (*found, f"{MANIFEST} is not of schema 1, the only one that this tool knows.")
    wheels = {str(wheel.get("file")): wheel for wheel in _objects(manifest.get("wheels"))}
    found += _tag_problems(path, tags, tags_document, manifest)
    there = {file.name for file in path.glob("*.whl")}
    found += [f"{MANIFEST} names {name}, which is not there." for name in sorted({*wheels} - there)]
    found += [f"{name} is there, but not in {MANIFEST}." for name in sorted(there - {*wheels})]
    for name in sorted(there & {*wheels}):
        found += [
            f"{name}: {problem}" for problem in _wheel_problems(path / name, wheels[name], tags)
        ]
    found += _file_problems(path)
    found += _twin_problems(wheels)
    found += _floor_problems(manifest, wheels.values())
    found += _index_problems(path, wheels)
    pins, pin_problems = _pins(path)
    found += pin_problems
    found += _sbom_problems(path, wheels, pins)
    return tuple(found)


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def parse_sums(text: str) -> dict[str, str]:
    """Path -> sha256 of a sums file; raises WheelhouseError for a line that is none."""
    sums = {}
    for line in text.splitlines():
        found = _SUM.fullmatch(line)
        if found is None or not is_inside(found.group(2)):
            raise WheelhouseError(f"{SUMS} has the line {line!r}, which names no file inside.")
        sums[found.group(2)] = found.group(1)
    return sums


def is_inside(path: str) -> bool:
    """Whether a relative path stays in its folder."""
    parts = path.split("/")
    return bool(path) and not path.startswith("/") and "\\" not in path and ".." not in parts


def _by_ptx(wheel: dict[str, Any], capability: str) -> bool:
    """Whether the wheel has no machine code of that generation, only PTX."""
    archs = wheel.get("gpu_archs")
    cubins, ptx = _archs(archs, "cubins"), _archs(archs, "ptx")
    return not runs_on(capability, cubins, ()) and runs_on(capability, (), ptx)


def _archs(document: Any, key: str) -> list[str]:
    """Of `gpu_archs` one list, without what is no name of an architecture."""
    values = document.get(key) if isinstance(document, dict) else None
    names = [str(value) for value in values] if isinstance(values, list) else []
    return [name for name in names if re.fullmatch(r"(sm_|compute_)\d{2,3}[af]?|\d+\.\d.*", name)]


def _objects(document: Any) -> list[dict[str, Any]]:
    return [one for one in document if isinstance(one, dict)] if isinstance(document, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _sum_problems(path: Path, expected: str | None) -> list[str]:
    found = []
    actual = sha256(path / SUMS)
    if expected is not None and actual != expected.lower():
        found.append(f"{SUMS} has sha256 {actual}, but {expected} was expected.")
    try:
        sums = parse_sums((path / SUMS).read_text(encoding="utf-8", errors="replace"))
    except WheelhouseError as error:
        return [*found, str(error)]
    files = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()} - {
        SUMS
    }
    found += [f"{SUMS} names {name}, which is not there." for name in sorted({*sums} - files)]
    found += [f"{name} is there, but not in {SUMS}." for name in sorted(files - {*sums})]
    for name in sorted(files & {*sums}):
        actual = sha256(path / name)
        if actual != sums[name]:
            found.append(f"{name} has sha256 {actual}, but {SUMS} says {sums[name]}.")
    return found


def _file_problems(path: Path) -> list[str]:
    """What is no part of a wheelhouse, whoever lists it, and links, which lead out of it."""
    found = []
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        if file.is_symlink():
            found.append(f"{name} is a link: a wheelhouse has files of its own alone.")
        elif file.is_file() and not _OTHERS.fullmatch(name):
            if "/" in name or not name.endswith(".whl"):
                found.append(f"{name} is there, and no part of a wheelhouse.")
    return found


def _twin_problems(wheels: dict[str, dict[str, Any]]) -> list[str]:
    by_name: dict[str, list[str]] = {}
    for file, wheel in wheels.items():
        by_name.setdefault(canonical_name(str(wheel.get("name"))), []).append(file)
    return [
        f"{MANIFEST} has two wheels of {name}: {', '.join(sorted(files))}."
        for name, files in sorted(by_name.items())
        if len(files) > 1
    ]


def _pins(path: Path) -> tuple[dict[str, str], list[str]]:
    """What requirements-pypi.txt pins, and what of it is no pin or has no hash."""
    file = path / REQUIREMENTS
    if not file.is_file():
        return {}, [f"{path} lacks {REQUIREMENTS}."]
    text = file.read_text(encoding="utf-8", errors="replace")
    found = []
    # A pin and its hashes are one line that is continued.
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not PIN.match(line):
            found.append(f"{REQUIREMENTS} has the line {line[:80]!r}, which pins nothing.")
        elif not re.search(r"\s--hash=sha256:[0-9a-f]{64}(\s|$)", line):
            found.append(f"{REQUIREMENTS} has no hash of {line.split('==')[0]}.")
    return pins_of(text), found


def _tag_problems(path: Path, tags: Tags, document: Any, manifest: dict[str, Any]) -> list[str]:
    found = []
    recorded = manifest.get("tags")
    recorded = recorded if isinstance(recorded, dict) else {}
    for key in TAG_KEYS:
        if recorded.get(key) != document[key]:
            found.append(
                f"{TAGS} says {key} {document[key]!r}, but {MANIFEST} says {recorded.get(key)!r}."
            )
    if tags.os != "linux":
        found.append(f"{TAGS} says os {tags.os!r}, for which no wheel is made.")
    if find_accelerator(tags.accel) is None:
        found.append(f"{TAGS} says accel {tags.accel!r}, which is unknown.")
    if tags.arch not in MACHINES:
        found.append(f"{TAGS} says arch {tags.arch!r}, which is unknown.")
    verified = document.get("verified", {})
    for arch, status in verified.items() if isinstance(verified, dict) else ():
        if arch not in tags.cuda_arch or status not in STATUSES:
            found.append(
                f"{TAGS} says of GPU {arch} {status!r}: no GPU of its cuda_arch, or no status."
            )
    place = _PLACE.search("/".join(path.absolute().parts[-4:]))
    if place:
        *row, date = place.groups()
        arch, accel, torch, major, minor = row
        if date and manifest.get("date") != date:
            found.append(
                f"it lies in {place.group(0)}, but {MANIFEST} says {manifest.get('date')}."
            )
        own = (tags.arch, tags.accel, tags.torch, tags.python)
        if (arch, accel, torch, f"{major}.{minor}") != own:
            found.append(f"it lies in {place.group(0)}, but its tags are those of {tags.name}.")
    return found


def _wheel_problems(file: Path, entry: dict[str, Any], tags: Tags) -> list[str]:
    """What speaks against one wheel: its bytes, its names, its platform, its GPUs."""
    found = []
    actual = sha256(file)
    if actual != entry.get("sha256"):
        found.append(f"it has sha256 {actual}, but {MANIFEST} says {entry.get('sha256')}.")
    if file.stat().st_size != entry.get("size"):
        found.append(
            f"it has {file.stat().st_size} bytes, but {MANIFEST} says {entry.get('size')}."
        )
    parts = file.name[: -len(".whl")].split("-")
    if len(parts) not in (5, 6):
        return [*found, "that is no name of a wheel."]
    name, version, (python, abi, platform) = parts[0], parts[1], parts[-3:]
    said = (canonical_name(str(entry.get("name"))), str(entry.get("version")))
    if (canonical_name(name), version) != said:
        found.append(f"{MANIFEST} says that it is {said[0]} {said[1]}.")
    try:
        with zipfile.ZipFile(file) as archive:
            found += content_problems(archive, name, version, "-".join(parts[-3:]))
    except (zipfile.BadZipFile, zlib.error, KeyError, OSError, ValueError) as error:
        found.append(f"it cannot be read as a wheel: {error}.")
    ours = f"cp{''.join(tags.python.split('.'))}"
    if not any(tag in (ours, "py3") or "abi3" in abi for tag in python.split(".")):
        found.append(f"it is for {python}, but the tags say Python {tags.python}.")
    if platform != "any" and not all(
        one.endswith(f"_{MACHINES.get(tags.arch, tags.arch)}") for one in platform.split(".")
    ):
        found.append(f"it is for {platform}, but the tags say {tags.arch}.")
    if entry.get("platform") not in (None, platform, *platform.split(".")):
        found.append(f"{MANIFEST} says that it is for {entry.get('platform')}.")
    found += _local_version_problems(version, tags)
    found += _gpu_problems(entry, tags)
    return found


def _local_version_problems(version: str, tags: Tags) -> list[str]:
    """The version after `+` names accelerator, torch and narrowed GPUs, where it names any."""
    found = []
    local = version.partition("+")[2]
    accel = re.match(r"(cu\d+|rocm\d+\.\d+|cpu)(?=\.|$)", local)
    if accel and accel.group(1) != tags.accel:
        found.append(f"it is for {accel.group(1)}, but the tags say {tags.accel}.")
    torch = re.search(r"(?:^|\.)torch(\d+\.\d+\.\d+)", local)
    if torch and torch.group(1) != tags.torch:
        found.append(f"it is for torch {torch.group(1)}, but the tags say {tags.torch}.")
    narrowed = [part for part in local.split(".") if re.fullmatch(r"sm\d+", part)]
    rest = [arch for arch in tags.cuda_arch if local_suffix([arch]) not in narrowed]
    if narrowed and rest:
        found.append(
            f"it was narrowed to {' '.join(narrowed)}, but the tags say {' '.join(rest)} too."
        )
    return found


def _gpu_problems(entry: dict[str, Any], tags: Tags) -> list[str]:
    """Whether the GPUs of the tags were asked for, and are served by what was found."""
    archs = entry.get("gpu_archs")
    asked, cubins, ptx = (_archs(archs, key) for key in ("asked", "cubins", "ptx"))
    if not (asked or cubins or ptx):
        return []
    found = []
    plain = [normalize_arch(arch) for arch in asked]
    unasked = [arch for arch in tags.cuda_arch if asked and arch not in plain]
    if unasked:
        found.append(
            f"it was compiled for {' '.join(asked)}, but the tags say {' '.join(unasked)} too."
        )
    # flash-attn drops what it has no kernels for, and is not to be used there.
    floor = CAPABILITY_FLOORS.get(canonical_name(str(entry.get("name"))), "0.0")
    unserved = [
        arch
        for arch in tags.cuda_arch
        if version_key(arch) >= version_key(floor) and not runs_on(arch, cubins, ptx)
    ]
    if unserved and (cubins or ptx):
        found.append(
            f"the tags say {' '.join(unserved)}, but it holds code for {' '.join([*cubins, *ptx])}."
        )
    return found


# Distribution -> the lowest capability that it has kernels for: flash-attn 2 begins with Ampere.
CAPABILITY_FLOORS = {"flash-attn": "8.0"}


def _floor_problems(manifest: dict[str, Any], wheels: Iterable[dict[str, Any]]) -> list[str]:
    """The manifest's glibc is the highest floor that a wheel's platform tag names."""
    floors = []
    for wheel in wheels:
        platform = str(wheel.get("file"))[: -len(".whl")].split("-")[-1]
        own = [_GLIBC_TAG.match(one) for one in platform.split(".")]
        # A wheel with several tags is for the oldest of them.
        known = [f"{one.group(1)}.{one.group(2)}" for one in own if one]
        if known:
            floors.append(min(known, key=version_key))
    highest = max(floors, key=version_key, default=None)
    said = _text(manifest.get("glibc"))
    if highest is not None and (said is None or version_key(said) < version_key(highest)):
        return [f"{MANIFEST} says glibc {said}, but a wheel's platform tag says {highest}."]
    return []


class _Links(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for key, value in attrs if key == "href" and value]


def _index_problems(path: Path, wheels: dict[str, dict[str, Any]]) -> list[str]:
    """The simple index: each wheel once a format, with its hash, and no other CUDA line's."""
    root = path / "simple"
    if not root.is_dir():
        return ["it has no index: the folder simple is missing."]
    found = []
    formats: dict[str, dict[str, str | None]] = {"index.html": {}, "index.json": {}}
    for page in sorted(root.glob("*/index.html")):
        links = _Links()
        links.feed(page.read_text(encoding="utf-8", errors="replace"))
        for link in links.found:
            address, _, fragment = link.partition("#")
            digest = re.fullmatch(r"sha256=([0-9a-f]{64})", fragment)
            found += _link_problems(path, page, address)
            name = urllib.parse.unquote(address.rsplit("/", 1)[-1])
            formats["index.html"][name] = digest.group(1) if digest else None
    for page in sorted(root.glob("*/index.json")):
        try:
            files = _objects(load(page).get("files"))
        except (AttributeError, WheelhouseError) as error:
            found.append(f"{page.relative_to(path)} cannot be read: {error}")
            continue
        for file in files:
            hashes = file.get("hashes")
            found += _link_problems(path, page, str(file.get("url")))
            formats["index.json"][str(file.get("filename"))] = (
                _text(hashes.get("sha256")) if isinstance(hashes, dict) else None
            )
    for kind, listed in formats.items():
        if not listed and wheels:
            found.append(f"simple has no {kind} that lists a wheel.")
            continue
        for name in sorted({*listed, *wheels}):
            if name not in wheels:
                found.append(f"simple/*/{kind} lists {name}, which is none of its wheels.")
            elif name not in listed:
                found.append(f"simple/*/{kind} does not list {name}.")
            elif listed[name] != wheels[name].get("sha256"):
                found.append(
                    f"simple/*/{kind} says sha256 {listed[name]} of {name}, but {MANIFEST} says "
                    f"{wheels[name].get('sha256')}."
                )
    return found


def _link_problems(path: Path, page: Path, address: str) -> list[str]:
    """A link leads to a wheel of this very folder, not to another place or CUDA line."""
    address = address.partition("#")[0]
    target = urllib.parse.unquote(address)
    if not urllib.parse.urlsplit(address).scheme and not target.startswith("/"):
        if (page.parent / target).resolve().parent == path.resolve():
            return []
    return [f"{page.relative_to(path)} links to {address}, outside of this wheelhouse."]


def _sbom_problems(
    path: Path, wheels: dict[str, dict[str, Any]], pins: dict[str, str]
) -> list[str]:
    """The SBOM's components are the wheels with their hashes, and the pins."""
    file = path / SBOM
    if not file.is_file():
        return [f"{path} lacks {SBOM}."]
    try:
        components = _objects(load(file).get("components"))
    except (AttributeError, WheelhouseError) as error:
        return [f"{SBOM} cannot be read: {error}"]
    known = {
        canonical_name(str(wheel.get("name"))): (wheel.get("version"), wheel.get("sha256"))
        for wheel in wheels.values()
    }
    found = []
    listed = set()
    for component in components:
        name = canonical_name(str(component.get("name")))
        listed.add(name)
        digests = [
            h.get("content") for h in _objects(component.get("hashes")) if h.get("alg") == "SHA-256"
        ]
        if name in known:
            version, digest = known[name]
            if component.get("version") != version or digest not in digests:
                found.append(f"{SBOM} names another {name} than {MANIFEST}.")
        elif component.get("version") != pins.get(name):
            said = pins.get(name, "none")
            found.append(
                f"{SBOM} names {name} {component.get('version')}, {REQUIREMENTS} pins {said}."
            )
    missing = sorted({*known, *pins} - listed)
    return [*found, *(f"{SBOM} does not name {name}." for name in missing)]
