"""Spaces, proposers and sweeps."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest

from warmpot.data import as_table, make_task
from warmpot.errors import InputError, MissingExtraError
from warmpot.select import fit_chosen, sweep
from warmpot.select.search import Searched
from warmpot.select.space import Space
from warmpot.select.within import hold_out
from warmpot.train import load_config

QUICK = {"full": {"rounds": 2, "iterations": 4, "width": 8}}


@pytest.fixture(scope="module")
def task() -> Any:
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(4, 6))
    ys, yt = np.repeat(np.arange(4), 12), np.repeat([0, 1], 15)
    xs = centres[ys] + rng.normal(size=(48, 6))
    return make_task(as_table(xs, ys), as_table(centres[yt] + rng.normal(size=(30, 6)) + 0.3))[0]


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([], "mappings of settings"),
        ([3], "mappings of settings"),
        ({"params.alfa": [0.1]}, "unknown setting"),
        ({"params.alpha": [0.1, 2.0]}, r"alpha: got 2\.0"),
        ({"params.alpha": {"low": 0.1, "high": 3.0}}, "alpha: got 3"),
        ({"params.alpha": {"low": 0.9, "high": 0.1}}, "low < high"),
        ({"params.alpha": {"low": 0.1, "high": 0.9, "step": 2}}, "low, high, log"),
        ({"params.alpha": []}, "empty list"),
        ({"preset": "ful"}, "full"),
    ],
)
def test_a_wrong_space_is_refused_before_any_work(blocks: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Space(blocks)


def test_points_are_all_combinations_of_every_block() -> None:
    space = Space([{"preset": "source-only"}, {"preset": "full", "params.alpha": [0.5, 0.8], "full.rounds": [2, 3]}])
    assert space.finite
    points = list(space.points())
    assert len(points) == 5
    configs = [space.config(point, {"seed": 7}) for point in points]
    assert {(c.preset, c.params.get("alpha"), c.full.rounds if c.preset == "full" else 0) for c in configs} == {
        ("source-only", None, 0), ("full", 0.5, 2), ("full", 0.5, 3), ("full", 0.8, 2), ("full", 0.8, 3)
    }  # fmt: skip
    assert all(c.seed == 7 for c in configs)


def test_holding_out_is_stratified_and_repeatable(task: Any) -> None:
    rest, held = hold_out(task, 0.25, seed=3)
    assert np.bincount(held.y).tolist() == [3, 3, 3, 3]
    assert rest.n_source + len(held.y) == task.n_source
    np.testing.assert_array_equal(held.x, task.xs[held.rows])
    np.testing.assert_array_equal(hold_out(task, 0.25, seed=3)[1].rows, held.rows)
    assert (hold_out(task, 0.25, seed=4)[1].rows != held.rows).any()


def test_weights_of_held_samples_are_zero_in_memory_and_on_disk(task: Any, tmp_path: Any) -> None:
    config = load_config("full", changes={**QUICK, "choose": "source", "held": 0.25})
    fitted = fit_chosen(task, config, out=tmp_path / "run", progress_bar=False)
    held = hold_out(task, 0.25, config.seed)[1]
    assert fitted.source_weights.shape == (task.n_source,)
    assert (fitted.source_weights[held.rows] == 0).all()
    rows = (tmp_path / "run" / "source_weights.csv").read_text().splitlines()[1:]
    np.testing.assert_allclose([float(row.split(",")[2]) for row in rows], fitted.source_weights, rtol=1e-12)


def test_the_best_round_by_a_validator_is_kept(task: Any) -> None:
    fitted = fit_chosen(task, load_config("full", changes={**QUICK, "choose": "entropy"}), progress_bar=False)
    scores = {line["step"]: line["score"] for line in fitted.history}
    assert set(scores) == {1, 2}
    best = max(scores, key=lambda step: scores[step])
    assert fitted.step in (0, best)


def test_units_of_columns_do_not_change_the_choice(task: Any) -> None:
    """A column in other units, or one of noise that is huge in its units, must not decide who is near whom."""
    import dataclasses

    units = np.array([1.0, 1000.0, 1.0, 0.001, 1.0, 1e6])
    other = dataclasses.replace(task, xs=task.xs * units, xt=task.xt * units)
    config = load_config("full", changes={**QUICK, "choose": "neighbours"})
    one, two = (fit_chosen(each, config, progress_bar=False) for each in (task, other))
    assert [line["score"] for line in one.history] == pytest.approx([line["score"] for line in two.history], abs=1e-6)


def test_choosing_in_regression_is_refused() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 2))
    task = make_task(as_table(x, x[:, 0], task="regression"), as_table(x))[0]
    config = load_config("full", changes={"loss": "squared", "choose": "entropy"})
    with pytest.raises(InputError, match="real labels"):
        fit_chosen(task, config, progress_bar=False)


SPACE = [{"preset": "full", "params.alpha": [0.5, 0.9]}]


def test_a_sweep_takes_the_best_score_and_can_be_stopped(task: Any, tmp_path: Any, monkeypatch: Any) -> None:
    whole = sweep(task, out=tmp_path / "whole", space=SPACE, changes=QUICK, progress_bar=False)
    assert [trial.point for trial in whole.trials] == [{}, *Space(SPACE).points()]
    assert whole.best.score == max(trial.score for trial in whole.trials if trial.problem is None)
    assert (tmp_path / "whole" / "best" / "predictions.csv").exists()
    assert load_config(file=tmp_path / "whole" / "best.yaml") == whole.config

    from warmpot.select import sweep as package_function  # the module is shadowed by its function

    module = sys.modules[package_function.__module__]
    real, tried = module._try, []

    def stops(config: Any, point: Any) -> Any:
        if len(tried) == 2:
            raise KeyboardInterrupt
        tried.append(point)
        return real(config, point)

    with monkeypatch.context() as patch:
        patch.setattr(module, "_try", stops)
        with pytest.raises(KeyboardInterrupt):
            sweep(task, out=tmp_path / "cut", space=SPACE, changes=QUICK, progress_bar=False)
    assert len((tmp_path / "cut" / "trials.jsonl").read_text().splitlines()) == 2
    resumed = sweep(task, out=tmp_path / "cut", space=SPACE, changes=QUICK, progress_bar=False)
    assert [(t.point, t.score) for t in resumed.trials] == [(t.point, t.score) for t in whole.trials]
    np.testing.assert_array_equal(resumed.fitted.outputs, whole.fitted.outputs)
    again = sweep(task, out=tmp_path / "cut", space=SPACE, changes=QUICK, progress_bar=False)
    np.testing.assert_array_equal(again.fitted.outputs, whole.fitted.outputs)


def test_workers_find_the_same(task: Any, tmp_path: Any) -> None:
    one = sweep(task, out=tmp_path / "one", space=SPACE, changes=QUICK, validator="dev", progress_bar=False)
    two = sweep(task, out=tmp_path / "two", space=SPACE, changes=QUICK, validator="dev", workers=2, progress_bar=False)
    scores = [{json.dumps(t.point): t.score for t in found.trials} for found in (one, two)]
    assert scores[0].keys() == scores[1].keys()
    for key, score in scores[0].items():
        assert scores[1][key] == pytest.approx(score, abs=1e-5)


def test_another_sweep_in_the_same_folder_is_refused(task: Any, tmp_path: Any) -> None:
    sweep(task, out=tmp_path / "a", space=SPACE, changes=QUICK, progress_bar=False)
    with pytest.raises(InputError, match="another sweep: other validator"):
        sweep(task, out=tmp_path / "a", space=SPACE, changes=QUICK, validator="entropy", progress_bar=False)


def test_a_candidate_that_fails_is_told_and_cannot_win(task: Any, tmp_path: Any) -> None:
    wild = {"preset": "official", "minibatch.optimizer.lr": [1e9], "minibatch.steps": 8}
    found = sweep(task, out=tmp_path / "a", space=[wild], progress_bar=False)
    assert found.trials[1].problem is not None
    assert found.best is found.trials[0]
    assert found.config.method == "source-only"


def test_a_collapsed_candidate_cannot_win_though_entropy_loves_it(task: Any, tmp_path: Any, monkeypatch: Any) -> None:
    """A step of entropy minimisation without end: every target sample gets one class, with certainty."""
    module = sys.modules[sweep.__module__]
    real = module.evidence_of

    def one_class(snapshot: Any, task: Any, held: Any) -> Any:
        found = real(snapshot, task, held)
        if snapshot.step:  # not the reference
            found.target_logits[:] = 0.0
            found.target_logits[:, 0] = 50.0
        return found

    monkeypatch.setattr(module, "evidence_of", one_class)
    found = sweep(task, out=tmp_path / "a", space=SPACE, changes=QUICK, validator="entropy", progress_bar=False)
    assert all(t.score > found.trials[0].score for t in found.trials[1:])
    assert all("classes" in t.problem for t in found.trials[1:])
    assert found.best is found.trials[0]


def test_optuna_searches_ranges_and_hears_of_earlier_trials(task: Any, tmp_path: Any) -> None:
    pytest.importorskip("optuna")
    space = [{"preset": "full", "params.alpha": {"low": 0.3, "high": 1.0}, "full.rounds": {"low": 1, "high": 2}}]
    changes = {"full": {"iterations": 3, "width": 8}}
    found = sweep(task, out=tmp_path / "a", space=space, trials=3, changes=changes, progress_bar=False)
    assert len(found.trials) == 4
    for trial in found.trials[1:]:
        assert 0.3 <= trial.point["params.alpha"] <= 1.0
        assert isinstance(trial.point["full.rounds"], int)
    more = sweep(task, out=tmp_path / "a", space=space, trials=5, changes=changes, progress_bar=False)
    assert [t.point for t in more.trials[:4]] == [t.point for t in found.trials]
    assert len(more.trials) == 6


def test_the_sampler_learns(tmp_path: Any) -> None:
    """Forty proposals for a score with one peak end nearer to it than chance."""
    pytest.importorskip("optuna")
    searcher = Searched(Space({"params.alpha": {"low": 0.01, "high": 1.0}}), [], 40, seed=0)
    asked: list[float] = []
    by_chance = np.abs(np.linspace(0.01, 1.0, 1000) - 0.7).mean()
    while (point := searcher.propose()) is not None:
        asked.append(point["params.alpha"])
        searcher.learn(point, -((asked[-1] - 0.7) ** 2))
    assert np.abs(np.array(asked[-15:]) - 0.7).mean() < 0.5 * by_chance


def test_ranges_without_optuna_name_the_extra(task: Any, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match="search"):
        sweep(task, out=tmp_path / "a", space={"params.alpha": {"low": 0.3, "high": 1.0}}, trials=2, progress_bar=False)
    with pytest.raises(InputError, match="trials"):
        sweep(task, out=tmp_path / "b", space={"params.alpha": {"low": 0.3, "high": 1.0}}, progress_bar=False)
