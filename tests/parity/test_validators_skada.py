"""Our validators against skada's scorers, where the definitions are the same up to a stated factor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from warmpot.errors import MissingExtraError
from warmpot.nets.backbone import import_timm
from warmpot.select import Candidate, make_validator


@pytest.fixture(autouse=True)
def skada() -> Iterator[Any]:
    """Import skada, which switches metadata routing on for the whole process, and switch it back afterwards."""
    with suppress(MissingExtraError):
        import_timm()  # skada imports torchvision, which fails next to a CPU build of torch without our workaround
    with sklearn.config_context(enable_metadata_routing=True):
        yield pytest.importorskip("skada")


class Fixed:
    """A classifier whose log-probabilities are its input."""

    def predict_proba(self, x: np.ndarray, **_: Any) -> np.ndarray:
        return np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)

    def predict_log_proba(self, x: np.ndarray, **_: Any) -> np.ndarray:
        return np.log(self.predict_proba(x))


def both(seed: int, sharpness: float) -> tuple[Candidate, np.ndarray, np.ndarray, np.ndarray]:
    """Candidate with random logits, and the same as skada packs it."""
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.normal(size=(70, 5))
    labels = np.arange(30) % 5
    candidate = Candidate(np.zeros((30, 1)), logits[:30], labels, np.zeros((40, 1)), logits[30:])
    y = np.concatenate([labels, np.full(40, -1)])
    return candidate, logits, y, np.repeat([1, -2], [30, 40])


@pytest.mark.parametrize("sharpness", [0.1, 1.0, 5.0])
def test_entropy(sharpness: float) -> None:
    from skada.metrics import PredictionEntropyScorer

    candidate, x, y, domain = both(0, sharpness)
    theirs = PredictionEntropyScorer()(Fixed(), x, y, sample_domain=domain)
    # theirs is the mean over samples and classes, the paper's a sum over classes
    assert make_validator("entropy").score(candidate) == pytest.approx(5 * theirs, rel=1e-12)


@pytest.mark.parametrize("sharpness", [0.1, 1.0, 5.0])
def test_soft_neighbourhood_density(sharpness: float) -> None:
    from skada.metrics import SoftNeighborhoodDensity

    candidate, x, y, domain = both(1, sharpness)
    theirs = SoftNeighborhoodDensity()(Fixed(), x, y, sample_domain=domain)
    # they keep a sample's similarity to itself, turned to -1 / T: at most exp(-20) of its row
    assert make_validator("snd").score(candidate) == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("loss", ["error", "cross_entropy"])
@pytest.mark.parametrize("shift", [0.2, 1.0])
def test_deep_embedded_validation(skada: Any, loss: str, shift: float) -> None:
    from skada.metrics import DeepEmbeddedValidation

    rng = np.random.default_rng(2)
    labels = rng.integers(3, size=240)
    x = rng.normal(size=(240, 3)) + 1.5 * np.eye(3)[labels]
    xs, ys, xt = x[:150], labels[:150], x[150:] + np.array([shift, 0.0, 0.0])
    packed = np.concatenate([xs, xt]), np.concatenate([ys, np.full(90, -1)])
    domain = np.repeat([1, -2], [150, 90])
    model = skada.make_da_pipeline(StandardScaler(), LogisticRegression()).fit(*packed, sample_domain=domain)

    def losses(y: np.ndarray, proba: np.ndarray) -> np.ndarray:
        # a column: their formula needs one, their own flat loss is spread over all pairs of samples
        found = proba.argmax(axis=1) != y if loss == "error" else -np.log(proba[np.arange(len(y)), y])
        return found.astype(float)[:, None]

    domains = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-8, max_iter=1000))
    scorer = DeepEmbeddedValidation(domain_classifier=domains, loss_func=losses, random_state=0)
    theirs = scorer(model, *packed, sample_domain=domain)

    train, held, y_train, y_held = train_test_split(xs, ys, test_size=0.33, random_state=np.random.RandomState(0))

    def logits(points: np.ndarray) -> np.ndarray:
        return np.log(model.predict_proba(points, sample_domain=np.full(len(points), -2)))

    features = model[0].transform
    candidate = Candidate(features(train), logits(train), y_train, features(xt), logits(xt),
                        features(held), logits(held), y_held)  # fmt: skip
    assert make_validator("dev", {"loss": loss}).score(candidate) == pytest.approx(theirs, rel=1e-3)
    assert abs(theirs) > 1e-3
