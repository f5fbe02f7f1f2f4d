"""A changed vecadd with its environment there, against `pip wheel` of the same tree."""

from __future__ import annotations

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
from integration.recipes import address, recipe

CHANGED = "csrc/vecadd.cpp"


def main() -> None:
    with scratch_checkout() as checkout:
        tree = checkout.add_fixture("vecadd", recipe("vecadd"))
        target = address("vecadd")
        package(checkout, target)
        env = build_environment(named_cache(checkout))
        out = checkout.root / "bare"
        out.mkdir()
        other = seconds(lambda: bare_pip_wheel(env, tree, out, {}))
        with (tree / CHANGED).open("a") as source:
            source.write("\nint cuda_wheels_benchmark() { return 0; }\n")
        without_objects(checkout)
        ours = seconds(lambda: package(checkout, target))
        with (tree / CHANGED).open("a") as source:
            source.write("\nint cuda_wheels_benchmark_2() { return 0; }\n")
        cached = seconds(lambda: package(checkout, target))
    print(f"vecadd, {ROW}")
    report(("./pants package, no objects there", ours), ("pip wheel", other))
    report(("./pants package, unchanged objects there", cached), ("pip wheel", other))


if __name__ == "__main__":
    main()
