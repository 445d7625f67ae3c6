"""Why a target sample has its prediction: the source samples that the plan matches it with."""

from __future__ import annotations

import warnings
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from warmpot._run_files import PLAN
from warmpot._typing import FloatArray
from warmpot.data import Table
from warmpot.errors import InputError, WarmpotWarning
from warmpot.train.finished_run import FinishedRun
from warmpot.train.run_folder import read_plan
from warmpot.train.run_reader import read_run
from warmpot.train.sample_images import Opener, encode_thumbnail, image_opener

__all__ = ["Explanation", "MatchedSample", "explain_sample"]

MAX_IMAGES = 12
"""Matches that have a thumbnail, those with the largest shares."""
TOLERANCE = 0.01
"""Difference of a recomputed confidence from the stored one above which the features are not those of the run."""


@dataclass(frozen=True)
class MatchedSample:
    """A source sample that the plan matches with a target sample.

    Attributes
    ----------
    row, name, label
        Its row, counted from 0, its id or file (empty without), and its class or continuous target.
    share : float
        Share of the target sample that is matched with this one, 0 to 1.
    training_weight : float
        How much it counted in training; uniform weights are 1 / n_s.
    image : bytes
        A thumbnail, as a JPEG or PNG file; empty if the sample is no image, and for those with small shares.
    """

    row: int
    name: str
    label: str | float
    share: float
    training_weight: float
    image: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Explanation:
    """One target sample, its prediction, and what the plan matches it with.

    Attributes
    ----------
    row, name, prediction
        Its row, counted from 0, its id or file (empty without), and the predicted class or value.
    confidence : float or None
        Probability of the predicted class; None in regression.
    matches : tuple of MatchedSample
        The largest share first; they sum to 1 minus `left_out`.
    left_out : float
        Share of the sample that the plan matches with nothing, 0 to 1.
    probabilities : dict of str to float
        Of every class, the largest first; empty without the data of the target, and in regression.
    n_source : int
        Number of source samples.
    image : bytes
        A thumbnail, as a JPEG or PNG file; empty if the sample is no image.
    unknown : tuple of float or None
        Its score for samples of no source class (`Fitted.unknown`), and the share of the target samples that have a
        smaller one; None if the run has no scores.
    """

    row: int
    name: str
    prediction: str | float
    confidence: float | None
    matches: tuple[MatchedSample, ...]
    left_out: float
    probabilities: dict[str, float]
    n_source: int
    image: bytes = field(default=b"", repr=False)
    unknown: tuple[float, float] | None = None

    @property
    def labels(self) -> dict[str, float]:
        """Share of the sample by the class of what it is matched with, the largest first; empty in regression."""
        shares: dict[str, float] = {}
        for match in self.matches:
            if isinstance(match.label, str):
                shares[match.label] = shares.get(match.label, 0.0) + match.share
        return dict(sorted(shares.items(), key=lambda item: -item[1]))

    def __str__(self) -> str:
        """Show the prediction and the matches with the largest shares, one per line."""
        head, lines, more = self._lines()
        return "\n".join([head, *(f"  {line}" for line in lines), *([f"  {more}"] if more else [])])

    def _repr_html_(self) -> str:
        """Show it in a notebook, with thumbnails of images; every name is escaped."""
        head, lines, more = self._lines()
        figures = [_figure(self.image, self.name or f"row {self.row}")]
        figures += [_figure(match.image, line) for match, line in zip(self.matches, lines, strict=False)]
        rest = f"<p>{more}</p>" if more else ""
        return f"<p>{escape(head)}</p><div style='display:flex;flex-wrap:wrap;gap:8px'>{''.join(figures)}</div>{rest}"

    def _lines(self) -> tuple[str, list[str], str]:
        """Return the prediction, the largest matches, and how many more there are, in words."""
        sure = "" if self.confidence is None else f" ({self.confidence:.0%})"
        head = f"{self.name or f'target sample {self.row}'}: predicted {_text(self.prediction)}{sure}, "
        head += f"{1 - self.left_out:.0%} matched"
        lines = [
            f"{_text(match.label)}: {match.share:.0%}, {match.name or f'source row {match.row}'}"
            for match in self.matches[:MAX_IMAGES]
        ]
        more = len(self.matches) - len(lines)
        return head, lines, f"and {more} more" if more else ""


def _text(label: str | float) -> str:
    return label if isinstance(label, str) else f"{label:.4g}"


def _figure(image: bytes, caption: str) -> str:
    kind = "png" if image.startswith(b"\x89PNG") else "jpeg"
    drawn = f"<img src='data:image/{kind};base64,{b64encode(image).decode()}' alt=''><br>" if image else ""
    return f"<figure style='margin:0;max-width:12em'>{drawn}<figcaption>{escape(caption)}</figcaption></figure>"


def explain_sample(
    run: Path | str | FinishedRun, sample: str | int, target: Table | None = None, *, plan: csr_array | None = None,
    outputs: FloatArray | None = None,
) -> Explanation:  # fmt: skip
    """Explain the prediction of one target sample of a finished run.

    Parameters
    ----------
    run : path or FinishedRun
        The run folder, with the plan of its final iterate (``plan.npz``); or a run that has none, with its `plan`.
    sample : str or int
        Id or file name of the sample, or its row, counted from 0. A name that is a number is first looked for among the
        ids.
    target : Table, optional
        The target data of the run; with it, the probabilities of all classes are computed. Other data is not used, with
        a `WarmpotWarning`.
    plan, outputs : (n_s, n_t) csr_array and (n_t, C) array, optional
        The plan of a run without a folder, and class probabilities that are known already.
    """
    finished = run if isinstance(run, FinishedRun) else read_run(Path(run))
    folder = finished.folder
    plan = read_plan(folder) if plan is None and folder is not None else plan
    if plan is None or plan.shape != (len(finished.labels), len(finished.predictions)):
        got = f"no {PLAN}" if plan is None else f"a {PLAN} of other data"
        remedy = "Methods without a plan match nothing, older versions did not store it: train again, e.g. with full."
        raise InputError("run" if folder is None else str(folder), got=got, allowed="a run with a plan", remedy=remedy)
    row = _find(finished, sample)
    probabilities = {} if target is None else _probabilities(finished, target, row)
    if outputs is not None and finished.classes:
        probabilities = _ranked(finished, outputs[row])
    if target is not None and (difference := _difference(finished, target, row, probabilities)):
        remedy = "It is not used: only what the run has stored is shown."
        warning = WarmpotWarning(target.name, got=difference, allowed="the target of the run", remedy=remedy)
        warnings.warn(warning, stacklevel=2)
        target, probabilities = None, {}
    column, scores = plan[:, [row]].tocoo(), finished.unknown
    shares = column.data * plan.shape[1]  # a target sample has mass 1 / n_t
    order = np.lexsort((column.row, -shares))
    open_source = image_opener(finished, "source", None, finished.source_names)
    matches = tuple(
        _match(finished, int(column.row[k]), float(shares[k]), open_source if place < MAX_IMAGES else None)
        for place, k in enumerate(order)
        if shares[k] > 0
    )
    open_target = image_opener(finished, "target", None if target is None else target.x, finished.target_names)
    return Explanation(
        row=int(finished.target_rows[row]),
        name=finished.target_names[row] if finished.target_names else "",
        prediction=_label(finished, finished.predictions[row]),
        confidence=float(finished.confidence[row]) if finished.classes else None,
        matches=matches,
        left_out=float(np.clip(1.0 - shares.sum(), 0.0, 1.0)),
        probabilities=probabilities,
        n_source=plan.shape[0],
        image=_thumbnail(open_target, row),
        unknown=None if scores is None else (float(scores[row]), float((scores < scores[row]).mean())),
    )


def _find(run: FinishedRun, sample: str | int) -> int:
    """Return the position of a target sample among those of the run."""
    names, n = list(run.target_names), len(run.predictions)
    rows = [row for row, name in enumerate(names) if name == str(sample)]
    if not rows:  # files by their last part, too
        rows = [row for row, name in enumerate(names) if Path(name).name == str(sample)]
    if len(rows) == 1:
        return rows[0]
    if rows:
        allowed, remedy = "one sample", f"Give its row, such as {run.target_rows[rows[0]]}."
        raise InputError("ID", got=f"{sample!r}, the name of {len(rows)} samples", allowed=allowed, remedy=remedy)
    if str(sample).isdecimal() and int(sample) in run.target_rows:
        return int(np.searchsorted(run.target_rows, int(sample)))
    allowed = f"a row from 0 to {n - 1}" if not run.held_out else "a row that was not held out"
    allowed += f", or a name such as {names[0]!r}" if names else ""
    raise InputError("ID", got=repr(sample), allowed=allowed, remedy="predictions.csv lists the samples.")


def _label(run: FinishedRun, code: Any) -> str | float:
    return run.classes[int(code)] if run.classes else float(code)


def _match(run: FinishedRun, row: int, share: float, open_row: Opener | None) -> MatchedSample:
    name, image = run.source_names[row] if run.source_names else "", _thumbnail(open_row, row)
    return MatchedSample(row, name, _label(run, run.labels[row]), share, float(run.training_weights[row]), image)


def _thumbnail(open_row: Opener | None, row: int) -> bytes:
    image = None if open_row is None else open_row(row)
    return b"" if image is None else encode_thumbnail(image)


def _difference(run: FinishedRun, target: Table, row: int, probabilities: Mapping[str, float]) -> str:
    """Say in what the target differs from that of the run; "" if it does not. The source, not read, is not needed."""
    n = len(run.predictions) + len(run.held_out)
    if target.n != n:
        return f"{target.n} samples, where the run has {n}"
    names = [target.names[k] for k in run.target_rows] if target.names and run.target_names else []
    if names and names != list(run.target_names):
        return "samples of other names or in another order"
    label = _label(run, run.predictions[row])
    if probabilities and abs(probabilities[str(label)] - run.confidence[row]) > TOLERANCE:
        share = f"{probabilities[str(label)]:.0%} for {label}, where the run has {run.confidence[row]:.0%}"
        return f"other features: they give the sample {share}"
    return ""


def _probabilities(run: FinishedRun, target: Table, row: int) -> dict[str, float]:
    if not run.classes or target.n != len(run.predictions) + len(run.held_out):
        return {}
    row = int(run.target_rows[row])
    one = target.x[row : row + 1] if isinstance(target.x, np.ndarray) else target.x.subset(np.array([row]))
    sample = replace(target, x=one, y=None, classes=(), names=())
    return _ranked(run, run.load_predictor().probabilities(sample, target.name)[0])


def _ranked(run: FinishedRun, shares: FloatArray) -> dict[str, float]:
    return {run.classes[k]: float(shares[k]) for k in np.argsort(-shares, kind="stable")}
