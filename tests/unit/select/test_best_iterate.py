"""Which iterate of a run is kept: scores of given terms, no training."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from warmpot.select import Candidate, Validator, best_iterate
from warmpot.select.best_iterate import ValidatorChooser
from warmpot.select.candidate import diversity_terms

N = 100
X, LOGITS = np.zeros((2, 1)), np.eye(2)


class Given(Validator):
    """Scores that the snapshots carry."""

    name, summary = "given", ""

    def __init__(self, has_terms: bool) -> None:
        self.has_terms = has_terms

    def _score(self, candidate: Any) -> float:
        return float(candidate.terms.mean())

    def target_terms(self, candidate: Any) -> Any:
        return candidate.terms if self.has_terms else None


def raised(*gains: float) -> np.ndarray:
    """Terms of .5 per target sample; the first ones are raised."""
    terms = np.full(N, 0.5)
    terms[: len(gains)] += gains
    return terms


def outputs(logits: np.ndarray) -> Candidate:
    """Return a candidate with these on the target."""
    n, classes = logits.shape
    return Candidate(np.zeros((2, 1)), np.eye(2, classes), np.array([0, 1]), np.zeros((n, 1)), logits)


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Any:
    def candidate(snapshot: Any, *_: Any) -> Any:
        plain = outputs(snapshot.logits)
        object.__setattr__(plain, "terms", snapshot.terms)
        return plain

    monkeypatch.setattr(best_iterate, "candidate_from_snapshot", candidate)

    def run(
        *iterates: np.ndarray, images: bool = True, has_terms: bool = True, resumed: bool = False, logits: Any = ()
    ) -> int:
        chooser, chosen = ValidatorChooser(Given(has_terms), None, None), 0  # type: ignore[arg-type]
        for step, terms in enumerate(iterates):
            own = logits[step] if logits else LOGITS
            snapshot = SimpleNamespace(step=step, terms=terms, logits=own, first=(X, X) if images else None)
            better, _ = chooser.offer(snapshot)  # type: ignore[arg-type]
            chosen = step if better else chosen
            if resumed:
                state = json.loads(json.dumps(chooser.state()))
                chooser = ValidatorChooser(Given(has_terms), None, None)  # type: ignore[arg-type]
                chooser.load(state)
        return chosen

    return run


def test_the_answer_of_frozen_features_is_kept_unless_a_score_is_clearly_higher(choose: Any) -> None:
    one, many = raised(0.4), raised(*[0.4] * 9)
    assert choose(raised(), raised()) == 0  # equal
    assert choose(raised(), one) == 0  # a single sample, and so one standard error
    assert choose(raised(), raised(0.8, 0.2, 0.2, 0.2)) == 0  # one sample, seen by its neighbours as well
    assert choose(raised(), raised(*[0.4] * 6, *[-0.4] * 3)) == 0  # .012 against an error of .012
    assert choose(raised(), many) == 1
    assert choose(raised(), one, many, one, many, resumed=True) == 4  # of the clearly higher ones, the last of equals
    assert choose(one, one, many) == 2


def test_a_score_that_rises_as_classes_are_lost_does_not_count(choose: Any) -> None:
    codes, many = np.arange(N) % 4, raised(*[0.4] * 9)
    four, fewer = (8.0 * np.eye(4)[predicted] for predicted in (codes, np.minimum(codes, 2)))
    assert choose(raised(), many, logits=(four, four)) == 1
    for resumed in (False, True):
        assert choose(raised(), many, logits=(four, fewer), resumed=resumed) == 0
        assert choose(raised(), many, many, logits=(four, fewer, four), resumed=resumed) == 2
    assert choose(raised(), many, logits=(fewer, four)) == 1  # more classes are welcome
    assert choose(raised(), many, logits=(four, fewer), images=False) == 1


def test_outputs_that_only_become_more_certain_lose_no_class(choose: Any) -> None:
    logits = np.random.default_rng(0).normal(size=(N, 5)) + 2 * np.eye(5)[np.arange(N) % 3]
    assert choose(raised(), raised(*[0.4] * 9), logits=(logits, 3 * logits)) == 1


def test_diversity_is_the_entropy_of_the_predicted_shares() -> None:
    terms = diversity_terms(outputs(np.eye(5)[[0, 0, 0, 3]]))
    assert terms.mean() == pytest.approx(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)))


def test_scores_that_are_no_means_must_be_higher(choose: Any) -> None:
    assert choose(raised(), raised(), has_terms=False) == 0
    assert choose(raised(), raised(0.4), raised(), has_terms=False) == 1


def test_on_features_the_last_of_equal_scores_wins(choose: Any) -> None:
    assert choose(raised(), raised(0.4), raised(0.4), raised(), images=False) == 2
