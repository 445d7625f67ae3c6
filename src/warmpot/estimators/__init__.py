"""Estimators in the style of scikit-learn: classifiers, a regressor, and weights for any other estimator."""

from __future__ import annotations

from warmpot.estimators.images import ImageClassifier
from warmpot.estimators.reweighter import PartialReweighter
from warmpot.estimators.trained import AdaptedClassifier, SourceOnlyClassifier, WarmpotClassifier, WarmpotRegressor

__all__ = [
    "AdaptedClassifier", "ImageClassifier", "PartialReweighter", "SourceOnlyClassifier", "WarmpotClassifier",
    "WarmpotRegressor",
]  # fmt: skip
