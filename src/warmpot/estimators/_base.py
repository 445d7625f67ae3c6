"""What the estimators share: splitting the samples into source and target, and training."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_consistent_length, check_random_state, check_X_y
from sklearn.utils.validation import check_is_fitted, validate_data

from warmpot._typing import BoolArray, FloatArray, IntArray
from warmpot.data import Task
from warmpot.errors import InputError, WarmpotWarning

if TYPE_CHECKING:
    from warmpot.train import RunConfig
    from warmpot.train.fitting import Fitted

__all__ = ["Domains", "TargetRequests", "TrainedEstimator", "check_features_in", "given_parameters", "read_domains"]

FEATURES: dict[str, Any] = {"dtype": (np.float64, np.float32), "order": "C"}
"""Other dtypes become float64. The order is fixed, so that a data frame gives the same digits as its array."""

EMPTY = np.zeros(0)  # classes of a regressor

EstimatorT = TypeVar("EstimatorT", bound="TrainedEstimator")


class TargetRequests:
    """Makes metadata routing pass `sample_domain` and `X_target` to ``fit`` without ``set_fit_request``."""

    __metadata_request__fit = {"sample_domain": True, "X_target": True}  # noqa: RUF012 - scikit-learn's form


class Domains(NamedTuple):
    """Source features, source labels if given, and target features, with the same dtype. Never target labels."""

    xs: NDArray[Any]
    ys: NDArray[Any] | None
    xt: NDArray[Any]


def read_domains(
    estimator: Any,
    X: Any,
    y: Any,
    X_target: Any,
    sample_domain: Any,
    *,
    y_numeric: bool = False,
    multi_output: bool = False,
    min_source: int = 1,
    needs_target: bool = True,
) -> Domains:
    """Check the arguments of ``fit`` and split them into domains; set the estimator's ``n_features_in_``."""
    if X_target is not None and sample_domain is not None:
        remedy = "Pass the target once: separately, or stacked under X."
        raise InputError("X_target and sample_domain", got="both", allowed="one of them", remedy=remedy)
    labels = {"y_numeric": y_numeric, "multi_output": multi_output}
    options = {"ensure_min_samples": min_source, **FEATURES}
    ys = None
    if sample_domain is not None:
        # With None, scikit-learn checks the estimator's tags; otherwise only the source labels are checked, below.
        x = validate_data(estimator, X, None if y is None else "no_validation", **FEATURES)
        source = _source_rows(sample_domain, len(x))
        xs, xt = x[source], x[~source]
        if y is not None:
            check_consistent_length(x, y)
            # Target labels, masked as in skada (-1 or NaN) or not, are dropped here without being read.
            xs, ys = check_X_y(xs, _select(y, source), **options, **labels)
    else:
        if y is None:
            xs = validate_data(estimator, X, y, **options)
        else:
            xs, ys = validate_data(estimator, X, y, **options, **labels)
        try:
            xt = xs if X_target is None else validate_data(estimator, X_target, reset=False, **FEATURES)
        except ValueError as error:  # scikit-learn's message calls it X
            got, remedy = " ".join(str(error).split()), "Prepare it exactly as X."
            raise InputError("X_target", got=got, allowed="samples with X's features", remedy=remedy) from error
        if X_target is not None and (got := _named_apart(X, X_target) or _scaled_apart(xs, xt)):
            remedy = "In a Pipeline, let it transform the target: `transform_input=['X_target']`."
            _warn_about_target(got, "features that are prepared as X", remedy)
        if X_target is None and needs_target:
            remedy = "The source was taken for its own target: nothing is adapted."
            _warn_about_target("none", "the features of the target", remedy)
    dtype = np.result_type(xs, xt)  # distances between the two need a common dtype
    return Domains(xs.astype(dtype, copy=False), ys, xt.astype(dtype, copy=False))


ROWS = 10_000  # samples of each domain that the sizes are compared on
APART, APART_FROM_STANDARD = 10.0, 3.0
"""Ratio of the sizes of the features in the two domains that is taken for a scaler which saw only one of them: a domain
shift is rarely that large. The second one if the source is standardized, because then the right size is known."""


def _named_apart(X: Any, X_target: Any) -> str:
    """Describe a target that has column names next to a source that lost them, as in a pipeline that transforms X."""
    return "a data frame, and X is none" if hasattr(X_target, "columns") and not hasattr(X, "columns") else ""


def _scaled_apart(xs: NDArray[Any], xt: NDArray[Any]) -> str:
    """Describe a target that looks unscaled next to a scaled source, as in a pipeline that transforms X only."""
    source, target = (x[:: -(-len(x) // ROWS)].astype(np.float64) for x in (xs, xt))
    with np.errstate(all="ignore"):  # of numbers near the limits of float64
        sizes = [np.abs(x).mean(axis=0) for x in (source, target)]
        ratios = sizes[1] / sizes[0]
        varied = source.std(axis=0) > 0
        mean, spread = source.mean(axis=0)[varied], source.std(axis=0)[varied]
    ratios = ratios[np.isfinite(ratios) & (ratios > 0)]
    standard = varied.any() and bool((np.abs(mean) < 0.05).all() and (np.abs(spread - 1) < 0.05).all())
    limit = APART_FROM_STANDARD if standard else APART
    if not ratios.size or 1 / limit <= (ratio := float(np.median(ratios))) <= limit:
        return ""
    return f"features {ratio:.2g} times the size of X's" + (", which is standardized" if standard else "")


def _warn_about_target(got: str, allowed: str, remedy: str) -> None:
    # the fourth frame up is the caller of fit: past this function, read_domains and fit
    warnings.warn(WarmpotWarning("X_target", got=got, allowed=allowed, remedy=remedy), stacklevel=4)


def _select(y: Any, rows: BoolArray) -> NDArray[Any]:
    """Return the labels of some rows; for Python objects, with a dtype that does not depend on the other rows."""
    if hasattr(y, "to_numpy"):  # pandas
        selected = y[rows].to_numpy()
    elif isinstance(y, np.ndarray):
        selected = y[rows]
    else:
        selected = np.asarray(list(compress(y, rows)))
    return np.asarray(selected.tolist()) if selected.dtype == object else selected


def check_features_in(estimator: Any, X: Any) -> NDArray[Any]:
    """Check that the estimator is fitted and that it can predict from these features; return them."""
    check_is_fitted(estimator)
    x: NDArray[Any] = validate_data(estimator, X, reset=False, **FEATURES)
    return x


def _source_rows(sample_domain: Any, n: int) -> BoolArray:
    """Return which rows are source; ``>= 0`` is skada's convention."""
    allowed = "one whole number per row: >= 0 for source, < 0 for target"
    remedy = "Mark target rows by negative numbers, or leave it out when there is no target."
    try:
        domain = check_array(sample_domain, ensure_2d=False, dtype=np.float64, input_name="sample_domain")
    except (TypeError, ValueError) as error:
        raise InputError("sample_domain", got=" ".join(str(error).split()), allowed=allowed, remedy=remedy) from error
    source: BoolArray = domain >= 0
    if domain.shape != (n,):
        got, allowed = f"shape {domain.shape}", f"{allowed} (shape ({n},))"
    elif (domain != np.rint(domain)).any():
        got = "fractions"
    elif source.all() or not source.any():
        got, allowed = "no target rows" if source.all() else "no source rows", f"both ({allowed})"
    else:
        return source
    raise InputError("sample_domain", got=got, allowed=allowed, remedy=remedy)


@dataclass(eq=False, repr=False, kw_only=True)
class TrainedEstimator(TargetRequests):
    """Base of the estimators that `warmpot.select.fit_chosen` trains; the fields are the constructor's parameters."""

    _label_checks: ClassVar[dict[str, Any]] = {}
    _needs_target: ClassVar[bool] = True

    scale: str | None = None
    overrides: Mapping[str, Any] | None = None
    random_state: Any = None
    progress_bar: bool | None = False

    def _changes(self) -> dict[str, Any]:
        """Return the settings that the constructor puts over the preset."""
        raise NotImplementedError

    def _preset(self) -> str:
        preset: str = self.preset  # type: ignore[attr-defined]
        return preset

    def _encode_labels(self, ys: NDArray[Any]) -> tuple[IntArray | FloatArray, tuple[str, ...]]:
        """Return the labels as the engines take them, and the names of the classes; set ``classes_``."""
        raise NotImplementedError

    def _set_results(self, fitted: Fitted) -> None:
        """Set the attributes that hold predictions for the target."""
        raise NotImplementedError

    def fit(self: EstimatorT, X: Any, y: Any, X_target: Any = None, sample_domain: Any = None) -> EstimatorT:
        """Train on a labelled source and an unlabelled target.

        Without `X_target` and `sample_domain` no shift is known, and the source is its own target, with a warning.

        Parameters
        ----------
        X : (n, d) array or data frame
            Source features; with `sample_domain`, source and target features, in any order.
        y : (n,) array
            Source labels. With `sample_domain` also entries for target rows, which are never read.
        X_target : (n_target, d) array or data frame, optional
            Target features.
        sample_domain : (n,) array of int, optional
            The domain of each row, as in skada: ``>= 0`` is source, ``< 0`` is target.

        Returns
        -------
        self
        """
        from warmpot.select.best_iterate import fit_chosen

        checks = {**self._label_checks, "needs_target": self._needs_target}
        domains = read_domains(self, X, y, X_target, sample_domain, **checks)
        ys, classes = self._encode_labels(np.asarray(domains.ys))
        config = self._config()
        columns = tuple(getattr(self, "feature_names_in_", ()))  # of a data frame
        task = Task(
            domains.xs, ys, domains.xt, classes, columns, text_labels=np.asarray(domains.ys).dtype.kind not in "biuf"
        )
        fitted = fit_chosen(task, config, progress_bar=self.progress_bar)
        self._set_fitted(fitted)
        return self

    def _set_fitted(self, fitted: Fitted) -> None:
        """Set the attributes of a fitted estimator."""
        self.config_, self.predictor_ = fitted.config, fitted.predictor
        self.source_weights_, self.training_weights_ = fitted.source_weights, fitted.training_weights
        self.target_weights_ = fitted.target_weights
        self.plan_ = None if fitted.solution is None else fitted.solution.plan
        self.history_, self.chosen_step_ = fitted.history, fitted.step
        self._set_results(fitted)
        self._fitted = fitted

    def __getstate__(self) -> dict[str, Any]:
        # A model that is stored does not take its training data along: `save` writes what a report needs of them.
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_fitted"}

    def save(self, folder: Path | str) -> Path:
        """Write a new run folder: the model, predictions, weights. `load`, and the commands, read it.

        Only after a fit: a model that was loaded has its folder, and one that was unpickled no longer has its data.
        """
        given = self.get_params()  # type: ignore[attr-defined]
        params = {name: value for name, value in _python_numbers(given).items() if _is_json(value)}
        facts = {"class": type(self).__name__, "params": params, "classes": getattr(self, "classes_", EMPTY).tolist()}
        return self._live("save").save(folder, facts={"estimator": facts})

    def report(self, path: Path | str, **options: Any) -> Path:
        """Write the HTML page of the fit, see `warmpot.report.report_run`; after `load`, that of the folder."""
        from warmpot.report import report_run

        run = getattr(self, "run_folder_", None) or self._live("report")
        return report_run(run, out=path, **{"figures": False, **options})

    def _live(self, what: str) -> Fitted:
        check_is_fitted(self)
        if not hasattr(self, "_fitted"):
            got, remedy = "a model without its training data", "Call it after fit, in the same process."
            raise InputError(what, got=got, allowed="a model that was fitted here", remedy=remedy)
        fitted: Fitted = self._fitted
        return fitted

    @classmethod
    def load(cls: type[EstimatorT], folder: Path | str) -> EstimatorT:
        """Read a fitted estimator from the folder that `save` wrote."""
        from warmpot.train.run_folder import read_config
        from warmpot.train.run_reader import read_run

        run = read_run(Path(folder))
        facts = run.facts.get("estimator")
        if not isinstance(facts, Mapping) or facts.get("class") != cls.__name__:
            got = f"the run of a {facts['class']}" if isinstance(facts, Mapping) else "a run of `warmpot fit`"
            remedy = "Load it with its class, or with warmpot.load, which reads any run."
            raise InputError(str(folder), got=got, allowed=f"what {cls.__name__}.save wrote", remedy=remedy)
        model: Any = cls(**facts["params"])
        model.run_folder_, model.config_, model.predictor_ = (
            Path(folder),
            read_config(Path(folder)),
            run.load_predictor(),
        )
        model.n_features_in_ = model.predictor_.width
        if model.predictor_.columns:
            model.feature_names_in_ = np.array(model.predictor_.columns, dtype=object)
        if facts["classes"]:
            model.classes_ = np.array(facts["classes"])
        model.training_weights_ = run.training_weights
        model.source_weights_ = run.training_weights if run.plan_weights is None else run.plan_weights
        model.target_weights_ = run.matched / max(run.n_target, 1)
        model.history_, model.chosen_step_ = list(run.history), run.step
        loaded: EstimatorT = model
        return loaded

    def _config(self) -> RunConfig:
        from warmpot._settings import merged
        from warmpot.train import load_config

        changes = merged(self.overrides or {}, _python_numbers(self._changes()))
        if self.scale is not None:
            changes = merged(changes, {"full": {"scale": self.scale}, "minibatch": {"network": {"scale": self.scale}}})
        return load_config(self._preset(), changes=self._seeded(changes))

    def _seeded(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings with the seed that `random_state` gives."""
        if self.random_state is None:
            return dict(changes)
        whole = isinstance(self.random_state, (int, np.integer))
        seed = self.random_state if whole else check_random_state(self.random_state).randint(2**31 - 1)
        return {**changes, "seed": int(seed)}


def given_parameters(estimator: Any, *names: str) -> dict[str, Any]:
    """Return the constructor parameters that are not None."""
    return {name: getattr(estimator, name) for name in names if getattr(estimator, name) is not None}


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _python_numbers(value: Any) -> Any:
    """Replace numbers of numpy, such as the np.float32 of a grid, which is not a float."""
    if isinstance(value, Mapping):
        return {name: _python_numbers(inner) for name, inner in value.items()}
    return value.item() if isinstance(value, np.generic) else value
