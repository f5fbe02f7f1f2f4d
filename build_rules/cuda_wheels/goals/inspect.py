"""`./pants cuda-inspect -- PATH...`: what is inside a wheel, any wheel, anywhere."""

from __future__ import annotations

import json
import os
from enum import Enum

from pants.base.build_environment import get_buildroot
from pants.engine.console import Console
from pants.engine.goal import Goal, GoalSubsystem
from pants.engine.process import FallibleProcessResult, ProcessCacheScope
from pants.engine.rules import Get, MultiGet, collect_rules, goal_rule
from pants.option.option_types import ArgsListOption, EnumOption
from pants.util.strutil import help_text, softwrap

from cuda_wheels.rules.programs import ProgramProcess
from cuda_wheels.rules.toolchain import Host
from cuda_wheels.wheel_checks import self_mismatches
from cuda_wheels.wheel_facts import WheelFacts, format_text


class InspectFormat(Enum):
    """How the facts of a wheel are printed."""

    TEXT = "text"
    JSON = "json"


class CudaInspectSubsystem(GoalSubsystem):
    name = "cuda-inspect"
    help = help_text("""
        Read wheels and print what is inside: the GPU code of every library, the symbol versions
        that it needs, the libraries that it links, its metadata.

        The wheels are given behind `--` and may lie anywhere:
        `./pants cuda-inspect -- ~/Downloads/*.whl`. A relative path is one below the root of this
        repository. The exit code is 1 if a wheel contradicts its own tags or cannot be read.
        """)

    format = EnumOption(
        default=InspectFormat.TEXT, help=softwrap("""Print a text for people, or JSON.""")
    )
    # By this name the option's help, which Pants writes, tells how it is set.
    args = ArgsListOption(
        example="dist/torch_scatter-2.1.2-cp312-cp312-manylinux_2_28_x86_64.whl",
        tool_name="the inspection: the paths of wheels",
        passthrough=True,
    )


class CudaInspect(Goal):
    subsystem_cls = CudaInspectSubsystem
    environment_behavior = Goal.EnvironmentBehavior.LOCAL_ONLY


@goal_rule
async def cuda_inspect(console: Console, options: CudaInspectSubsystem) -> CudaInspect:
    if not options.args:
        console.print_stderr(
            "No wheel was named. Give the paths behind `--`: `./pants cuda-inspect -- PATH...`."
        )
        return CudaInspect(exit_code=1)
    # The host's probe also hands this session's index settings to the programs.
    await Get(Host)
    paths = [os.path.join(get_buildroot(), os.path.expanduser(path)) for path in options.args]
    results = await MultiGet(
        Get(
            FallibleProcessResult,
            ProgramProcess,
            ProgramProcess.create(
                "inspect_wheel",
                {"wheel": path},
                description=f"Inspect {path}",
                # The file lies outside of what Pants watches.
                cache_scope=ProcessCacheScope.PER_SESSION,
            ),
        )
        for path in paths
    )
    exit_code = 0
    documents = []
    for path, result in zip(paths, results):
        if result.exit_code:
            message = result.stderr.decode(errors="replace").rstrip()
            console.print_stderr(f"{console.sigil_failed()} {path} was not inspected:")
            console.print_stderr("\n".join(f"  {line}" for line in message.splitlines()))
            exit_code = 1
            continue
        facts = WheelFacts.from_json(json.loads(result.stdout))
        contradictions = self_mismatches(facts)
        documents.append({**facts.to_json(), "contradictions": list(contradictions)})
        if options.format == InspectFormat.TEXT:
            console.print_stdout(format_text(facts))
            for contradiction in contradictions:
                console.print_stdout(f"  {console.sigil_failed()} {contradiction}")
        exit_code = exit_code or (1 if contradictions else 0)
    if options.format == InspectFormat.JSON:
        console.print_stdout(json.dumps(documents, indent=1, sort_keys=True))
    return CudaInspect(exit_code=exit_code)


def rules():
    return collect_rules()
