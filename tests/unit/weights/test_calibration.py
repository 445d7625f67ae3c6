"""Confidence without labels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import entropy

from warmpot.weights import calibration_temperature, needs_review, relative_entropy


@pytest.mark.parametrize("agreement", [0.95, 0.6])
def test_the_mean_confidence_is_scaled_by_the_root_of_the_agreement(agreement: float) -> None:
    logits = 4 * np.random.default_rng(0).normal(size=(200, 7))
    temperature = calibration_temperature(logits, agreement)
    before, after = (softmax(logits / t, axis=1).max(axis=1).mean() for t in (1.0, temperature))
    assert after == pytest.approx(before * agreement**0.5, rel=1e-6)
    assert temperature > 1


def test_the_temperature_has_limits() -> None:
    logits = np.array([[3.0, 0.0], [0.0, 0.2]])
    assert calibration_temperature(logits, 1.0) == 1.0
    assert calibration_temperature(logits, 0.0) == 100.0  # two classes: no confidence is below one half
    assert calibration_temperature(np.zeros((4, 3)), 0.5) == 100.0
    huge = np.array([[1e4, 0.0, -1e4]])
    assert np.isfinite(calibration_temperature(huge, 0.5))


def test_many_logits_give_about_the_same_temperature(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = 4 * np.random.default_rng(0).normal(size=(4000, 5))
    whole = calibration_temperature(logits, 0.8)
    monkeypatch.setattr("warmpot.weights.calibration.MOST_NUMBERS", 10_000)
    assert calibration_temperature(logits, 0.8) == pytest.approx(whole, rel=0.05)


def test_relative_entropy_is_that_of_scipy() -> None:
    logits = 3 * np.random.default_rng(0).normal(size=(50, 6))
    np.testing.assert_allclose(relative_entropy(logits), entropy(softmax(logits, axis=1), axis=1) / np.log(6))
    assert relative_entropy(np.zeros((2, 1))).tolist() == [0.0, 0.0]  # one class


def test_a_certain_prediction_of_a_doubtful_class_is_reviewed() -> None:
    """Monitors were predicted as desk lamps, a class that is not there, with a confidence of 93 to 99 %."""
    confidence, predicted = np.array([0.99, 0.99, 0.85, 0.5]), np.array([0, 1, 0, 0])
    assert needs_review(confidence, predicted, np.array([0.97, 0.7])).tolist() == [False, True, False, True]
    assert needs_review(confidence, predicted).tolist() == [False, False, False, True]
