"""torch-scatter with its environment there and no objects, against upstream's own `pip wheel`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from benchmarks.comparison import (
    ROW,
    bare_pip_wheel,
    build_environment,
    named_cache,
    package,
    report,
    scratch_checkout,
    seconds,
    without_objects,
)

TARGET = f"packages/torch-scatter:{ROW}"


def main(upstream: Path) -> None:
    with scratch_checkout() as checkout:
        env = build_environment(named_cache(checkout))
        tree, out = checkout.root / "upstream", checkout.root / "bare"
        shutil.copytree(upstream, tree)
        out.mkdir()
        other = seconds(lambda: bare_pip_wheel(env, tree, out, {"FORCE_CUDA": "1"}))
        without_objects(checkout)
        ours = seconds(lambda: package(checkout, TARGET))
    report(("./pants package", ours), ("pip wheel", other))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Name the folder of torch-scatter 2.1.2's unpacked sdist.")
    main(Path(sys.argv[1]))
