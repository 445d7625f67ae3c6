"""A trained model takes named columns by name (`warmpot.train.predictor`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

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


def test_predict_gives_the_names_of_classes_or_values(tmp_path: Path) -> None:
    predictor = by_fit(tmp_path)
    predicted = predictor.predict(TARGET)
    best = predictor.probabilities(XT).argmax(axis=1)
    assert predicted.tolist() == best.tolist()  # the classes are 0 to 3
    assert predicted.dtype.kind == "i"
    for classes in (("a", "b", "c", "d"), ("0", "1", "2", "x"), ("00", "01", "02", "03")):
        assert replace(predictor, classes=classes).predict(TARGET).tolist() == [classes[k] for k in best]
    task, _ = make_task(as_table(XS, XS[:, 0], task="regression"), as_table(XT))
    regressor = fit(task, load_config("full", changes={"loss": "squared", "full": {"rounds": 1}})).predictor
    np.testing.assert_array_equal(regressor.predict(XT), regressor.values(XT))
    assert repr(regressor) == "Predictor(3 features -> continuous targets, on cpu)"


def test_files_are_read_by_the_names_of_their_columns(tmp_path: Path) -> None:
    predictor = by_fit(tmp_path)
    expected = predictor.probabilities(XT)
    file = tmp_path / "new.csv"
    TARGET[["r", "p", "q"]].assign(label="x", key=range(20)).to_csv(file, index=False)
    for path in (file, str(file)):
        np.testing.assert_allclose(predictor.probabilities(path), expected, rtol=1e-12)
    np.savez(tmp_path / "new.npz", X=XT, y=np.zeros(20))
    np.testing.assert_array_equal(predictor.probabilities(tmp_path / "new.npz"), expected)
    with pytest.raises(InputError, match=r"absent\.csv"):
        predictor.predict(tmp_path / "absent.csv")


def test_a_model_moves_to_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = by_fit(tmp_path)
    moved = predictor.to(torch.device("cpu"))
    assert moved.network is not predictor.network
    assert repr(moved) == "Predictor(3 features -> 4 classes, on cpu)"
    np.testing.assert_array_equal(moved.probabilities(XT), predictor.probabilities(XT))
    with pytest.raises(InputError, match="device: got 'tpu'"):
        predictor.to("tpu")
    # every batch goes to the network's device, and the results come back from it
    seen = []
    monkeypatch.setattr(
        "warmpot.train.predictor.device_of", lambda network: seen.append(network) or torch.device("cpu")
    )
    predictor.probabilities(XT)
    assert seen == [predictor.network]


@pytest.mark.parametrize("bad", [[float("nan")] * 4, [5.0] * 4, [0.5] * 3, "0123", {"a": 1}])
def test_damaged_probabilities_of_classes_are_refused(bad: Any, tmp_path: Path) -> None:
    """Of NaN or 5 no prediction was marked for review."""
    model = by_fit(tmp_path)
    assert len(model.presence) == 4
    assert Predictor.load(tmp_path / "run").review(model.probabilities(TARGET)).shape == (20,)
    file = tmp_path / "run" / "model.json"
    described = json.loads(file.read_text())
    described["facts"]["presence"] = bad
    file.write_text(json.dumps(described))
    with pytest.raises(InputError, match="without the meaning of its outputs"):
        Predictor.load(tmp_path / "run")
