"""Our estimators and skada agree on what `sample_domain` and masked labels mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from warmpot.errors import MissingExtraError
from warmpot.estimators import PartialReweighter, SourceOnlyClassifier, WarmpotClassifier, WarmpotRegressor
from warmpot.nets.backbone import import_timm


@pytest.fixture(autouse=True)
def skada() -> Iterator[Any]:
    """Import skada, which switches metadata routing on for the whole process, and switch it back afterwards."""
    with suppress(MissingExtraError):
        import_timm()  # skada imports torchvision, which fails next to a CPU build of torch without our workaround
    with sklearn.config_context(enable_metadata_routing=True):
        yield pytest.importorskip("skada")


def shifted(label: str) -> Any:
    from skada.datasets import make_shifted_datasets

    return make_shifted_datasets(10, 8, shift="covariate_shift", label=label, noise=0.3, random_state=0,
                                 return_dataset=True)  # fmt: skip


CASES = [
    pytest.param("binary", WarmpotClassifier(), id="warmpot-binary"),
    pytest.param("multiclass", WarmpotClassifier(), id="warmpot-multiclass"),
    pytest.param("multiclass", SourceOnlyClassifier(), id="source-only"),
    pytest.param("multiclass", PartialReweighter(LogisticRegression()), id="weighted-logistic"),
    pytest.param("regression", WarmpotRegressor(), id="regressor"),
]
cases = pytest.mark.parametrize(("label", "estimator"), CASES)


@cases
def test_packed_data_go_in_as_they_are(label: str, estimator: Any) -> None:
    data = shifted(label)
    x, y, domain = data.pack(as_sources=["s"], as_targets=["t"], mask_target_labels=True)
    masked = np.isnan(y) if label == "regression" else y == -1
    np.testing.assert_array_equal(masked, domain < 0)
    packed = clone(estimator).fit(x, y, sample_domain=domain)
    (xs, ys), (xt, yt) = data.get_domain("s"), data.get_domain("t")
    apart = clone(estimator).fit(xs, ys, X_target=xt)
    for name in ("source_weights_", "target_weights_"):
        np.testing.assert_array_equal(getattr(packed, name), getattr(apart, name))
    np.testing.assert_array_equal(packed.predict(xt), apart.predict(xt))
    open_, shown, again = data.pack(as_sources=["s"], as_targets=["t"], mask_target_labels=False)
    np.testing.assert_array_equal(
        clone(estimator).fit(open_, shown, sample_domain=again).predict(xt), apart.predict(xt)
    )
    assert apart.score(xt, yt) > 0.6


@cases
def test_inside_a_skada_pipeline(label: str, estimator: Any, skada: Any) -> None:
    data = shifted(label)
    x, y, domain = data.pack(as_sources=["s"], as_targets=["t"], mask_target_labels=True)
    xt, yt = data.get_domain("t")
    pipeline = skada.make_da_pipeline(StandardScaler(), clone(estimator)).fit(x, y.copy(), sample_domain=domain)
    scaler = StandardScaler().fit(x)
    direct = clone(estimator).fit(scaler.transform(x), y, sample_domain=domain)
    np.testing.assert_array_equal(pipeline.predict(xt, sample_domain=-2), direct.predict(scaler.transform(xt)))
    assert pipeline.score(xt, yt) == direct.score(scaler.transform(xt), yt)


def test_domains_count_as_skada_counts_them(skada: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 3)), np.tile([0, 1], 15)
    domain = np.repeat([0, 3, -1, -4], [8, 8, 7, 7])
    ours = WarmpotClassifier().fit(x, y, sample_domain=domain)
    xs, xt, ys, _ = skada.source_target_split(x, y, sample_domain=domain)
    theirs = WarmpotClassifier().fit(xs, ys, xt)
    np.testing.assert_array_equal(ours.source_weights_, theirs.source_weights_)
    np.testing.assert_array_equal(ours.target_proba_, theirs.target_proba_)


def test_skada_chooses_alpha_without_target_labels(skada: Any) -> None:
    from skada.metrics import PredictionEntropyScorer
    from skada.model_selection import SourceTargetShuffleSplit

    x, y, domain = shifted("multiclass").pack(as_sources=["s"], as_targets=["t"], mask_target_labels=True)
    search = GridSearchCV(
        skada.make_da_pipeline(StandardScaler(), WarmpotClassifier(overrides={"full": {"rounds": 2}})),
        {"warmpotclassifier__alpha": [0.5, 0.9]},
        scoring=PredictionEntropyScorer(),
        cv=SourceTargetShuffleSplit(n_splits=2, random_state=0),
        error_score="raise",
    ).fit(x, y, sample_domain=domain)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
