"""Regression on a target without labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin

from warmpot._checks import check_choice
from warmpot._typing import FloatArray
from warmpot.estimators._base import TrainedEstimator, check_features_in, given_parameters

__all__ = ["WarmpotRegressor"]

LOSSES = ("squared", "absolute")


class WarmpotRegressor(TrainedEstimator, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predict continuous targets on a domain that covers a part of the source (WARMPOT with a regression loss).

    The cost of matching a source with a target sample is the distance between their features plus the loss between
    the source label and the prediction for the target sample, in units of the standard deviation of the source labels.

    Parameters
    ----------
    preset : str
        As for `WarmpotClassifier`.
    loss : "squared" or "absolute"
        Label loss in the cost of the plan and in mini-batch training. The preset "full" always refits by least squares.
    alpha, beta, scale, overrides, random_state, progress_bar
        As for `WarmpotClassifier`; the preset "full" uses 0.35 for `beta`.

    Attributes
    ----------
    target_prediction_ : (n_target,) array
        Predictions for the target samples.
    source_weights_, training_weights_, ...
        Everything else as for `WarmpotClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0.0, 10.0, 50)[:, None]
    >>> model = WarmpotRegressor(alpha=1.0, beta=0.5).fit(X, np.sin(X[:, 0] / 4), X_target=X[:20] + 0.1)
    >>> bool(model.source_weights_[:20].sum() > 0.7)  # where the target is
    True
    """

    _label_checks = {"y_numeric": True, "min_source": 2}  # noqa: RUF012 - never changed

    def __init__(
        self,
        preset: str = "full",
        *,
        loss: str = "squared",
        alpha: float | None = None,
        beta: float | None = None,
        scale: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        random_state: Any = None,
        progress_bar: bool | None = False,
    ) -> None:
        super().__init__(scale=scale, overrides=overrides, random_state=random_state, progress_bar=progress_bar)
        self.preset = preset
        self.loss = loss
        self.alpha = alpha
        self.beta = beta

    def _changes(self) -> dict[str, Any]:
        loss = check_choice("loss", self.loss, LOSSES)
        return {"loss": loss, "params": given_parameters(self, "alpha", "beta")}

    def _encode_labels(self, ys: NDArray[Any]) -> tuple[FloatArray, tuple[str, ...]]:
        return ys.astype(np.float64), ()

    def _set_outputs(self, outputs: FloatArray) -> None:
        self.target_prediction_ = outputs

    def predict(self, X: Any) -> FloatArray:
        """Predict continuous targets: (n,)."""
        x = check_features_in(self, X)
        return self.predictor_.values(x)
