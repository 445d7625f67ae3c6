"""`warmpot bound` as a user sees it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from warmpot.bounds import head_lipschitz, joint_bound
from warmpot.cli import app
from warmpot.data import as_table, make_task
from warmpot.select import sweep
from warmpot.train import Predictor, fit, load_config

POPULATION = "PAC-Bayes"
NAMES = {"Theorem 3.2", "Theorem 3.2, sharp", "Theorem 3.3", "Theorem 3.3, sharp", "Plan labels", POPULATION}
NEW = {"Theorem 3.3, new samples", "Plan labels, new samples"}


def invoke(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def arrays(path: Path) -> dict[str, Any]:
    with np.load(path) as found:
        return dict(found)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bound")
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(4, 6))
    ys, yt = np.repeat(np.arange(4), 12), np.repeat([0, 1], 15)
    xt = centres[yt] + rng.normal(size=(30, 6)) + 0.3
    np.savez(folder / "s.npz", X=centres[ys] + rng.normal(size=(48, 6)), y=ys)
    np.savez(folder / "t.npz", X=xt)
    np.savez(folder / "labelled.npz", X=xt, y=yt)
    few = ["--set", "full.rounds=2", "--set", "full.iterations=5", "--quiet"]
    for name, preset in (("full", "full"), ("source", "source-only")):
        words = [str(folder / "s.npz"), str(folder / "t.npz"), "--out", str(folder / name), "--preset", preset, *few]
        assert invoke("fit", *words, "--no-report").exit_code == 0
    return folder


def test_terms_are_printed_and_written(data: Path) -> None:
    result = invoke("bound", str(data / "full"))
    assert result.exit_code == 0, result.output
    assert "source loss" in result.output
    assert "evaluation" not in result.output  # there are no target labels
    assert "needs target labels" in result.output
    found = json.loads((data / "full" / "bound.json").read_text())
    tables = found.pop("tables")
    assert set(found) == NAMES
    assert [row["name"] for row in tables["coverage"]][-1] == "all"
    assert [row["level"] for row in tables["levels"]] == ["features", "head", "outputs"]
    assert tables["coverage"][-1]["joint"] == pytest.approx(found["Theorem 3.3, sharp"]["total"])
    assert "nothing; hold some out" in result.output
    for report in found.values():
        values = [term["value"] for term in report["terms"] if term["computable"]]
        assert all(value >= 0 for value in values)
        assert report["total"] == pytest.approx(sum(values))
        assert report["ideal"] is report["target_loss"] is None
    assert (data / "full" / "bound.png").read_bytes()[:4] == b"\x89PNG"


def test_the_numbers_are_those_of_the_library(data: Path, tmp_path: Path) -> None:
    words = ["bound", str(data / "full"), "--alpha", "0.9", "--beta", "0.5", "--out", str(tmp_path), "--quiet"]
    result = invoke(*words)
    assert (result.exit_code, result.output) == (0, "")
    found = json.loads((tmp_path / "bound.json").read_text())["Theorem 3.3"]
    predictor, s, t = Predictor.load(data / "full"), arrays(data / "s.npz"), arrays(data / "t.npz")
    source, target = predictor.outputs(s["X"], source=True), predictor.outputs(t["X"])
    weight = predictor.network.head.weight.detach().double().numpy()
    report = joint_bound(
        source.features, s["y"], target.features, source.logits.softmax(1), target.logits.softmax(1),
        gamma=head_lipschitz(weight, "euclidean"), alpha=0.9, beta=0.5,
    )  # fmt: skip
    assert found["total"] == pytest.approx(report.total, rel=1e-9)


def test_labels_only_add_their_terms(data: Path, tmp_path: Path) -> None:
    outs = []
    for name, target in (("a", "t.npz"), ("b", "labelled.npz")):
        out = tmp_path / name
        out.mkdir()
        files = [str(data / "s.npz"), str(data / target)]
        result = invoke("bound", str(data / "full"), *files, "--out", str(out))
        assert result.exit_code == 0, result.output
        outs.append(json.loads((out / "bound.json").read_text()))
    tables = [out.pop("tables") for out in outs]
    assert [row["total"] for row in tables[0]["levels"]] == [row["total"] for row in tables[1]["levels"]]
    assert tables[0]["classes"] == tables[1]["classes"]
    assert "evaluation only" in result.output
    for name in NAMES - {POPULATION}:
        plain, labelled = (out[name] for out in outs)
        assert labelled["total"] == plain["total"]
        assert labelled["target_loss"] <= labelled["total_with_labels"]
        if labelled["total_refined"] is not None:
            assert labelled["target_loss"] <= labelled["total_refined"] + 1e-9


def test_only_features_that_never_saw_the_target_give_a_pac_bayes_certificate(data: Path) -> None:
    assert "NOT A CERTIFICATE" in invoke("bound", str(data / "full")).output
    assert "NOT A CERTIFICATE" not in invoke("bound", str(data / "source")).output


def test_features_chosen_on_the_target_give_no_certificate(data: Path, tmp_path: Path) -> None:
    files = [str(data / "s.npz"), str(data / "t.npz")]
    few = ["--set", "engine=minibatch", "--set", "minibatch.steps=4", "--set", "minibatch.checkpoint_every=2"]
    words = [*files, "--preset", "source-only", "--choose", "entropy", "--out", str(tmp_path / "run"), "--quiet", *few]
    assert invoke("fit", *words, "--no-report").exit_code == 0
    assert "NOT A CERTIFICATE" in invoke("bound", str(tmp_path / "run")).output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "the folder of a run"),
        (["{full}", "--alpha", "2"], "alpha"),
        (["{full}", "--delta", "0"], "delta"),
        (["{full}", "--out", "nowhere"], "folder that exists"),
        (["{full}", "{s}", "nowhere.npz"], "nowhere.npz"),
    ],
)
def test_mistakes_are_reported_in_one_line(data: Path, words: list[str], message: str) -> None:
    result = invoke("bound", *(word.format(full=data / "full", s=data / "s.npz") for word in words))
    assert result.exit_code == 2, result.output
    assert re.search(message, result.output)


def test_a_regression_run_is_bounded(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    np.savez(tmp_path / "s.npz", X=x, y=3 * x[:, 0])
    np.savez(tmp_path / "t.npz", X=x[::2] + 0.05, y=3 * x[::2, 0])
    files = [str(tmp_path / "s.npz"), str(tmp_path / "t.npz")]
    words = [*files, "--regression", "--out", str(tmp_path / "run"), "--quiet", "--no-report", "--holdout", "0.4"]
    assert invoke("fit", *words).exit_code == 0
    result = invoke("bound", str(tmp_path / "run"))
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "run" / "bound.json").read_text())
    assert set(found) == (NAMES | NEW) - {POPULATION}
    for name, report in found.items():
        assert report["loss"] == "absolute"
        if name not in NEW:  # of all new samples, which these labels do not complete
            assert report["target_loss"] <= report["total_with_labels"] + 1e-9


def test_held_out_samples_certify_and_reach_nothing(data: Path, tmp_path: Path) -> None:
    """Other values in the held-out rows change neither the model nor anything else but their own predictions."""
    t = arrays(data / "labelled.npz")
    models, found = [], {}
    for name, shift in (("a", 0.0), ("b", 5.0)):
        x = t["X"].copy()
        rows = json.loads((tmp_path / "a" / "run.json").read_text())["facts"]["holdout"] if models else []
        x[rows] += shift
        target = tmp_path / f"{name}.npz"
        np.savez(target, X=x, y=t["y"])
        words = [str(data / "s.npz"), str(target), "--out", str(tmp_path / name), "--holdout", "0.4", "--quiet"]
        few = ["--set", "full.rounds=2", "--set", "full.iterations=5", "--no-report"]
        assert invoke("fit", *words, *few).exit_code == 0
        models.append(
            [(tmp_path / name / f).read_bytes() for f in ("model.safetensors", "predictions.csv", "classes.csv")]
        )
    assert models[0] == models[1]
    assert len(rows) == 12
    held = (tmp_path / "a" / "holdout.csv").read_text().splitlines()
    assert [int(line.split(",")[0]) for line in held[1:]] == rows
    kept = (tmp_path / "a" / "predictions.csv").read_text().splitlines()
    assert sorted([*rows, *(int(line.split(",")[0]) for line in kept[1:])]) == list(range(30))
    result = invoke("bound", str(tmp_path / "a"), "--delta", "0.2")
    assert result.exit_code == 0, result.output
    assert "have changed" not in result.output
    assert "New target samples, each line with probability 0.8" in result.output
    assert "by level (new samples, each line with probability 0.8)" in result.output
    found = json.loads((tmp_path / "a" / "bound.json").read_text())
    assert set(found) == NAMES | NEW | {"tables"}
    assert list(found)[:2] == ["Theorem 3.3, new samples", "Plan labels, new samples"]
    np.savez(tmp_path / "fresh.npz", X=t["X"][rows])
    assert invoke("bound", str(tmp_path / "a"), "--fresh", str(tmp_path / "fresh.npz"), "--delta", "0.2").exit_code == 0
    named = json.loads((tmp_path / "a" / "bound.json").read_text())
    for name in NEW:  # the same samples, named
        assert named[name]["total"] == pytest.approx(found[name]["total"])
        assert named[name]["target_loss"] is None
    assert invoke("fit", "--resume", str(tmp_path / "a"), "--quiet").exit_code == 0
    there = next(k for k in range(30) if k not in rows and k > rows[0])
    assert f"target sample {there}" in invoke("explain", str(tmp_path / "a"), str(there)).output
    assert "a row that was not held out" in invoke("explain", str(tmp_path / "a"), str(rows[0])).output
    assert invoke("report", str(tmp_path / "a"), "--quiet", "--no-figures").exit_code == 0


def test_a_run_from_python_needs_its_files_named(tmp_path: Path, data: Path) -> None:
    s, t = arrays(data / "s.npz"), arrays(data / "t.npz")
    task = make_task(as_table(s["X"], s["y"]), as_table(t["X"]))[0]
    fit(task, load_config("source-only"), out=tmp_path / "run", progress_bar=False)
    result = invoke("bound", str(tmp_path / "run"))
    assert result.exit_code == 2
    assert "Name the files" in result.output
    named = invoke("bound", str(tmp_path / "run"), str(data / "s.npz"), str(data / "t.npz"))
    assert named.exit_code == 0, named.output


def test_the_winner_of_a_sweep_pays_for_the_choice(data: Path, tmp_path: Path) -> None:
    """The target chose among five classifiers: the certificate of the winner is that of all five."""
    space = tmp_path / "space.yaml"
    space.write_text("- {preset: source-only, full.penalty: [0.0001, 0.001, 0.01, 0.1]}\n")
    files = [str(data / "s.npz"), str(data / "t.npz")]
    words = ["sweep", *files, "--space", str(space), "--out", str(tmp_path / "w"), "--quiet", "--no-report"]
    assert invoke(*words).exit_code == 0
    best = tmp_path / "w" / "best"
    record = json.loads((best / "run.json").read_text())
    assert record["target_use"] == {"features": False, "iterate": False, "candidates": 5}
    result = invoke("bound", str(best))
    assert "NOT A CERTIFICATE" not in result.output
    paid = json.loads((best / "bound.json").read_text())[POPULATION]
    assert "divided by the 5 candidates" in paid["union_bound"]
    (best / "run.json").write_text(json.dumps({**record, "target_use": {**record["target_use"], "candidates": 1}}))
    assert invoke("bound", str(best)).exit_code == 0
    free = json.loads((best / "bound.json").read_text())[POPULATION]
    confidence = [next(t["value"] for t in one["terms"] if t["name"] == "confidence") for one in (free, paid)]
    assert confidence[0] < confidence[1]
    # a folder of an older version does not say it
    del record["target_use"]
    (best / "run.json").write_text(json.dumps(record))
    assert "NOT A CERTIFICATE (settings searched on the target)" in invoke("bound", str(best)).output
    # the settings remember it, wherever they are used again
    for k, config in enumerate((tmp_path / "w" / "best.yaml", best / "config.yaml")):
        words = ["--config", str(config), "--out", str(tmp_path / f"again{k}"), "--quiet", "--no-report"]
        assert invoke("fit", *files, *words).exit_code == 0
        found = json.loads((tmp_path / f"again{k}" / "run.json").read_text())["target_use"]
        assert found == {"features": False, "iterate": False, "candidates": 5}


def test_a_second_sweep_was_not_listed_in_advance(data: Path, tmp_path: Path) -> None:
    task, _ = make_task(as_table(*arrays(data / "s.npz").values()), as_table(arrays(data / "t.npz")["X"]))
    once = sweep(task, out=tmp_path / "a", space={"preset": "source-only", "full.penalty": [0.001, 0.01]})
    assert once.config.candidates == once.fitted.config.candidates == 3
    settings = {"candidates": once.config.candidates}
    twice = sweep(task, out=tmp_path / "b", space={"preset": "source-only", "full.penalty": [0.1]}, changes=settings)
    twice.fitted.save(tmp_path / "saved")
    for folder in (tmp_path / "b" / "best", tmp_path / "saved"):
        assert json.loads((folder / "run.json").read_text())["target_use"]["candidates"] is None


def test_what_the_target_touched_is_recorded(data: Path, tmp_path: Path) -> None:
    found = json.loads((data / "source" / "run.json").read_text())["target_use"]
    assert found == {"features": False, "iterate": False, "candidates": 1}
    assert json.loads((data / "full" / "run.json").read_text())["target_use"]["features"] is True
    few = ["--set", "engine=minibatch", "--set", "minibatch.steps=4", "--set", "minibatch.network.bottleneck=bn"]
    outs = []
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "other.npz", X=9 + 5 * rng.normal(size=(30, 6)))
    for name, target in (("a", data / "t.npz"), ("b", tmp_path / "other.npz")):
        words = [str(data / "s.npz"), str(target), "--preset", "source-only", "--out", str(tmp_path / name), *few]
        assert invoke("fit", *words, "--quiet", "--no-report").exit_code == 0
        outs.append((tmp_path / name / "model.safetensors").read_bytes())
    assert outs[0] == outs[1]  # no target batch went through BatchNorm
    assert "NOT A CERTIFICATE" not in invoke("bound", str(tmp_path / "a")).output
    record = json.loads((tmp_path / "a" / "run.json").read_text())
    del record["target_use"]  # of an older version, where one did
    (tmp_path / "a" / "run.json").write_text(json.dumps(record))
    assert "NOT A CERTIFICATE (adapted features)" in invoke("bound", str(tmp_path / "a")).output


def test_samples_that_were_trained_on_certify_nothing(data: Path, tmp_path: Path) -> None:
    few = ["--set", "full.rounds=2", "--set", "full.iterations=5", "--quiet", "--no-report"]
    t = arrays(data / "t.npz")
    np.savez(tmp_path / "t.npz", **t)
    run, target = str(tmp_path / "run"), str(tmp_path / "t.npz")
    assert invoke("fit", str(data / "s.npz"), target, "--out", run, "--holdout", "0.4", *few).exit_code == 0
    assert invoke("bound", run).exit_code == 0
    order = np.random.default_rng(1).permutation(len(t["X"]))
    np.savez(tmp_path / "other.npz", X=t["X"][order])
    for fresh in (target, str(tmp_path / "other.npz")):  # 18 of 30 were trained on
        refused = invoke("bound", run, "--fresh", fresh)
        assert refused.exit_code == 2
        assert "18 of 30 samples that the run was trained on" in refused.output
    for words in ([str(data / "s.npz"), str(tmp_path / "other.npz")], []):
        if not words:
            np.savez(tmp_path / "t.npz", X=t["X"][order])  # in the place of the target
        refused = invoke("bound", run, *words)
        assert refused.exit_code == 2
        assert "other samples in the rows that were held out" in refused.output


def test_trained_samples_are_not_new_next_to_another_target(data: Path, tmp_path: Path) -> None:
    x = arrays(data / "t.npz")["X"]
    np.savez(tmp_path / "new.npz", X=x + 0.1 * np.random.default_rng(3).normal(size=x.shape))
    files = str(data / "full"), str(data / "s.npz")
    refused = invoke("bound", *files, str(tmp_path / "new.npz"), "--fresh", str(data / "t.npz"), "--out", str(tmp_path))
    assert refused.exit_code == 2
    assert "TARGET: got other samples than in the training" in refused.output
    np.savez(tmp_path / "moved.npz", X=x)
    words = [str(tmp_path / "moved.npz"), "--fresh", str(tmp_path / "new.npz"), "--out", str(tmp_path)]
    assert invoke("bound", *files, *words).exit_code == 0


def test_labels_of_fresh_samples_do_not_complete_a_bound_of_new_ones(data: Path, tmp_path: Path) -> None:
    few = ["--set", "full.rounds=2", "--set", "full.iterations=5", "--quiet", "--no-report"]
    words = [str(data / "s.npz"), str(data / "labelled.npz"), "--out", str(tmp_path / "run"), "--holdout", "0.4"]
    assert invoke("fit", *words, *few).exit_code == 0
    result = invoke("bound", str(tmp_path / "run"))
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "run" / "bound.json").read_text())
    for name in NEW:
        assert found[name]["target_loss"] is not None
        assert found[name]["total_with_labels"] is None  # of the population; these labels are of a sample of it
        assert found[name]["verdict"] in ("undecided", "vacuous")
        assert "every alpha and beta at once" not in found[name]["union_bound"]


def test_a_sweep_does_not_try_shares_to_hold_out(data: Path, tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text("- {preset: source-only, holdout: [0.1, 0.3]}\n")
    words = [str(data / "s.npz"), str(data / "t.npz"), "--space", str(tmp_path / "space.yaml")]
    refused = invoke("sweep", *words, "--out", str(tmp_path / "swept"))
    assert refused.exit_code == 2
    assert "holdout" in refused.output
