"""Logistic regression of a few columns, by Newton's method: scikit-learn takes a second to import."""

from __future__ import annotations

import numpy as np

from warmpot._typing import BoolArray, FloatArray

__all__ = ["fit_logistic"]

STEPS = 100
"""At most; about 6 are needed."""


def fit_logistic(x: FloatArray, y: BoolArray) -> tuple[FloatArray, float]:
    """Return the coefficients (d,) and the intercept that minimise the logistic loss, with a ridge.

    It is half of the sum of the squared coefficients; the intercept is not penalised. This is what scikit-learn's
    `LogisticRegression` minimises by default.

    Examples
    --------
    >>> coefficients, intercept = fit_logistic(np.array([[-1.0], [-1.0], [1.0], [1.0]]), np.array([0, 1, 1, 1]) > 0)
    >>> coefficients.round(3), round(intercept, 3)
    (array([0.583]), 1.184)
    """
    columns = np.column_stack([x, np.ones(len(x))])
    penalty = np.append(np.ones(x.shape[1]), 0.0)
    unknowns, step = np.zeros(columns.shape[1]), np.full(columns.shape[1], np.inf)

    def loss(unknowns: FloatArray) -> float:
        margins = columns @ unknowns
        return float((np.logaddexp(0.0, margins) - margins * y).sum() + penalty @ unknowns**2 / 2)

    for _ in range(STEPS):
        probability = 0.5 * (1 + np.tanh(columns @ unknowns / 2))
        slopes = columns.T @ (probability - y) + penalty * unknowns
        curvature = (columns.T * (probability * (1 - probability))) @ columns + np.diag(penalty)
        step = np.linalg.solve(curvature, slopes)
        while loss(unknowns - step) > loss(unknowns) and np.abs(step).max() > 1e-12:  # too far
            step /= 2
        unknowns = unknowns - step
        if np.abs(step).max() < 1e-9:
            break
    return unknowns[:-1], float(unknowns[-1])
