"""Source weights for any scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_regressor
from sklearn.preprocessing import normalize
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from warmpot._checks import LARGEST, check_choice, check_features, check_fraction
from warmpot._files import atomic_write, check_file, is_unused, make_folder
from warmpot._typing import FloatArray
from warmpot.errors import InputError
from warmpot.estimators._base import Domains, TargetRequests, check_features_in, read_domains
from warmpot.estimators.trained import WarmpotClassifier

__all__ = ["PartialReweighter"]

WEIGHTS = ("auto", "training", "plan")
PLAN = {"alpha": 0.8, "beta": 0.35}
"""Of a single plan between features: the paper's, on Office-Home."""
SCALES = ("none", "rows", "roots", "columns", "auto")
NARROW = 64  # as in `warmpot.nets`, which is not imported here because it needs torch
FILE = "reweighter.joblib"
CONSTANT = 1e-12
"""A column whose standard deviation, relative to its largest entry, is smaller than this is constant up to rounding."""

MethodT = TypeVar("MethodT", bound=Callable[..., Any])


def _if_inner_has(name: str) -> Callable[[MethodT], MethodT]:
    """Hide a method unless the wrapped estimator has it."""

    def check(self: PartialReweighter) -> bool:
        return hasattr(getattr(self, "estimator_", self.estimator), name)

    decorate: Callable[[MethodT], MethodT] = available_if(check)
    return decorate


def _scaled(domains: Domains, kind: str) -> tuple[FloatArray, FloatArray]:
    """Return the features of both domains, scaled for the distances."""
    for name, x in (("X", domains.xs), ("X_target", domains.xt)):
        check_features(name, x, LARGEST)  # squares would overflow
    xs, xt = domains.xs.astype(np.float64, copy=False), domains.xt.astype(np.float64, copy=False)
    if kind == "auto":
        kind = "columns" if xs.shape[1] < NARROW else "rows"
    if kind == "roots":
        xs, xt = (np.sign(x) * np.sqrt(np.abs(x)) for x in (xs, xt))
    # Dividing by the largest entry first keeps squares from overflowing and underflowing.
    if kind in ("rows", "roots"):
        return normalize(normalize(xs, "max")), normalize(normalize(xt, "max"))
    if kind == "columns":
        largest = np.maximum(np.abs(xs).max(axis=0), np.abs(xt).max(axis=0))
        xs, xt = (x / np.where(largest > 0, largest, 1.0) for x in (xs, xt))
        centre = (xs.mean(axis=0) + xt.mean(axis=0)) / 2  # both domains have the same influence
        spread = np.sqrt((np.square(xs - centre).mean(axis=0) + np.square(xt - centre).mean(axis=0)) / 2)
        spread[spread < CONSTANT] = np.inf
        return (xs - centre) / spread, (xt - centre) / spread
    return xs, xt


class PartialReweighter(TargetRequests, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Weight source samples by partial transport (Theorem 3.2), and train any estimator with these weights.

    If an `estimator` is given, it is trained on the weighted source. Otherwise, pass ``sample_weight_`` to your own.

    Parameters
    ----------
    estimator : estimator, optional
        Any classifier or regressor whose ``fit`` takes `sample_weight`.
    weights : "auto", "training" or "plan"
        "training": what `WarmpotClassifier` trains with in the end; needs labels of classes. "plan": the row sums of
        one exact plan between the features of both domains; needs no labels. "auto": "training" if there are labels of
        classes, otherwise "plan".
    alpha, beta : float or "auto", optional
        Share of the target that is matched, and of the source that is relevant, in (0, 1]; a source sample has at most
        the weight ``1 / (beta n_source)`` in the plan. Default: those of `WarmpotClassifier`; 0.8 and 0.35 for "plan".
    scale : "auto", "rows", "roots", "columns" or "none"
        How features are scaled for the distances, as for `WarmpotClassifier`, but "auto" is never "roots"; the
        estimator gets unscaled features.

    Attributes
    ----------
    source_weights_ : (n_source,) array
        The row sums of the plan, in the order of the source rows; they sum to alpha.
    sample_weight_ : (n_source,) array
        The training weights, or for "plan" the same weights, rescaled to mean 1, as scikit-learn expects.
    target_weights_ : (n_target,) array
        The column sums of the plan.
    plan_ : (n_source, n_target) scipy.sparse.csr_array
    warmpot_ : WarmpotClassifier or None
        The model whose training weights these are; None for "plan".
    estimator_, classes_
        The trained estimator, if `estimator` is given, and its classes, if it is a classifier.
    n_features_in_, feature_names_in_
        As in scikit-learn; the names only after a fit on a data frame with text column names.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, X_target = np.array([[0.0], [1.0], [2.0], [9.0]]), np.array([[0.1], [1.2]])
    >>> PartialReweighter(alpha=1.0, beta=0.5).fit(X, X_target=X_target).sample_weight_
    array([2., 2., 0., 0.])
    >>> model = PartialReweighter(LogisticRegression(), weights="plan", alpha=1.0, beta=0.5)
    >>> model.fit(X, [0, 1, 1, 0], X_target).predict(X_target)
    array([0, 1])
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        weights: str = "auto",
        alpha: float | str | None = None,
        beta: float | str | None = None,
        scale: str = "auto",
    ) -> None:
        self.estimator = estimator
        self.weights = weights
        self.alpha = alpha
        self.beta = beta
        self.scale = scale

    def fit(self, X: Any, y: Any = None, X_target: Any = None, sample_domain: Any = None) -> PartialReweighter:
        """Compute the weights, and train the estimator if there is one.

        Parameters
        ----------
        X, y, X_target, sample_domain
            As for `WarmpotClassifier.fit`.
        """
        if self.estimator is not None and not has_fit_parameter(self.estimator, "sample_weight"):
            allowed = "an estimator whose fit takes sample_weight"
            remedy = "Draw samples with probabilities proportional to sample_weight_ and fit it to those."
            raise InputError("estimator", got=type(self.estimator).__name__, allowed=allowed, remedy=remedy)
        for name in ("estimator_", "classes_"):  # left by an earlier fit, perhaps with another estimator
            self.__dict__.pop(name, None)
        multi_output = get_tags(self).target_tags.multi_output
        domains = read_domains(self, X, y, X_target, sample_domain, multi_output=multi_output)
        self.warmpot_ = None
        if self._uses_training_weights(domains.ys):
            model = WarmpotClassifier(alpha=self.alpha, beta=self.beta, scale=self.scale)
            self.warmpot_ = model.fit(domains.xs, domains.ys, domains.xt)
            self.plan_, self.source_weights_, self.target_weights_ = (
                model.plan_, model.source_weights_, model.target_weights_,
            )  # fmt: skip
            weights = model.training_weights_
        else:
            self._solve(domains)
            weights = self.source_weights_
        self.sample_weight_ = weights * (len(weights) / weights.sum())
        if self.estimator is not None:
            self.estimator_ = clone(self.estimator).fit(domains.xs, domains.ys, sample_weight=self.sample_weight_)
            if hasattr(self.estimator_, "classes_"):
                self.classes_ = self.estimator_.classes_
        return self

    def _uses_training_weights(self, ys: NDArray[Any] | None) -> bool:
        """Whether the weights are those of a training, which needs labels of classes."""
        kind = check_choice("weights", self.weights, WEIGHTS)
        classes = ys is not None and ys.ndim == 1
        if classes and (self.estimator is None or is_regressor(self.estimator)):
            classes = self.estimator is None and type_of_target(ys) in ("binary", "multiclass")
        if kind == "training" and not classes:
            got, remedy = "'training' without labels of classes", "Pass y, or use the weights of a plan."
            raise InputError("weights", got=got, allowed="'plan' or 'auto'", remedy=remedy)
        return classes and kind != "plan"

    def _solve(self, domains: Domains) -> None:
        """Solve one plan between the features."""
        from warmpot.transport import solve_partial_points

        given = {"alpha": self.alpha, "beta": self.beta}
        alpha, beta = (check_fraction(name, PLAN[name] if v is None else v) for name, v in given.items())
        xs, xt = _scaled(domains, check_choice("scale", self.scale, SCALES))
        solution = solve_partial_points(xs, xt, beta=beta, mass=alpha, progress_bar=False)
        self.plan_, self.source_weights_, self.target_weights_ = solution.plan, solution.p, solution.q

    def save(self, folder: Path | str) -> Path:
        """Write a new folder, which `load` reads; with training weights it is also the run folder of ``warmpot_``.

        The estimator is stored with joblib, as scikit-learn recommends for its models.
        """
        import joblib

        check_is_fitted(self)
        folder = Path(folder)
        if self.warmpot_ is not None:
            self.warmpot_.save(folder)
        elif not is_unused(folder):
            remedy = "Choose another folder."
            raise InputError(str(folder), got="a folder with files", allowed="a new folder", remedy=remedy)
        with atomic_write(make_folder(folder) / FILE) as draft:
            joblib.dump(self, draft)
        return folder

    @classmethod
    def load(cls, folder: Path | str) -> PartialReweighter:
        """Read what `save` wrote. Only from folders that you trust: like a pickle, the file can run code."""
        import joblib

        model = joblib.load(check_file(Path(folder) / FILE, "a folder that PartialReweighter.save wrote"))
        if not isinstance(model, cls):
            remedy = "Give a folder that PartialReweighter.save wrote."
            raise InputError(str(folder), got=type(model).__name__, allowed=cls.__name__, remedy=remedy)
        if model.warmpot_ is not None:
            model.warmpot_.run_folder_ = Path(folder)
        return model

    def report(self, path: Path | str, **options: Any) -> Path:
        """Write the HTML page of ``warmpot_``, whose training gave the weights; see `WarmpotClassifier.report`."""
        check_is_fitted(self)
        if self.warmpot_ is None:
            got, remedy = "weights of a single plan", "Pass labels of classes, and leave weights='auto'."
            raise InputError("report", got=got, allowed="training weights", remedy=remedy)
        return self.warmpot_.report(path, **options)

    @_if_inner_has("predict")
    def predict(self, X: Any) -> Any:
        """Predict with the estimator."""
        x = check_features_in(self, X)
        return self.estimator_.predict(x)

    @_if_inner_has("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        """Predict class probabilities with the estimator."""
        x = check_features_in(self, X)
        return self.estimator_.predict_proba(x)

    @_if_inner_has("decision_function")
    def decision_function(self, X: Any) -> Any:
        """Return the estimator's decision function."""
        x = check_features_in(self, X)
        return self.estimator_.decision_function(x)

    @_if_inner_has("score")
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the estimator's score: accuracy or R^2."""
        x = check_features_in(self, X)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return float(self.estimator_.score(x, y, **weights))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is not None:
            inner = get_tags(self.estimator)
            tags.estimator_type = inner.estimator_type
            tags.target_tags = inner.target_tags
            tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        return tags
