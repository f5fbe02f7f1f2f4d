"""`./pants cuda-matrix` over every row of twelve packages, against `./pants list` of them."""

from __future__ import annotations

import shutil
import sys

from benchmarks.comparison import report, scratch_checkout, seconds
from integration.checkout import Checkout, Run

PACKAGES = 12
RUNS = 5


def answer(checkout: Checkout, goal: str) -> Run:
    run = checkout.pants(goal, "packages::")
    if run.returncode:
        sys.exit(run.output)
    return run


def median(checkout: Checkout, goal: str) -> float:
    answer(checkout, goal)
    each = sorted(seconds(lambda: answer(checkout, goal)) for _ in range(RUNS))
    print(f"{goal}:", ", ".join(f"{value:.2f} s" for value in each))
    return each[RUNS // 2]


def main() -> None:
    with scratch_checkout() as checkout:
        # Packages of its own: the same figure whatever recipes there are.
        shutil.rmtree(checkout.root / "packages")
        for number in range(PACKAGES):
            package = f"package{number}"
            checkout.write(f"packages/{package}/setup.py", "")
            checkout.write(
                f"packages/{package}/BUILD",
                f'native_package("{package}", "1.0", source=files_source("."), sources=["setup.py"])',
            )
        listed = answer(checkout, "list").stdout.split()
        wheels = sum(word.startswith("packages/") and not word.endswith(":src") for word in listed)
        ours, other = median(checkout, "cuda-matrix"), median(checkout, "list")
    print(f"{wheels} wheels")
    report(("cuda-matrix, median", ours), ("list, median", other))


if __name__ == "__main__":
    main()
