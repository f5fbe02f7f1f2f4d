"""Small wheelhouses for tests: complete, in agreement with themselves, and cheap to make."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TAGS = {
    "os": "linux",
    "arch": "amd64",
    "accel": "cu130",
    "torch": "2.11.0",
    "python": "3.12",
    "cuda_arch": "8.0 9.0 12.1",
}
LOCAL = "cu130.torch2.11.0"
PLATFORM = "manylinux_2_28_x86_64"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_wheel(
    folder: Path,
    name: str,
    version: str,
    tag: str,
    files: dict[str, str] | None = None,
    requires: Iterable[str] = (),
) -> Path:
    """A wheel that pip installs: by default one module of its own name."""
    path = folder / f"{name}-{version}-{tag}.whl"
    path.write_bytes(wheel_bytes(name, version, tag, files, requires))
    return path


def wheel_bytes(
    name: str,
    version: str,
    tag: str,
    files: dict[str, str] | None = None,
    requires: Iterable[str] = (),
) -> bytes:
    """The same for the same arguments."""
    info = f"{name}-{version}.dist-info"
    python, abi, platform = tag.split("-")
    members = dict(files if files is not None else {f"{name}.py": f"version = {version!r}\n"})
    members[f"{info}/METADATA"] = "".join(
        ["Metadata-Version: 2.1\n", f"Name: {name}\n", f"Version: {version}\n"]
        + [f"Requires-Dist: {one}\n" for one in requires]
    )
    members[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        f"Tag: {python}-{abi}-{platform}\n"
    )
    lines = []
    for member, text in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        lines.append(f"{member},sha256={digest.decode()},{len(text.encode())}\n")
    members[f"{info}/RECORD"] = "".join([*lines, f"{info}/RECORD,,\n"])
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for member, text in members.items():
            archive.writestr(zipfile.ZipInfo(member), text)
    return content.getvalue()


# What a wheelhouse pins of the package index, and the wheel that an index has for it. As a lock is
# written: a pin and its hashes are one line that is continued.
LEAF = ("leaf", "1.0", "py3-none-any")
PINNED = f"leaf==1.0 \\\n    --hash=sha256:{hashlib.sha256(wheel_bytes(*LEAF)).hexdigest()}\n"


def entry(wheel: Path, **more: Any) -> dict[str, Any]:
    """A wheel's entry in the manifest."""
    name, version, *_, platform = wheel.stem.split("-")
    return {
        "file": wheel.name,
        "name": name.replace("_", "-"),
        "version": version,
        "sha256": sha256(wheel),
        "size": wheel.stat().st_size,
        "origin": "compiled",
        "platform": platform,
        **more,
    }


def write_json(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, sort_keys=True, indent=1) + "\n")


def write_index(folder: Path, entries: Iterable[dict[str, Any]]) -> None:
    for one in entries:
        page = folder / "simple" / str(one["name"])
        page.mkdir(parents=True, exist_ok=True)
        url, digest = f"../../{one['file'].replace('+', '%2B')}", one["sha256"]
        (page / "index.html").write_text(f'<a href="{url}#sha256={digest}">{one["file"]}</a>\n')
        write_json(
            page / "index.json",
            {
                "meta": {"api-version": "1.0"},
                "name": one["name"],
                "files": [
                    {"filename": one["file"], "url": url, "hashes": {"sha256": digest}},
                ],
            },
        )


def write_sums(folder: Path) -> None:
    files = sorted(
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*")
        if file.is_file() and file.name != "SHA256SUMS"
    )
    text = "".join(f"{sha256(folder / name)}  {name}\n" for name in files)
    (folder / "SHA256SUMS").write_text(text)


def write_requirements(folder: Path, text: str) -> None:
    """The lock of a wheelhouse, with the SBOM and the sums that go with it."""
    (folder / "requirements-pypi.txt").write_text(text)
    entries = json.loads((folder / "manifest.json").read_text())["wheels"]
    write_sbom(folder, entries)
    write_sums(folder)


def write_sbom(folder: Path, entries: Iterable[dict[str, Any]]) -> None:
    wheels = [
        {
            "name": one["name"],
            "version": one["version"],
            "hashes": [{"alg": "SHA-256", "content": one["sha256"]}],
        }
        for one in entries
    ]
    pins = re.findall(r"^(\S+)==(\S+)", (folder / "requirements-pypi.txt").read_text(), re.M)
    components = [*wheels, *({"name": name, "version": version} for name, version in pins)]
    write_json(
        folder / "sbom.cdx.json",
        {"bomFormat": "CycloneDX", "specVersion": "1.5", "components": components},
    )


def write_wheelhouse(
    root: Path,
    tags: dict[str, str] | None = None,
    local: str = LOCAL,
    python_tag: str = "cp312",
    date: str | None = None,
    content: str | None = None,
) -> Path:
    """`root/linux-amd64/cu130/torch2.11.0-cp312` with two wheels, or another of the same kind.

    `content` is that of the wheels' modules.
    """
    tags = {**TAGS, **(tags or {})}
    folder = (
        root
        / f"{tags['os']}-{tags['arch']}"
        / tags["accel"]
        / f"torch{tags['torch']}-cp{tags['python'].replace('.', '')}"
    )
    folder.mkdir(parents=True)
    tag = f"{python_tag}-{python_tag if python_tag != 'py3' else 'none'}"
    platform = PLATFORM if python_tag != "py3" else "any"
    archs = {
        "asked": tags["cuda_arch"].split(),
        "cubins": ["sm_80", "sm_90", "sm_120"],
        "ptx": ["compute_120"],
    }
    wheels = [
        write_wheel(
            folder,
            name,
            f"{version}+{local}",
            f"{tag}-{platform}",
            {f"{name}.py": f"content = {content!r}\n"} if content else None,
        )
        for name, version in (("spconv", "2.3.8"), ("torch_scatter", "2.1.2"))
    ]
    entries = [entry(wheel, gpu_archs=archs) for wheel in wheels]
    write_json(
        folder / "tags.json", {**tags, "verified": {"9.0": "runs"} if tags["cuda_arch"] else {}}
    )
    manifest = {
        "schema": 1,
        "tags": tags,
        "glibc": "2.28",
        "local": True,
        "wheels": entries,
        "skipped": [],
        "failed": [],
    }
    write_json(folder / "manifest.json", {**manifest, **({"date": date} if date else {})})
    (folder / "requirements-pypi.txt").write_text(PINNED)
    write_index(folder, entries)
    write_sbom(folder, entries)
    write_sums(folder)
    return folder
