"""Choose among candidates, but never one whose predictions have collapsed.

Most label-free scores are best when every target sample gets the same class. A candidate is refused, whatever its
score, if its predictions lost most of the classes that a reference (source-only, or the first iterate of a run)
predicts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from warmpot.select.base import Validator
from warmpot.select.candidate import Candidate
from warmpot.train.health import LONE, LOST, effective_classes

__all__ = ["Choice", "choose", "collapse_reason", "effective_target_classes", "explain_collapse"]


@dataclass(frozen=True)
class Choice:
    """The chosen candidate, with the scores of all.

    Attributes
    ----------
    index : int or None
        Number of the winner; None if all candidates are refused, so that the reference wins.
    scores : list of float
        Score of every candidate, refused or not; larger is better.
    refusals : dict of int to str
        Reason for every refused candidate.
    validator : str
        Name of the validator; "oracle" if target labels were used.
    """

    index: int | None
    scores: list[float]
    refusals: dict[int, str]
    validator: str


def effective_target_classes(candidate: Candidate) -> float:
    """Return the effective number of classes that a candidate predicts on the target."""
    return effective_classes(torch.from_numpy(candidate.target_proba))


def collapse_reason(classes: float, reference: float) -> str | None:
    """Return why an effective number of classes is a collapse compared with the reference's; None if it is not."""
    if classes < LOST * reference or classes < LONE <= reference:
        return f"the target predictions use {classes:.2f} classes, those of the reference {reference:.2f}"
    return None


def explain_collapse(candidate: Candidate, reference: Candidate) -> str | None:
    """Return why a candidate's predictions are a collapse compared with the reference's; None if they are not.

    The effective number of predicted classes (exp of the entropy of the mean prediction) must stay above a quarter of
    the reference's, and above 1.5 if the reference's is (a target may consist of a single class).
    """
    return collapse_reason(effective_target_classes(candidate), effective_target_classes(reference))


def choose(candidates: Sequence[Candidate], validator: Validator, reference: Candidate) -> Choice:
    """Choose the candidate with the best score among those that have not collapsed.

    Parameters
    ----------
    candidates : sequence of Candidate
        The first wins a tie: put the preferred ones first.
    validator : Validator
    reference : Candidate
        Candidates are checked for collapse against it, and it wins if all are refused. It may be a candidate too.

    Returns
    -------
    Choice
    """
    scores = [validator.score(candidate) for candidate in candidates]
    refusals = {}
    for k, candidate in enumerate(candidates):
        reason = explain_collapse(candidate, reference) if math.isfinite(scores[k]) else f"its score is {scores[k]}"
        if reason is not None:
            refusals[k] = reason
    allowed = [k for k in range(len(scores)) if k not in refusals]
    return Choice(max(allowed, key=scores.__getitem__, default=None), scores, refusals, validator.name)
