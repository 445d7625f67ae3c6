"""Linear heads fitted to weighted samples with soft labels: the refit step of the full engine."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from warmpot._typing import FloatArray

__all__ = ["fit_head"]

MAX_ITER = 100


def fit_head(x: Tensor, targets: Tensor, weights: Tensor, *, penalty: float, loss: str, start: Tensor) -> Tensor:
    """Minimise ``sum_k w_k loss(targets_k, W x_k + b) / sum w + penalty / 2 ||W||^2`` over W and b.

    Parameters
    ----------
    x : (n, d) tensor
        Features.
    targets : (n, C) tensor
        Rows of class probabilities, or (n, 1) real labels.
    weights : (n,) tensor
        Non-negative; rows of weight 0 cost nothing.
    penalty : float
        Strength of the ridge on W (not on b).
    loss : str
        "cross_entropy": convex, by L-BFGS. "absolute" and "squared" both take the squared loss, in closed form.
    start : (d + 1, C) tensor
        Where L-BFGS begins; the last row is b.

    Returns
    -------
    (d + 1, C) tensor
        Float64.
    """
    used = weights > 0
    x, targets, weights = x[used], targets[used].to(x.dtype), weights[used].to(x.dtype)
    weights = weights / weights.sum()
    if loss != "cross_entropy":
        return _ridge(x.double(), targets.double(), weights.double(), penalty)
    weighted = targets * weights[:, None]

    def objective(flat: FloatArray) -> tuple[float, FloatArray]:
        head = torch.from_numpy(flat).reshape(start.shape).to(x.dtype)
        logs = torch.log_softmax(torch.addmm(head[-1], x, head[:-1]), dim=1)
        slope = logs.exp() * weights[:, None] - weighted
        gradient = torch.cat([x.T @ slope, slope.sum(dim=0, keepdim=True)]).double()
        gradient[:-1] += penalty * head[:-1]
        value = -float((weighted * logs).sum()) + 0.5 * penalty * float(head[:-1].double().square().sum())
        return value, gradient.numpy().ravel()

    found = minimize(
        objective, start.double().numpy().ravel(), jac=True, method="L-BFGS-B",
        options={"maxiter": MAX_ITER, "ftol": 1e-9, "gtol": 1e-7, "maxcor": 10},
    )  # fmt: skip
    return torch.from_numpy(np.asarray(found.x)).reshape(start.shape)


def _ridge(x: Tensor, y: Tensor, weights: Tensor, penalty: float) -> Tensor:
    centre, mean = weights @ x, weights @ y
    x, y = x - centre, y - mean
    gram = x.T @ (x * weights[:, None]) + penalty * torch.eye(x.shape[1], dtype=x.dtype)
    slopes = torch.linalg.solve(gram, x.T @ (y * weights[:, None]))
    return torch.cat([slopes, (mean - centre @ slopes)[None]])
