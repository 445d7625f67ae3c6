"""What ImageNet -> Caltech needs, from unit costs measured here: the numbers of docs/scaling.md.

    python benchmarks/scaling.py                                             # unit costs, plans up to 160,000 sources
    python benchmarks/scaling.py --sizes 2500 10000 20000 40000 --draws 3    # several samples of the source
    python benchmarks/scaling.py --sizes 320000 1281167                      # the prediction put to the test
    python benchmarks/scaling.py --tables                                    # into docs/scaling.md

Every job runs alone in a process of one thread; finished ones are kept in results/scaling.jsonl, so an interrupted
bench can be continued. Times are CPU seconds (`time.process_time`), with wall seconds next to them.

The points are drawn: 1000 Gaussian classes in 256 dimensions, 84 of them in the target, with the moments of Office-Home
Product (source) and RealWorld (target) features, rows scaled to length 1 and projected onto 256 principal axes:
covariance of class means, of samples within classes, and of the shift of a class between the domains. A source of n
samples is n of the same 1,281,167.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _domains import data_folder
from _jobs import ROOT, read, run_all
from _rows import peak_bytes
from numpy.typing import NDArray

RESULTS = ROOT / "benchmarks" / "results" / "scaling.jsonl"
WHOLE, TARGETS, CLASSES, SHARED, WIDTH = 1_281_167, 9_257, 1000, 84, 256
BETA, MASS = SHARED / CLASSES, 0.8
SIZES = (20_000, 40_000, 80_000, 160_000)
"""The law of growth is fitted to these."""
CHUNK = 2_500
"""Source samples drawn from one seed."""
GIB = 2**30
Floats = NDArray[np.float64]


# --- the points -----------------------------------------------------------------------------------------------
class Moments(NamedTuple):
    """Class centres of both domains, and square roots of the covariances within classes."""

    source: Floats
    target: Floats
    source_root: Floats
    target_root: Floats


def moments(folder: Path) -> Moments:
    """Draw the classes, as spread and as shifted as those of Office-Home."""
    domains = []
    for name in ("Product", "RealWorld"):
        with np.load(folder / "office_home" / f"{name}.npz") as stored:
            x, y = stored["X"].astype(np.float64), stored["y"].astype(int)
        domains.append((x / np.linalg.norm(x, axis=1, keepdims=True), y))
    both = np.vstack([x for x, _ in domains])
    axes = np.linalg.eigh(np.cov(both.T))[1][:, ::-1][:, :WIDTH]
    projected = [((x - both.mean(axis=0)) @ axes, y) for x, y in domains]
    means = [np.stack([x[y == k].mean(axis=0) for k in range(y.max() + 1)]) for x, y in projected]
    roots = [_root(x - mean[y]) for (x, y), mean in zip(projected, means, strict=True)]
    rng, shift = np.random.default_rng(0), means[1] - means[0]
    source = means[0].mean(axis=0) + rng.normal(size=(CLASSES, WIDTH)) @ _root(means[0]).T
    target = source[:SHARED] + shift.mean(axis=0) + rng.normal(size=(SHARED, WIDTH)) @ _root(shift).T
    return Moments(source, target, *roots)


def _root(x: Floats) -> Floats:
    covariance = np.cov(x.T)  # of fewer classes than dimensions: singular
    jitter = 1e-9 * np.trace(covariance) / len(covariance)
    found: Floats = np.linalg.cholesky(covariance + jitter * np.eye(len(covariance)))
    return found


def points(folder: Path, n: int, draw: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]:
    """Return n of the source samples, their classes, and the target. Other draws of the same size share no sample."""
    facts = moments(folder)
    centres, root = facts.source.astype(np.float32), facts.source_root.T.astype(np.float32)
    xs, ys = np.empty((n, WIDTH), np.float32), np.empty(n, np.int64)
    for start in range(0, n, CHUNK):
        rng, rows = np.random.default_rng([1, (draw * n + start) // CHUNK]), slice(start, start + CHUNK)
        ys[rows] = rng.integers(CLASSES, size=CHUNK)[: n - start]
        xs[rows] = (rng.standard_normal((CHUNK, WIDTH), np.float32) @ root)[: n - start]
        xs[rows] += centres[ys[rows]]
    rng = np.random.default_rng(2)
    yt = rng.integers(SHARED, size=TARGETS)
    xt = facts.target[yt] + rng.normal(size=(TARGETS, WIDTH)) @ facts.target_root.T
    return xs, ys, xt.astype(np.float32)


# --- the jobs: each returns one line of the results -------------------------------------------------------------
def solve(n: int, draw: int, folder: Path) -> dict[str, Any]:
    """Solve the plan over n sources and all targets; say what it took and where the weight went."""
    from warmpot.transport import solve_partial_points
    from warmpot.transport.large import EuclideanBlocks

    xs, ys, xt = points(folder, n, draw)
    few = slice(0, 300)
    solve_partial_points(xs[few], xt[few], beta=0.5, mass=0.5, progress_bar=False)  # load and compile
    priced = {"rows": 0, "seconds": 0.0}

    def counted(block: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: EuclideanBlocks, rows: NDArray[np.int64], *out: Floats) -> Any:
            begin = time.process_time()
            found = block(self, rows, *out)
            priced["rows"] += rows.size if found is not None else 0
            priced["seconds"] += time.process_time() - begin
            return found

        return call

    for name in ("block", "rough_block"):  # in float64, and lower bounds in float32
        setattr(EuclideanBlocks, name, counted(getattr(EuclideanBlocks, name)))
    before, cpu, wall = resident(), time.process_time(), time.perf_counter()
    found = solve_partial_points(xs, xt, beta=BETA, mass=MASS, progress_bar=None)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    p = np.asarray(found.p, np.float64)
    share = np.bincount(ys, p, CLASSES) / p.sum()
    return {
        "kind": "plan", "n": n, "draw": draw, "cpu": cpu, "wall": wall, "distances": priced["seconds"],
        "passes": priced["rows"] / n, "rounds": found.n_iter, "peak": peak_bytes() / GIB, "before": before / GIB,
        "value": found.value, "gap": found.gap, "status": found.status.name, "pairs": int(found.plan.nnz),
        "used": int((p > 0).sum()), "outliers": float(share[SHARED:].sum()),
        "classes": [float(f"{x:.3g}") for x in share], "load": os.getloadavg()[0],
    }  # fmt: skip


def resident() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def per_call(call: Callable[[], Any], least: float = 2.0) -> float:
    """CPU seconds of a call, over `least` seconds of calls."""
    call()
    count, start = 0, time.process_time()
    while (taken := time.process_time() - start) < least:
        call()
        count += 1
    return taken / count


def backbone_unit(name: str) -> dict[str, Any]:
    """Images per second through a backbone, without gradient, one thread."""
    import torch

    from warmpot.nets import BackboneSettings, build_backbone

    torch.set_num_threads(1)
    network = build_backbone(BackboneSettings(name=name, weights="none")).eval()
    batch = torch.randint(256, (8, 3, 224, 224), dtype=torch.uint8)
    with torch.inference_mode():
        taken = per_call(lambda: network(batch), 4.0)
    return {"kind": "unit", "name": f"images/s, {name}", "value": len(batch) / taken, "width": network.width}


def tuning_unit(name: str) -> dict[str, Any]:
    """Images per second through forward and backward of the whole backbone, one thread."""
    import torch

    from warmpot.nets import BackboneSettings, build_backbone

    torch.set_num_threads(1)
    network = build_backbone(BackboneSettings(name=name, weights="none", train_from="all")).train()
    batch = torch.randint(256, (8, 3, 224, 224), dtype=torch.uint8)
    taken = per_call(lambda: network(batch).square().mean().backward(), 6.0)
    return {"kind": "unit", "name": f"trained images/s, {name}", "value": len(batch) / taken, "width": network.width}


def decode_unit(folder: Path) -> dict[str, Any]:
    """Images per second from JPEG files (256 x 256) to test views, one process."""
    from warmpot.data.images import load_images

    table = load_images(folder / "office31_images" / "webcam")
    rows = np.arange(64)
    return {"kind": "unit", "name": "images/s, decoded", "value": len(rows) / per_call(lambda: table.x[rows])}


def step_unit(size: int, classes: int) -> dict[str, Any]:
    """Seconds of transport in one mini-batch step: cost, plan, and the gradient of the cost."""
    import torch

    from warmpot.losses import LABEL_LOSSES
    from warmpot.methods.warmpot import Warmpot
    from warmpot.nets import Outputs

    torch.set_num_threads(1)
    rng = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (size,), generator=rng)
    features = [torch.randn(size, WIDTH, generator=rng, requires_grad=True) for _ in range(2)]
    logits = torch.randn(size, classes, generator=rng, requires_grad=True)
    method = Warmpot(alpha=0.075946, beta=0.71584, eta1=0.91824, eta2=5.47375, eps=5.58693)

    def step() -> None:
        source, target = Outputs(features[0], logits), Outputs(features[1], logits)
        cost, solution, *_ = method.batch_plan(source, labels, target, 1.0, LABEL_LOSSES["cross_entropy"])
        (solution.plan * cost).sum().backward()

    return {"kind": "unit", "name": f"transport step, {size} x {size}", "value": per_call(step)}


def joint_unit(folder: Path) -> dict[str, Any]:
    """Seconds per pair of the joint cost (distance and cross-entropy over 1000 classes), computed in blocks."""
    import torch

    from warmpot.costs import PairCosts

    torch.set_num_threads(1)
    xs, ys, xt = points(folder, 5_000)
    logits = torch.randn(TARGETS, CLASSES, generator=torch.Generator().manual_seed(0))
    costs = PairCosts(xs, xt, max_memory=1e-3)  # more pairs than are kept, as in the whole
    cost, rows = costs.joint(torch.from_numpy(ys), logits, eta1=1.0, eta2=1.0), np.arange(4_800)
    both, plain = per_call(lambda: cost.block(rows), 6.0), per_call(lambda: costs.distances(rows), 4.0)
    pairs = len(rows) * TARGETS
    return {"kind": "unit", "name": "joint cost", "value": both / pairs, "distances": plain / pairs}


def unit(name: str, folder: Path) -> dict[str, Any]:
    return {**UNITS[name](folder), "job": name}


UNITS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "lite0": lambda _: backbone_unit("tf_efficientnet_lite0"),
    "resnet50": lambda _: backbone_unit("resnet50"),
    "lite0-trained": lambda _: tuning_unit("tf_efficientnet_lite0"),
    "resnet50-trained": lambda _: tuning_unit("resnet50"),
    "decode": decode_unit,
    "step-65": lambda _: step_unit(65, CLASSES),
    "step-100": lambda _: step_unit(100, CLASSES),
    "joint": joint_unit,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, metavar="N", help=f"sources, up to {WHOLE}")
    parser.add_argument("--draws", type=int, default=1, help="samples of each size that share no source")
    parser.add_argument("--units", nargs="*", default=list(UNITS), choices=list(UNITS), metavar="NAME")
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tables", action="store_true")
    args = parser.parse_args()
    if args.tables:
        from _scaling_page import tables

        tables(args.out)
        return 0
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"
    found = read(args.out)
    known = {(r["n"], r["draw"]) for r in found if r["kind"] == "plan"}
    named = {r["job"] for r in found if r["kind"] == "unit"}
    jobs = [(n, k, args.data) for n in args.sizes for k in range(args.draws) if (n, k) not in known]
    run_all(unit, [(name, args.data) for name in args.units if name not in named], args.out, 1,
            lambda r: f"{r['name']}: {r['value']:.3g}")  # fmt: skip
    run_all(solve, jobs, args.out, 1, lambda r: (
        f"{r['n']:,} sources, draw {r['draw']}: {r['cpu']:.0f} s CPU, {r['wall']:.0f} s, {r['peak']:.2f} GiB, "
        f"{r['rounds']} rounds, {r['passes']:.2f} passes, value {r['value']:.5f}, {r['outliers']:.1%} on outliers"
    ))  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
