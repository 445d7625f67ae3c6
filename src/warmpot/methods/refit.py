"""The refit of the full engine: a linear head, and a metric under it, for weighted samples with soft labels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["fit_classifier", "fit_ridge", "mapped"]


def mapped(x: Tensor, metric: Tensor, unit: bool) -> Tensor:
    """Features after the metric, of length 1 if asked for."""
    y = x @ metric
    return functional.normalize(y, dim=1) if unit else y


def fit_classifier(
    x: Tensor,
    targets: Tensor,
    weights: Tensor,
    head: Tensor,
    metric: Tensor,
    *,
    penalty: float,
    metric_penalty: float | None,
    iterations: int,
    unit: bool,
) -> tuple[Tensor, Tensor]:
    """Minimise the weighted cross-entropy over a head W, b and a square metric M.

        sum_k w_k CE(targets_k, softmax(W f(x_k M) + b)) / sum w + penalty/2 ||W||^2 + metric_penalty/2 ||M - I||^2

    by L-BFGS from where the last round ended. Few iterations on purpose: a head that fits the labels of one plan to
    the end cannot leave them in the next.

    Parameters
    ----------
    x : (n, d) tensor
        Features before the metric.
    targets : (n, C) tensor
        Rows of class probabilities.
    weights : (n,) tensor
        Non-negative; rows of weight 0 cost nothing.
    head, metric : (d + 1, C) and (d, d) tensors
        Where to begin; the last row of the head is b.
    penalty, metric_penalty : float
        Strengths; None leaves the metric as it is.
    iterations : int
    unit : bool
        Whether f scales rows to length 1.

    Returns
    -------
    head, metric : tensors
    """
    used = weights > 0
    x, targets, weights = x[used], targets[used], weights[used] / weights[used].sum()
    head, metric = head.clone().requires_grad_(), metric.clone().requires_grad_(metric_penalty is not None)
    identity = torch.eye(len(metric), dtype=metric.dtype)
    fixed = None if metric_penalty is not None else mapped(x, metric, unit)
    solver = torch.optim.LBFGS(
        [head] if metric_penalty is None else [head, metric],
        max_iter=iterations,
        tolerance_grad=1e-6,
        tolerance_change=1e-8,
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        solver.zero_grad()
        features = mapped(x, metric, unit) if fixed is None else fixed
        logs = torch.log_softmax(torch.addmm(head[-1], features, head[:-1]), dim=1)
        loss = -(weights @ (targets * logs).sum(dim=1)) + penalty / 2 * head[:-1].square().sum()
        if metric_penalty is not None:
            loss = loss + metric_penalty / 2 * (metric - identity).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    solver.step(closure)  # type: ignore[no-untyped-call]
    return head.detach(), metric.detach()


def fit_ridge(x: Tensor, targets: Tensor, weights: Tensor, *, penalty: float) -> Tensor:
    """Weighted ridge regression in closed form; returns the head as `fit_classifier` does."""
    weights = weights / weights.sum()
    centre, mean = weights @ x, weights @ targets
    x, targets = x - centre, targets - mean
    gram = x.T @ (x * weights[:, None]) + penalty * torch.eye(x.shape[1], dtype=x.dtype)
    slopes = torch.linalg.solve(gram, x.T @ (targets * weights[:, None]))
    return torch.cat([slopes, (mean - centre @ slopes)[None]])
