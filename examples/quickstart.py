"""Adapt from printed digits 0-9 to handwritten digits 0-4, without knowing which digits occur.

python examples/quickstart.py
"""

from __future__ import annotations

import numpy as np

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


if __name__ == "__main__":
    main()
