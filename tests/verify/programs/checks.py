"""Checks of packages on a GPU: what each computes, compared with plain torch.

    python checks.py CHECK

runs in the environment of the wheels, one process a check, so that a kernel that ends its process
counts against one check alone. Prints one line with the largest error and the largest that is
accepted. One file that imports nothing of this repository, since it is copied to where it runs.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

MARK = "@@ result "


@dataclass(frozen=True)
class Outcome:
    """What a check measured: the largest error and the largest that is accepted."""

    error: float
    tolerance: float


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
        for times, f, p, e in zip((2, 3, 3, 3), found, plain, expected):
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
        for f, e in zip(values, expected):
            outcomes.append(Outcome(_largest(f - e), accepted * float(e.abs().max())))
    return _worst(outcomes)


def _convolution_check(layer: str, algorithm: str) -> Callable[[Any, Any], Outcome]:
    return lambda torch, spconv: _sparse_convolution(torch, layer, algorithm)


def _neighbours(
    torch: Any, points: Any, queries: Any, count: int, ends: Any, query_ends: Any
) -> Any:
    """The distances to the nearest points of the same cloud, ascending, in float64."""
    number = torch.arange(len(points), device="cuda")
    query_number = torch.arange(len(queries), device="cuda")
    cloud = torch.bucketize(number, ends.long(), right=True)
    query_cloud = torch.bucketize(query_number, query_ends.long(), right=True)
    distances = torch.cdist(queries.double(), points.double())
    distances[query_cloud[:, None] != cloud[None, :]] = math.inf
    return distances.topk(count, largest=False).values.sort(dim=1).values


def _knn_clouds(torch: Any) -> tuple[Any, Any, Any, Any]:
    """Points and queries of two clouds each, and where each cloud ends."""
    points, queries = torch.rand(3000, 3, device="cuda"), torch.rand(500, 3, device="cuda")
    ends = torch.tensor([1800, 3000], dtype=torch.int32, device="cuda")
    query_ends = torch.tensor([300, 500], dtype=torch.int32, device="cuda")
    return points, queries, ends, query_ends


def _knn_outcome(torch: Any, clouds: Any, index: Any, distance: Any) -> Outcome:
    points, queries, ends, query_ends = clouds
    expected = _neighbours(torch, points, queries, index.shape[1], ends, query_ends)
    measured = (points[index.long()].double() - queries[:, None].double()).norm(dim=2)
    told, found = distance.double().sort(dim=1).values, measured.sort(dim=1).values
    return Outcome(_largest(found - expected, told - expected), 1e-5)


def pointops_knn(torch: Any, pointops: Any) -> Outcome:
    clouds = points, queries, ends, query_ends = _knn_clouds(torch)
    index, distance = pointops.knn_query(8, points, ends, queries, query_ends)
    return _knn_outcome(torch, clouds, index, distance)


def pointops2_knn(torch: Any, pointops2: Any) -> Outcome:
    clouds = points, queries, ends, query_ends = _knn_clouds(torch)
    index, distance = pointops2.knnquery(8, points, queries, ends, query_ends)
    return _knn_outcome(torch, clouds, index, distance)


def swin3d_knn(torch: Any, knn_module: Any) -> Outcome:
    clouds = points, queries, ends, query_ends = _knn_clouds(torch)
    index, distance = knn_module.KNN.apply(8, points, queries, ends, query_ends)
    return _knn_outcome(torch, clouds, index, distance)


def farthest_point_sampling(torch: Any, pointops: Any) -> Outcome:
    points = torch.rand(2000, 3, device="cuda")
    ends = torch.tensor([1200, 2000], dtype=torch.int32, device="cuda")
    new_ends = torch.tensor([100, 160], dtype=torch.int32, device="cuda")
    found = pointops.farthest_point_sampling(points, ends, new_ends).long().cpu()
    points = points.double().cpu()
    short = 0.0
    for (first, last), (begin, end) in (((0, 1200), (0, 100)), ((1200, 2000), (100, 160))):
        chosen = found[begin:end]
        if not bool(((chosen >= first) & (chosen < last)).all()):
            raise AssertionError("a point of another cloud was chosen")
        distance = (points[first:last] - points[chosen[0]]).norm(dim=1)
        for number in chosen[1:]:
            # Where two are as far in float32, either is right.
            short = max(short, float(distance.max() - distance[number - first]))
            distance = distance.minimum((points[first:last] - points[number]).norm(dim=1))
    return Outcome(short, 1e-5)


def ball_query(torch: Any, pointgroup_ops: Any) -> Outcome:
    radius, counts = 0.1, (1200, 800)
    points = torch.rand(sum(counts), 3, device="cuda")
    batch = torch.repeat_interleave(
        torch.arange(2, device="cuda"), torch.tensor(counts, device="cuda")
    ).int()
    offsets = torch.tensor([0, counts[0], sum(counts)], dtype=torch.int32, device="cuda")
    index, start_len = pointgroup_ops.ballquery_batch_p(points, batch, offsets, radius, 32)
    starts, lengths = start_len.long().T
    found = torch.zeros(len(points), len(points), dtype=torch.bool, device="cuda")
    row = torch.repeat_interleave(torch.arange(len(points), device="cuda"), lengths)
    within = torch.arange(len(row), device="cuda")
    within = within - torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths)
    found[row, index.long()[starts[row] + within]] = True
    if int(found.sum()) != len(row):
        raise AssertionError("a neighbour occurs twice")
    distances = torch.cdist(points.double(), points.double())
    distances[batch[:, None] != batch[None, :]] = math.inf
    # On the very edge of the ball rounding decides.
    sure = (distances - radius).abs() > 1e-6
    return Outcome(float(((found != (distances < radius)) & sure).sum()), 0.0)


def rope(torch: Any, pointrope: Any) -> Outcome:
    batch, points, heads, width, base = 2, 500, 4, 48, 100.0
    tokens = torch.randn(batch, points, heads, width, device="cuda")
    positions = torch.randint(0, 64, (batch, points, 3), device="cuda")
    found = tokens.clone()
    pointrope.pointrope(found, positions, base, 1.0)
    # For each of x, y and z the channels are pairs (u, v), rotated by position times frequency.
    quarter = width // 6
    exponents = torch.arange(quarter, device="cuda", dtype=torch.float64) / quarter
    angle = positions.double()[..., None] / base**exponents
    u, v = tokens.double().view(batch, points, heads, 3, 2, quarter).unbind(dim=4)
    cos, sin = angle.cos()[:, :, None], angle.sin()[:, :, None]
    expected = torch.stack([u * cos - v * sin, v * cos + u * sin], dim=4)
    # The angle itself is a float32 of up to 64.
    return Outcome(_largest(found - expected.reshape(found.shape)), 1e-4)


def segment_mesh(torch: Any, pointseg: Any) -> Outcome:
    """Three flat sheets that do not touch are three segments, on the CPU."""
    side, sheets = 12, 3
    x, y = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    flat = torch.stack([x, y], dim=2).reshape(-1, 2).float()
    vertices = [torch.cat([flat, torch.full((len(flat), 1), 5.0 * z)], 1) for z in range(sheets)]
    corner = (torch.arange(side - 1)[:, None] * side + torch.arange(side - 1)).reshape(-1)
    lower = torch.stack([corner, corner + side, corner + 1], 1)
    upper = torch.stack([corner + 1, corner + side, corner + side + 1], 1)
    faces = torch.cat([torch.cat([lower, upper]) + z * side**2 for z in range(sheets)])
    found = pointseg.segment_mesh(torch.cat(vertices).contiguous(), faces.contiguous())
    expected = torch.arange(sheets).repeat_interleave(side**2)
    return Outcome(_unequal_partitions(torch, found.view(-1), expected), 0.0)


def voxel_grid(torch: Any, nn: Any) -> Outcome:
    # In the middle of a voxel, far from where rounding decides.
    voxel = torch.randint(0, 8, (5000, 3), device="cuda")
    batch = torch.arange(5000, device="cuda") // 2500
    position = voxel + 0.5 + (torch.rand(5000, 3, device="cuda") - 0.5) * 0.8
    found = nn.voxel_grid(position, size=1.0, batch=batch, start=0.0, end=8.0)
    expected = ((batch * 8 + voxel[:, 0]) * 8 + voxel[:, 1]) * 8 + voxel[:, 2]
    return Outcome(_unequal_partitions(torch, found, expected), 0.0)


def _unequal_partitions(torch: Any, found: Any, expected: Any) -> float:
    """How many pairs of labels too many there are: 0 if both put the same things together."""
    if found.shape != expected.shape:
        raise AssertionError(f"{tuple(found.shape)} labels instead of {tuple(expected.shape)}")
    pairs = torch.stack([found.long(), expected.long()]).unique(dim=1).shape[1]
    return float(2 * pairs - len(found.unique()) - len(expected.unique()))


def round_trip(torch: Any, tensorview: Any) -> Outcome:
    """To the GPU and back through cumm's own allocations and copies."""
    worst = 0.0
    for dtype in (torch.float32, torch.float16, torch.int32):
        host = (torch.randn(1000, 37) * 1000).to(dtype)
        back = tensorview.from_numpy(host.numpy()).cuda().cpu().numpy()
        worst = max(worst, _largest(torch.from_numpy(back.copy()).double() - host.double()))
    return Outcome(worst, 0.0)


@dataclass(frozen=True)
class Check:
    """`package` is the distribution, `module` what is imported of it."""

    package: str
    module: str
    compute: Callable[[Any, Any], Outcome]
    on_cpu: bool = False


CHECKS: dict[str, Check] = {
    "tensor round trip": Check("cumm", "cumm.tensorview", round_trip),
    **{
        f"{layer}, {algorithm}": Check("spconv", "spconv", _convolution_check(layer, algorithm))
        for layer in ("SubMConv3d", "SparseConv3d")
        for algorithm in ("Native", "MaskImplicitGemm", "MaskSplitImplicitGemm")
    },
    "scatter_max": Check("torch-scatter", "torch_scatter", scatter_max),
    "segment_csr, with gradient": Check("torch-scatter", "torch_scatter", segment_csr),
    "coalesce": Check("torch-sparse", "torch_sparse", coalesce),
    "spmm, with gradient": Check("torch-sparse", "torch_sparse", spmm),
    "knn": Check("torch-cluster", "torch_cluster", knn),
    "fps": Check("torch-cluster", "torch_cluster", fps),
    "voxel_grid": Check("torch-geometric", "torch_geometric.nn", voxel_grid),
    "attention, forward and backward": Check("flash-attn", "flash_attn", flash_attention),
    "KNN": Check("swin3d", "Swin3D.sparse_dl.knn", swin3d_knn),
    "knn_query": Check("pointops", "pointops", pointops_knn),
    "farthest_point_sampling": Check("pointops", "pointops", farthest_point_sampling),
    "knnquery": Check("pointops2", "pointops2.pointops", pointops2_knn),
    "ballquery_batch_p": Check("pointgroup-ops", "pointgroup_ops", ball_query),
    "segment_mesh": Check("pointseg", "pointseg", segment_mesh, on_cpu=True),
    "pointrope": Check("pointrope", "pointrope", rope),
    "add and scale": Check("vecadd", "vecadd", vecadd_add),
}


def main() -> int:
    check = CHECKS[sys.argv[1]]
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    print(MARK + json.dumps(asdict(check.compute(torch, importlib.import_module(check.module)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
