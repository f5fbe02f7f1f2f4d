"""What `./pants publish` does with a `cuda_wheelhouse`: adds it to the indexes that are named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

from pants.core.goals.publish import (
    PublishFieldSet,
    PublishPackages,
    PublishProcesses,
    PublishRequest,
)
from pants.engine.env_vars import EnvironmentVars, EnvironmentVarsRequest
from pants.engine.fs import Digest, MergeDigests
from pants.engine.process import InteractiveProcess, Process
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.option.option_types import BoolOption, DictOption, StrListOption, StrOption
from pants.option.subsystem import Subsystem
from pants.util.frozendict import FrozenDict
from pants.util.strutil import help_text, softwrap

from cuda_wheels.rules.programs import ProgramProcess
from cuda_wheels.rules.toolchain import Host
from cuda_wheels.tables.publish_addresses import parse_address
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


class CudaPublishSubsystem(Subsystem):
    options_scope = "cuda-publish"
    help = help_text("""
        Where and how `publish` adds wheelhouses to an index.
        """)

    to = StrListOption(
        help=softwrap("""
            The indexes that wheelhouses are added to whose target has no `publish_to`, for instance
            `["file:///srv/wheels"]`: a folder (`file:///srv/wheels`), an OCI registry
            (`oci://registry.example/team/wheels`) or an upload API (`pypi:https://wheels.example/`).
            User and password come from the environment or the keyring: see docs/wheelhouse.md.
            """),
    )
    simple_indexes = DictOption[str](
        help=softwrap("""
            The package index that an upload API fills, where it is not `simple/` below the API's
            address: `{"https://wheels.example/upload/": "https://wheels.example/simple/"}`.
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


@dataclass(frozen=True)
class Destination:
    """What an address of `publish_to` means: the program that publishes there, and its request.

    `locks` are those of the program's tools; `variables` of the environment are handed to it.
    """

    program: str
    request: FrozenDict[str, str]
    locks: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


# What a client of an index needs of a person's environment: certificates, proxies, the keyring.
CLIENT_VARIABLES = (
    "HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "PYTHON_KEYRING_BACKEND",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "SSL_CERT_FILE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
CLIENT_LOCKS = ("bootstrap_lock", "publish_lock")


def destination(address: str, simple_indexes: Mapping[str, str]) -> Destination:
    """What an address names; raises PublishAddressError where it is none."""
    place = parse_address(address, simple_indexes)
    request = FrozenDict(place.request)
    if place.variables is None:
        return Destination(place.program, request)
    variables = (*CLIENT_VARIABLES, place.variables.user, place.variables.password)
    return Destination(place.program, request, CLIENT_LOCKS, variables)


@rule
async def publish_wheelhouse(
    request: PublishWheelhouseRequest, options: CudaPublishSubsystem
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
    destinations = [destination(address, options.simple_indexes) for address in addresses]
    files = await Get(Digest, MergeDigests(package.digest for package in request.packages))
    if any(one.locks for one in destinations):
        # The host's probe hands this session's indexes to a program that may have to make its tools.
        await Get(Host)
    processes = await MultiGet(
        Get(
            Process,
            ProgramProcess,
            ProgramProcess.create(
                one.program,
                {
                    "house": names[0],
                    "row": fields.row,
                    **one.request,
                    "date": options.date,
                    "dry_run": options.dry_run,
                },
                description=f"Publish {names[0]}",
                locks=one.locks,
                input_digest=files,
            ),
        )
        for one in destinations
    )
    # What runs in the foreground is never looked up in a cache, so passwords are in no key.
    variables = await MultiGet(
        Get(EnvironmentVars, EnvironmentVarsRequest(one.variables)) for one in destinations
    )
    return PublishProcesses(
        PublishPackages(
            names,
            _in_foreground(process, known),
            # Pants writes "published to" before it, whatever the process did.
            description=f"{address}: not yet, this was a dry run" if options.dry_run else address,
        )
        for address, process, known in zip(addresses, processes, variables)
    )


def _in_foreground(process: Process, variables: EnvironmentVars) -> InteractiveProcess:
    return InteractiveProcess(
        process.argv,
        env={**variables, **process.env},
        input_digest=process.input_digest,
        append_only_caches=process.append_only_caches,
    )


def rules():
    return [*collect_rules(), *PublishWheelhouseFieldSet.rules()]
