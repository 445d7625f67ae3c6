"""Your own method in twenty lines: it trains, resumes, combines with any weighting, and works on the command line.

python examples/own_method.py                                       train it on digits, write own_method.png
python examples/own_method.py fit SOURCE TARGET --method means      use it like `warmpot fit`
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure

from warmpot.cli import main as command_line
from warmpot.data import digits_task
from warmpot.estimators import AdaptedClassifier
from warmpot.methods import METHODS, BatchContext, Memory, Method, StepResult
from warmpot.methods.losses import weighted_cross_entropy
from warmpot.weights import normalized


@dataclass(frozen=True)
class Means(Method):
    """Minimise ``wCE(w) + strength ||sum_i w_i f_i - mean_j f_j||^2``."""

    name: ClassVar[str] = "means"
    summary: ClassVar[str] = "align the means of the features"
    reference: ClassVar[str] = "examples/own_method.py"

    strength: float = 0.05

    def step(self, context: BatchContext, memory: Memory) -> StepResult:  # noqa: ARG002
        """Return the loss of one batch; the context has no field for target labels."""
        weights = normalized(context.weights)
        distance = (weights @ context.source.features - context.target.features.mean(dim=0)).square().sum()
        loss = weighted_cross_entropy(context.source.logits, context.labels, context.weights)
        return StepResult(loss + self.strength * distance, weights, {"distance": distance.detach()})


def main() -> None:
    source, target = digits_task(n_source=500, seed=1)
    figure = Figure(figsize=(6.5, 3), layout="constrained")
    ax = figure.subplots()
    ax.bar(np.arange(10), np.bincount(target.y, minlength=10), color="lightgray", label="true")
    for weights in ("uniform", "class_share"):
        model = AdaptedClassifier("means", weights=weights, overrides={"minibatch": {"steps": 150}})
        model.fit(source.x, source.y, X_target=target.x)
        print(f"means, weights {weights:<11}  accuracy on the target {model.score(target.x, target.y):.0%}")
        predicted = np.bincount(model.predict(target.x), minlength=10)
        ax.plot(np.arange(10), predicted, "o" if weights == "uniform" else "D", label=f"predicted, {weights}")
    print("Half of the classes are absent from the target, so unweighted means differ; the weights correct for that.")
    ax.set(xticks=range(10), xlabel="digit", ylabel="target samples")
    ax.legend(frameon=False)
    figure.savefig("own_method.png", dpi=110)


METHODS[Means.name] = Means
if __name__ == "__main__":
    command_line() if len(sys.argv) > 1 else main()
