"""`./pants package` with nothing changed and pantsd there, against its first run."""

from __future__ import annotations

from benchmarks.comparison import package, report, scratch_checkout, seconds
from integration.recipes import address, recipe

RUNS = 5


def main() -> None:
    with scratch_checkout() as checkout:
        checkout.add_fixture("vecadd", recipe("vecadd"))
        target = address("vecadd")
        first = seconds(lambda: package(checkout, target))
        again = [seconds(lambda: package(checkout, target)) for _ in range(RUNS)]
    print("each:", ", ".join(f"{value:.2f} s" for value in again))
    report((f"nothing changed, median of {RUNS}", sorted(again)[RUNS // 2]), ("first run", first))


if __name__ == "__main__":
    main()
