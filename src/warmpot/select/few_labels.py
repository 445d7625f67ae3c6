"""The accuracy on the target from a few labels, with intervals that hold exactly, for every number of labels.

With N target samples, of which n are labelled, at random:

- *Clopper-Pearson*: uses the labels alone. Of samples that were held out, which are independent of the classifier, it
  is an interval for new samples of the same target. A classifier that was adapted to the N samples depends on them:
  then it is one for their accuracy, as if the labelled ones had been drawn with replacement, and not for new samples.
- *exact*: for the N samples at hand, by the hypergeometric distribution. It shrinks to a point as n reaches N.
- *prediction-powered*: for the N samples at hand, with what the confidences of all of them tell. The samples are split
  into less and more certain ones (two strata); how large these are is known without labels, and each is estimated on
  its own. Where confidences tell right from wrong, the interval is shorter; where they do not, it still holds.

The last is exact as well. With ``K_h`` of the ``N_h`` samples of stratum h predicted correctly, the number of correct
ones among ``n_h`` labelled ones is hypergeometric, independently for each stratum. The statistic is
``T = sum_h N_h/N k_h/n_h``. All pairs ``(K_1, K_2)`` under which the observed T is neither too large nor too small,
each with probability ``delta / 2``, are kept; the interval is the range of ``(K_1 + K_2) / N`` over them (as Clopper
and Pearson's, with the nuisance parameter removed by taking all of its values; Wendell and Schmee, 1996). Of a stratum
without labels nothing is known: all of its ``K_h`` are kept, and the estimate counts half of its samples as correct.

Given ``n_1`` and ``n_2``, labels of a random part of the target are random within both strata, so the interval holds
for these. `draw_to_label` draws both strata in proportion to their sizes, which leaves nothing of that to chance. To
draw more of the less certain samples, as a normal approximation suggests, makes an exact interval longer: it has to
allow for errors among the certain samples, too. For the same reason the usual prediction-powered interval
(Angelopoulos and others, 2023), made valid for finite samples, is wider than Clopper-Pearson's at 50 labels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln
from scipy.stats import beta

from warmpot._checks import check_count, check_fraction
from warmpot._typing import BoolArray, FloatArray, IntArray
from warmpot.errors import InputError

__all__ = ["AccuracyInterval", "accuracy_intervals", "draw_to_label", "less_certain"]

UNSURE = 1 / 3
"""Share of the target in the stratum of less certain samples."""
GRID = 400
"""Values of K_h that are tried; of more, every so many, and the interval is widened by what lies between."""


class AccuracyInterval(NamedTuple):
    """An interval that contains the accuracy with probability ``1 - delta``; `about` says which accuracy."""

    method: str
    estimate: float
    low: float
    high: float
    about: str


def less_certain(confidence: FloatArray) -> BoolArray:
    """Return the third of the target samples with the lowest confidences; among equal ones the first."""
    rank = np.argsort(np.argsort(_confidences(confidence), kind="stable"), kind="stable")
    mask: BoolArray = rank < round(UNSURE * len(rank))
    return mask


def draw_to_label(confidence: FloatArray, number: int, seed: int = 0) -> IntArray:
    """Draw target samples to label: at random, but with the right share of less certain ones.

    Parameters
    ----------
    confidence : (N,) array
        Probability of the predicted class, for all target samples.
    number : int
    seed : int
    """
    unsure, number = less_certain(confidence), check_count("number", number)
    parts = [np.random.default_rng([seed, k]).permutation(np.flatnonzero(unsure == k)) for k in (True, False)]
    first = min(len(parts[0]), max(round(number * UNSURE), number - len(parts[1])))
    rows: IntArray = np.sort(np.concatenate([parts[0][:first], parts[1][: number - first]]))
    return rows


def accuracy_intervals(
    confidence: FloatArray,
    rows: IntArray,
    correct: BoolArray,
    *,
    delta: float = 0.05,
    evenly: bool = True,
    held_out: bool = False,
) -> list[AccuracyInterval]:
    """Estimate the accuracy from labelled target samples.

    Parameters
    ----------
    confidence : (N,) array
        Of all target samples, or of all that were held out.
    rows, correct : (n,) arrays
        Which of them are labelled, and whether their predictions are correct.
    delta : float
        Probability with which each interval may fail.
    evenly : bool
        Whether each sample was as likely to be labelled as any other; otherwise, as by `draw_to_label`, only those of
        one stratum among each other. Then only the prediction-powered interval holds.
    held_out : bool
        Whether these samples were kept from training. Only then the Clopper-Pearson interval is about new samples.

    Examples
    --------
    >>> found = accuracy_intervals(np.linspace(0.5, 1, 60), np.arange(0, 60, 3), np.arange(20) > 2)
    >>> [(one.method, round(one.low, 2), round(one.high, 2)) for one in found]
    [('Clopper-Pearson', 0.62, 0.97), ('exact', 0.67, 0.95), ('prediction-powered', 0.72, 0.95)]
    """
    c, delta = _confidences(confidence), check_fraction("delta", delta)
    rows, right = np.asarray(rows, np.int64), np.asarray(correct, bool)
    inside = rows.size and rows.size == right.size and rows.min() >= 0 and rows.max() < c.size
    if not inside or len(np.unique(rows)) < rows.size:
        got, allowed = f"{rows.size} labels", f"one label each of some of {c.size} samples"
        raise InputError("labels", got=got, allowed=allowed, remedy="Label at least one sample, and none twice.")
    unsure = less_certain(c)
    strata = [np.flatnonzero(unsure == k) for k in (True, False)]
    parts = [(len(own), int(np.isin(rows, own).sum()), int(right[np.isin(rows, own)].sum())) for own in strata]
    about = "these held-out samples" if held_out else "these target samples"
    powered = _exact("prediction-powered", parts, delta, about)
    if not evenly:
        return [powered]
    n, k = rows.size, int(right.sum())
    low = float(beta.ppf(delta / 2, k, n - k + 1)) if k > 0 else 0.0
    high = float(beta.ppf(1 - delta / 2, k + 1, n - k)) if k < n else 1.0
    of_labels = "new target samples" if held_out else f"{about}, as if drawn with replacement"
    known = AccuracyInterval("Clopper-Pearson", k / n, low, high, of_labels)
    return [known, _exact("exact", [(c.size, n, k)], delta, about), powered]


def _exact(method: str, strata: list[tuple[int, int, int]], delta: float, about: str) -> AccuracyInterval:
    """Return the interval for strata of (size, labelled, correct)."""
    total = sum(size for size, _, _ in strata)
    strata = [*strata, (0, 0, 0)][:2]  # one more stratum, without samples
    grids = [np.unique(np.linspace(0, size, min(size, GRID) + 1).round().astype(int)) for size, _, _ in strata]
    chances = [_hypergeometric(size, grid, n) for (size, n, _), grid in zip(strata, grids, strict=True)]
    shares = [size / total * (np.arange(n + 1) / n if n else np.array([0.5])) for size, n, _ in strata]
    statistic = shares[0][:, None] + shares[1]
    observed = sum(share[k] for share, (_, _, k) in zip(shares, strata, strict=True))
    sums = grids[0][:, None] + grids[1]
    above = chances[0] @ (statistic >= observed - 1e-9) @ chances[1].T > delta / 2
    below = chances[0] @ (statistic <= observed + 1e-9) @ chances[1].T > delta / 2
    gap = sum(int(np.diff(grid).max(initial=1)) - 1 for grid in grids)  # what lies between the values tried
    low, high = max(0, int(sums[above].min()) - gap), min(total, int(sums[below].max()) + gap)
    return AccuracyInterval(method, float(observed), low / total, high / total, about)


def _hypergeometric(size: int, correct: IntArray, n: int) -> FloatArray:
    """Return the chances of 0 to n correct ones among n of so many samples, a row for each number of correct ones.

    By logarithms: scipy's own takes minutes for large samples.
    """

    def choose(a: IntArray, b: IntArray) -> FloatArray:
        b = np.clip(b, 0, np.maximum(a, 0))
        logs: FloatArray = gammaln(a + 1) - gammaln(b + 1) - gammaln(a - b + 1)
        return logs

    k, K = np.arange(n + 1)[None], correct[:, None]
    possible = (k <= K) & (n - k <= size - K)
    chances: FloatArray = np.exp(choose(K, k) + choose(size - K, n - k) - choose(np.array(size), np.array(n)))
    return np.where(possible, chances, 0.0)


def _confidences(confidence: FloatArray) -> FloatArray:
    c = np.asarray(confidence, np.float64)
    if c.ndim != 1 or not c.size or not ((c >= 0) & (c <= 1)).all():
        got, remedy = f"shape {c.shape}", "Pass the probability of the predicted class of every target sample."
        raise InputError("confidence", got=got, allowed="numbers in [0, 1]", remedy=remedy)
    return c
