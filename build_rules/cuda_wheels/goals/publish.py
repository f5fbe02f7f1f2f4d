"""What `./pants publish` does with a `cuda_wheelhouse`: adds it to the indexes that are named."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Mapping
from urllib.parse import SplitResult, unquote, urlsplit

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

# A repository's name, as the distribution specification has it.
_REPOSITORY = re.compile(r"(/[a-z0-9]+([._-]+[a-z0-9]+)*)+")


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
# The same as in `sandbox/credentials.py`.
TWINE_VARIABLES = ("TWINE_USERNAME", "TWINE_PASSWORD")
ORAS_VARIABLES = ("ORAS_USER", "ORAS_PASS")


def destination(address: str, simple_indexes: Mapping[str, str]) -> Destination:
    """What an address names.

    Raises PublishAddressError for one that is of no known kind, or that has a password in it.
    """
    scheme, _, rest = address.partition(":")
    kinds = {"file": _folder, "oci": _registry, "pypi": _upload_api}
    found = kinds[scheme](address, rest, simple_indexes) if scheme in kinds else None
    if found is None:
        raise _refused(address)
    return found


def _folder(address: str, rest: str, simple_indexes: Mapping[str, str]) -> Destination | None:
    parts = urlsplit(address)
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        return None
    if not path.startswith("/") or not path.strip("/"):
        return None
    return Destination("publish_file", FrozenDict({"index": path}))


def _registry(address: str, rest: str, simple_indexes: Mapping[str, str]) -> Destination | None:
    parts = _web_address(f"https:{rest}" if rest.startswith("//") else rest)
    if parts is None or not _REPOSITORY.fullmatch(parts.path):
        return None
    return Destination(
        "publish_oci",
        FrozenDict({"registry": f"{parts.scheme}://{parts.netloc}", "repository": parts.path[1:]}),
        CLIENT_LOCKS,
        (*CLIENT_VARIABLES, *ORAS_VARIABLES),
    )


def _upload_api(address: str, rest: str, simple_indexes: Mapping[str, str]) -> Destination | None:
    if _web_address(rest) is None:
        return None
    simple = simple_indexes.get(rest) or f"{rest.rstrip('/')}/simple/"
    return Destination(
        "publish_pypi",
        FrozenDict({"upload": rest, "simple": simple}),
        CLIENT_LOCKS,
        (*CLIENT_VARIABLES, *TWINE_VARIABLES),
    )


def _web_address(text: str) -> SplitResult | None:
    parts = urlsplit(text)
    plain = "@" not in parts.netloc and not (parts.query or parts.fragment)
    return parts if parts.scheme in ("http", "https") and parts.netloc and plain else None


def _refused(address: str) -> PublishAddressError:
    hidden = re.sub(r"//[^/\s]*@", "//***@", address)
    if hidden != address:
        return PublishAddressError(
            f"{hidden!r} has a user or password in it, which others would read. Leave them out, and "
            f"set {' and '.join(TWINE_VARIABLES)} for an upload API or {' and '.join(ORAS_VARIABLES)} "
            "for an OCI registry, or store them in the keyring."
        )
    return PublishAddressError(
        f"{address!r} is no index that wheelhouses are published to. Write the absolute path of a "
        "folder (`file:///srv/wheels`), a repository of an OCI registry "
        "(`oci://registry.example/team/wheels`) or the address of an upload API "
        "(`pypi:https://wheels.example/`) in `publish_to` or `[cuda-publish].to`."
    )


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
