"""Regression for a target without labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from warmpot._checks import check_choice
from warmpot._typing import FloatArray
from warmpot.estimators._shared import TrainedMixin, plan_changes, read_domains, read_rows

__all__ = ["WarmpotRegressor"]

LOSSES = ("squared", "absolute")


class WarmpotRegressor(TrainedMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predict real labels of a target that covers a part of the source (WARMPOT with a regression loss).

    The cost of matching a source with a target sample is the distance of their features plus the loss of predicting
    the target sample as the source sample is labelled, with labels in units of their spread over the source.

    Parameters
    ----------
    preset : str
        As for `WarmpotClassifier`.
    loss : "squared" or "absolute"
        Label loss in the cost of the plan, and of mini-batch training. The refits of the preset "full" are least
        squares in both cases.
    alpha, beta, scale, overrides, random_state, progress_bar
        As for `WarmpotClassifier`; the preset "full" takes .35 for `beta`.

    Attributes
    ----------
    target_prediction_ : (n_target,) array
        Predicted labels of the target samples.
    source_weights_, target_weights_, plan_, history_, chosen_step_, config_, predictor_, n_features_in_
        As for `WarmpotClassifier`.
    feature_names_in_
        As for `WarmpotClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0.0, 10.0, 50)[:, None]
    >>> model = WarmpotRegressor(alpha=1.0, beta=0.5).fit(X, np.sin(X[:, 0] / 4), X_target=X[:20] + 0.1)
    >>> bool(model.source_weights_[:20].sum() > 0.7)  # where the target is
    True
    """

    __metadata_request__fit = {"sample_domain": True, "X_target": True}  # noqa: RUF012 - scikit-learn's form

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
        self.preset = preset
        self.loss = loss
        self.alpha = alpha
        self.beta = beta
        self.scale = scale
        self.overrides = overrides
        self.random_state = random_state
        self.progress_bar = progress_bar

    def _changes(self) -> dict[str, Any]:
        return {"loss": check_choice("loss", self.loss, LOSSES), **plan_changes(self.alpha, self.beta)}

    def fit(self, X: Any, y: Any, X_target: Any = None, sample_domain: Any = None) -> WarmpotRegressor:  # noqa: N803
        """Train on a labelled source and an unlabelled target.

        Parameters
        ----------
        X : (n, d) array or data frame
            Source features; with `sample_domain`, source and target features, in any order.
        y : (n,) array
            Source labels. With `sample_domain` also entries for target rows (NaN in skada), which are never read.
        X_target : (n_target, d) array or data frame, optional
            Target features.
        sample_domain : (n,) array of int, optional
            skada's way to name domains: ``>= 0`` is source, ``< 0`` is target.

            Without this and `X_target` no shift is known, and the source is its own target.

        Returns
        -------
        self
        """
        domains = read_domains(self, X, y, X_target, sample_domain, y_numeric=True, min_source=2)
        fitted = self._train(domains, np.asarray(domains.ys, dtype=np.float64), ())
        self.target_prediction_ = fitted.outputs
        return self

    def predict(self, X: Any) -> FloatArray:  # noqa: N803
        """Predicted labels.

        Parameters
        ----------
        X : (n, d) array or data frame

        Returns
        -------
        (n,) array
        """
        x = read_rows(self, X)
        return self.predictor_.values(x)
