"""Units of features before any distance is taken."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler, normalize

from warmpot._checks import LARGEST, check_choice
from warmpot._typing import FloatArray

if TYPE_CHECKING:
    from warmpot.train import RunConfig

__all__ = ["SCALES", "Scaling", "adjusted", "make_scaling"]

SCALES = ("auto", "rows", "columns", "none")
NARROW = 64
"""Rows of fewer features are taken for a table of measurements, longer ones for the output of a network."""
LIFT = 4.0
"""Length of the constant column, in units of a typical row; see `Scaling`."""


@dataclass(frozen=True)
class Scaling:
    """What happens to the features.

    Attributes
    ----------
    kind : "rows", "columns" or "none"
    scaler : StandardScaler or None
        For "columns".
    lift : float
        The full engine scales rows to unit length, which would forget how long they are. With a lift, columns are
        divided by ``sqrt(d)``, so that a typical row has length 1, and a constant column ``lift`` is appended: a unit
        row is then ``(x, lift) / sqrt(|x|^2 + lift^2)``, which is ``x / lift`` up to a few per cent and forgets
        nothing. 0: no such column.
    """

    kind: str
    scaler: Any = None
    lift: float = 0.0

    def apply(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the features in their units."""
        if self.kind == "none":
            return x
        if self.kind == "rows":
            rows: FloatArray = normalize(x.astype(np.float64))
            return rows
        with np.errstate(over="ignore"):  # a sample far outside of the training data; clipped
            columns: FloatArray = np.clip(self.scaler.transform(x.astype(np.float64)), -LARGEST, LARGEST)
        if not self.lift:
            return columns
        return np.column_stack([columns / np.sqrt(columns.shape[1]), np.full(len(columns), self.lift)])


def make_scaling(scale: str, xs: NDArray[Any], xt: NDArray[Any], *, wide: str, lifted: bool) -> Scaling:
    """Choose the units from the features of both domains.

    Parameters
    ----------
    scale : str
        One of `SCALES`.
    xs, xt : arrays
        Features of both domains.
    wide : str
        What "auto" means for `NARROW` features or more.
    lifted : bool
        Whether what comes after scales rows to unit length.
    """
    kind = check_choice("scale", scale, SCALES)
    if kind == "auto":
        kind = "columns" if xs.shape[1] < NARROW else wide
    if kind != "columns":
        return Scaling(kind)
    both = np.concatenate([xs, xt]).astype(np.float64)
    return Scaling(kind, StandardScaler().fit(both), LIFT if lifted else 0.0)


def adjusted(config: RunConfig, scaling: Scaling) -> RunConfig:
    """Return the run whose costs and penalties mean the same on lifted features, which are ``lift`` times shorter."""
    if not scaling.lift:
        return config
    params = dict(config.params)
    if "eta1" in params:
        params["eta1"] *= scaling.lift
    full = dataclasses.replace(config.full, penalty=config.full.penalty / scaling.lift**2)
    return dataclasses.replace(config, params=params, full=full)
