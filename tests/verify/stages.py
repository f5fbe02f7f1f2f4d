"""The stages that run in the environment of the wheels: import, kernels, model, train."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from cuda_wheels.audit.wheelhouse import CAPABILITY_FLOORS, Summary, problems
from cuda_wheels.tables.rows import version_key
from verify.environment import Ended, Environment, installed, run, run_program, torch_facts
from verify.fit import NATIVE_CAPABILITIES, Fit
from verify.host import Host
from verify.programs import checks, network
from verify.report import FAILED, NOT_RUN, PASSED, WARNING, Line, Stage

# Distribution -> the module whose import loads its libraries.
MODULES: dict[str, str] = {
    "pccm": "pccm",
    "cumm": "cumm.tensorview",
    "spconv": "spconv.pytorch",
    "torch-scatter": "torch_scatter",
    "torch-sparse": "torch_sparse",
    "torch-cluster": "torch_cluster",
    "torch-geometric": "torch_geometric",
    "ocnn": "ocnn",
    "swin3d": "Swin3D.sparse_dl.knn",
    "pointops": "pointops",
    "pointops2": "pointops2.pointops",
    "pointgroup-ops": "pointgroup_ops",
    "pointseg": "pointseg",
    "pointrope": "pointrope",
    "flash-attn": "flash_attn",
    "vecadd": "vecadd",
}

NOT_INSTALLED = "not installed"


def doctor(host: Host, fit: Fit | None, disk_needed_gb: float) -> Stage:
    """The host itself, and whether the wheelhouse fits it."""
    lines = [
        _line("system", host.system, host.system == "Linux", "The wheels are for Linux."),
        _line(
            "machine", host.machine, host.arch is not None, "There are wheels for x86_64, aarch64."
        ),
        _line("glibc", host.glibc or "none", host.glibc is not None, "The wheels need glibc."),
        Line("Python", host.python, PASSED),
    ]
    if host.driver or host.cuda:
        cuda = f"{host.driver or 'unknown'}, CUDA up to {host.cuda or 'unknown'}"
        lines.append(Line("driver", cuda, PASSED if host.cuda else WARNING))
    else:
        lines.append(Line("driver", "none", WARNING, "Without one, wheels for the CPU alone fit."))
    lines += [
        Line("GPU", f"{gpu.name}, capability {gpu.capability or 'unknown'}", PASSED)
        for gpu in host.gpus
    ] or [Line("GPU", "none", WARNING)]
    if len(host.capabilities) > 1:
        lines.append(
            Line(
                "GPU",
                "different ones",
                WARNING,
                "A wheelhouse must name each of their capabilities.",
            )
        )
    if host.disk_free_gb is not None:
        enough = host.disk_free_gb >= disk_needed_gb
        lines.append(
            Line(
                "disk",
                f"{host.disk_free_gb:g} GB free",
                PASSED if enough else FAILED,
                "" if enough else f"torch and the wheels take some {disk_needed_gb:g} GB.",
            )
        )
    if host.cache:
        lines.append(
            Line(
                "CUDA_CACHE_PATH",
                host.cache,
                PASSED if host.cache_writable else WARNING,
                (
                    ""
                    if host.cache_writable
                    else "It cannot be written: PTX is compiled again in every process. Set "
                    "CUDA_CACHE_PATH to a folder that can."
                ),
            )
        )
    if fit is not None:
        lines += fit_lines(fit)
    return Stage("doctor", tuple(lines))


def fit_lines(fit: Fit) -> list[Line]:
    """Whether it fits, every reason, and the conditions of its use."""
    verdict = PASSED if fit.fits else FAILED
    return [
        Line(fit.summary.tags.name, "fits this host", verdict, "\n".join(fit.reasons)),
        *(Line(fit.summary.tags.name, "condition", WARNING, text) for text in fit.conditions),
    ]


def _line(subject: str, found: str, right: bool, otherwise: str) -> Line:
    return Line(subject, found, PASSED if right else FAILED, "" if right else otherwise)


def check(summary: Summary, folder: Any) -> Stage:
    """Whether a wheelhouse agrees with itself."""
    wrong = problems(folder, summary.sums)
    lines = [Line(summary.tags.name, "is as it says", FAILED, text) for text in wrong]
    return Stage("check", tuple(lines or [Line(summary.tags.name, "is as it says", PASSED)]))


def imports(environment: Environment, expected: Iterable[str] = ()) -> Stage:
    """Each package in a process of its own, after torch, which brings the libraries of CUDA.

    `expected` are the distributions of the wheelhouse: one that is not installed is a failure.
    """
    versions, expected = installed(environment), set(expected)
    facts, reason = torch_facts(environment)
    torch = versions.get("torch", (None, ""))[0]
    lines = [Line("torch", "import", PASSED if facts else FAILED, reason, torch)]
    for name in [*MODULES, *sorted(expected - {*MODULES})]:
        version = versions.get(name, (None, ""))[0]
        if version is None:
            verdict = FAILED if name in expected else NOT_RUN
            lines.append(Line(name, "import", verdict, NOT_INSTALLED))
            continue
        module = MODULES.get(name)
        if module is None:
            lines.append(Line(name, "import", NOT_RUN, "its module is not known here", version))
            continue
        ended = run(
            environment, ["-c", f"import torch, importlib; importlib.import_module({module!r})"]
        )
        right = ended.returncode == 0
        lines.append(
            Line(
                name,
                f"import {module}",
                PASSED if right else FAILED,
                "" if right else ended.reason + _other_torch(version, torch, ended.reason),
                version,
            )
        )
    return Stage("import", tuple(lines))


def _other_torch(version: str, torch: str | None, reason: str) -> str:
    """Both torches, where a wheel for another one than is installed lacks a symbol; "" elsewhere."""
    built = re.search(r"\+.*torch(\d+\.\d+\.\d+)", version)
    if "undefined symbol" not in reason or not built or not torch:
        return ""
    if torch.split("+")[0] == built[1]:
        return ""
    return f". It was compiled against torch {built[1]}, but torch {torch} is installed"


def kernels(environment: Environment, expected: Iterable[str] = ()) -> Stage:
    """Each check in a process of its own: one that ends it is charged to one package."""
    versions, expected = installed(environment), set(expected)
    facts, reason = torch_facts(environment)
    capability = facts["capability"] if facts else None
    lines = []
    for name, one in checks.CHECKS.items():
        version = versions.get(one.package, (None, ""))[0]
        if version is None:
            verdict = FAILED if one.package in expected else NOT_RUN
            lines.append(Line(one.package, name, verdict, NOT_INSTALLED))
            continue
        obstacle = _obstacle(one.package, name, capability, one.on_cpu)
        if facts is None:
            lines.append(Line(one.package, name, FAILED, f"torch: {reason}", version))
        elif obstacle:
            lines.append(Line(one.package, name, NOT_RUN, obstacle, version))
        else:
            ended = run_program(environment, "checks.py", name)
            lines.append(measured(one.package, name, ended, version, "the results differ"))
    return Stage("kernels", tuple(lines))


def _obstacle(package: str, check: str, capability: str | None, on_cpu: bool) -> str:
    """Why a check says nothing here."""
    if on_cpu:
        return ""
    if capability is None:
        return "torch sees no GPU"
    floor = CAPABILITY_FLOORS.get(package)
    if floor and version_key(capability) < version_key(floor):
        return f"needs capability {floor}, this GPU has {capability}"
    if package == "spconv" and "Implicit" in check and capability in NATIVE_CAPABILITIES:
        return f"on {capability} spconv is used with ConvAlgo.Native alone"
    return ""


def model(environment: Environment) -> Stage:
    """The small network against one whose parts are plain torch; PTv3 where Pointcept is there."""
    facts, reason = torch_facts(environment)
    lines = [
        _network(environment, "model", "forward and backward", "the results differ", facts, reason)
    ]
    probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pointcept') is None)"
    if run(environment, ["-c", probe]).returncode != 0:
        lines.append(Line("Pointcept", "PTv3 forward", NOT_RUN, "Pointcept is not importable"))
    else:
        what = _network(
            environment, "ptv3", "PTv3 forward", "values that are no numbers", facts, reason
        )
        lines.append(what)
    return Stage("model", tuple(lines))


def train(environment: Environment) -> Stage:
    """Twenty steps of the small network; the last losses against the first."""
    facts, reason = torch_facts(environment)
    check = f"{network.STEPS} steps, last loss over first"
    return Stage(
        "train", (_network(environment, "train", check, "the loss does not fall", facts, reason),)
    )


def _network(
    environment: Environment,
    what: str,
    check: str,
    wrong: str,
    facts: dict[str, Any] | None,
    reason: str,
) -> Line:
    subject = "Pointcept" if what == "ptv3" else "network"
    if facts is None:
        return Line(subject, check, FAILED, f"torch: {reason}")
    capability = facts["capability"]
    if capability is None:
        return Line(subject, check, NOT_RUN, "torch sees no GPU")
    options = {
        "native": capability in NATIVE_CAPABILITIES,
        "flash": version_key(capability) >= version_key(CAPABILITY_FLOORS["flash-attn"]),
    }
    ended = run_program(environment, "network.py", what, json.dumps(options))
    return measured(subject, check, ended, None, wrong)


def measured(package: str, check: str, ended: Ended, version: str | None, wrong: str) -> Line:
    """Read what a check's process printed and how it ended."""
    marked = [line for line in ended.output.splitlines() if line.startswith(checks.MARK)]
    if ended.returncode != 0 or not marked:
        return Line(package, check, FAILED, ended.reason, version)
    document = json.loads(marked[-1][len(checks.MARK) :])
    error, tolerance = float(document["error"]), float(document["tolerance"])
    # A comparison that is false for NaN too.
    right = error <= tolerance
    detail = "" if right else wrong
    if "used" in document:
        used = ", ".join(document["used"]) or "plain torch alone"
        detail = f"{detail}; {used}" if detail else used
        if not document["used"]:
            return Line(
                package, check, NOT_RUN if right else FAILED, detail, version, error, tolerance
            )
    return Line(package, check, PASSED if right else FAILED, detail, version, error, tolerance)
