"""Writes what stands beside the wheels of a wheelhouse: manifest, tags, index, SBOM and hashes.

Request: `cache`, `bootstrap_lock`, `wheelhouse_lock`, `name` (the folder, for people), `manifest`
and `tags` (written as they are), `requirements` (a file of pinned pure packages, or null),
`requires` (file name of a wheel -> its requirements), `out`. The wheels themselves are not read:
the manifest has their hashes, which were taken from their bytes. Equal requests give equal bytes.
"""

from __future__ import annotations

import hashlib
import html
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cuda_wheels.sandbox import environment, program
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.tables.names import canonical_name, pins_of

MANIFEST = "manifest.json"
TAGS = "tags.json"
REQUIREMENTS = "requirements-pypi.txt"
SUMS = "SHA256SUMS"
SBOM = "sbom.cdx.json"
INDEX = "simple"

_NO_REQUIREMENTS = "# None of the wheels comes with pure packages.\n"
# Names the bills of materials of wheelhouses; any fixed value does.
_NAMESPACE = uuid.UUID("0d8f2ab5-3f6b-5f0c-9d53-55b6f0f4a3d1")


def main(request: dict[str, Any]) -> None:
    """Write the files into the `out` directory."""
    program.require(
        request,
        "cache",
        "bootstrap_lock",
        "wheelhouse_lock",
        "name",
        "manifest",
        "tags",
        "requires",
        "out",
    )
    environment.reexec_in_tools(
        Path(request["cache"]), Path(request["bootstrap_lock"]), Path(request["wheelhouse_lock"])
    )
    path = request.get("requirements")
    write(
        Path(request["out"]),
        describe(
            request["name"],
            request["manifest"],
            request["tags"],
            requirements=_read(Path(path)) if path else None,
            requires=request["requires"],
        ),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProgramError(f"The requirements {path} cannot be read: {error}.") from error


def write(out: Path, files: Mapping[str, bytes]) -> None:
    """Write files below a directory."""
    for name, content in files.items():
        target = out / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def describe(
    name: str,
    manifest: Mapping[str, Any],
    tags: Mapping[str, Any],
    *,
    requirements: str | None = None,
    requires: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, bytes]:
    """Path below the wheelhouse -> content, of all its files but the wheels."""
    wheels = manifest["wheels"]
    pure = requirements if requirements is not None else _NO_REQUIREMENTS
    files = {
        MANIFEST: document(manifest),
        TAGS: document(tags),
        REQUIREMENTS: pure.encode(),
        SBOM: bill_of_materials(
            name, manifest, tuple(sorted(pins_of(pure).items())), requires or {}
        ),
        **index(wheels),
    }
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    digests.update({wheel["file"]: wheel["sha256"] for wheel in wheels})
    files[SUMS] = "".join(f"{digests[path]}  {path}\n" for path in sorted(digests)).encode()
    return files


def document(value: Any) -> bytes:
    """JSON as all our documents are written: sorted keys, and a newline at the end."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


# --- the index ---------------------------------------------------------------------------------


def index(wheels: Sequence[Mapping[str, Any]]) -> dict[str, bytes]:
    """A static index of the wheels, as HTML (PEP 503) and as JSON (PEP 691, 700).

    All its links are relative, so it works from a folder and from any address.
    """
    projects: dict[str, list[Mapping[str, Any]]] = {}
    for wheel in sorted(wheels, key=lambda wheel: wheel["file"]):
        projects.setdefault(canonical_name(wheel["name"]), []).append(wheel)
    names = sorted(projects)
    files = {
        f"{INDEX}/index.html": _page("Simple index", ((f"{name}/", name) for name in names)),
        f"{INDEX}/index.json": document(
            {"meta": {"api-version": "1.1"}, "projects": [{"name": name} for name in names]}
        ),
    }
    for name in names:
        files[f"{INDEX}/{name}/index.html"] = _page(
            f"Links for {name}",
            (
                (f"{_link(wheel)}#sha256={wheel['sha256']}", wheel["file"])
                for wheel in projects[name]
            ),
        )
        files[f"{INDEX}/{name}/index.json"] = document(
            {
                "meta": {"api-version": "1.1"},
                "name": name,
                "versions": sorted({wheel["version"] for wheel in projects[name]}),
                "files": [
                    {
                        "filename": wheel["file"],
                        "url": _link(wheel),
                        "hashes": {"sha256": wheel["sha256"]},
                        "size": wheel["size"],
                    }
                    for wheel in projects[name]
                ],
            }
        )
    return files


def _link(wheel: Mapping[str, Any]) -> str:
    """From the page of a project to the file; `+` is a space to some servers."""
    return f"../../{quote(wheel['file'], safe='')}"


def _page(title: str, links: Iterable[tuple[str, str]]) -> bytes:
    lines = [
        "<!DOCTYPE html>",
        "<html>",
        "<head>",
        '<meta name="pypi:repository-version" content="1.0">',
        f"<title>{html.escape(title)}</title>",
        "</head>",
        "<body>",
        *(
            f'<a href="{html.escape(address)}">{html.escape(text)}</a><br>'
            for address, text in links
        ),
        "</body>",
        "</html>",
    ]
    return ("\n".join(lines) + "\n").encode()


# --- the bill of materials ---------------------------------------------------------------------


def bill_of_materials(
    name: str,
    manifest: Mapping[str, Any],
    pure: Iterable[tuple[str, str]],
    requires: Mapping[str, Sequence[str]],
) -> bytes:
    """A CycloneDX 1.5 document of the wheels and the pinned pure packages.

    Its serial number is made of the manifest and the pins, and it has no time.
    """
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot5
    from packageurl import PackageURL

    pins = tuple(pure)
    root = Component(
        name=name,
        type=ComponentType.APPLICATION,
        bom_ref="wheelhouse",
        properties=[
            Property(name=f"tag:{key}", value=str(value)) for key, value in _flat(manifest)
        ],
    )
    components: dict[str, Component] = {}
    files: dict[str, str] = {}
    for wheel in manifest["wheels"]:
        key = canonical_name(wheel["name"])
        files[wheel["file"]] = key
        components[key] = Component(
            name=wheel["name"],
            version=wheel["version"],
            type=ComponentType.LIBRARY,
            bom_ref=wheel["file"],
            purl=PackageURL(
                "pypi",
                name=key,
                version=wheel["version"],
                qualifiers={"file_name": wheel["file"]},
            ),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=wheel["sha256"])],
            properties=[
                Property(name=part, value=str(wheel[part]))
                for part in ("origin", "source", "lock_sha256")
                if wheel.get(part)
            ],
        )
    for package, version in pins:
        components.setdefault(
            package,
            Component(
                name=package,
                version=version,
                type=ComponentType.LIBRARY,
                bom_ref=f"{package}=={version}",
                purl=PackageURL("pypi", name=package, version=version),
            ),
        )
    bom = Bom(
        components=components.values(),
        serial_number=uuid.uuid5(_NAMESPACE, json.dumps([manifest, pins], sort_keys=True)),
    )
    bom.metadata.component = root
    bom.register_dependency(root, components.values())
    for file, key in files.items():
        needed = {_distribution(text) for text in requires.get(file, ())} - {key}
        bom.register_dependency(
            components[key], [components[one] for one in sorted(needed) if one in components]
        )
    result = json.loads(JsonV1Dot5(bom).output_as_string())
    del result["metadata"]["timestamp"]
    return document(result)


def _flat(manifest: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(manifest["tags"].items())


def _distribution(requirement: str) -> str:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return canonical_name(Requirement(requirement).name)
    except InvalidRequirement:
        return ""


if __name__ == "__main__":
    program.run(main)
