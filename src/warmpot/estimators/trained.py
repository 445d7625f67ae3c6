"""Classifiers and a regressor for a target without labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from warmpot._checks import check_choice
from warmpot._typing import FloatArray, IntArray
from warmpot.errors import InputError
from warmpot.estimators._base import TrainedEstimator, check_features_in, given_parameters

if TYPE_CHECKING:
    from warmpot.train.fitting import Fitted

__all__ = ["AdaptedClassifier", "SourceOnlyClassifier", "WarmpotClassifier", "WarmpotRegressor"]


class Classifier(TrainedEstimator, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the classifiers."""

    def _encode_labels(self, ys: NDArray[Any]) -> tuple[IntArray, tuple[str, ...]]:
        check_classification_targets(ys)
        self.classes_, codes = np.unique(ys, return_inverse=True)
        if len(self.classes_) < 2:
            got, remedy = f"one class only ({self.classes_[0]!r})", "Give the source samples of every class."
            raise InputError("y", got=got, allowed="at least two classes", remedy=remedy)
        return codes.astype(np.int64), tuple(str(name) for name in self.classes_.tolist())

    def _set_results(self, fitted: Fitted) -> None:
        assert fitted.presence is not None, "every classifier has one"
        self.target_proba_, self.presence_, self.verdict_ = fitted.outputs, fitted.presence, fitted.verdict
        names = self.classes_.tolist()
        self.target_classes_ = {names[k]: share for k, share in fitted.presence.present.items()}

    def predict_proba(self, X: Any) -> FloatArray:
        """Predict class probabilities: (n, n_classes), columns in the order of ``classes_``."""
        x = check_features_in(self, X)
        return self.predictor_.probabilities(x)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the most probable class of each sample: (n,), with the dtype of ``classes_``."""
        codes = self.predict_proba(X).argmax(axis=1)  # refuses a model that is not fitted
        labels: NDArray[Any] = self.classes_[codes]
        return labels


@dataclass(eq=False, repr=False)
class WarmpotClassifier(Classifier):
    """Classify a target that has only some of the source's classes (WARMPOT).

    A partial transport plan between source and target gives the source samples weights, low for classes that the
    target does not have, and transfers labels to the target. A classifier is trained on both, and the plan is solved
    again with its predictions.

    Parameters
    ----------
    preset : str
        A recipe of the package, see `warmpot.train.preset_names`: "full" (plans over all pairs, a linear classifier),
        "frozen" (mini-batches, for features of a network), or the mini-batch training of the paper, "official",
        "paper", "imagenet-caltech".
    alpha : float or "auto", optional
        Share of the target that is matched, in (0, 1]. "auto" (the default of "full"): the share that the predictions
        are expected to get right. Default: the preset's.
    beta : float or "auto", optional
        Share of the source that is relevant, in (0, 1]; a source sample has at most the weight
        ``1 / (beta n_source)``. "auto" (the default of "full"): the expected share of the source in classes that the
        target has (`presence_`), and a class can supply only what the target is expected to have of it. Default: the
        preset's.
    scale : "auto", "rows", "roots", "columns" or "none", optional
        How features are scaled. "rows": every sample to the same length (features of a network). "roots": the same
        after the square root of every entry. "columns": every feature is standardized over both domains (tables of
        measurements). "none": not at all. "auto": "columns" for fewer than 64 features, otherwise "rows", or in "full"
        "roots" for features as after a ReLU. Default: the preset's, which is "auto" for "full" and "frozen", and "none"
        for the paper's.
    overrides : mapping, optional
        Other settings that replace the preset's, nested as in its YAML file: ``{"full": {"rounds": 3}}``.
    random_state : int or RandomState, optional
        Seed. The preset "full" uses no random numbers. Default: the preset's seed, so that every fit is the same.
    progress_bar : bool or None
        True: show a progress bar; False: log lines; None: a bar on a terminal.

    Attributes
    ----------
    classes_ : (n_classes,) array
        Classes of the source.
    source_weights_, training_weights_ : (n_source,) arrays
        Weights of the source samples in the plan (its row sums, which sum to alpha), and in the training (they sum to
        1). Without a plan, both are those of the training.
    target_weights_ : (n_target,) array
        The column sums of the plan, at most ``1 / n_target`` each; 0 for a sample that was left out.
    plan_ : (n_source, n_target) scipy.sparse.csr_array or None
        The plan; None if round 0, which has no plan and equal weights, was chosen.
    target_proba_ : (n_target, n_classes) array
        Class probabilities of the target samples.
    target_classes_ : dict
        Classes estimated to be present in the target (with a probability of at least .5), with the expected share of
        the target samples in each, the largest first; no target label is used. The shares sum to less than 1 if other
        classes may be present too.
    presence_ : warmpot.weights.ClassPresence
        The probability of each class, in the order of ``classes_``, to be in the target, and the evidence.
    verdict_ : warmpot.weights.Verdict or None
        Whether the adaptation is supported, doubtful or not supported, with the reason; None where the result was not
        chosen from hypotheses: in mini-batches, for the bound, where a validator chose an iterate.
    history_ : list of dict
        Logged metrics of the training.
    chosen_step_ : int
        The round or step of the model: the last, unless a validator chose (``overrides={"choose": ...}``). Round 0 is
        the fit on the source alone.
    config_, predictor_ : warmpot.train.RunConfig, warmpot.train.Predictor
        All settings, and the trained network, including the scaling of the features.
    n_features_in_, feature_names_in_
        As in scikit-learn; the names only after a fit on a data frame with text column names.

    Notes
    -----
    In a `Pipeline` the target has to pass through the transformers as well. Either stack it under the source and pass
    `sample_domain`, or let the pipeline transform it, ``Pipeline(steps, transform_input=["X_target"])``. Both need
    ``sklearn.set_config(enable_metadata_routing=True)``; there is no need to call ``set_fit_request``.

    `GridSearchCV` splits an `X_target` that has as many rows as `X`; use `sample_domain` in that case.

    Unlike in skada, the label -1 does not mark target samples: without `sample_domain`, -1 is a class like any other.

    Examples
    --------
    The target has the classes "a" and "b" only:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> centres, y = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]), np.repeat([0, 1, 2], 20)
    >>> X = centres[y] + rng.normal(size=(60, 2)) / 2
    >>> X_target = centres[[0, 1] * 15] + rng.normal(size=(30, 2)) / 2 + 0.5
    >>> model = WarmpotClassifier(alpha=0.9, beta=0.6).fit(X, np.array(["a", "b", "c"])[y], X_target)
    >>> model.target_classes_
    {'a': 0.5, 'b': 0.5}
    >>> model.predict([[0.2, 0.1], [4.2, 0.3]])
    array(['a', 'b'], dtype='<U1')
    """

    preset: str = "full"
    _: KW_ONLY
    alpha: float | str | None = None
    beta: float | str | None = None

    def _changes(self) -> dict[str, Any]:
        return {"params": given_parameters(self, "alpha", "beta")}


@dataclass(eq=False, repr=False)
class AdaptedClassifier(Classifier):
    """Classify a target that has only some of the source's classes, with any method of the package.

    Parameters
    ----------
    method : str, optional
        A name from `warmpot.methods.METHODS`; ``warmpot methods`` lists them. Default: the preset's, or "warmpot"
        without a preset.
    preset : str, optional
        One of the method's recipes. Default: its recipe for features, ``METHOD-frozen``; "full" for "warmpot" and
        "source-only" for "source-only", the two methods that run on the full engine; "frozen" for a method without
        recipes, such as your own.
    weights : str, optional
        How source samples are weighted: a name from `warmpot.methods.WEIGHTINGS`, or "own" for the row sums of the
        method's plan. Default: the preset's.
    params, weight_params : mapping, optional
        Parameters of the method and of the weighting that replace the preset's. If `weights` differs from the
        preset's, `weight_params` replace the defaults of the weighting.
    scale, overrides, random_state, progress_bar
        As for `WarmpotClassifier`.

    Attributes
    ----------
    source_weights_, target_weights_, plan_
        If the method weights by its own plan: the row and column sums of that plan over all pairs, and the plan.
        Otherwise source weights sum to 1, target weights are equal, and the plan is None.
    classes_, target_proba_, ...
        Everything else as for `WarmpotClassifier`.

    Examples
    --------
    With the data of `WarmpotClassifier`, whose target has the classes 0 and 1 only:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> centres, y = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]), np.repeat([0, 1, 2], 20)
    >>> X = centres[y] + rng.normal(size=(60, 2)) / 2
    >>> X_target = centres[[0, 1] * 15] + rng.normal(size=(30, 2)) / 2 + 0.5
    >>> model = AdaptedClassifier("mpot", weights="class_share", overrides={"minibatch": {"steps": 50}})
    >>> model.fit(X, y, X_target).predict([[0.2, 0.1], [4.2, 0.3]])
    array([0, 1])
    """

    method: str | None = None
    _: KW_ONLY
    preset: str | None = None
    weights: str | None = None
    params: Mapping[str, Any] | None = None
    weight_params: Mapping[str, Any] | None = None

    def _preset(self) -> str:
        from warmpot.train.recipes import DEFAULT, preset_for

        return self.preset or DEFAULT if self.method is None else preset_for(self.method, self.preset)

    def _changes(self) -> dict[str, Any]:
        return given_parameters(self, "method", "weights", "params", "weight_params")


class SourceOnlyClassifier(Classifier):
    """The same classifier trained on the source alone, as a baseline for adaptation.

    Parameters and attributes are those of `WarmpotClassifier`; all weights are equal and sum to 1, and there is no
    plan.

    Examples
    --------
    >>> model = SourceOnlyClassifier().fit([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1])
    >>> model.predict([[-1.0], [6.0]])
    array([0, 1])
    """

    preset = "source-only"
    _needs_target: ClassVar = False

    def _changes(self) -> dict[str, Any]:
        return {}


LOSSES = ("squared", "absolute")


@dataclass(eq=False, repr=False)
class WarmpotRegressor(TrainedEstimator, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predict continuous targets on a domain that covers a part of the source (WARMPOT with a regression loss).

    The cost of matching a source with a target sample is the distance between their features plus the loss between
    the source label and the prediction for the target sample, in units of the standard deviation of the source labels.

    Parameters
    ----------
    loss : "squared" or "absolute"
        Label loss in the cost of the plan and in mini-batch training. The preset "full" always refits by least squares.
    preset, alpha, beta, scale, overrides, random_state, progress_bar
        As for `WarmpotClassifier`; the preset "full" uses 0.35 for `beta`.

    Attributes
    ----------
    target_prediction_ : (n_target,) array
        Predictions for the target samples; everything else as for `WarmpotClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0.0, 10.0, 50)[:, None]
    >>> model = WarmpotRegressor(alpha=1.0, beta=0.5).fit(X, np.sin(X[:, 0] / 4), X_target=X[:20] + 0.1)
    >>> bool(model.source_weights_[:20].sum() > 0.7)  # where the target is
    True
    """

    _label_checks: ClassVar = {"y_numeric": True, "min_source": 2}

    preset: str = "full"
    _: KW_ONLY
    loss: str = "squared"
    alpha: float | None = None
    beta: float | None = None

    def _changes(self) -> dict[str, Any]:
        loss = check_choice("loss", self.loss, LOSSES)
        return {"loss": loss, "params": given_parameters(self, "alpha", "beta")}

    def _encode_labels(self, ys: NDArray[Any]) -> tuple[FloatArray, tuple[str, ...]]:
        return ys.astype(np.float64), ()

    def _set_results(self, fitted: Fitted) -> None:
        self.target_prediction_ = fitted.outputs

    def predict(self, X: Any) -> FloatArray:
        """Predict continuous targets: (n,)."""
        x = check_features_in(self, X)
        return self.predictor_.values(x)
