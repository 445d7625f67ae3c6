"""Source weights for anybody's estimator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.preprocessing import normalize
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import has_fit_parameter

from warmpot._checks import LARGEST, check_choice, check_features, check_fraction
from warmpot._typing import FloatArray
from warmpot.errors import InputError
from warmpot.estimators._shared import Domains, read_domains, read_rows

__all__ = ["PartialReweighter"]

SCALES = ("none", "rows", "columns", "auto")
NARROW = 64
"""As in `warmpot.nets`, which this module does without: plans need no torch."""
CONSTANT = 1e-12
"""A column whose spread is a smaller part of its largest entry is constant up to rounding."""

MethodT = TypeVar("MethodT", bound=Callable[..., Any])


def _if_inner_has(name: str) -> Callable[[MethodT], MethodT]:
    """Hide a method that the inner estimator does not have."""

    def check(self: PartialReweighter) -> bool:
        return hasattr(getattr(self, "estimator_", self.estimator), name)

    decorate: Callable[[MethodT], MethodT] = available_if(check)
    return decorate


def _scaled(domains: Domains, kind: str) -> tuple[FloatArray, FloatArray]:
    """Return the features of both domains in the units of the distances."""
    for name, x in (("X", domains.xs), ("X_target", domains.xt)):
        check_features(name, x, LARGEST)  # squares would overflow
    xs, xt = domains.xs.astype(np.float64, copy=False), domains.xt.astype(np.float64, copy=False)
    if kind == "auto":
        kind = "columns" if xs.shape[1] < NARROW else "rows"
    # The largest entry first, by rows or by columns: squares can neither over- nor underflow then.
    if kind == "rows":
        return normalize(normalize(xs, "max")), normalize(normalize(xt, "max"))
    if kind == "columns":
        largest = np.maximum(np.abs(xs).max(axis=0), np.abs(xt).max(axis=0))
        xs, xt = (x / np.where(largest > 0, largest, 1.0) for x in (xs, xt))
        centre = (xs.mean(axis=0) + xt.mean(axis=0)) / 2  # every domain counts the same
        spread = np.sqrt((np.square(xs - centre).mean(axis=0) + np.square(xt - centre).mean(axis=0)) / 2)
        spread[spread < CONSTANT] = np.inf
        return (xs - centre) / spread, (xt - centre) / spread
    return xs, xt


class PartialReweighter(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Weigh source samples by how much of the target they can stand for (Theorem 3.2), and train with that.

    One exact partial transport plan between the features of both domains; its row sums are the weights. Labels are
    not needed for them. With an `estimator`, that is trained on the weighted source and predicts; without one, read
    ``sample_weight_`` and pass it on yourself.

    Parameters
    ----------
    estimator : estimator, optional
        Any classifier or regressor whose ``fit`` takes `sample_weight`.
    alpha : float
        In (0, 1]: share of the target that is matched.
    beta : float
        In (0, 1]: share of the source believed to matter; a source sample weighs at most ``1 / (beta n_source)``.
    scale : "auto", "rows", "columns" or "none"
        Units of the features for the distances; the estimator gets the features as they are. "rows": every sample is
        scaled to length 1. "columns": every feature is standardised over both domains. "none": as they are. "auto":
        "columns" below 64 features, "rows" from there on.

    Attributes
    ----------
    source_weights_ : (n_source,) array
        Row sums of the plan, in the order of the source rows; total alpha.
    sample_weight_ : (n_source,) array
        The same on scikit-learn's scale: mean 1.
    target_weights_ : (n_target,) array
        Column sums of the plan.
    plan_ : (n_source, n_target) scipy.sparse.csr_array
    estimator_ : estimator
        The trained one; only with an `estimator`.
    classes_ : array
        Its classes, when it is a classifier.
    n_features_in_ : int
    feature_names_in_ : (n_features_in_,) array
        Only after a fit on a data frame with text column names.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, X_target = np.array([[0.0], [1.0], [2.0], [9.0]]), np.array([[0.1], [1.2]])
    >>> PartialReweighter(alpha=1.0, beta=0.5).fit(X, X_target=X_target).sample_weight_
    array([2., 2., 0., 0.])
    >>> model = PartialReweighter(LogisticRegression(), alpha=1.0, beta=0.5).fit(X, [0, 1, 1, 0], X_target)
    >>> model.predict(X_target)
    array([0, 1])
    """

    __metadata_request__fit = {"sample_domain": True, "X_target": True}  # noqa: RUF012 - scikit-learn's form

    def __init__(self, estimator: Any = None, *, alpha: float = 0.8, beta: float = 0.35, scale: str = "auto") -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.beta = beta
        self.scale = scale

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        X_target: Any = None,  # noqa: N803
        sample_domain: Any = None,
    ) -> PartialReweighter:
        """Solve the plan, and train the estimator if there is one.

        Parameters
        ----------
        X : (n, d) array or data frame
            Source features; with `sample_domain`, source and target features, in any order.
        y : (n,) array, optional
            Source labels, for the estimator. With `sample_domain` also entries for target rows, which are never read.
        X_target : (n_target, d) array or data frame, optional
            Target features.
        sample_domain : (n,) array of int, optional
            skada's way to name domains: ``>= 0`` is source, ``< 0`` is target.

            Without this and `X_target` no shift is known, and the source is its own target.

        Returns
        -------
        self
        """
        from warmpot.transport import solve_partial_points

        if self.estimator is not None and not has_fit_parameter(self.estimator, "sample_weight"):
            got, allowed = type(self.estimator).__name__, "an estimator whose fit takes sample_weight"
            remedy = "Draw samples by sample_weight_ and fit it to those."
            raise InputError("estimator", got=got, allowed=allowed, remedy=remedy)
        for name in ("estimator_", "classes_"):  # of an earlier fit, perhaps with another estimator
            self.__dict__.pop(name, None)
        alpha, beta = check_fraction("alpha", self.alpha), check_fraction("beta", self.beta)
        several = get_tags(self).target_tags.multi_output
        domains = read_domains(self, X, y, X_target, sample_domain, multi_output=several)
        xs, xt = _scaled(domains, check_choice("scale", self.scale, SCALES))
        solution = solve_partial_points(xs, xt, beta=beta, mass=alpha, progress_bar=False)
        self.plan_, self.source_weights_, self.target_weights_ = solution.plan, solution.p, solution.q
        self.sample_weight_ = solution.p * (len(xs) / solution.p.sum())
        if self.estimator is not None:
            self.estimator_ = clone(self.estimator).fit(domains.xs, domains.ys, sample_weight=self.sample_weight_)
            if hasattr(self.estimator_, "classes_"):
                self.classes_ = self.estimator_.classes_
        return self

    def _ask(self, method: str, X: Any, *rest: Any, **more: Any) -> Any:  # noqa: N803
        rows = read_rows(self, X)
        return getattr(self.estimator_, method)(rows, *rest, **more)

    @_if_inner_has("predict")
    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return what the estimator predicts.

        Parameters
        ----------
        X : (n, d) array or data frame
        """
        return self._ask("predict", X)

    @_if_inner_has("predict_proba")
    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Class probabilities, when the estimator gives them.

        Parameters
        ----------
        X : (n, d) array or data frame
        """
        return self._ask("predict_proba", X)

    @_if_inner_has("decision_function")
    def decision_function(self, X: Any) -> Any:  # noqa: N803
        """Decision values, when the estimator gives them.

        Parameters
        ----------
        X : (n, d) array or data frame
        """
        return self._ask("decision_function", X)

    @_if_inner_has("score")
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Score of the estimator: accuracy or R^2.

        Parameters
        ----------
        X : (n, d) array or data frame
        y : (n,) array
        sample_weight : (n,) array, optional
        """
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return float(self._ask("score", X, y, **weights))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is not None:
            inner = get_tags(self.estimator)
            tags.estimator_type = inner.estimator_type
            tags.target_tags = inner.target_tags
            tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        return tags
