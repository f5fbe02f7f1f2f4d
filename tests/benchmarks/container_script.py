"""Two packages in a toolchain image, against what a script does for each: container, toolchain, venv.

The way of Pointcept's `build_wheels.sh`: every call starts a container of the base image and installs the
compilers; a volume keeps the virtual environment with torch. Ours: an image, made once, and one container for all calls.
The base is the stand-in on Debian 11. The packages are vecadd, and vecadd with one more comment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from pathlib import Path

import docker

from benchmarks.comparison import (
    BUILD_LOCK,
    GPU_ARCH,
    package,
    report,
    scratch_checkout,
    seconds,
)
from images.stand_in import CERTIFICATES, base_image
from integration.checkout import FIXTURES, Checkout
from integration.containers import (
    IN_CONTAINER,
    remove_containers,
    sandboxes,
    toolchain_image,
)
from integration.recipes import address, comment_patch, recipe

RUNS = 5
_COMPILERS = "apt-get -qq update && apt-get -qq install -y --no-install-recommends g++ gcc git >/dev/null 2>&1"
_ENVIRONMENT = """
set -e
test ! -e /cache/venv/done || exit 0
python=$(readlink -f /usr/local/bin/python3.12)
$python -m venv /cache/uv
/cache/uv/bin/pip install -q uv
/cache/uv/bin/uv venv -q -p $python /cache/venv
UV_CACHE_DIR=/cache/uv-cache /cache/uv/bin/uv pip sync -q --require-hashes --python /cache/venv/bin/python /locks/LOCK
touch /cache/venv/done
"""
_PACKAGE = """
set -e
cuda=$(echo /cache/venv/lib/python3.12/site-packages/nvidia/cu13)
if ! test -e $cuda/lib64; then
  ln -s lib $cuda/lib64
  ln -s libcudart.so.13 $cuda/lib/libcudart.so
fi
cp -r /source /tmp/source
export CUDA_HOME=$cuda PATH=/cache/venv/bin:$cuda/bin:$PATH TORCH_CUDA_ARCH_LIST={arch} MAX_JOBS={jobs}
python -m pip wheel -q --no-deps --no-build-isolation --no-index -w /tmp/out /tmp/source
"""


def script_call(base: str, volume: str, source: Path) -> dict[str, float]:
    """One call of the script for one package; seconds by step."""
    name = f"cuda-wheels-benchmark-{uuid.uuid4()}"
    lock = BUILD_LOCK.absolute()

    def inside(script: str) -> None:
        command = ["docker", "exec"]
        for variable in ("SSL_CERT_FILE", "PIP_CERT"):
            command += ["-e", f"{variable}=/{CERTIFICATES}"]
        subprocess.run([*command, name, "sh", "-c", script], check=True)

    mounts = [f"{volume}:/cache", f"{source.absolute()}:/source:ro", f"{lock.parent}:/locks:ro"]
    start = ["docker", "run", "-d", "--name", name, *(f"-v{mount}" for mount in mounts)]
    build = _PACKAGE.format(arch=GPU_ARCH, jobs=os.cpu_count())
    try:
        return {
            "container": seconds(
                lambda: subprocess.run(
                    [*start, base, "sleep", "infinity"], check=True, stdout=subprocess.DEVNULL
                )
            ),
            "compilers": seconds(lambda: inside(_COMPILERS)),
            "venv with torch": seconds(lambda: inside(_ENVIRONMENT.replace("LOCK", lock.name))),
            "package": seconds(lambda: inside(build)),
        }
    finally:
        subprocess.run(["docker", "rm", "-f", name], check=True, stdout=subprocess.DEVNULL)


def our_image(checkout: Checkout, daemon: docker.DockerClient) -> tuple[str, float]:
    """The image, built from its base, and the seconds that it took."""
    toolchain_image(checkout, daemon)
    taken = seconds(lambda: checkout.pants("--cuda-images-rebuild", "package", "stand-in:"))
    return toolchain_image(checkout, daemon), taken


def main() -> None:
    daemon = docker.from_env()
    base = base_image(daemon)
    volume = f"cuda-wheels-benchmark-{uuid.uuid4()}"
    subprocess.run(["docker", "volume", "create", volume], check=True, stdout=subprocess.DEVNULL)
    try:
        theirs = [script_call(base, volume, FIXTURES / "vecadd") for _ in range(2)]
    finally:
        subprocess.run(["docker", "volume", "rm", volume], check=True, stdout=subprocess.DEVNULL)
    with scratch_checkout() as checkout:
        image, built = our_image(checkout, daemon)
        checkout.environment.update({**IN_CONTAINER, **sandboxes(checkout.root.parent)})
        for name in ("first", "second"):
            checkout.add_fixture("vecadd", recipe("vecadd")).rename(checkout.root / FIXTURES / name)
            patch = checkout.root / FIXTURES / name / "patches/0001-comment.patch"
            patch.parent.mkdir(exist_ok=True)
            patch.write_text(comment_patch(name))
        # Pants itself is set up, as it is for the images.
        checkout.pants("list", "images:")
        first = seconds(lambda: package(checkout, address("first")))
        shutil.rmtree(checkout.dist)
        second = seconds(lambda: package(checkout, address("second")))
        again = [seconds(lambda: package(checkout, address("second"))) for _ in range(RUNS)]
        checkout.stop_pantsd()
        size = daemon.images.get(image).attrs["Size"]
        remove_containers(daemon, checkout)
    start = seconds(lambda: subprocess.run(["docker", "run", "--rm", image, "true"], check=True))
    for number, steps in enumerate(theirs, 1):
        print(f"script, package {number}:", ", ".join(f"{k} {v:.1f} s" for k, v in steps.items()))
    print(f"image: {built:.1f} s, {size / 1e9:.2f} GB; a container starts in {start:.1f} s")
    print(f"nothing changed, median of {RUNS}: {sorted(again)[RUNS // 2]:.2f} s")
    report(("first package, image there", first), ("the script's", sum(theirs[0].values())))
    report(("second package", second), ("the script's", sum(theirs[1].values())))


if __name__ == "__main__":
    main()
