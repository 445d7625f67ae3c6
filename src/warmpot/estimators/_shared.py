"""What the estimators share: which rows are source and target, and the way to the engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_consistent_length, check_random_state, check_X_y
from sklearn.utils.validation import check_is_fitted, validate_data

from warmpot._typing import BoolArray, FloatArray, IntArray
from warmpot.data import Task
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.train import Fitted, RunConfig

__all__ = ["Domains", "TrainedMixin", "plain", "plan_changes", "read_domains", "read_rows"]

FEATURES: dict[str, Any] = {"dtype": (np.float64, np.float32), "order": "C"}
"""Two dtypes are kept, others become float64; one order, so that a data frame gives the same digits as its array."""


@dataclass(frozen=True, eq=False)
class Domains:
    """What a fit may see: there is no field for target labels.

    Attributes
    ----------
    xs, ys
        Source features and labels; labels are None when none were given.
    xt
        Target features, of the dtype of `xs`.
    """

    xs: NDArray[Any]
    ys: NDArray[Any] | None
    xt: NDArray[Any]


def read_domains(
    estimator: Any,
    X: Any,  # noqa: N803 - scikit-learn's names
    y: Any,
    X_target: Any,  # noqa: N803
    sample_domain: Any,
    *,
    y_numeric: bool = False,
    multi_output: bool = False,
    min_source: int = 1,
) -> Domains:
    """Check the arguments of a fit and split them into domains.

    Parameters
    ----------
    estimator : estimator
        Gets ``n_features_in_`` and, from a data frame, ``feature_names_in_``.
    X, y, X_target, sample_domain
        As given to ``fit``. One of the last two names the target; without either, the source is its own target.
    y_numeric, multi_output : bool
        Whether labels are real numbers; whether a sample may have several.
    min_source : int
        Source samples that are needed at least.
    """
    if X_target is not None and sample_domain is not None:
        remedy = "Pass the target once: by itself, or stacked under X."
        raise InputError("X_target and sample_domain", got="both", allowed="one of them", remedy=remedy)
    labels = {"y_numeric": y_numeric, "multi_output": multi_output}
    ys = None
    if sample_domain is not None:
        # None asks the estimator's tags whether it can do without labels; others are looked at below, source rows only.
        x = validate_data(estimator, X, None if y is None else "no_validation", **FEATURES)
        source = _source_rows(sample_domain, len(x))
        xs, xt = x[source], x[~source]
        if y is not None:
            check_consistent_length(x, y)
            # Target labels end here, unread: masked (skada: -1 or NaN) or not, nothing after this line knows them.
            known = _selected(y, source)
            xs, ys = check_X_y(xs, known, ensure_min_samples=min_source, **FEATURES, **labels)
    elif y is None:
        xs = validate_data(estimator, X, y, ensure_min_samples=min_source, **FEATURES)
        xt = xs if X_target is None else _read_target(estimator, X_target)
    else:
        xs, ys = validate_data(estimator, X, y, ensure_min_samples=min_source, **FEATURES, **labels)
        xt = xs if X_target is None else _read_target(estimator, X_target)
    dtype = np.result_type(xs, xt)  # distances between the two need one dtype
    return Domains(xs.astype(dtype, copy=False), ys, xt.astype(dtype, copy=False))


def _selected(y: Any, rows: BoolArray) -> NDArray[Any]:
    """Labels of some rows, with a dtype that the other rows have no part in where Python objects allow it."""
    if hasattr(y, "to_numpy"):
        known = y[rows].to_numpy()
    elif isinstance(y, np.ndarray):
        known = y[rows]
    else:
        known = np.asarray([label for label, chosen in zip(y, rows, strict=True) if chosen])
    return np.asarray(known.tolist()) if known.dtype == object else known


def read_rows(estimator: Any, X: Any) -> NDArray[Any]:  # noqa: N803
    """Check what a fitted estimator is asked to predict."""
    check_is_fitted(estimator)
    x: NDArray[Any] = validate_data(estimator, X, reset=False, **FEATURES)
    return x


def _read_target(estimator: Any, X_target: Any) -> NDArray[Any]:  # noqa: N803
    try:
        x: NDArray[Any] = validate_data(estimator, X_target, reset=False, **FEATURES)
    except ValueError as error:  # scikit-learn would call it X
        got = " ".join(str(error).split())
        remedy = "Prepare it exactly as X."
        raise InputError("X_target", got=got, allowed="samples with X's features", remedy=remedy) from error
    return x


def _source_rows(sample_domain: Any, n: int) -> BoolArray:
    """Return which rows are source; ``>= 0`` is skada's convention."""
    allowed = "one whole number a row: >= 0 for source, < 0 for target"
    remedy = "Mark target rows by negative numbers, or leave it out when there is no target."
    try:
        domain = check_array(sample_domain, ensure_2d=False, dtype=np.float64, input_name="sample_domain")
    except (TypeError, ValueError) as error:
        got = " ".join(str(error).split())
        raise InputError("sample_domain", got=got, allowed=allowed, remedy=remedy) from error
    if domain.shape != (n,) or (domain != np.rint(domain)).any():
        got = f"shape {domain.shape}" if domain.shape != (n,) else "fractions"
        raise InputError("sample_domain", got=got, allowed=f"{allowed} (shape ({n},))", remedy=remedy)
    source: BoolArray = domain >= 0
    if source.all() or not source.any():
        got = "no target rows" if source.all() else "no source rows"
        raise InputError("sample_domain", got=got, allowed=f"both ({allowed})", remedy=remedy)
    return source


class TrainedMixin:
    """Estimators that `warmpot.select.fit_chosen` trains; what they have in common once the labels are understood."""

    preset: str | None
    scale: str | None
    overrides: Mapping[str, Any] | None
    random_state: Any
    progress_bar: bool | None

    def _changes(self) -> dict[str, Any]:
        """Return the settings that the constructor puts over the preset."""
        raise NotImplementedError

    def _preset(self) -> str | None:
        """Return the recipe to start from."""
        return self.preset

    def _config(self) -> RunConfig:
        from warmpot._settings import merged
        from warmpot.train import load_config

        changes = merged(self.overrides or {}, self._changes())
        if self.scale is not None:
            changes = merged(changes, {"full": {"scale": self.scale}, "minibatch": {"network": {"scale": self.scale}}})
        if self.random_state is not None:
            changes["seed"] = _seed(self.random_state)
        return load_config(self._preset(), changes=changes)

    def _train(self, domains: Domains, ys: IntArray | FloatArray, classes: tuple[str, ...]) -> Fitted:
        """Train, and set the attributes every such estimator has."""
        from warmpot.select.within import fit_chosen

        config = self._config()
        fitted = fit_chosen(Task(domains.xs, ys, domains.xt, classes), config, progress_bar=self.progress_bar)
        self.config_ = config
        self.predictor_ = fitted.predictor
        self.source_weights_ = fitted.source_weights
        self.target_weights_ = fitted.target_weights
        self.plan_ = None if fitted.solution is None else fitted.solution.plan
        self.history_ = fitted.history
        self.chosen_step_ = fitted.step
        return fitted


def plan_changes(alpha: float | str | None, beta: float | str | None) -> dict[str, Any]:
    """Nest the settings of the plan that are not the preset's as `load_config` takes them."""
    given = {name: value for name, value in (("alpha", alpha), ("beta", beta)) if value is not None}
    return {"params": plain(given)} if given else {}


def plain(value: Any) -> Any:
    """Return the same with numbers of Python in place of numpy's."""
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    return value.item() if isinstance(value, np.generic) else value  # a grid's np.float32 is no float


def _seed(random_state: Any) -> int:
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
