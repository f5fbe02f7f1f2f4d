"""A small point network of what is installed: sparse convolution, attention, scatter.

    python network.py model|train|ptv3 '{"native": false, "flash": true}'

runs in the environment of the wheels. `model` compares its output and gradients with the same
network whose attention and scatter are plain torch; `train` takes 20 steps and compares the loss;
`ptv3` runs Pointcept's Point Transformer V3 where Pointcept can be imported. Prints one line of
JSON. One file that imports nothing of this repository, since it is copied to where it runs.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import sys
from typing import Any

MARK = "@@ result "
WIDTH, HEADS, WINDOW, CLASSES, STEPS = 64, 4, 64, 4, 20


def _module(name: str) -> Any:
    """A module, None where it is not installed; one that is there and broken raises."""
    top = name.split(".")[0]
    return importlib.import_module(name) if importlib.util.find_spec(top) else None


class Parts:
    """What the network is built from: packages where they are installed, plain torch elsewhere."""

    def __init__(self, torch: Any, *, native: bool, flash: bool) -> None:
        self.torch = torch
        self.spconv = _module("spconv.pytorch")
        self.scatter = _module("torch_scatter")
        self.flash = _module("flash_attn") if flash else None
        self.native = native

    @property
    def used(self) -> list[str]:
        parts = {"spconv": self.spconv, "flash-attn": self.flash, "torch-scatter": self.scatter}
        return [name for name, module in parts.items() if module is not None]


def build(parts: Parts) -> Any:
    """The network; called with features, sites and the cell of each point."""
    torch = parts.torch
    nn = torch.nn

    class Network(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Linear(6, WIDTH)
            if parts.spconv is not None:
                algorithm = {"algo": parts.spconv.ConvAlgo.Native} if parts.native else {}
                self.convolution = parts.spconv.SubMConv3d(
                    WIDTH, WIDTH, 3, padding=1, bias=False, indice_key="a", **algorithm
                )
            else:
                self.convolution = None
            self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(2)])
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.pooled, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

        def forward(self, features: Any, sites: Any, cell: Any, plain: bool = False) -> Any:
            x = self.stem(features)
            if self.convolution is not None:
                shape = [int(size) + 1 for size in sites[:, 1:].max(dim=0).values]
                sparse = parts.spconv.SparseConvTensor(x, sites, shape, 1)
                x = x + self.convolution(sparse).features
            x = x + self.attention(self.norms[0](x), plain)
            return self.head(x + self.pool(self.pooled(self.norms[1](x)), cell, plain))

        def attention(self, x: Any, plain: bool) -> Any:
            """Among each 64 points that follow each other, in half precision."""
            qkv = self.qkv(x).view(-1, WINDOW, 3, HEADS, WIDTH // HEADS)
            q, k, v = (part.half() for part in qkv.unbind(dim=2))
            if parts.flash is not None and not plain:
                mixed = parts.flash.flash_attn_func(q, k, v)
            else:
                scores = torch.einsum("bihd,bjhd->bhij", q.float(), k.float())
                weights = (scores / math.sqrt(WIDTH // HEADS)).softmax(dim=-1)
                mixed = torch.einsum("bhij,bjhd->bihd", weights, v.float())
            return self.out(mixed.reshape(-1, WIDTH).float())

        def pool(self, x: Any, cell: Any, plain: bool) -> Any:
            """The mean of a point's cell."""
            cells = int(cell.max()) + 1
            if parts.scatter is not None and not plain:
                mean = parts.scatter.scatter_mean(x, cell, dim=0, dim_size=cells)
            else:
                total = x.new_zeros(cells, WIDTH).index_add(0, cell, x)
                mean = total / torch.bincount(cell, minlength=cells).clamp(min=1)[:, None]
            return mean[cell]

    return Network()


def cloud(torch: Any, device: str) -> tuple[Any, Any, Any, Any]:
    """4096 points at sites of their own: features, sites, cells, and a class by position."""
    side = 32
    chosen = torch.randperm(side**3)[:4096].sort().values
    grid = torch.stack([chosen // side**2, chosen // side % side, chosen % side], dim=1)
    sites = torch.cat([torch.zeros(len(grid), 1), grid], dim=1).int()
    features = torch.cat([grid / side - 0.5, torch.randn(len(grid), 3) * 0.1], dim=1)
    _, cell = (grid // 4).unique(dim=0, return_inverse=True)
    target = (grid[:, 0] >= side // 2) * 2 + (grid[:, 1] >= side // 2)
    features, sites, cell, target = (part.to(device) for part in (features, sites, cell, target))
    return features, sites, cell, target


def model(torch: Any, parts: Parts, device: str) -> dict[str, Any]:
    network = build(parts).to(device)
    features, sites, cell, target = cloud(torch, device)

    def run(plain: bool) -> list[Any]:
        network.zero_grad()
        out = network(features, sites, cell, plain)
        torch.nn.functional.cross_entropy(out, target).backward()
        return [out.detach(), *(p.grad.clone() for p in network.parameters())]

    found, expected = run(False), run(True)
    error = max(
        float((f - e).abs().max() / e.abs().max().clamp(min=1e-6)) for f, e in zip(found, expected)
    )
    finite = all(bool(one.isfinite().all()) for one in found)
    # Of the largest value: the attention is computed in half precision.
    return {"error": error if finite else math.nan, "tolerance": 2e-2, "used": parts.used}


def train(torch: Any, parts: Parts, device: str) -> dict[str, Any]:
    network = build(parts).to(device)
    features, sites, cell, target = cloud(torch, device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(features, sites, cell), target)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    fell = sum(losses[-5:]) / sum(losses[:5]) if all(map(math.isfinite, losses)) else math.nan
    return {"error": fell, "tolerance": 0.8, "used": parts.used, "losses": losses}


def ptv3(torch: Any, parts: Parts, device: str) -> dict[str, Any]:
    name = "pointcept.models.point_transformer_v3.point_transformer_v3m1_base"
    transformer = importlib.import_module(name).PointTransformerV3
    network = transformer(in_channels=6, enable_flash=parts.flash is not None).to(device).eval()
    if parts.native:
        for layer in network.modules():
            if hasattr(layer, "algo"):
                layer.algo = parts.spconv.ConvAlgo.Native
    points = torch.rand(20000, 3, device=device) * 4
    features = torch.cat([points, torch.rand_like(points)], dim=1)
    offset = torch.tensor([len(points)], device=device)
    with torch.no_grad():
        out = network({"coord": points, "feat": features, "grid_size": 0.02, "offset": offset})
    # Nothing to compare with: every value must be a number.
    bad = int((~out.feat.isfinite()).sum())
    return {"error": float(bad), "tolerance": 0.0, "used": parts.used}


def main() -> int:
    what, options = sys.argv[1], json.loads(sys.argv[2])
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parts = Parts(torch, **options)
    run = {"model": model, "train": train, "ptv3": ptv3}[what]
    print(MARK + json.dumps(run(torch, parts, device)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
