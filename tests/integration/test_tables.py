"""Tables as sensors write them: units up to 1e5, constant columns, counts with heavy tails, rare classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import warmpot
from warmpot.data import load_table


def domains(width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = 4 * rng.normal(size=(5, width)) * (8 / width) ** 0.5
    ys, yt = np.repeat(np.arange(5), (200, 60, 60, 60, 20)), np.repeat([0, 1, 4], (20, 60, 15))
    xs, xt = centres[ys] + rng.normal(size=(len(ys), width)), centres[yt] + rng.normal(size=(len(yt), width)) + 0.3
    return xs, ys, xt, yt


def test_units_and_constant_columns_of_a_narrow_table_do_not_matter() -> None:
    xs, ys, xt, yt = domains(12)
    plain = warmpot.fit((xs, ys), xt, progress_bar=False).run
    units = 10.0 ** np.linspace(-3, 5, 12)

    def raw(x: np.ndarray) -> np.ndarray:
        return np.hstack([units * (x + 10), np.zeros((len(x), 2)), np.full((len(x), 1), 1e5)])

    sensors = warmpot.fit((raw(xs), ys), raw(xt), progress_bar=False).run
    assert np.mean(plain.predictions == yt) > 0.95
    assert np.mean(sensors.predictions == plain.predictions) > 0.98


@pytest.mark.parametrize("width", [12, 90])
def test_counts_with_heavy_tails_and_a_rare_class(width: int) -> None:
    xs, ys, xt, yt = domains(width)
    counts, targets = (np.round(np.exp(np.clip(x, -3, 9))) for x in (xs, xt))
    result = warmpot.fit((counts, ys), targets, progress_bar=False)
    assert np.isfinite(result.predict_proba(targets)).all()
    assert np.mean(result.run.predictions == yt) >= np.mean(result.run.unadapted == yt) - 0.05


@pytest.mark.parametrize("pair", [
    ("gas_drift/batch5", "gas_drift/batch4"), ("chest_accel/subject13", "chest_accel/subject03"),
    ("forest_cover/neota", "forest_cover/cache_la_poudre"),
])  # fmt: skip
def test_real_sensor_tables(shared_data: Path, pair: tuple[str, str]) -> None:
    files = [shared_data / "other" / f"{name}.npz" for name in pair]
    if not all(file.exists() for file in files):
        pytest.skip(f"the data {' and '.join(pair)} are not there")
    source, target = (load_table(file) for file in files)
    shared = np.intersect1d(np.array(source.classes), np.array(target.classes))[:2]
    rows = np.flatnonzero(np.isin(np.array(target.classes)[target.y], shared))[:400]
    names = np.array(source.classes)[source.y]
    result = warmpot.fit((source.x, names), np.asarray(target.x[rows]), progress_bar=False)
    proba = result.predict_proba(target.x[rows])
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-9)
    assert result.verdict is not None
