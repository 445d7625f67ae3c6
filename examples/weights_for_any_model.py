"""Weight the source so that any model that takes `sample_weight` learns from its relevant part.

python examples/weights_for_any_model.py     prints errors, writes weights_for_any_model.png

The source covers four regions with different linear functions, the target one of them, slightly shifted. A small model
cannot fit all four functions; the weights make it fit the one of the target.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

from warmpot.estimators import PartialReweighter


def main() -> None:
    rng = np.random.default_rng(0)
    region = np.repeat(np.arange(4), 100)
    centres, slopes = np.array([[0, 0], [6, 0], [0, 6], [6, 6]]), np.array([[1, 0], [-2, 1], [0, 3], [2, -1]])
    x = centres[region] + rng.normal(size=(400, 2))
    y = (x * slopes[region]).sum(axis=1)
    x_target = centres[1] + [0.5, 0.5] + rng.normal(size=(80, 2))
    y_target = (x_target * slopes[1]).sum(axis=1)  # for evaluation only

    print("mean absolute error on the target   plain   weighted")
    for model in (Ridge(), DecisionTreeRegressor(max_leaf_nodes=8, random_state=0)):
        plain = np.abs(model.fit(x, y).predict(x_target) - y_target).mean()
        weighted = PartialReweighter(model, alpha=0.9, beta=0.2).fit(x, y, x_target)
        error = np.abs(weighted.predict(x_target) - y_target).mean()
        print(f"{type(model).__name__:<34}  {plain:5.2f}   {error:8.2f}")
    share = np.bincount(region, weighted.source_weights_) / weighted.source_weights_.sum()
    print("share of the weight by region:", ", ".join(f"{value:.0%}" for value in share))
    try:
        PartialReweighter(KNeighborsRegressor()).fit(x, y, x_target)
    except ValueError as error:
        print("A model without sample_weight is refused:", error)

    figure = Figure(figsize=(5.5, 3.6), layout="constrained")
    ax = figure.subplots()
    ax.scatter(*x.T, s=3 + 12 * weighted.sample_weight_, c=region, cmap="tab10", label="source, sized by weight")
    ax.scatter(*x_target.T, s=14, marker="x", color="black", label="target")
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    figure.savefig("weights_for_any_model.png", dpi=110)


if __name__ == "__main__":
    main()
