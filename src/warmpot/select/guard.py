"""The choice among candidates, and the refusal of degenerate winners.

Most label-free scores are at their best when every target sample gets the same class. A candidate whose predictions
lost most of the classes that a reference (the source-only model, or the first snapshot of a run) uses is refused,
however good its score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from warmpot.select.base import Validator
from warmpot.select.evidence import Evidence
from warmpot.train.health import LONE, LOST, effective_classes

__all__ = ["Choice", "choose", "classes_in_effect", "collapsed", "degenerate"]


@dataclass(frozen=True)
class Choice:
    """What was chosen, and why.

    Attributes
    ----------
    index : int or None
        Number of the winner; None when all candidates are refused: the reference wins.
    scores : list of float
        Score of every candidate, refused or not; the larger the better.
    refusals : dict of int to str
        Why which candidates were refused.
    validator : str
        Who scored; "oracle" if target labels were used.
    """

    index: int | None
    scores: list[float]
    refusals: dict[int, str]
    validator: str


def classes_in_effect(evidence: Evidence) -> float:
    """Effective number of classes that a candidate predicts on the target."""
    return effective_classes(torch.from_numpy(evidence.target_proba))


def collapsed(classes: float, before: float) -> str | None:
    """Say why so many classes in effect are a collapse against the reference's number; None if they are not."""
    if classes < LOST * before or classes < LONE <= before:
        return f"the target predictions use {classes:.2f} classes, those of the reference {before:.2f}"
    return None


def degenerate(evidence: Evidence, reference: Evidence) -> str | None:
    """Say why the predictions of a candidate are a collapse against those of the reference; None if they are not.

    The measure is the effective number of predicted classes, exp of the entropy of the mean prediction. It must stay
    above a quarter of the reference's, and above 1.5 when the reference's is (a target may hold a single class).
    """
    return collapsed(classes_in_effect(evidence), classes_in_effect(reference))


def choose(candidates: Sequence[Evidence], validator: Validator, reference: Evidence) -> Choice:
    """Choose the candidate with the best score among those that are not degenerate.

    Parameters
    ----------
    candidates : sequence of Evidence
        The first wins a tie, so put what you would rather have first.
    validator : Validator
    reference : Evidence
        What a candidate must not collapse against; it wins when all are refused. It may be one of the candidates.

    Returns
    -------
    Choice
    """
    scores = [validator.score(candidate) for candidate in candidates]
    refusals = {}
    for k, candidate in enumerate(candidates):
        why = degenerate(candidate, reference) if math.isfinite(scores[k]) else f"its score is {scores[k]}"
        if why is not None:
            refusals[k] = why
    left = [k for k in range(len(scores)) if k not in refusals]
    return Choice(max(left, key=scores.__getitem__, default=None), scores, refusals, validator.name)
