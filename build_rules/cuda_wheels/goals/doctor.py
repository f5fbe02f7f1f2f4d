"""`./pants cuda-doctor`: what the places lack that wheels are built in, and what builds left there."""

from __future__ import annotations

from typing import Iterable

from pants.core.util_rules.environments import (
    AllEnvironmentTargets,
    DockerEnvironmentTarget,
    DockerImageField,
    DockerPlatformField,
    LocalEnvironmentTarget,
)
from pants.engine.console import Console
from pants.engine.goal import Goal, GoalSubsystem
from pants.engine.platform import Platform
from pants.engine.rules import Get, MultiGet, collect_rules, goal_rule
from pants.util.strutil import help_text

from cuda_wheels.rules.container import (
    NOT_PINNED,
    DockerState,
    DockerStateRequest,
    arch_of,
    daemon_problem,
    name_problems,
    state_problems,
)
from cuda_wheels.rules.toolchain import (
    Host,
    Surroundings,
    cuda_home_problems,
    host_problems,
)
from cuda_wheels.tables.accelerators import MACHINES
from cuda_wheels.tables.images import PYTHON
from cuda_wheels.tables.rows import Row


class CudaDoctorSubsystem(GoalSubsystem):
    name = "cuda-doctor"
    help = help_text("""
        Show what this machine and its Docker daemon lack to build wheels, and what builds have left
        in Docker: containers, volumes and images, each with its size and the command that removes
        it.

        Nothing is changed. The exit code is 1 if something lacks that the environments of
        `[environments-preview.names]` need: compilers for local ones; for those in containers
        (`PANTS_CONFIG_FILES=pants.docker.toml`) the daemon, at least one image that is pinned for
        this machine's architecture, and all those that are. Where no environment is an image,
        Docker lacks nothing.
        """)


class CudaDoctor(Goal):
    subsystem_cls = CudaDoctorSubsystem
    environment_behavior = Goal.EnvironmentBehavior.LOCAL_ONLY


@goal_rule
async def cuda_doctor(
    console: Console, environments: AllEnvironmentTargets, platform: Platform
) -> CudaDoctor:
    images = {
        name: (
            target[DockerImageField].value,
            arch_of(target[DockerPlatformField].normalized_value),
        )
        for name, target in environments.items()
        if isinstance(target, DockerEnvironmentTarget)
    }
    local = any(
        isinstance(target, LocalEnvironmentTarget)
        for name, target in environments.items()
        if name != "local"
    )
    # A daemon does not have containers of another architecture than the machine's.
    usable = {
        name: (image, arch)
        for name, (image, arch) in images.items()
        if arch == arch_of(platform) and not is_unpinned(image)
    }
    host, surroundings, state = await MultiGet(
        Get(Host),
        Get(Surroundings),
        Get(
            DockerState,
            DockerStateRequest(tuple(sorted({image for image, _ in usable.values()})), True),
        ),
    )
    lacks_here = machine_problems(host, surroundings)
    lacks_images = image_problems(state, usable, arch_of(platform)) if images else ()
    console.print_stdout("\n".join(machine_lines(host, surroundings, lacks_here)))
    console.print_stdout("\n".join(("", *docker_lines(state, lacks_images))))
    return CudaDoctor(exit_code=1 if (local and lacks_here) or lacks_images else 0)


def is_unpinned(image: str) -> bool:
    """Whether a name is the one that images/environments gives where there is no pin."""
    return image.endswith(f":{NOT_PINNED}")


def machine_problems(host: Host, surroundings: Surroundings) -> tuple[str, ...]:
    """What this machine lacks whatever it builds for."""
    arch = next((arch for arch, name in MACHINES.items() if name == host.machine), host.machine)
    return (*host_problems(host, Row(arch, "cpu", None, PYTHON)), *cuda_home_problems(surroundings))


def image_problems(
    state: DockerState, places: dict[str, tuple[str, str]], arch: str
) -> tuple[str, ...]:
    """What keeps the containers of the pinned environments (name -> image, arch) from running here.

    That there is none for `arch`, this machine's, is a problem too.
    """
    unpinned = () if places else (nothing_pinned(arch),)
    if state.fault:
        return (daemon_problem(state), *unpinned)
    return unpinned + tuple(
        problem
        for name, (image, arch) in sorted(places.items())
        for problem in (*name_problems(image, name), *state_problems(state, image, arch))
    )


def nothing_pinned(arch: str) -> str:
    """What to do where no environment of an architecture has an image."""
    return (
        f"No toolchain image for {arch} is pinned in `IMAGE_PINS` of `images/pins.py`. Build one, "
        f"such as `./pants package images:{arch}-cu130`, and pin it with `./pants cuda-pin-images "
        f"--local images:{arch}-cu130`, or without `--local` one that was published. "
        "docs/docker.md has the steps."
    )


def machine_lines(host: Host, surroundings: Surroundings, lacks: Iterable[str]) -> list[str]:
    """What this machine has, and what it lacks."""
    found = [host.machine, f"glibc {host.glibc}", f"Python {host.python_version}"]
    found += [f"gcc {host.gcc.version}"] if host.gcc else []
    found += [f"g++ {host.gxx.version}"] if host.gxx else []
    gpus = ", ".join(surroundings.gpus) or "none"
    return [
        "This machine",
        f"  {', '.join(found)}",
        f"  {surroundings.disk_free_gb:.1f} GB free for the caches; GPUs: {gpus}",
        *(f"  lacks: {problem}" for problem in lacks),
    ]


def docker_lines(state: DockerState, lacks: Iterable[str]) -> list[str]:
    """What the daemon has of ours, each with its size and what removes it."""
    if state.fault:
        problem = daemon_problem(state)
        more = (f"  lacks: {other}" for other in lacks if other != problem)
        return ["Docker", f"  {problem}", *more]
    lines = [f"Docker {state.version} at {state.socket}"]
    lines += [f"  lacks: {problem}" for problem in lacks]
    images = {one.id: ", ".join(one.names) for one in state.own_images}
    for container in state.containers:
        of = images.get(container.image) or container.image
        lines.append(f"  container {container.id}  {container.state}  of {of}")
        lines.append(f"    docker rm -f {container.id}")
    for volume in state.volumes:
        of = images.get(volume.image or "") or f"{volume.image}, which is gone or not ours"
        lines.append(f"  volume {volume.name}  {gigabytes(volume.size)}  of {of}")
        lines.append(f"    docker volume rm {volume.name}")
    for image in state.own_images:
        name = ", ".join(image.names) or "no name"
        lines.append(f"  image {image.id[7:19]}  {gigabytes(image.size)}  {name}")
        lines.append(f"    docker rmi {' '.join(image.names) or image.id[7:19]}")
    if state.containers:
        running = len(state.pantsds)
        lines.append(
            f"  {running} Pants daemon{'' if running == 1 else 's'} on this machine: "
            + (", ".join(state.pantsds) or "all containers above are left over")
        )
    return lines


def gigabytes(size: int) -> str:
    """A size in bytes as people read it; Docker tells -1 where it does not know."""
    return f"{size / 1e9:.2f} GB" if size >= 0 else "size unknown"


def rules():
    return collect_rules()
