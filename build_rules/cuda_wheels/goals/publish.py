"""What `./pants publish` does with a `cuda_wheelhouse`: adds it to the indexes that are named."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pants.core.goals.publish import (
    PublishFieldSet,
    PublishPackages,
    PublishProcesses,
    PublishRequest,
)
from pants.engine.fs import CreateDigest, Digest, FileContent, MergeDigests
from pants.engine.process import InteractiveProcess
from pants.engine.rules import Get, collect_rules, rule
from pants.option.option_types import BoolOption, StrListOption, StrOption
from pants.option.subsystem import Subsystem
from pants.util.strutil import help_text, softwrap

from cuda_wheels.rules.programs import (
    PACKAGE,
    PROGRAM_ENV,
    REQUEST_FILE,
    ProgramPython,
    program_files,
)
from cuda_wheels.tables.rows import Row
from cuda_wheels.target_types import (
    AccelField,
    ArchField,
    PublishToField,
    PythonField,
    WheelhouseTorchField,
    WheelhouseWheelsField,
)
from cuda_wheels.wheelhouse_manifest import folder

PROGRAM = "publish_file"


class PublishAddressError(Exception):
    """An index that a wheelhouse cannot be published to."""


class CudaPublishSubsystem(Subsystem):
    options_scope = "cuda-publish"
    help = help_text("""
        Where and how `publish` adds wheelhouses to an index.
        """)

    to = StrListOption(
        help=softwrap("""
            The indexes that wheelhouses are added to whose target has no `publish_to`, for instance
            `["file:///srv/wheels"]`.
            """),
    )
    date = StrOption(
        default="",
        help=softwrap("""
            The date of the release, for instance `2026.11.30`; the default is today's, in UTC. It
            names the release, so other content of one day gets a number behind it.
            """),
    )
    dry_run = BoolOption(
        default=False,
        help=softwrap("""Only say what would go where. The wheels are still built."""),
    )


class PublishWheelhouseRequest(PublishRequest):
    pass


@dataclass(frozen=True)
class PublishWheelhouseFieldSet(PublishFieldSet):
    """The fields of a `cuda_wheelhouse` that say where it goes."""

    publish_request_type = PublishWheelhouseRequest
    required_fields = (WheelhouseWheelsField, PublishToField)

    publish_to: PublishToField
    arch: ArchField
    accel: AccelField
    torch: WheelhouseTorchField
    python: PythonField

    @property
    def row(self) -> str:
        """The folder of the row in an index."""
        return folder(Row(self.arch.value, self.accel.value, self.torch.value, self.python.value))


def index_path(address: str) -> str:
    """The folder that a `file:` address names.

    Raises PublishAddressError for any other address.
    """
    parts = urlsplit(address)
    path = unquote(parts.path)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and path.strip("/"):
        if path.startswith("/") and not (parts.query or parts.fragment):
            return path
    raise PublishAddressError(
        f"{address!r} is no index that wheelhouses are published to. Write `file:` and the absolute "
        "path of a folder, for instance `file:///srv/wheels`, in `publish_to` or `[cuda-publish].to`."
    )


@rule
async def publish_wheelhouse(
    request: PublishWheelhouseRequest, options: CudaPublishSubsystem, python: ProgramPython
) -> PublishProcesses:
    fields = request.field_set
    names = tuple(
        artifact.relpath
        for package in request.packages
        for artifact in package.artifacts
        if artifact.relpath
    )
    addresses = tuple(dict.fromkeys(fields.publish_to.value or options.to))
    if not addresses:
        where = "neither `publish_to` nor `[cuda-publish].to` names an index"
        return PublishProcesses([PublishPackages(names, description=where)])
    paths = [index_path(address) for address in addresses]
    published = []
    for address, path in zip(addresses, paths):
        document = {
            "house": names[0],
            "row": fields.row,
            "index": path,
            "date": options.date,
            "dry_run": options.dry_run,
        }
        program = await Get(
            Digest,
            CreateDigest(
                [
                    *(FileContent(file, data) for file, data in program_files(PROGRAM).items()),
                    FileContent(REQUEST_FILE, json.dumps(document).encode()),
                ]
            ),
        )
        files = await Get(
            Digest, MergeDigests([program, *(package.digest for package in request.packages)])
        )
        process = InteractiveProcess(
            [python.binary.path, "-m", f"{PACKAGE}.sandbox.{PROGRAM}", REQUEST_FILE],
            env=PROGRAM_ENV,
            input_digest=files,
        )
        published.append(PublishPackages(names, process, description=address))
    return PublishProcesses(published)


def rules():
    return [*collect_rules(), *PublishWheelhouseFieldSet.rules()]
