"""Spaces, proposers and sweeps."""

from __future__ import annotations

import itertools
import json
import os
import sys
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from warmpot._jobs import Done
from warmpot.data import as_table, make_task
from warmpot.errors import InputError, MissingExtraError, WarmpotError
from warmpot.select import fit_chosen, sweep
from warmpot.select.best_iterate import hold_out
from warmpot.select.space import OptunaProposer, Space
from warmpot.select.study import describe_lead
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
        (None, "space: got nothing; allowed: mappings of settings"),
        (3, "mappings of settings"),
        ("full", "mappings of settings"),
        ([3], "mappings of settings"),
        ({"params.alfa": [0.1]}, "unknown setting"),
        ({"params.alpha": [0.1, 2.0]}, r"alpha: got 2\.0"),
        ({"params.alpha": {"low": 0.1, "high": 3.0}}, "alpha: got 3"),
        ({"params.alpha": {"low": 0.9, "high": 0.1}}, r"params\.alpha: range: .*low < high"),
        ({"params.alpha": {"low": 0.3}}, r"params\.alpha: got low alone; .*a range needs low and high"),
        ({"params": {"alpha": {"high": 0.3}}}, r"params\.alpha: got high alone; .*a range needs low and high"),
        ({"params": {"alpha": [0.1, 2.0]}}, r"alpha: got 2\.0"),
        ({"params": {"alfa": [0.1]}}, "unknown setting"),
        ({"params.alpha": {"low": 0.1, "high": 0.9, "step": 2}}, "low, high, log"),
        ({"params.alpha": []}, "empty list"),
        ({"preset": "ful"}, "full"),
    ],
)
def test_a_wrong_space_is_refused_before_any_work(blocks: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Space(blocks)


def test_points_are_all_combinations_of_every_block() -> None:
    space = Space(
        [{"preset": "source-only"}, {"preset": "full", "params.alpha": [0.5, 0.8], "full.rounds": [2, 3]}], {"seed": 7}
    )
    assert space.finite
    points = list(space.points())
    assert len(points) == 5
    configs = [space.config(point) for point in points]
    assert {(c.preset, c.params.get("alpha"), c.full.rounds if c.preset == "full" else 0) for c in configs} == {
        ("source-only", None, 0), ("full", 0.5, 2), ("full", 0.5, 3), ("full", 0.8, 2), ("full", 0.8, 3)
    }  # fmt: skip
    assert all(c.seed == 7 for c in configs)


def test_nested_and_dotted_names_are_one() -> None:
    nested = Space({"params": {"alpha": [0.5, 0.8], "eta2": {"low": 1.0, "high": 2.0}}, "full": {"rounds": 3}})
    dotted = Space({"params.alpha": [0.5, 0.8], "params.eta2": {"low": 1.0, "high": 2.0}, "full.rounds": 3})
    assert (nested.free, nested.fixed) == (dotted.free, dotted.fixed)


def test_names_tell_candidates_apart() -> None:
    space = Space([{"full.rounds": 2, "params.alpha": [0.5]}, {"preset": "full", "full.rounds": 3}, {"preset": "bound"},
                   {"preset": "frozen", "params.eta2": {"low": 0.1, "high": 2.0}}])  # fmt: skip
    points = [{}, {"block": 0, "params.alpha": 0.5}, {"block": 1}, {"block": 2}, {"block": 3, "params.eta2": 1 / 3}]
    assert [space.name(point) for point in points] == [
        "source-only (reference)", "full, full.rounds 2, params.alpha 0.5", "full, full.rounds 3", "bound",
        "frozen, params.eta2 0.333",
    ]  # fmt: skip


def test_holding_out_is_stratified_and_repeatable(task: Any) -> None:
    rest, held = hold_out(task, 0.25, seed=3)
    assert np.bincount(held.y).tolist() == [3, 3, 3, 3]
    assert rest.n_source + len(held.y) == task.n_source
    np.testing.assert_array_equal(held.x, task.xs[held.rows])
    np.testing.assert_array_equal(hold_out(task, 0.25, seed=3)[1].rows, held.rows)
    assert (hold_out(task, 0.25, seed=4)[1].rows != held.rows).any()


def test_weights_of_held_samples_are_zero_in_memory_and_on_disk(task: Any, tmp_path: Any, caplog: Any) -> None:
    config = load_config("full", changes={**QUICK, "choose": "source", "held": 0.25})
    fitted = fit_chosen(task, config, out=str(tmp_path / "run"), progress_bar=False)  # a text is a path too
    assert "12 of 48 source samples are held out to choose by source; they are not trained on" in caplog.messages
    held = hold_out(task, 0.25, config.seed)[1]
    assert fitted.source_weights.shape == (task.n_source,)
    assert (fitted.source_weights[held.rows] == 0).all()
    rows = (tmp_path / "run" / "source_weights.csv").read_text().splitlines()[1:]
    np.testing.assert_allclose([float(row.split(",")[2]) for row in rows], fitted.source_weights, rtol=1e-12)


def test_the_best_round_by_a_validator_is_kept(task: Any) -> None:
    fitted = fit_chosen(task, load_config("full", changes={**QUICK, "choose": "entropy"}), progress_bar=False)
    scores = {line["step"]: line["score"] for line in fitted.history}
    assert list(scores) == list(range(len(fitted.history)))
    # a single class, the first hypothesis, is refused as a collapse
    assert scores[fitted.step] == max(score for step, score in scores.items() if step != 1)
    assert repr(fitted) == f"Fitted(warmpot, preset full, step {fitted.step}, 48 source and 30 target samples)"


def tied(monkeypatch: Any) -> None:
    monkeypatch.setattr("warmpot.select.validators.Neighbours._score", lambda self, candidate: 0.25)


def test_the_last_of_equal_rounds_is_kept(task: Any, monkeypatch: Any, caplog: Any) -> None:
    tied(monkeypatch)
    fitted = fit_chosen(task, load_config("full", changes={**QUICK, "choose": "neighbours"}), progress_bar=False)
    assert fitted.step == fitted.history[-1]["step"]
    assert "all iterates score the same (0.25): neighbours cannot tell them apart" in caplog.messages


@pytest.mark.parametrize("chosen", [0, 2])
def test_weights_are_those_of_the_round_that_was_chosen(
    task: Any, tmp_path: Any, monkeypatch: Any, chosen: int
) -> None:
    """Round 0 had no plan: its weights are those of source-only."""
    scores = itertools.chain([1.0, 0.0, 0.0] if chosen == 0 else [0.0, 0.0, 1.0], itertools.repeat(0.0))
    monkeypatch.setattr("warmpot.select.validators.Neighbours._score", lambda self, candidate: next(scores))
    config = load_config("full", changes={**QUICK, "choose": "neighbours"})
    fitted = fit_chosen(task, config, out=tmp_path / "run", progress_bar=False)
    assert fitted.step == chosen
    rows = (tmp_path / "run" / "source_weights.csv").read_text().splitlines()[1:]
    np.testing.assert_allclose([float(row.split(",")[2]) for row in rows], fitted.source_weights, rtol=1e-12)
    if chosen:
        assert fitted.solution is not None
        assert np.ptp(fitted.source_weights) > 1e-3
        return
    assert fitted.solution is None
    np.testing.assert_allclose(fitted.source_weights, 1 / 48)
    np.testing.assert_allclose(fitted.target_weights, 1 / 30)


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
    with pytest.raises(InputError, match="continuous targets"):
        fit_chosen(task, config, progress_bar=False)


SPACE = [{"preset": "full", "params.alpha": [0.5, 0.9]}]


def test_a_sweep_takes_the_best_score_and_can_be_stopped(task: Any, tmp_path: Any, monkeypatch: Any) -> None:
    whole = sweep(task, out=str(tmp_path / "whole"), space=SPACE, changes=QUICK, progress_bar=False)
    assert repr(whole).startswith(f"SweepResult({whole.best.preset}, neighbours ")
    assert len(repr(whole)) < 60
    assert [trial.point for trial in whole.trials] == [{}, *Space(SPACE).points()]
    assert whole.best.score == max(trial.score for trial in whole.trials if trial.problem is None)
    assert (tmp_path / "whole" / "best" / "predictions.csv").exists()
    assert load_config(file=tmp_path / "whole" / "best.yaml") == whole.config

    from warmpot.select import sweep as package_function

    module = sys.modules[package_function.__module__]
    real, tried = module._try, []

    def stops(shared: Any, config: Any, point: Any) -> Any:
        if len(tried) == 2:
            raise KeyboardInterrupt
        tried.append(point)
        return real(shared, config, point)

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


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_among_equals_the_first_of_the_space_wins_and_the_reference_last(
    task: Any, tmp_path: Any, monkeypatch: Any, caplog: Any, order: list[int]
) -> None:
    """Whichever was finished first: with workers that is a matter of luck."""
    tied(monkeypatch)
    points = list(Space(SPACE).points())
    left = iter([points[k] for k in order])
    monkeypatch.setattr("warmpot.select.space.GridProposer.propose", lambda self: next(left, None))
    found = sweep(task, out=tmp_path / "a", space=SPACE, changes=QUICK, progress_bar=False)
    assert [trial.point for trial in found.trials] == [{}, points[order[0]], points[order[1]]]
    assert [trial.score for trial in found.trials] == [0.25] * 3
    assert found.best.point == points[0]
    assert "all candidates score the same (0.25): neighbours cannot tell them apart" in caplog.messages


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"trials": 0}, "trials: got 0"),
        ({"trials": -2}, "trials: got -2"),
        ({"workers": 0}, "workers: got 0"),
        ({"validator": "plan"}, "plan compares the rounds of one run; use transport"),
        ({"validator": "oracle"}, r"oracle needs target labels; it is only in Python, as warmpot\.select\.Oracle"),
    ],
)
def test_wrong_arguments_are_refused_at_once(task: Any, tmp_path: Any, arguments: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        sweep(task, out=tmp_path / "a", space=SPACE, changes=QUICK, progress_bar=False, **arguments)
    assert not (tmp_path / "a").exists()


def test_a_new_winner_takes_the_place_of_the_old(task: Any, tmp_path: Any, monkeypatch: Any) -> None:
    """The same sweep with more trials may choose another candidate."""
    pytest.importorskip("optuna")
    space = [{"preset": "full", "params.alpha": {"low": 0.3, "high": 1.0}}]
    tried = iter([0.0, 1.0, 2.0, 3.0])
    monkeypatch.setattr("warmpot.select.validators.Neighbours._score", lambda self, candidate: next(tried))
    for trials in (1, 3):
        found = sweep(task, out=tmp_path / "a", space=space, trials=trials, changes=QUICK, progress_bar=False)
        assert found.best is found.trials[-1]
        assert (tmp_path / "a" / "best" / "config.yaml").read_text() == found.config.dump()


TRYING = """
import os, signal, sys
from pathlib import Path

import warmpot.select

plain = sys.modules[warmpot.select.sweep.__module__]._try
real = getattr(plain, "real", plain)  # in the process that put `tries` in its place


def tries(shared, config, point):
    with open(Path(__file__).with_name("tried"), "a") as stream:
        stream.write(f"{point.get('params.alpha')}\\n")
    if point.get("params.alpha") == 0.5 and not Path(__file__).with_name("dead").exists():
        Path(__file__).with_name("dead").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return real(shared, config, point)


tries.real = real
"""


def by_point(found: Any) -> dict[str, Any]:
    return {json.dumps(t.point): (t.preset, t.score, t.classes, t.step, t.problem) for t in found.trials}


@pytest.mark.parametrize("way", ["ray"])  # the same runner in processes: tests/unit/test_jobs.py
def test_workers_find_the_same_though_one_is_killed(task: Any, tmp_path: Any, monkeypatch: Any, way: str) -> None:
    """To the last bit; and what was finished before the death is not tried again."""
    arguments = {"space": SPACE, "changes": QUICK, "validator": "dev", "progress_bar": False}
    more: dict[str, Any] = {"workers": 2}
    if way == "ray":
        pytest.importorskip("ray", reason="needs Ray: pip install 'warmpot[ray]'")
        more["ray_address"] = "local"
    else:
        (tmp_path / "dead").touch()  # no death: test_jobs.py kills processes, and to start one takes long
    one = sweep(task, out=tmp_path / "one", **arguments)
    (tmp_path / "deadly_sweep.py").write_text(TRYING)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)  # for the workers of Ray
    monkeypatch.delitem(sys.modules, "deadly_sweep", raising=False)
    import deadly_sweep

    monkeypatch.setattr(sys.modules[sweep.__module__], "_try", deadly_sweep.tries)
    two = sweep(task, out=tmp_path / "two", **arguments, **more)
    assert by_point(two) == by_point(one)
    assert two.best.point == one.best.point
    np.testing.assert_array_equal(two.fitted.outputs, one.fitted.outputs)
    tried = ["0.5", *(["0.5"] if way == "ray" else []), "0.9", "None"]
    assert sorted((tmp_path / "tried").read_text().split()) == tried
    again = sweep(task, out=tmp_path / "two", **arguments)
    assert again.trials == two.trials
    assert sorted((tmp_path / "tried").read_text().split()) == tried


def test_what_fails_without_an_error_of_ours_is_left_out_and_tried_again(
    task: Any, tmp_path: Any, monkeypatch: Any, caplog: Any
) -> None:
    module = sys.modules[sweep.__module__]
    real = module._try

    def breaks(shared: Any, config: Any, point: Any) -> Any:
        if point.get("params.alpha", 1.0) <= bad:
            raise RuntimeError("no memory left")
        return real(shared, config, point)

    with monkeypatch.context() as patch:
        patch.setattr(module, "_try", breaks)
        bad = 1.0
        with pytest.raises(WarmpotError, match=r"source-only \(reference\) failed. RuntimeError: no memory left"):
            sweep(task, out=tmp_path / "a", space=SPACE, changes=QUICK, progress_bar=False)
        bad = 0.5
        found = sweep(task, out=tmp_path / "a", space=SPACE, changes=QUICK, progress_bar=False)
    assert [trial.point.get("params.alpha") for trial in found.trials] == [None, 0.9]
    told = "full, params.alpha 0.5 failed, and is left out; the same sweep tries it again. RuntimeError: no memory left"
    assert told in caplog.messages
    whole = sweep(task, out=tmp_path / "a", space=SPACE, changes=QUICK, progress_bar=False)
    assert [trial.point.get("params.alpha") for trial in whole.trials] == [None, 0.9, 0.5]


def test_optuna_proposes_for_all_workers_and_learns_in_its_own_order(
    task: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    """Whichever worker is the faster."""
    pytest.importorskip("optuna")
    module, space = sys.modules[sweep.__module__], {"params.alpha": {"low": 0.3, "high": 1.0}}
    points = []

    def fakes(backwards: bool) -> Any:
        def run(jobs: Any) -> Any:
            jobs = list(jobs)
            for job in reversed(jobs) if backwards else jobs:
                alpha = job.args[1].get("params.alpha", 0.0)
                yield Done(job.key, module.Trial(job.args[1], "full", -((alpha - 0.6) ** 2), 2.0, 0, 0.0))

        run.workers = 3  # type: ignore[attr-defined]
        return lambda *args, **more: nullcontext(run)

    monkeypatch.setattr(module, "_fit_best", lambda *args: None)
    for backwards in (False, True):
        monkeypatch.setattr(module, "runner", fakes(backwards))
        found = sweep(task, out=tmp_path / str(backwards), space=space, trials=20, workers=3, progress_bar=False)
        points.append({t.point.get("params.alpha"): t.score for t in found.trials})
    assert len(points[0]) == 21
    assert points[0] == points[1]


def test_another_sweep_in_the_same_folder_is_refused(task: Any, tmp_path: Any) -> None:
    sweep(task, out=tmp_path / "a", space=SPACE, changes=QUICK, progress_bar=False)
    with pytest.raises(InputError, match="another sweep: other validator"):
        sweep(task, out=tmp_path / "a", space=SPACE, changes=QUICK, validator="entropy", progress_bar=False)


def test_a_candidate_that_fails_is_told_and_cannot_win(task: Any, tmp_path: Any, caplog: Any) -> None:
    wild = {"preset": "official", "minibatch.optimizer.lr": [1e9], "minibatch.steps": 8}
    found = sweep(task, out=tmp_path / "a", space=[wild], progress_bar=False)
    assert found.trials[1].problem is not None
    assert any(m.startswith("official, minibatch.optimizer.lr 1000000000.0 cannot win:") for m in caplog.messages)
    assert found.best is found.trials[0]
    assert found.config.method == "source-only"


def test_a_reference_that_fails_is_named(task: Any, tmp_path: Any, monkeypatch: Any, caplog: Any) -> None:
    def broken(self: Any, evidence: Any) -> float:
        raise InputError("no good")

    monkeypatch.setattr("warmpot.select.validators.Neighbours._score", broken)
    with pytest.raises(InputError, match="no good"):
        sweep(task, out=tmp_path / "a", space=SPACE, changes=QUICK, progress_bar=False)
    assert "source-only (reference) cannot win: no good" in caplog.messages


def test_a_collapsed_candidate_cannot_win_though_entropy_loves_it(task: Any, tmp_path: Any, monkeypatch: Any) -> None:
    """A step of entropy minimisation without end: every target sample gets one class, with certainty."""
    module = sys.modules[sweep.__module__]
    real = module.candidate_from_snapshot

    def one_class(snapshot: Any, task: Any, held: Any) -> Any:
        found = real(snapshot, task, held)
        if snapshot.step:  # not the reference
            found.target_logits[:] = 0.0
            found.target_logits[:, 0] = 50.0
        return found

    monkeypatch.setattr(module, "candidate_from_snapshot", one_class)
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
    searcher = OptunaProposer(Space({"params.alpha": {"low": 0.01, "high": 1.0}}), [], 40, seed=0)
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


def test_a_damaged_line_and_what_follows_is_tried_again(task: Any, tmp_path: Any) -> None:
    whole = sweep(task, out=tmp_path / "a", space=SPACE, changes=QUICK, progress_bar=False)
    file = tmp_path / "a" / "trials.jsonl"
    lines = file.read_text().splitlines()
    for cut in (1, 0):  # also the reference, which no candidate may replace
        file.write_text("\n".join([*lines[:cut], lines[cut][:30] + "}", *lines[cut + 1 :]]) + "\n")
        again = sweep(task, out=tmp_path / "a", space=SPACE, changes=QUICK, progress_bar=False)
        assert [(t.point, t.score) for t in again.trials] == [(t.point, t.score) for t in whole.trials]


def test_a_wrong_validator_within_the_runs_is_refused_at_once(task: Any, tmp_path: Any) -> None:
    with pytest.raises(InputError, match="neighbours"):
        sweep(task, out=tmp_path / "a", space=SPACE, changes={"choose": "neighbors"}, progress_bar=False)
    assert not (tmp_path / "a").exists()


def test_optuna_is_not_drawn_towards_collapses(task: Any, tmp_path: Any, monkeypatch: Any) -> None:
    pytest.importorskip("optuna")
    module, told = sys.modules[sweep.__module__], []
    monkeypatch.setattr(module, "collapse_reason", lambda classes, reference: "collapsed, says the test")
    learn = OptunaProposer.learn
    monkeypatch.setattr(
        OptunaProposer, "learn", lambda self, point, score: (told.append(score), learn(self, point, score))
    )
    space = {"params.alpha": {"low": 0.3, "high": 1.0}}
    sweep(task, out=tmp_path / "a", space=space, trials=2, changes=QUICK, progress_bar=False)
    assert told == [None, None]


@pytest.mark.parametrize("held", [0.0, -1.0, 1.5, float("nan")])
def test_a_share_to_hold_out_is_checked(task: Any, tmp_path: Any, held: float) -> None:
    with pytest.raises(InputError, match="held"):
        sweep(task, out=tmp_path / "a", validator="source", held=held, progress_bar=False)


def test_the_lead_of_the_winner() -> None:
    assert describe_lead([("a", 0.5)]) == ""
    assert describe_lead([("a", 0.5), ("b", 0.4996)]) == "The score is 0.0004 more than that of b, the second."
    three = describe_lead([("a", 0.5), ("b", 0.4), ("c", 0.25)])
    assert three == "The score is 0.1 more than that of b, the second, and 0.25 more than that of c, the last."
    tie = describe_lead([("a", 0.5), ("b", 0.5 - 1e-17), ("c", 0.5), ("d", 0.1)])
    assert tie == "There is no clear winner: 'b', 'c' have the same score."
