"""What a session says about the network, and how a process hears of it without a trace in its key.

A process that fetches something needs addresses, certificates and proxies, and none of them may be
in its cache key: what is fetched is pinned. The settings therefore lie in an append-only cache, in
one file per content, so that sessions with different settings do not disturb each other. Of an
append-only cache Pants puts neither the name nor the place in the sandbox into the key of a process
(`process_execution::make_execute_request`, 2.17), so that place carries the name of the file.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from pants.backend.python.subsystems.repos import PythonRepos
from pants.engine.env_vars import EnvironmentVars, EnvironmentVarsRequest
from pants.engine.rules import Get, collect_rules, rule
from pants.option.global_options import GlobalOptions

from cuda_wheels.subsystem import CudaWheelsSubsystem
from cuda_wheels.tables.upstreams import torch_indexes

CACHE_NAME = "cuda_wheels_settings"
LINKS = ".cuda_wheels_settings"
"""The same as in `sandbox/session_settings.py`."""

PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY")


@dataclass(frozen=True)
class SessionSettings:
    """The settings as JSON. With `in_own_cache` off, no process is told the name of their file.

    Pants writes places of append-only caches into the key where `[GLOBAL]
    .remote_execution_append_only_caches_base_path` is set: sessions then share one file.
    """

    content: str
    in_own_cache: bool = True

    @property
    def name(self) -> str:
        """What tells these settings from others: the sha256 of their content."""
        return hashlib.sha256(self.content.encode()).hexdigest()

    @property
    def append_only_caches(self) -> dict[str, str]:
        """Name and place of the append-only cache that leads a process to its settings."""
        return {CACHE_NAME: f"{LINKS}/{self.name}"} if self.in_own_cache else {}


@rule
async def session_settings(
    options: CudaWheelsSubsystem, repos: PythonRepos, global_options: GlobalOptions
) -> SessionSettings:
    environment = await Get(EnvironmentVars, EnvironmentVarsRequest(PROXIES))
    settings = {
        "indexes": list(repos.indexes),
        "find_links": list(repos.find_links),
        "torch_indexes": torch_indexes(),
        "ca_certs": global_options.ca_certs_path,
        "proxies": dict(environment),
        "source_mirrors": dict(options.source_mirrors),
    }
    return SessionSettings(
        json.dumps(settings, sort_keys=True),
        in_own_cache=not global_options.remote_execution_append_only_caches_base_path,
    )


def rules():
    return collect_rules()
