"""Classifiers for a target without labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from warmpot._typing import FloatArray
from warmpot.errors import InputError
from warmpot.estimators._shared import TrainedMixin, plain, plan_changes, read_domains, read_rows
from warmpot.weights import estimate_present_classes, predicted_shares

__all__ = ["AdaptedClassifier", "SourceOnlyClassifier", "WarmpotClassifier"]


class _Classifier(TrainedMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """What the classifiers do."""

    # Metadata routing: both names mean something to these estimators only, so they are asked for without being told.
    __metadata_request__fit = {"sample_domain": True, "X_target": True}  # noqa: RUF012 - scikit-learn's form

    def fit(self, X: Any, y: Any, X_target: Any = None, sample_domain: Any = None) -> Any:  # noqa: N803
        """Train on a labelled source and an unlabelled target.

        Parameters
        ----------
        X : (n, d) array or data frame
            Source features; with `sample_domain`, source and target features, in any order.
        y : (n,) array
            Source labels, of any type. With `sample_domain` also entries for target rows, which are never read.
        X_target : (n_target, d) array or data frame, optional
            Target features.
        sample_domain : (n,) array of int, optional
            skada's way to name domains: ``>= 0`` is source, ``< 0`` is target.

            Without this and `X_target` no shift is known, and the source is its own target.

        Returns
        -------
        self
        """
        domains = read_domains(self, X, y, X_target, sample_domain)
        ys = np.asarray(domains.ys)
        check_classification_targets(ys)
        self.classes_, codes = np.unique(ys, return_inverse=True)
        if len(self.classes_) < 2:
            got, remedy = f"one class only ({self.classes_[0]!r})", "Give the source samples of every class."
            raise InputError("y", got=got, allowed="at least two classes", remedy=remedy)
        fitted = self._train(domains, codes.astype(np.int64), tuple(str(name) for name in self.classes_.tolist()))
        self.target_proba_ = fitted.outputs
        names, shares = self.classes_.tolist(), predicted_shares(fitted.outputs)
        self.target_classes_ = {names[k]: share for k, share in estimate_present_classes(shares).items()}
        return self

    def predict_proba(self, X: Any) -> FloatArray:  # noqa: N803
        """Class probabilities.

        Parameters
        ----------
        X : (n, d) array or data frame

        Returns
        -------
        (n, n_classes) array
            Columns in the order of ``classes_``.
        """
        x = read_rows(self, X)
        return self.predictor_.probabilities(x)

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Most probable class of every sample.

        Parameters
        ----------
        X : (n, d) array or data frame

        Returns
        -------
        (n,) array
            Of the dtype of ``classes_``.
        """
        best = self.predict_proba(X).argmax(axis=1)
        found: NDArray[Any] = self.classes_[best]
        return found


class WarmpotClassifier(_Classifier):
    """Classify a target whose classes are some of the source's (WARMPOT).

    A partial transport plan between source and target weighs the source samples, so that classes the target does not
    have count little, and carries labels over; a classifier is trained on both, and the plan solved anew.

    Parameters
    ----------
    preset : str
        A recipe of the package, see `warmpot.train.preset_names`: "full" (plans over all pairs, a linear classifier),
        "frozen" (mini-batches, for features of a network), or the mini-batch training of the paper, "official",
        "paper", "imagenet-caltech".
    alpha : float or "auto", optional
        In (0, 1]: share of the target that is matched. Default: the preset's. "auto", as in "full": what the
        predictions expect to be matched rightly.
    beta : float or "auto", optional
        In (0, 1]: share of the source believed to matter; a source sample weighs at most ``1 / (beta n_source)``.
        Default: the preset's. "auto", as in "full": as the classes predicted on the target say.
    scale : "auto", "rows", "columns" or "none", optional
        Units of the features. "rows": every sample is scaled to one length (features of a network). "columns": every
        feature is standardised over both domains (tables of measurements). "none": as they are. "auto": "columns"
        below 64 features, "rows" from there on. Default: the preset's; "auto" for "full" and "frozen", "none" for the
        paper's.
    overrides : mapping, optional
        Further settings over the preset, nested as in its YAML file: ``{"full": {"rounds": 3}}``.
    random_state : int or RandomState, optional
        Default: the preset's seed, so that a fit can be repeated. The preset "full" draws nothing.
    progress_bar : bool or None
        True: a bar; False: log lines; None: a bar on a terminal.

    Attributes
    ----------
    classes_ : (n_classes,) array
        The source's classes.
    source_weights_ : (n_source,) array
        Weight of every source row, in the order given: row sums of the plan, total alpha.
    target_weights_ : (n_target,) array
        Column sums of the plan: at most ``1 / n_target`` each; 0 for a sample that was left out.
    plan_ : (n_source, n_target) scipy.sparse.csr_array or None
        The plan; None for a method without one, and when round 0 was chosen: all weights are equal then.
    target_proba_ : (n_target, n_classes) array
        Class probabilities of the target samples.
    target_classes_ : dict
        Classes believed to occur in the target, with the share of it predicted as each, the largest first. A class
        counts as present when at least a quarter of an equal share, ``1 / (4 n_classes)``, is predicted as it; no
        target label is used. Stray predictions of other classes are what the shares lack to 1.
    history_ : list of dict
        What training logged.
    chosen_step_ : int
        The round or step whose model it is: the last, unless a validator chose (``overrides={"choose": ...}``). Round
        0 is the fit on the source alone.
    config_ : warmpot.train.RunConfig
        The resolved settings.
    predictor_ : warmpot.train.Predictor
        The trained network, which scales features by itself.
    n_features_in_ : int
    feature_names_in_ : (n_features_in_,) array
        Only after a fit on a data frame with text column names.

    Notes
    -----
    In a `Pipeline` the target has to pass through the transformers as well. Either stack it under the source and pass
    `sample_domain`, or let the pipeline transform it, ``Pipeline(steps, transform_input=["X_target"])``. Both need
    ``sklearn.set_config(enable_metadata_routing=True)``; there is no need to call ``set_fit_request``.

    `GridSearchCV` takes an `X_target` with as many rows as `X` for something to split along; use `sample_domain` then.

    With `sample_domain`, that alone says what is target. Without it, skada takes the label -1 for "target"; here -1
    is then a class as any other, as scikit-learn has it.

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

    def __init__(
        self,
        preset: str = "full",
        *,
        alpha: float | str | None = None,
        beta: float | str | None = None,
        scale: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        random_state: Any = None,
        progress_bar: bool | None = False,
    ) -> None:
        self.preset = preset
        self.alpha = alpha
        self.beta = beta
        self.scale = scale
        self.overrides = overrides
        self.random_state = random_state
        self.progress_bar = progress_bar

    def _changes(self) -> dict[str, Any]:
        return plan_changes(self.alpha, self.beta)


class AdaptedClassifier(_Classifier):
    """Classify a target whose classes are some of the source's, by any method of the package.

    Parameters
    ----------
    method : str, optional
        A name from `warmpot.methods.METHODS`; ``warmpot methods`` lists them. Default: that of the preset, without one
        "warmpot".
    preset : str, optional
        One of the method's recipes. Default: the one for features, ``METHOD-frozen`` ("full" for "warmpot",
        "source-only" for itself: the full engine, which the others do not have); for a method without recipes, such as
        your own, "frozen".
    weights : str, optional
        How source samples are weighted: a name from `warmpot.methods.WEIGHTINGS`, or "own" for the row sums of the
        method's plan. Default: as the preset has it.
    params, weight_params : mapping, optional
        Parameters of the method and of the weighting, over the preset's. With other `weights` than the preset's, over
        the weighting's own.
    scale, overrides, random_state, progress_bar
        As for `WarmpotClassifier`.

    Attributes
    ----------
    classes_, target_proba_, target_classes_, history_, chosen_step_, config_, predictor_, n_features_in_
        As for `WarmpotClassifier`.
    feature_names_in_
        As for `WarmpotClassifier`.
    source_weights_ : (n_source,) array
        Weight of every source row at the end, in the order given: row sums of the method's own plan over all pairs
        where it has one and is weighted by it; else total 1.
    target_weights_ : (n_target,) array
        Column sums of that plan; else all equal.
    plan_ : (n_source, n_target) scipy.sparse.csr_array or None
        That plan.

    Examples
    --------
    The target has the classes 0 and 1 only:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> centres, y = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]), np.repeat([0, 1, 2], 20)
    >>> X = centres[y] + rng.normal(size=(60, 2)) / 2
    >>> X_target = centres[[0, 1] * 15] + rng.normal(size=(30, 2)) / 2 + 0.5
    >>> model = AdaptedClassifier("mpot", weights="class_share", overrides={"minibatch": {"steps": 50}})
    >>> model.fit(X, y, X_target).predict([[0.2, 0.1], [4.2, 0.3]])
    array([0, 1])
    """

    def __init__(
        self,
        method: str | None = None,
        *,
        preset: str | None = None,
        weights: str | None = None,
        params: Mapping[str, Any] | None = None,
        weight_params: Mapping[str, Any] | None = None,
        scale: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        random_state: Any = None,
        progress_bar: bool | None = False,
    ) -> None:
        self.method = method
        self.preset = preset
        self.weights = weights
        self.params = params
        self.weight_params = weight_params
        self.scale = scale
        self.overrides = overrides
        self.random_state = random_state
        self.progress_bar = progress_bar

    def _preset(self) -> str:
        from warmpot.train.recipes import DEFAULT, preset_for

        return self.preset or DEFAULT if self.method is None else preset_for(self.method, self.preset)

    def _changes(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in ("method", "weights", "params", "weight_params")}
        return {name: plain(value) for name, value in given.items() if value is not None}


class SourceOnlyClassifier(_Classifier):
    """The same classifier trained on the source alone: what adaptation has to beat.

    Parameters
    ----------
    scale, overrides, random_state, progress_bar
        As for `WarmpotClassifier`.

    Attributes
    ----------
    classes_, target_proba_, target_classes_, history_, chosen_step_, config_, predictor_, n_features_in_
        As for `WarmpotClassifier`.
    feature_names_in_
        As for `WarmpotClassifier`.
    source_weights_, target_weights_ : arrays
        All equal, total 1.
    plan_ : None

    Examples
    --------
    >>> model = SourceOnlyClassifier().fit([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1])
    >>> model.predict([[-1.0], [6.0]])
    array([0, 1])
    """

    preset = "source-only"

    def __init__(
        self,
        *,
        scale: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        random_state: Any = None,
        progress_bar: bool | None = False,
    ) -> None:
        self.scale = scale
        self.overrides = overrides
        self.random_state = random_state
        self.progress_bar = progress_bar

    def _changes(self) -> dict[str, Any]:
        return {}
