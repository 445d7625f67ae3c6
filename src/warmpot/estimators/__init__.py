"""Estimators in the style of scikit-learn: classifiers, a regressor, and weights for any other estimator."""

from __future__ import annotations

from warmpot.estimators.classifier import AdaptedClassifier, SourceOnlyClassifier, WarmpotClassifier
from warmpot.estimators.regressor import WarmpotRegressor
from warmpot.estimators.reweighter import PartialReweighter

__all__ = ["AdaptedClassifier", "PartialReweighter", "SourceOnlyClassifier", "WarmpotClassifier", "WarmpotRegressor"]
