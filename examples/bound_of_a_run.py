"""Bound the target loss of a classifier, term by term, without target labels.

python examples/bound_of_a_run.py     prints the terms, writes bound_of_a_run.png
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from warmpot.data import as_table, make_task
from warmpot.train import bound_inputs, fit, load_config


def main() -> None:
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(6, 8))
    ys, yt = np.repeat(np.arange(6), 50), np.repeat(np.arange(3), 40)  # the target has three of six classes
    xs = centres[ys] + rng.normal(size=(300, 8))
    xt = centres[yt] + 0.5 + rng.normal(size=(120, 8))
    task, _ = make_task(as_table(xs, ys), as_table(xt))  # without target labels

    figure = Figure(figsize=(7, 2.8), layout="constrained")
    ax = figure.subplots()
    for preset in ("source-only", "full", "bound"):
        predictor = fit(task, load_config(preset), progress_bar=False).predictor
        report = bound_inputs(predictor, task).problem("joint").report(alpha=1.0, beta=0.5)
        print(f"{preset}: total {report.total:.2f} ({report.verdict}; a bound only with the term that needs labels)")
        left = 0.0
        for k, term in enumerate(report.terms):
            print(f"    {term.name:<20}", "needs labels" if term.value is None else f"{term.value:.3f}")
            if term.value is not None:
                ax.barh(preset, term.value, left=left, color=f"C{k}", label=term.name if preset == "bound" else None)
                left += term.value
        wrong = (predictor.probabilities(xt).argmax(axis=1) != yt).mean()
        print(f"    true error rate       {wrong:.1%}   (target labels, evaluation only)")
    ax.axvline(1.0, color="black", ls=":")
    ax.set(xlabel="bound on the target loss; from 1 on it proves nothing")
    ax.legend(frameon=False)
    figure.savefig("bound_of_a_run.png", dpi=110)


if __name__ == "__main__":
    main()
