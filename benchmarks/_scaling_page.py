"""The page docs/scaling.md: a law of growth from the results of scaling.py, and tables of what follows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _jobs import ROOT, between, read
from numpy.typing import NDArray
from scaling import BETA, CLASSES, GIB, SHARED, SIZES, TARGETS, WHOLE, WIDTH

PAGE, FIGURE = ROOT / "docs" / "scaling.md", ROOT / "docs" / "img" / "scaling.png"
Floats = NDArray[np.float64]


class Law(NamedTuple):
    """``seconds = factor * n ** power``, fitted to the plans of `SIZES`."""

    factor: float
    power: float

    def seconds(self, n: int) -> float:
        """CPU seconds of a plan."""
        return float(self.factor * n**self.power)


def law(plans: Iterable[dict[str, Any]]) -> Law:
    """Fit the logarithm of the time by least squares to all draws of `SIZES`."""
    n, cpu = np.array([(r["n"], r["cpu"]) for r in plans if r["n"] in SIZES], float).T
    power, log_factor = np.polyfit(np.log(n), np.log(cpu), 1)
    return Law(float(np.exp(log_factor)), float(power))


def duration(seconds: float) -> str:
    for size, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {name}" if seconds < 20 * size else f"{seconds / size:,.0f} {name}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


class Results:
    """Results of the finished jobs."""

    def __init__(self, path: Path) -> None:
        found = read(path)
        self.plans = sorted((r for r in found if r["kind"] == "plan"), key=lambda r: (r["n"], r["draw"]))
        self.units = {r["job"]: r for r in found if r["kind"] == "unit"}
        self.law = law(self.plans)

    def unit(self, job: str) -> float:
        """Measured value of a unit cost."""
        return float(self.units[job]["value"])

    def linear(self, n: int) -> float:
        """CPU seconds of a plan whose source samples cost what they cost in the largest of `SIZES`."""
        return float(np.mean([r["cpu"] for r in self.plans if r["n"] == SIZES[-1]])) * n / SIZES[-1]

    @property
    def largest(self) -> dict[str, Any]:
        """The plan on the largest part of the source."""
        return next(r for r in reversed(self.plans) if r["draw"] == 0)


def gib(count: float) -> str:
    """Write a number of bytes."""
    return f"{count / GIB:.1f} GiB" if count >= 0.1 * GIB else f"{count / 2**20:.0f} MiB"


def grid(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def memory_table() -> str:
    """Return what both domains take, computed."""
    n, m = WHOLE, TARGETS
    kinds = {
        "features, width 256 (bottleneck)": 256,
        "features, width 2,048 (pooled ResNet-50)": 2048,
        "features, width 4,096 (AR, ARPM)": 4096,
        "logits, 1,000 classes": CLASSES,
    }
    rows = [[name, gib(4 * n * d), gib(2 * n * d), gib(4 * m * d)] for name, d in kinds.items()]
    rows.append(["one number per pair: the matrix that is never stored", gib(4 * n * m), gib(2 * n * m), ""])
    return grid(["", "source, float32", "source, float16", "target, float32"], rows)


def holding_table() -> str:
    """Return what stages of a run hold at a time, computed from the code's arrays."""
    n, m, pooled = WHOLE, TARGETS, 2048
    neighbours = 8 * int(np.ceil(BETA * n / m))
    arcs = m * neighbours
    stages = {
        "pass over the source in training: 256 features and logits, float32": 4 * n * (256 + CLASSES),
        "PWAN's, at its start: 2,048 pooled features too": 4 * n * (pooled + 256 + CLASSES),
        "AR's: 4,096 features of 72,000 samples, and those of the target": 4 * (72_000 + m) * 4096,
        "ARPM's: 4,096 features of 128,000 samples; of the target, 2,048 pooled features too": 4
        * (128_000 * 4096 + m * (pooled + 4096)),
        "the critic's copy of these features, ARPM": 4 * (128_000 + m) * 4096,
        "end of a run of ARPM: features and logits of the last subset, float64": 8 * 128_000 * (4096 + CLASSES),
        "end of a run: 256 features and logits of the source, float64": 8 * n * (256 + CLASSES),
        "a weight for every source sample": 4 * n,
        "plan: points, float32": 4 * n * WIDTH,
        "plan: one byte per number while they are checked": n * WIDTH,
        "plan: blocks of costs (`max_memory`)": GIB,
        "plan: capacities, potentials, bounds, squared lengths: 6 numbers per source sample": 48 * n,
        f"plan: candidate lists, {neighbours} for each target": 24 * m * neighbours,
        f"plan: {arcs:,} arcs in the simplex, about 100 bytes each": 100 * arcs,
    }
    return grid(["held", "memory"], [[name, gib(count)] for name, count in stages.items()])


RECIPES = {
    "WARMPOT": "imagenet-caltech",
    "MPOT": "mpot-imagenet",
    "JUMBOT": "jumbot-imagenet",
    "BA3US": "ba3us-imagenet",
    "PWAN": "pwan-imagenet",
    "AR": "ar-imagenet",
    "ARPM": "arpm-imagenet",
    "ARPM, WARMPOT's weights": "arpm-warmpot-imagenet",
}


def passes_of(config: Any) -> tuple[int, int]:
    """Return the passes over source and target in a run of a recipe, the last ones for its results included."""
    weighting = config.built_weighting
    source = target = 1
    refreshes = getattr(weighting, "periods", 1) - 1 + getattr(weighting, "from_start", False)
    if config.weights not in ("own", "uniform"):
        target += refreshes
        source += refreshes if config.weights != "class_share" else 0
    if config.method == "arpm":
        source, target = source + 1, target + 1  # the start of the head; the bank comes with a refresh
    if config.method == "pwan":
        source, target = source + 1, target + 1  # the start of rho
    return source, target


def passes_table(results: Results) -> str:
    """Return what the recipes for ImageNet -> Caltech train on and pass over, in images and in days of one core."""
    from warmpot.train import load_config

    rows = []
    for name, recipe in RECIPES.items():
        config = load_config(recipe)
        settings, (source, target) = config.minibatch, passes_of(config)
        trained = settings.steps * (settings.source_batch + settings.target_batch)
        passed = source * (getattr(config.built_weighting, "subset", None) or WHOLE) + target * TARGETS
        seconds = trained / results.unit("resnet50-trained") + passed / results.unit("resnet50")
        rows.append([name, f"{settings.steps:,}", f"{trained / 1e6:.1f} M", f"{source}", f"{target}",
                     f"{passed / 1e6:.1f} M", duration(seconds)])  # fmt: skip
    head = ["recipe", "steps", "images trained on", "source passes", "target passes", "images passed"]
    return grid([*head, "ResNet-50, one core"], rows)


def units_table(results: Results) -> str:
    """Return the measured unit costs."""
    speed = {"lite0": "EfficientNet-lite0, forward", "resnet50": "ResNet-50, forward",
             "lite0-trained": "EfficientNet-lite0, forward and backward",
             "resnet50-trained": "ResNet-50, forward and backward",
             "decode": "JPEG of 256 x 256 to a test view"}  # fmt: skip
    rows = [
        [name, f"{float(f'{results.unit(job):.2g}'):,g} images/s", duration(WHOLE / results.unit(job))]
        for job, name in speed.items()
    ]
    rows += [
        [f"transport in a step of {k} x {k}: cost, plan, gradient", f"{1e3 * results.unit(f'step-{k}'):.2g} ms", ""]
        for k in (65, 100)
    ]
    joint, pairs = results.units["joint"], WHOLE * TARGETS
    rows += [
        ["distance of a pair, 256 dimensions, float64", f"{1e9 * joint['distances']:.3g} ns",
         duration(pairs * joint["distances"])],
        ["joint cost of a pair: distance and cross-entropy", f"{1e9 * joint['value']:.3g} ns",
         duration(pairs * joint["value"])],
    ]  # fmt: skip
    return grid(["unit, one core", "measured", "the whole source once"], rows)


def plans_table(results: Results) -> str:
    """Return time and memory of the plans, next to the law."""
    found = {r["n"]: r for r in results.plans if r["draw"] == 0 and r["n"] >= SIZES[0]}
    rows = []
    for n in sorted({*found, 320_000, WHOLE}):
        r, power = found.get(n), results.law.seconds(n)
        linear = f"{results.linear(n):.0f} s" if n > SIZES[-1] else ""
        kind = "fitted" if n in SIZES else "predicted"
        measured = ["", "", "not run", "", "", ""]
        if r is not None:
            measured = [f"{r['rounds']}", f"{r['passes']:.2f}", f"{r['cpu']:.0f} s",
                        f"{r['distances']:.0f} s", f"{r['wall']:.0f} s", f"{r['peak']:.2f} GiB"]  # fmt: skip
        rows.append([f"{n:,}", kind, *measured[:4], f"{power:.0f} s", linear, *measured[4:]])
    head = [
        "sources",
        "law",
        "rounds",
        "passes",
        "CPU",
        "of it distances",
        "power law",
        "linear",
        "wall",
        "peak memory",
    ]
    text = (
        f"Power law, fitted to {', '.join(f'{n:,}' for n in SIZES)} sources: {results.law.factor:.3g} "
        f"n^{results.law.power:.2f} CPU seconds. Linear: what a source sample costs at {SIZES[-1]:,}."
    )
    return grid(head, rows) + "\n\n" + text


def verdict(results: Results) -> str:
    """Compare the predictions with the measurements."""
    lines = []
    for r in (r for r in results.plans if r["n"] > SIZES[-1] and r["draw"] == 0):
        power, linear = results.law.seconds(r["n"]), results.linear(r["n"])
        lines.append(
            f"{r['n']:,} sources took {r['cpu']:.0f} CPU seconds, {r['cpu'] / power:.2f} times the power law and "
            f"{r['cpu'] / linear:.2f} times the linear one, and {r['peak']:.2f} GiB, {4 * WIDTH * r['n'] / GIB:.2f} of "
            f"them the points; the plan is proven optimal to {r['gap'] / r['value']:.0e} of its value."
        )
    return " ".join(lines) or "The larger sizes have not been run yet."


def short(results: Results) -> str:
    """Return the answer in five lines."""
    whole, samples = results.largest, dict(sample_rows(results))
    guess = f"{duration(results.law.seconds(WHOLE))} (power law) to {duration(results.linear(WHOLE))} (linear)"
    plan = f"predicted: {guess} of one core"
    if whole["n"] == WHOLE:
        plan = f"measured: {duration(whole['cpu'])} of one core and {whole['peak']:.1f} GiB; {plan}"
    sample = samples[40_000].mean(axis=0)
    lines = [
        f"- **Features** of the source: {gib(4 * WHOLE * 2048)} in float32, {gib(2 * WHOLE * 2048)} in float16. One "
        f"pass of a ResNet-50 over it: {duration(WHOLE / results.unit('resnet50'))} of one core, of an "
        f"EfficientNet-lite0 {duration(WHOLE / results.unit('lite0'))}.",
        f"- **Fine-tuning** with WARMPOT's recipe sees 9.6 million images and makes one pass; AR makes 50 passes. "
        f"Transport takes {1e3 * results.unit('step-100'):.1f} ms of a step.",
        f"- **The exact plan over all pairs** of drawn points of this size, {plan}.",
        f"- **A sample** of 40,000 sources costs {sample[4]:.0f} s and puts {100 * sample[1]:.1f} % of the weight on "
        f"outlier classes, where the plan on {whole['n']:,} puts {100 * whole['outliers']:.1f} %; its value is "
        f"{100 * sample[0]:.1f} % too high.",
    ]
    return "\n".join(lines)


def shared_of_heaviest(shares: Floats) -> float:
    """Fraction of shared classes among the heaviest `SHARED`; of equal weights, outlier classes (the last) come first.

    A stable sort: without it, which of several classes of equal weight are counted depends on the processor.
    """
    return float((np.argsort(shares, kind="stable")[::-1][:SHARED] < SHARED).mean())


def sample_rows(results: Results) -> list[tuple[int, Floats]]:
    """Return a row per draw of every size: error of the value, outlier weight, total variation, shared classes, CPU."""
    whole, rows = results.largest, []
    for n in sorted({r["n"] for r in results.plans if r["n"] < whole["n"]}):
        draws = [(r, np.array(r["classes"])) for r in results.plans if r["n"] == n]
        found = [
            (r["value"] / whole["value"] - 1, r["outliers"], np.abs(shares - whole["classes"]).sum() / 2,
             shared_of_heaviest(shares), r["cpu"])
            for r, shares in draws
        ]  # fmt: skip
        rows.append((n, np.array(found)))
    return rows


def samples_table(results: Results) -> str:
    """Compare the plans of samples of the source with the plan on the largest part that was solved."""
    whole, rows = results.largest, []
    for n, found in sample_rows(results):
        spread = [f" ± {x:.1f}" for x in 100 * found.std(axis=0, ddof=1)] if len(found) > 1 else [""] * 5
        mean = 100 * found.mean(axis=0)
        cells = [f"{mean[k]:{'+' if k == 0 else ''}.1f}{spread[k]} %" for k in range(4)]
        rows.append([f"{n:,}", f"{n / CLASSES:g}", f"{len(found)}", *cells, f"{mean[4] / 100:.0f} s"])
    shared = shared_of_heaviest(np.array(whole["classes"]))
    rows.append([f"**{whole['n']:,}**", f"{whole['n'] / CLASSES:,.0f}", "1", f"value {whole['value']:.4f}",
                 f"{100 * whole['outliers']:.1f} %", "0", f"{100 * shared:.1f} %",
                 f"{whole['cpu']:.0f} s"])  # fmt: skip
    head = ["sampled sources", "per class", "draws", "value off by", "weight on outlier classes"]
    return grid([*head, "total variation of class weights", "shared, of the 84 heaviest classes", "CPU"], rows)


def draw(results: Results, path: Path) -> None:
    """Draw time against size, and the error of samples."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullLocator

    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 3.6), layout="constrained")
    plans = [r for r in results.plans if r["n"] >= SIZES[0]]
    for fitted, face, label in ((True, "#2468b4", "fitted"), (False, "white", "measured after")):
        part = [r for r in plans if (r["n"] in SIZES) == fitted]
        left.loglog([r["n"] for r in part], [r["cpu"] for r in part], "o", color="#2468b4", mfc=face, label=label)
    ends = (SIZES[0], WHOLE)
    left.loglog(ends, [results.law.seconds(n) for n in ends], color="#555555", lw=1, ls="--", zorder=0,
                label=f"law: n^{results.law.power:.2f}")  # fmt: skip
    left.set(xlabel="source samples", ylabel="CPU seconds", title="Exact plan, 9,257 targets")
    rows = sample_rows(results)
    for k, colour, label in ((0, "#e07b20", "value"), (2, "#2e9a5c", "class weights (total variation)")):
        for n, errors in rows:
            right.loglog([n] * len(errors), 100 * np.abs(errors[:, k]), "o", color=colour, ms=4, alpha=0.6)
        means = [100 * np.abs(errors[:, k]).mean() for _, errors in rows]
        right.loglog([n for n, _ in rows], means, color=colour, lw=1.5, label=label)
    right.set(xlabel="sampled sources", ylabel="error, %", title=f"Against the plan on {results.largest['n']:,}")
    ticks = ((left, [*SIZES, 320_000, WHOLE]), (right, [n for n, _ in rows if n not in (20_000, 80_000)]))
    for axes, sizes in ticks:
        axes.set_xticks(sizes, [f"{n / 1e6:.2f} M" if n >= 1e6 else f"{n / 1e3:g} k" for n in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, color="#e4e4e4", lw=0.7)
        axes.legend(frameon=False, fontsize=8.5)
        axes.title.set_fontsize(11)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def write(results: Results, page: Path) -> None:
    """Put every table between its markers of a page."""
    between(page, "short", short(results))
    between(page, "memory", memory_table() + "\n\n" + holding_table())
    between(page, "units", units_table(results))
    between(page, "passes", passes_table(results))
    between(page, "plans", plans_table(results) + "\n\n" + verdict(results))
    between(page, "samples", samples_table(results))


def tables(path: Path) -> None:
    """Write docs/scaling.md and its figure."""
    results = Results(path)
    write(results, PAGE)
    draw(results, FIGURE)
