"""torch-scatter after one changed `.cu`, against the same from no objects."""

from __future__ import annotations

from benchmarks.comparison import (
    ROW,
    build_environment,
    named_cache,
    package,
    report,
    scratch_checkout,
    seconds,
)

TARGET = f"packages/torch-scatter:{ROW}"
PATCH = """\
Reason: a benchmark of what one changed file costs.
--- a/csrc/cuda/segment_csr_cuda.cu
+++ b/csrc/cuda/segment_csr_cuda.cu
@@ -9,4 +9,5 @@
 #include "utils.cuh"
 
 #define THREADS 256
+int cuda_wheels_benchmark() { return 0; }
 #define BLOCKS(TB, N) (TB * N + THREADS - 1) / THREADS
"""


def main() -> None:
    with scratch_checkout() as checkout:
        build_environment(named_cache(checkout))
        whole = seconds(lambda: package(checkout, TARGET))
        checkout.write("packages/torch-scatter/patches/0001-benchmark.patch", PATCH)
        changed = seconds(lambda: package(checkout, TARGET))
    report(("one changed .cu", changed), ("from no objects", whole))


if __name__ == "__main__":
    main()
