"""Which source samples a target sample is matched with: from the stored plan, compared with the plan in memory."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from warmpot.cli import app
from warmpot.data import Table, Task, as_table, make_task
from warmpot.errors import InputError, WarmpotWarning
from warmpot.report.explanation_page import write_explanation
from warmpot.select import fit_chosen
from warmpot.select.best_iterate import ValidatorChooser
from warmpot.train import Fitted, explain_sample, fit, load_config
from warmpot.train.explain import MatchedSample

FAST = {"full": {"rounds": 1, "iterations": 3, "width": 3}, "params": {"alpha": 0.6}}
rng = np.random.default_rng(0)
CENTRES = 4.0 * np.eye(3)
YS, YT = np.repeat([0, 1, 2], 12), np.repeat([0, 1], 10)
X, X_TARGET = CENTRES[YS] + rng.normal(size=(36, 3)), CENTRES[YT] + 0.5 + rng.normal(size=(20, 3))
CLASSES = np.array(["ant", "bee", "cow"])
IDS = [f"s{k}" for k in range(36)], [f"img/t{k}.png" for k in range(19)] + ["7"]


def task(names: bool) -> Task:
    source, target = IDS if names else ((), ())
    made, _ = make_task(as_table(X, CLASSES[YS], names=source), as_table(X_TARGET, names=target))
    return made


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Fitted]:
    folder = tmp_path_factory.mktemp("runs") / "named"
    return folder, fit(task(names=True), load_config(changes=FAST), out=folder, progress_bar=False)


def test_matches_are_the_column_of_the_plan(run: tuple[Path, Fitted]) -> None:
    folder, fitted = run
    assert fitted.solution is not None
    plan, some_left_out = fitted.solution.plan.toarray(), False
    for row in range(20):
        result = explain_sample(folder, IDS[1][row], as_table(X_TARGET, name="t"))
        column = 20 * plan[:, row]
        rows = np.flatnonzero(column)
        assert {match.row for match in result.matches} == set(rows)
        assert [match.share for match in result.matches] == sorted(column[rows], reverse=True)
        for match in result.matches:
            assert (match.name, match.label) == (IDS[0][match.row], CLASSES[YS[match.row]])
            assert match.training_weight == pytest.approx(fitted.training_weights[match.row])
        assert result.left_out == pytest.approx(1 - column.sum(), abs=1e-9)
        assert sum(result.labels.values()) == pytest.approx(column.sum())
        some_left_out |= result.left_out > 0.5
        assert list(result.probabilities) == [CLASSES[k] for k in np.argsort(-fitted.outputs[row])]
        np.testing.assert_allclose(list(result.probabilities.values()), np.sort(fitted.outputs[row])[::-1], atol=1e-6)
        assert result.prediction == next(iter(result.probabilities))
        assert fitted.unknown is not None
        smaller = sum(score < fitted.unknown[row] for score in fitted.unknown) / 20
        assert result.unknown == pytest.approx((fitted.unknown[row], smaller))
    assert some_left_out


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (as_table(X_TARGET[:5], name="t"), "t: got 5 samples, where the run has 20; allowed: the target of the run"),
        (as_table(X_TARGET[::-1], name="t", names=IDS[1][::-1]), "of other names or in another order"),
        (as_table(X_TARGET[::-1], name="t"), "other features: they give the sample"),
    ],
)  # fmt: skip
def test_other_data_is_not_used_with_a_warning(run: tuple[Path, Fitted], target: Table, message: str) -> None:
    with pytest.warns(WarmpotWarning, match=message):
        result = explain_sample(run[0], 0, target)
    assert result.probabilities == {}
    assert result == explain_sample(run[0], 0)


def test_samples_are_found_by_id_by_file_and_by_row(run: tuple[Path, Fitted]) -> None:
    folder, _ = run
    assert explain_sample(folder, "img/t3.png").row == explain_sample(folder, "t3.png").row == 3
    assert explain_sample(folder, "3") == explain_sample(folder, 3)
    assert explain_sample(folder, "7").row == 19  # an id that is a number comes before the row
    assert explain_sample(folder, 3).probabilities == {}
    for bad in ("20", "-1", "t99.png"):
        with pytest.raises(InputError, match=r"ID: got .*0 to 19, or a name such as 'img/t0\.png'"):
            explain_sample(folder, bad)


def test_a_run_without_a_plan_or_with_a_damaged_one_is_refused(run: tuple[Path, Fitted], tmp_path: Path) -> None:
    made = task(names=False)
    fit(made, load_config("source-only", changes={"full": FAST["full"]}), out=tmp_path / "plain", progress_bar=False)
    with pytest.raises(InputError, match=r"no plan\.npz"):
        explain_sample(tmp_path / "plain", 0)
    (tmp_path / "plain" / "plan.npz").write_bytes(b"no zip")
    with pytest.raises(InputError, match="a damaged file"):
        explain_sample(tmp_path / "plain", 0)
    (tmp_path / "plain" / "plan.npz").write_bytes((run[0] / "plan.npz").read_bytes()[:-40])
    with pytest.raises(InputError, match="a damaged file"):
        explain_sample(tmp_path / "plain", 0)


def test_samples_that_were_held_out_have_empty_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ValidatorChooser, "offer", lambda *_: (True, {"score": 1.0}))  # the last round, with a plan
    config = load_config(changes={**FAST, "choose": "source", "held": 0.25})
    fitted = fit_chosen(task(names=False), config, out=tmp_path / "run", progress_bar=False)
    held = fitted.training_weights == 0
    assert 0 < held.sum() < 36
    rows = {match.row for row in range(20) for match in explain_sample(tmp_path / "run", row).matches}
    assert rows
    assert not held[list(rows)].any()


def test_the_command_prints_it(run: tuple[Path, Fitted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    folder, _ = run
    result = next(result for row in range(19) if (result := explain_sample(folder, row)).matches)
    answer = CliRunner().invoke(app, ["explain", str(folder), Path(result.name).name])
    assert answer.exit_code == 0, answer.output
    lines = answer.stdout.splitlines()
    assert lines[0] == f"target sample {result.row}, {result.name}"
    assert max(map(len, lines)) <= 80
    assert result.unknown is not None
    line = next(line for line in lines if line.startswith("unknown "))
    assert line.split()[1:] == [
        f"{result.unknown[0]:.2f}",
        *f"higher than for {result.unknown[1]:.0%} of the target".split(),
    ]
    assert "only the probability of the predicted class is known" in answer.stderr  # this run does not know its files
    for match in result.matches:
        line = next(line for line in lines if line.rstrip().endswith(f" {match.name}"))
        assert line.split()[:2] == [f"{match.share:.1%}", match.label]
    np.savez(tmp_path / "other.npz", X=X)
    answer = CliRunner().invoke(app, ["explain", str(folder), "7", str(tmp_path / "other.npz")])
    assert f"warning: {tmp_path}/other.npz: got 36 samples, where the run has 20" in answer.stderr
    answer = CliRunner().invoke(app, ["explain", str(folder), "nothing"])
    assert (answer.exit_code, "error: ID: got 'nothing'" in answer.stderr) == (2, True)


def test_images_are_shown_as_thumbnails(run: tuple[Path, Fitted], tmp_path: Path) -> None:
    from PIL import Image

    folder = shutil.copytree(run[0], tmp_path / "run")
    for side, names in zip(("source", "target"), IDS, strict=True):
        for k, name in enumerate(names[:-1]):  # the last file is gone
            file = tmp_path / side / name
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (200, 100), (5 * k, 0, 0)).save(file, "PNG")
    model, record = (json.loads((folder / name).read_text()) for name in ("model.json", "run.json"))
    model["facts"]["images"] = {"backbone": {"name": "resnet50.tv_in1k", "train_from": ""}}
    record["facts"] = {side: str(tmp_path / side) for side in ("source", "target")}
    (folder / "model.json").write_text(json.dumps(model))
    (folder / "run.json").write_text(json.dumps(record))
    result = explain_sample(folder, 0)
    for image in (result.image, *(match.image for match in result.matches if match.name != IDS[0][-1])):
        assert Image.open(io.BytesIO(image)).size == (96, 48)
    assert "image" not in repr(result)
    shown = result._repr_html_()
    assert shown.count("<img src='data:image/jpeg;base64,") == 1 + len(result.matches[:12])
    page = write_explanation(result, tmp_path / "page.html").read_text("utf-8")
    assert page.count("<img ") == 1 + len(result.matches[:12])
    assert explain_sample(folder, 19).image == b""


def test_a_notebook_shows_names_as_texts(run: tuple[Path, Fitted], tmp_path: Path) -> None:
    result = replace(explain_sample(run[0], 0), name="<script>", prediction="<b>")
    matches = (MatchedSample(3, "cat.jpg", "ant", 0.75, 0.1), *[MatchedSample(4, "", "bee", 0.01, 0.1)] * 12)
    head, *lines = str(replace(result, matches=matches, left_out=0.13)).splitlines()
    assert head.startswith("<script>: predicted <b> (")
    assert head.endswith("87% matched")
    assert lines == ["  ant: 75%, cat.jpg", *["  bee: 1%, source row 4"] * 11, "  and 1 more"]
    shown = result._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;: predicted &lt;b&gt;" in shown
    assert "<img" not in shown  # these are no images
    done = CliRunner().invoke(app, ["explain", str(run[0]), "0", "--out", str(tmp_path / "why.html")])
    assert done.exit_code == 0, done.output
    assert "Matched source samples" in (tmp_path / "why.html").read_text("utf-8")
    assert not list(run[0].glob("explain-*"))
    refused = CliRunner().invoke(app, ["explain", str(run[0]), "0", "--out", str(run[0] / "predictions.csv")])
    assert refused.exit_code == 2
