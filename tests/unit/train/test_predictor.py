"""A trained model takes named columns by name (`warmpot.train.predictor`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from warmpot.data import as_table, make_task
from warmpot.errors import InputError
from warmpot.estimators import WarmpotClassifier
from warmpot.train import Predictor, bound_inputs, fit, load_config

pd = pytest.importorskip("pandas")
rng = np.random.default_rng(0)
YS = np.arange(40) % 4
CENTRES = 3 * rng.normal(size=(4, 3)) * [1.0, 2.0, 4.0]
XS, XT = CENTRES[YS] + rng.normal(size=(40, 3)), CENTRES[YS[:20] % 2] + rng.normal(size=(20, 3))
NAMES = ["p", "q", "r"]
SOURCE, TARGET = pd.DataFrame(XS, columns=NAMES), pd.DataFrame(XT, columns=NAMES)


def by_fit(tmp_path: Path) -> Predictor:
    task, _ = make_task(as_table(SOURCE, YS), as_table(TARGET))
    fit(task, load_config("source-only"), out=tmp_path / "run", progress_bar=False)
    return Predictor.load(tmp_path / "run")


def by_estimator(_: Path) -> Predictor:
    predictor: Predictor = WarmpotClassifier(overrides={"full": {"rounds": 1}}).fit(SOURCE, YS, TARGET).predictor_
    return predictor


@pytest.mark.parametrize("train", [by_fit, by_estimator])
def test_named_columns_are_matched_by_name(train: Callable[[Path], Predictor], tmp_path: Path) -> None:
    predictor = train(tmp_path)
    assert predictor.columns == tuple(NAMES)
    expected = predictor.probabilities(XT)
    moved = TARGET[["r", "p", "q"]]
    assert np.abs(predictor.probabilities(moved.to_numpy()) - expected).max() > 0.1  # the order does matter
    for frame in (TARGET, moved, moved.assign(note="x", id=range(20))):
        np.testing.assert_array_equal(predictor.probabilities(frame), expected)
    np.testing.assert_array_equal(predictor.probabilities(as_table(moved)), expected)
    np.testing.assert_array_equal(predictor.probabilities(pd.DataFrame(XT)), expected)  # no names: by position
    with pytest.raises(
        InputError, match=r"^X: got no column 'p', 'q'; allowed: the columns it was trained on, 'p', 'q"
    ):
        predictor.probabilities(TARGET[["r"]])
    with pytest.raises(InputError, match="columns more than once: 'q'"):
        predictor.probabilities(pd.concat([moved, TARGET[["q"]]], axis=1))
    with pytest.raises(InputError, match="row 3, column 'q'"):
        predictor.probabilities(moved.assign(q=np.where(np.arange(20) == 3, np.nan, XT[:, 1])))


def test_a_model_without_names_takes_columns_by_position(tmp_path: Path) -> None:
    predictor = replace(by_fit(tmp_path), columns=())  # as older versions saved it
    np.testing.assert_array_equal(predictor.probabilities(TARGET), predictor.probabilities(XT))


def test_the_inputs_of_bounds_are_matched_by_name(tmp_path: Path) -> None:
    predictor = by_fit(tmp_path)
    order = ["r", "p", "q"]
    tasks = [make_task(as_table(SOURCE[names], YS), as_table(TARGET[names]))[0] for names in (NAMES, order)]
    expected, found = (bound_inputs(predictor, task).points for task in tasks)
    arrays: list[tuple[Any, Any]] = list(zip(expected, found, strict=True))
    for one, other in arrays:
        np.testing.assert_array_equal(one, other)
