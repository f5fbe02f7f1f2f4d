#!/usr/bin/env python3
"""Runs finished wheels on a GPU and compares what they compute with plain torch.

    python3 gpu_check.py WHEELS_DIRECTORY [--json results.json]

Needs Python with the torch that the wheels were built for (and scipy for torch-sparse), and no
network. The wheels go into a directory of their own, without their dependencies. Each check has its
own process: a kernel that ends its process counts against one check alone. Exit code 1 if a check
failed or none ran.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TIMEOUT_S = 300
MARK = "@@ result "


@dataclass(frozen=True)
class Outcome:
    """What a check measured: the largest error and the largest that is accepted."""

    error: float
    tolerance: float


@dataclass(frozen=True)
class Result:
    """One line of the table."""

    package: str
    check: str
    verdict: str  # "runs", "FAILED" or "not installed"
    error: float | None = None
    tolerance: float | None = None
    version: str | None = None
    reason: str | None = None


def _largest(*differences: Any) -> float:
    values = [float(difference.abs().max()) for difference in differences]
    # max() would lose a NaN that does not come first.
    return math.nan if any(map(math.isnan, values)) else max(values)


def _worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome that is nearest to its tolerance, or furthest beyond; a NaN is the worst."""

    def share(outcome: Outcome) -> float:
        if math.isnan(outcome.error) or (outcome.error and not outcome.tolerance):
            return math.inf
        return outcome.error / outcome.tolerance if outcome.error else 0.0

    return max(outcomes, key=share)


# ------------------------------------------------------------------------------------------------
# The checks. Each computes on the GPU with the package, and again with plain torch in float64.
# ------------------------------------------------------------------------------------------------


def scatter_max(torch: Any, torch_scatter: Any) -> Outcome:
    groups, rows, width = 1000, 20000, 16
    source = torch.randn(rows, width, device="cuda")
    # Every group has a member: an empty one is 0 there and -inf in the reference.
    random = torch.randint(groups, (rows - groups,), device="cuda")
    index = torch.cat([torch.arange(groups, device="cuda"), random])
    out, where = torch_scatter.scatter_max(source, index, dim=0, dim_size=groups)
    expected = torch.full((groups, width), -math.inf, device="cuda").scatter_reduce(
        0, index[:, None].expand(-1, width), source, "amax"
    )
    return Outcome(_largest(out - expected, source.gather(0, where) - expected), 0.0)


def segment_csr(torch: Any, torch_scatter: Any) -> Outcome:
    segments, rows, width = 1000, 20000, 16
    inner = torch.randint(rows, (segments - 1,), device="cuda").sort().values
    ends = [torch.tensor([0], device="cuda"), inner, torch.tensor([rows], device="cuda")]
    indptr = torch.cat(ends)
    source = torch.randn(rows, width, device="cuda", requires_grad=True)
    weight = torch.randn(segments, width, device="cuda")
    out = torch_scatter.segment_csr(source, indptr, reduce="sum")
    (gradient,) = torch.autograd.grad((out * weight).sum(), source)
    segment = torch.repeat_interleave(torch.arange(segments, device="cuda"), indptr.diff())
    expected = torch.zeros(segments, width, dtype=torch.float64, device="cuda")
    expected.index_add_(0, segment, source.detach().double())
    # Sums of up to some hundred numbers in float32.
    return Outcome(_largest(out - expected, gradient - weight[segment]), 1e-4)


def knn(torch: Any, torch_cluster: Any) -> Outcome:
    count = 8
    points = torch.rand(4000, 3, device="cuda")
    queries = torch.rand(500, 3, device="cuda")
    points_batch = torch.arange(4000, device="cuda") // 2000
    queries_batch = torch.arange(500, device="cuda") // 250
    query, point = torch_cluster.knn(points, queries, count, points_batch, queries_batch)
    found = (queries[query].double() - points[point].double()).norm(dim=1).view(500, count)
    distances = torch.cdist(queries.double(), points.double())
    distances[queries_batch[:, None] != points_batch[None, :]] = math.inf
    expected = distances.topk(count, largest=False).values.sort(dim=1).values
    return Outcome(_largest(found.sort(dim=1).values - expected), 1e-6)


def fps(torch: Any, torch_cluster: Any) -> Outcome:

    # In float64 two candidates are never so near that rounding decides.
    points = torch.rand(2000, 3, device="cuda", dtype=torch.float64)
    batch = torch.arange(2000, device="cuda") // 1000
    found = torch_cluster.fps(points, batch, ratio=0.1, random_start=False).cpu()
    expected = []
    for first in (0, 1000):
        part = points[first : first + 1000].cpu()
        chosen = [0]
        distance = (part - part[0]).square().sum(dim=1)
        while len(chosen) < 100:
            chosen.append(int(distance.argmax()))
            distance = distance.minimum((part - part[chosen[-1]]).square().sum(dim=1))
        expected += [first + number for number in chosen]
    if len(found) != len(expected):
        raise AssertionError(f"{len(found)} points were chosen instead of {len(expected)}")
    return Outcome(float((found != torch.tensor(expected)).sum()), 0.0)


def _sparse(torch: Any) -> tuple[Any, Any, Any, int, int]:
    """A random sparse matrix with entries that occur twice, and the same as a dense one."""
    rows, columns, entries = 300, 200, 6000
    row = torch.randint(rows, (entries,), device="cuda")
    column = torch.randint(columns, (entries,), device="cuda")
    index, value = torch.stack([row, column]), torch.randn(entries, device="cuda")
    dense = torch.zeros(rows, columns, dtype=torch.float64, device="cuda")
    dense.index_put_((row, column), value.double(), accumulate=True)
    return index, value, dense, rows, columns


def coalesce(torch: Any, torch_sparse: Any) -> Outcome:
    index, value, dense, rows, columns = _sparse(torch)
    index, value = torch_sparse.coalesce(index, value, rows, columns, op="add")
    order = index[0] * columns + index[1]
    if not bool((order.diff() > 0).all()):
        raise AssertionError("the entries are not sorted, or one occurs twice")
    found = torch.zeros_like(dense)
    found[index[0], index[1]] = value.double()
    return Outcome(_largest(found - dense), 1e-5)


def spmm(torch: Any, torch_sparse: Any) -> Outcome:
    index, value, dense, rows, columns = _sparse(torch)
    index, value = torch_sparse.coalesce(index, value, rows, columns, op="add")
    matrix = torch.randn(columns, 32, device="cuda", requires_grad=True)
    expected = dense @ matrix.detach().double()
    by_scatter = torch_sparse.spmm(index, value, rows, columns, matrix)
    # This one is the package's own CUDA kernel.
    shape = (rows, columns)
    sparse = torch_sparse.SparseTensor(row=index[0], col=index[1], value=value, sparse_sizes=shape)
    by_kernel = torch_sparse.matmul(sparse, matrix, reduce="sum")
    weight = torch.randn_like(by_kernel)
    (gradient,) = torch.autograd.grad((by_kernel * weight).sum(), matrix)
    differences = (
        by_scatter - expected,
        by_kernel - expected,
        gradient - dense.T @ weight.double(),
    )
    return Outcome(_largest(*differences), 1e-4)


def vecadd_add(torch: Any, vecadd: Any) -> Outcome:
    a, b = torch.randn(2, 1_000_003, device="cuda")
    return Outcome(_largest(vecadd.add(a, b) - (a + b), vecadd.scale(a, 2.5) - a * 2.5), 0.0)


def _attention(torch: Any, q: Any, k: Any, v: Any, *, causal: bool) -> Any:
    """Attention in plain torch, in the precision of its arguments; (batch, length, head, width)."""
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(q.shape[-1])
    if causal:
        hidden = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device="cuda").triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    return torch.einsum("bhij,bjhd->bihd", scores.softmax(dim=-1), v)


def flash_attention(torch: Any, flash_attn: Any) -> Outcome:
    outcomes = []
    for dtype, width, causal in (
        (torch.float16, 64, False),
        (torch.bfloat16, 64, True),
        (torch.bfloat16, 128, False),
        (torch.float16, 128, True),
    ):
        inputs = [
            torch.randn(2, 512, 4, width, device="cuda", dtype=dtype).requires_grad_()
            for _ in range(3)
        ]
        exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
        weight = torch.randn(2, 512, 4, width, device="cuda", dtype=dtype)

        def values(out: Any, of: list[Any], by: Any) -> list[Any]:
            return [out.detach(), *torch.autograd.grad((out * by).sum(), of)]

        found = values(flash_attn.flash_attn_func(*inputs, causal=causal), inputs, weight)
        plain = values(_attention(torch, *inputs, causal=causal), inputs, weight)
        expected = values(_attention(torch, *exact, causal=causal), exact, weight.double())
        # As in upstream's tests: some times the error of plain attention of this precision, for
        # the output and the three gradients.
        for times, f, p, e in zip((2, 3, 3, 3), found, plain, expected, strict=True):
            outcomes.append(Outcome(_largest(f - e), times * _largest(p - e)))
    return _worst(outcomes)


def _sparse_convolution(torch: Any, layer: str, algorithm: str) -> Outcome:
    """A convolution of spconv, its output, gradients and sites, against a dense one in float64."""
    spconv = importlib.import_module("spconv.pytorch")
    shape, batch, channels, out_channels = (20, 16, 24), 2, 32, 64
    stride = 2 if layer == "SparseConv3d" else 1
    occupied = torch.rand(batch, *shape, device="cuda") < 0.15
    # nonzero() gives a transposed view, and spconv reads memory as if it were contiguous.
    sites = occupied.nonzero().int().contiguous()
    outcomes = []
    # Of the largest value: rounding to half precision and to float32, which spconv keeps from TF32.
    for dtype, accepted in ((torch.float16, 1e-2), (torch.float32, 1e-5)):
        convolution = getattr(spconv, layer)(
            channels,
            out_channels,
            3,
            stride=stride,
            padding=1,
            bias=False,
            algo=getattr(spconv.ConvAlgo, algorithm),
        )
        convolution = convolution.cuda().to(dtype)
        features = torch.randn(len(sites), channels, device="cuda", dtype=dtype).requires_grad_()
        found = convolution(spconv.SparseConvTensor(features, sites, shape, batch))
        weight = torch.randn_like(found.features)
        inputs = [features, convolution.weight]
        values = [found.features, *torch.autograd.grad((found.features * weight).sum(), inputs)]

        exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
        where = tuple(sites.long().T)
        volume = torch.zeros(batch, *shape, channels, dtype=torch.float64, device="cuda")
        volume = volume.index_put(where, exact[0]).permute(0, 4, 1, 2, 3)
        # spconv keeps its weights as (out, z, y, x, in).
        kernel = exact[1].permute(0, 4, 1, 2, 3)
        dense = torch.nn.functional.conv3d(volume, kernel, stride=stride, padding=1)
        reached = torch.nn.functional.max_pool3d(occupied.double(), 3, stride=stride, padding=1)
        reached = (occupied if stride == 1 else reached.bool()).nonzero()
        out_sites = found.indices.long()
        if sorted(map(tuple, out_sites.tolist())) != sorted(map(tuple, reached.tolist())):
            raise AssertionError(f"{len(out_sites)} output sites instead of {len(reached)}")
        b, z, y, x = out_sites.T
        out = dense.permute(0, 2, 3, 4, 1)[b, z, y, x]
        expected = [out, *torch.autograd.grad((out * weight.double()).sum(), exact)]
        for f, e in zip(values, expected, strict=True):
            outcomes.append(Outcome(_largest(f - e), accepted * float(e.abs().max())))
    return _worst(outcomes)


def _convolution_check(layer: str, algorithm: str) -> Callable[[Any, Any], Outcome]:
    return lambda torch, spconv: _sparse_convolution(torch, layer, algorithm)


# (import name, check)
CHECKS: dict[str, tuple[str, Callable[[Any, Any], Outcome]]] = {
    "scatter_max": ("torch_scatter", scatter_max),
    "segment_csr, with gradient": ("torch_scatter", segment_csr),
    "knn": ("torch_cluster", knn),
    "fps": ("torch_cluster", fps),
    "coalesce": ("torch_sparse", coalesce),
    "spmm, with gradient": ("torch_sparse", spmm),
    "add and scale": ("vecadd", vecadd_add),
    "attention, forward and backward": ("flash_attn", flash_attention),
    **{
        f"{layer}, {algorithm}": ("spconv", _convolution_check(layer, algorithm))
        for layer in ("SubMConv3d", "SparseConv3d")
        for algorithm in ("Native", "MaskImplicitGemm", "MaskSplitImplicitGemm")
    },
}


# ------------------------------------------------------------------------------------------------
# Running them
# ------------------------------------------------------------------------------------------------


def install(wheels: list[Path], target: Path) -> str:
    """Put the wheels into `target`; what did it is returned."""
    if importlib.util.find_spec("pip") is None:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as package:
                package.extractall(target)
        return "unzipped: this Python has no pip"
    options = ["--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check", "--quiet"]
    argv = [sys.executable, "-m", "pip", "install", *options, "--target", str(target)]
    done = subprocess.run([*argv, *map(str, wheels)], check=False)
    if done.returncode:
        raise SystemExit("pip could not install the wheels: see its message above.")
    return "pip install --no-deps --target"


def verdict(package: str, check: str, returncode: int, output: str) -> Result:
    """Read what a check's process printed and how it ended."""
    marked = [line for line in output.splitlines() if line.startswith(MARK)]
    if returncode == 0 and marked:
        outcome = Outcome(**json.loads(marked[-1][len(MARK) :]))
        # A comparison that is false for NaN too.
        right = outcome.error <= outcome.tolerance
        reason = None if right else "the results differ"
        name = "runs" if right else "FAILED"
        return Result(package, check, name, outcome.error, outcome.tolerance, reason=reason)
    lines = output.strip().splitlines()
    how = f"signal {-returncode}" if returncode < 0 else f"exit {returncode}"
    return Result(package, check, "FAILED", reason=f"{how}: {lines[-1] if lines else 'no output'}")


def run_check(check: str, environment: dict[str, str]) -> Result:
    """Run one check in its own process."""
    package = CHECKS[check][0]
    argv = [sys.executable, os.path.abspath(__file__), "--check", check]
    try:
        done = subprocess.run(
            argv,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Result(package, check, "FAILED", reason=f"no result after {TIMEOUT_S} s")
    return verdict(package, check, done.returncode, done.stdout)


def device_facts() -> dict[str, Any]:
    """The GPU, its driver and the torch that sees it."""
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here: nothing can be checked.")
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split("\n")[0]
    return {
        "device": torch.cuda.get_device_name(),
        "capability": "{}.{}".format(*torch.cuda.get_device_capability()),
        "driver": driver,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
    }


def table(facts: dict[str, Any], results: list[Result]) -> str:
    """The results as a Markdown table under a line about the machine."""
    lines = [
        "{device}, compute capability {capability}, driver {driver}; torch {torch}, "
        "Python {python}".format(**facts),
        "",
        "| package | version | check | largest error | accepted | result |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for result in results:
        numbers = [
            "" if number is None else f"{number:.3g}" for number in (result.error, result.tolerance)
        ]
        words = result.verdict + (f": {result.reason}" if result.reason else "")
        cells = [result.package, result.version or "", result.check, *numbers, words]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Install, check, report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("wheels", nargs="?", type=Path, help="a directory with the wheels")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--check", choices=sorted(CHECKS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.check:
        package, compute = CHECKS[arguments.check]
        torch = importlib.import_module("torch")
        torch.manual_seed(0)
        print(MARK + json.dumps(asdict(compute(torch, importlib.import_module(package)))))
        return 0
    if arguments.wheels is None:
        parser.error("give the directory with the wheels")
    wheels = sorted(arguments.wheels.glob("*.whl"))
    if not wheels:
        parser.error(f"there is no wheel in {arguments.wheels}")
    facts = device_facts()
    with tempfile.TemporaryDirectory() as target:
        facts["installed by"] = install(wheels, Path(target))
        versions = {
            found.metadata["Name"].replace("-", "_"): found.version
            for found in importlib.metadata.distributions(path=[target])
        }
        environment = {**os.environ, "PYTHONPATH": target}
        results = []
        for check, (package, _) in CHECKS.items():
            if package not in versions:
                results.append(Result(package, check, "not installed"))
                continue
            found = run_check(check, environment)
            results.append(Result(**{**asdict(found), "version": versions[package]}))
            print(f"{package}: {check}: {found.verdict}", file=sys.stderr, flush=True)
    document = {
        **facts,
        "wheels": {w.name: hashlib.sha256(w.read_bytes()).hexdigest() for w in wheels},
        "results": [asdict(result) for result in results],
    }
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")
    print(json.dumps(document, indent=2))
    print()
    print(table(facts, results))
    verdicts = {result.verdict for result in results}
    return 0 if "runs" in verdicts and "FAILED" not in verdicts else 1


if __name__ == "__main__":
    sys.exit(main())
