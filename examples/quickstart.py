"""Adapt from printed digits 0-9 to handwritten digits 0-4, without knowing which digits occur.

python examples/quickstart.py     prints accuracies, writes quickstart.png
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from warmpot.data import digits_task
from warmpot.estimators import SourceOnlyClassifier, WarmpotClassifier


def main() -> None:
    source, target = digits_task(n_source=1000, seed=1)
    assert source.y is not None
    assert target.y is not None
    for model in (SourceOnlyClassifier(), WarmpotClassifier()):
        model.fit(source.x, source.y, X_target=target.x)  # no target labels
        print(f"{type(model).__name__:<21} accuracy on the target {model.score(target.x, target.y):.0%}")

    print("\ndigit   training weight   predicted in the target")
    share = np.bincount(source.y, model.training_weights_, 10)
    predicted = np.bincount(model.predict(target.x), minlength=10) / len(target.x)
    for digit in range(10):
        note = "" if digit in target.y else "   (does not occur)"
        print(f"{digit:>5}   {share[digit]:15.0%}   {predicted[digit]:23.0%}{note}")

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    digits, weights = figure.subfigures(1, 2)
    for k, ax in enumerate(digits.subplots(2, 5).flat):
        table = source if k < 5 else target
        ax.imshow(table.x[table.y == k % 5][0].reshape(8, 8), cmap="gray_r")
        ax.axis("off")
    digits.suptitle("source, printed (above); target, handwritten (below)", fontsize=10)
    ax = weights.subplots()
    ax.bar(range(10), share, color=["tab:blue" if digit in target.y else "tab:orange" for digit in range(10)])
    ax.set(xticks=range(10), xlabel="digit; orange: not in the target", ylabel="share of the training weight")
    ax.yaxis.set_major_formatter("{x:.0%}")
    figure.savefig("quickstart.png", dpi=110)


if __name__ == "__main__":
    main()
