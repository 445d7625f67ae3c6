"""Weights of source samples by class (BA3US)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from warmpot.errors import InputError
from warmpot.weights import class_share_weights, class_shares

LOGITS = np.log([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.1, 0.8, 0.1], [0.3, 0.2, 0.5]]) + np.array([[9], [0], [-4], [1]])
"""Probabilities up to a constant a row, which softmax does not see."""


def test_shares_of_classes_by_hand() -> None:
    np.testing.assert_array_equal(class_shares(LOGITS, hard=True), [0.5, 0.25, 0.25])
    np.testing.assert_allclose(class_shares(LOGITS, hard=False), [0.4, 0.4, 0.2], rtol=1e-14)


def test_weight_is_the_share_of_the_class_and_knows_no_source_prior() -> None:
    labels = np.array([2, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(class_share_weights(LOGITS, labels, hard=True), [0.25, 0.5] + 4 * [0.25])
    np.testing.assert_allclose(class_share_weights(LOGITS, labels, hard=False), [0.2, 0.4] + 4 * [0.4], rtol=1e-14)


@pytest.mark.parametrize("hard", [True, False])
def test_class_shares_read_tensors(hard: bool) -> None:
    outputs, labels = torch.tensor(LOGITS, requires_grad=True), torch.tensor([0, 1, 1])
    np.testing.assert_array_equal(class_shares(outputs, hard=hard), class_shares(LOGITS, hard=hard))
    np.testing.assert_array_equal(
        class_share_weights(outputs, labels, hard=hard), class_share_weights(LOGITS, np.array([0, 1, 1]), hard=hard)
    )


@pytest.mark.parametrize("hard", [True, False])
def test_no_source_sample_of_a_predicted_class(hard: bool) -> None:
    """Softmax too gives an exact 0 where logits are far apart."""
    outputs = 1e308 * np.array([[1.0, -1.0, -1.0], [1.0, -1.0, -1.0]])
    np.testing.assert_array_equal(class_shares(outputs, hard=hard), [1, 0, 0])
    np.testing.assert_array_equal(class_share_weights(outputs, [1, 2, 1, 1], hard=hard), np.full(4, 1 / 3))


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0], [0.0, 1.0], [], [[0, 1]], ["a"]])
def test_labels_that_cannot_be_used(labels: Any) -> None:
    with pytest.raises(InputError, match=r"^labels: got"):
        class_share_weights(LOGITS, labels, hard=True)


@pytest.mark.parametrize("outputs", [[[np.nan, 1.0]], np.zeros((0, 3)), [1.0, 2.0]])
@pytest.mark.parametrize("hard", [True, False])
def test_outputs_that_cannot_be_used(outputs: Any, hard: bool) -> None:
    with pytest.raises(InputError, match=r"^outputs: got"):
        class_shares(outputs, hard=hard)
