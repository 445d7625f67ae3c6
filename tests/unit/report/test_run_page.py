"""The page of a run: ``warmpot report``, and what fit, demo and sweep write at their end."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import shlex
import shutil
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner, Result

import warmpot.data
from warmpot._settings import to_mapping
from warmpot._tables import ResultTable, TableCell
from warmpot.bounds import joint_bound
from warmpot.cli import app
from warmpot.data import Task, Truth, as_table, make_task
from warmpot.errors import InputError
from warmpot.report import plot_weights, report_run
from warmpot.report.card import model_card
from warmpot.report.page import Details, Pair, Thumbnails, Tiles
from warmpot.report.run_view import RunView, view_run
from warmpot.report.sections.answer import answer_section, run_warnings
from warmpot.report.sections.bounds import bound_section
from warmpot.report.sections.evaluation import evaluation_section
from warmpot.report.sections.parts import opener, samples
from warmpot.report.sections.projection import embed
from warmpot.report.sections.provenance import repeat_command
from warmpot.report.sections.samples import samples_section
from warmpot.report.sections.training import training_curves
from warmpot.report.sections.trust import candidates_section, trust_section
from warmpot.report.sections.weights import left_out_section, weights_section
from warmpot.train import fit, load_config
from warmpot.train.finished_run import FinishedRun
from warmpot.train.run_folder import parse_bounds
from warmpot.train.run_reader import read_run
from warmpot.weights import ClassPresence

LIMIT = 3_000_000
NAMES = ["<script>alert(1)</script>", "$x$", "", "L" * 300]
QUICK = {"full": {"rounds": 2, "iterations": 4, "width": 8}}


def small_task(names: list[str], n: int = 48) -> tuple[Task, Truth]:
    """Four classes, of which the target holds two, and its labels."""
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(4, 5))
    ys, yt = np.arange(n) % 4, np.arange(n // 2) % 2
    source = as_table(centres[ys] + rng.normal(size=(n, 5)), ys, classes=names)
    target = as_table(centres[yt] + 0.3 + rng.normal(size=(n // 2, 5)), yt, classes=names)
    task, truth = make_task(source, target)
    assert truth is not None
    return task, truth


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Task, Truth]:
    """A run whose classes have names that no page may trip over."""
    folder = tmp_path_factory.mktemp("runs") / "a <b> run"
    task, truth = small_task(NAMES)
    fit(task, load_config("full", changes=QUICK), out=folder, progress_bar=False)
    return folder, task, truth


def made_up(
    shares: list[float],
    source: Mapping[str, Any] | None = None,
    *,
    n: int = 200,
    history: list[dict[str, Any]] | None = None,
    confidence: float = 0.95,
    matched: float = 1.0,
    classes: list[str] | None = None,
    **config: Any,
) -> FinishedRun:
    """Return a run with these shares of predictions; `source` has the labels and weights of its source."""
    names = classes or [f"c{k}" for k in range(len(shares))]
    codes = np.repeat(np.arange(len(shares)), np.round(np.array(shares) * n).astype(int))
    source = source or {"label": np.arange(40) % len(shares), "weight": np.full(40, 1 / 40)}
    return FinishedRun(
        Path("made up"),
        config=to_mapping(load_config("full", changes=config)),
        record={"seed": 0},
        model={"facts": {"classes": names}, "n_inputs": 5},
        history=history or [],
        step=history[-1]["step"] if history and isinstance(history[-1], dict) else 0,
        predictions=codes,
        confidence=np.full(len(codes), confidence),
        matched=np.full(len(codes), matched),
        labels=np.asarray(source["label"]),
        training_weights=np.asarray(source["weight"], float),
    )


HELD = {"label": np.arange(40) % 2, "weight": np.where(np.arange(40) == 1, 0.9, 1.0)}
"""A source whose first class is held back by the cap."""


def texts(run: FinishedRun) -> list[str]:
    return [f"{notice.level}: {notice.text} {notice.remedy}" for notice in run_warnings(RunView(run))]


def words(section: Any) -> str:
    """All that a section says, without its pictures."""
    return " ".join([section.lead, *(str(block) for block in section.blocks)])


def heading(axes: Any) -> str:
    return "".join(axes.get_title(loc=side) for side in ("left", "center", "right"))


def test_a_page_has_all_its_parts_and_is_small(trained: tuple[Path, Task, Truth], tmp_path: Path) -> None:
    run, task, truth = trained
    page = report_run(run, task, truth, out=tmp_path / "deep" / "page.html")
    text = page.read_text(encoding="utf-8")
    assert page.stat().st_size < LIMIT
    for title in ("The answer", "How far to trust it", "Which source samples count", "Training", "in a plane",
                  "Compared with the target labels", "What can be proven", "How it was made"):  # fmt: skip
        assert title in text
    assert "evaluation only" in text
    assert "<script>alert" not in text
    assert html.escape(NAMES[0], quote=False).replace("&", "&amp;") not in text  # escaped once, not twice
    assert "alert(1)" in text
    assert "$x$" in text
    assert "(empty)" in text
    assert "L" * 81 not in text  # not even on hover
    drawn = {path.name for path in (tmp_path / "deep" / "page-figures").iterdir()}
    assert {"embedding-after.png", "embedding-before.svg", "weights-histogram.png", "confusion.svg"} <= drawn
    assert not list(run.glob("report.html"))  # it went where it was asked to go


def test_without_data_the_page_says_what_is_missing(trained: tuple[Path, Task, Truth], tmp_path: Path) -> None:
    run, task, truth = trained
    text = report_run(run, out=tmp_path / "p.html", figures=False, missing="the disk is gone").read_text("utf-8")
    assert "the disk is gone" in text
    again = f"warmpot report {shlex.quote(run.name)} --out p.html SOURCE TARGET"
    assert again in html.unescape(text)
    assert str(tmp_path.parent) not in html.unescape(text)  # a page may be sent: no folders of this machine
    assert "Compared with the target labels" not in text
    assert "in a plane" not in text
    assert "Which source samples count" in text
    assert [path.name for path in tmp_path.iterdir()] == ["p.html"]
    other, _ = small_task(NAMES, n=40)
    seen = view_run(read_run(run), other, truth)
    assert "40 source samples instead of 48" in seen.missing
    assert seen.truth is None
    swapped = dataclasses.replace(task, ys=np.roll(task.ys, 1))
    assert "other source labels" in view_run(read_run(run), swapped, truth).missing
    strange = dataclasses.replace(task, xt=task.xt[::-1].copy() * 3 + 10)
    assert "predicts other classes" in view_run(read_run(run), strange, truth).missing


def test_accuracy_is_what_fit_prints_and_needs_labels(trained: tuple[Path, Task, Truth]) -> None:
    run, task, truth = trained
    seen = view_run(read_run(run), task, truth)
    right = float((seen.predicted == truth.yt).mean())
    assert seen.accuracy == right
    assert f"{right:.1%}" in words(answer_section(seen))
    partly = Truth(np.where(np.arange(24) < 12, truth.yt, -1), truth.classes)
    some = view_run(read_run(run), task, partly)
    assert some.accuracy == float((some.predicted == partly.yt).mean())
    said = words(trust_section(some, {}, {}))
    assert "12 samples have no label, or one that the source does not have" in said
    nothing = view_run(read_run(run), task, Truth(np.full(24, -1), truth.classes))
    assert nothing.accuracy is None
    assert evaluation_section(nothing) is None
    assert "not measured" in words(answer_section(nothing))


def test_shares_and_weights_are_those_of_the_files(trained: tuple[Path, Task, Truth]) -> None:
    run, task, truth = trained
    seen = view_run(read_run(run), task, truth)
    assert seen.shares.sum() == pytest.approx(1)
    assert seen.weights.sum() == pytest.approx(1)
    assert seen.weight_shares == pytest.approx([seen.weights[task.ys == k].sum() for k in range(4)])
    assert sorted([*seen.present, *seen.absent]) == [0, 1, 2, 3]
    outlier = np.isin(task.ys, [2, 3])
    axes = plot_weights(seen)
    below, above = (bars.get_data() for bars in axes.patches)
    counts = np.histogram(seen.relative_weights[outlier], above.edges)[0]
    np.testing.assert_array_equal(above.values - above.baseline, counts)  # stacked on the shared classes
    np.testing.assert_array_equal(above.baseline, below.values)
    assert axes.patches[1].get_label() == f"outlier: {100 * seen.weights[outlier].sum():.1f}% of the weight"
    assert "estimated absent" in plot_weights(view_run(read_run(run), task, None)).get_legend().texts[1].get_text()
    assert seen.candidate is not None
    assert set(seen.scores) == {"neighbours", "reverse"}


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (made_up([0.5, 0.5]), []),
        (
            made_up([0.5, 0.5], history=[{"step": 1, "effective_classes": 9.0}, {"step": 2, "effective_classes": 1.2}]),
            ["bad: Collapse"],
        ),
        (
            made_up([0.5, 0.5], history=[{"step": k, "effective_classes": v} for k, v in enumerate([6, 5, 3.0, 8.0])]),
            ["warning: Drift"],
        ),
        (made_up([1.0, 0.0, 0.0]), ["All or nearly all samples are predicted as c0"]),
        (made_up([0.8, 0.1, 0.1]), ["c0 is predicted for 80% of the target"]),
        (made_up([0.48, 0.48, 0.04, *[0.0] * 2]), ["4.0% of the target is predicted as classes estimated absent: c2"]),
        (made_up([0.3, 0.3, 0.3, 0.1]), ["Suspicious class c3: predicted for only 10.0% of the target"]),
        (made_up([0.5, 0.5], confidence=0.4), ["The model is not confident: the mean confidence is 40%"]),
        (
            made_up([0.5, 0.5], {"label": np.arange(40) % 2, "weight": np.where(np.arange(40) % 2, 0.1, 1.0)}),
            ["Suspicious class c1: with 9.1% of the training weight but 50.0%"],
        ),
        (
            made_up([0.7, 0.3], {"label": np.arange(40) % 2, "weight": np.where(np.arange(40) == 1, 0.9, 1.0)}),
            ["info: Limited by the cap: nearly all source samples of c0"],
        ),
        (
            made_up([0.5, 0.5, 0, 0], {"label": np.arange(40) % 4, "weight": 1.0 + (np.arange(40) % 4 < 2)}),
            ["33% of the training weight is on classes estimated absent", "info: Limited by the cap"],
        ),
        (
            made_up([0.5, 0.5], {"label": np.arange(400) % 2, "weight": 1e-9 + (np.arange(400) < 2)}),
            ["The training weight is on 0.5% of the source"],
        ),
        (made_up([0.5, 0.5], history=[{"step": 1, "gap": 0.1, "transport": 1.0}]), ["within 0.1 of the optimum"]),
        (made_up([0.5, 0.5], history=[{"step": k, "plan_ok": k % 2} for k in range(4)]), ["50% of the logged plans"]),
        (
            made_up([0.5, 0.5], history=[{"step": k, "score": 1.0} for k in range(4)], choose="snd"),
            ["snd gives every iterate the same score"],
        ),
    ],
)
def test_signs_of_trouble(run: FinishedRun, expected: list[str]) -> None:
    found = texts(run)
    assert len(found) == len(expected), found
    for part in expected:
        assert any(part in text for text in found), found


def test_a_class_that_is_less_sure_than_others_is_suspicious() -> None:
    run = made_up([0.5, 0.5])
    found = texts(dataclasses.replace(run, confidence=np.repeat([0.99, 0.5], 100)))
    assert len(found) == 1
    assert "Suspicious class c1: with a mean confidence of 50%" in found[0]


def test_no_warning_is_not_called_good() -> None:
    text = words(answer_section(RunView(made_up([0.5, 0.5]))))
    assert "There are no warnings" in text
    assert not any(notice.level == "good" for notice in answer_section(RunView(made_up([0.5, 0.5]))).blocks[2:3])


def test_the_first_lines_are_the_gain_and_the_classes_by_state() -> None:
    codes = np.repeat([0, 1], 50)
    before = np.where(np.arange(100) < 20, 2, codes)  # a fifth was predicted otherwise without adaptation
    presence = ClassPresence(np.array([0.97, 0.5, 0.001]), np.array([0.5, 0.5, 0.0]), {})
    run = dataclasses.replace(made_up([0.5, 0.5, 0.0], n=100), unadapted=before, presence=presence)
    section = answer_section(RunView(run))
    assert "Without target labels" in section.lead
    assert "changed the prediction of 20% of the samples" in section.lead
    facts = {name: value for name, value, _ in section.blocks[1].rows}
    assert facts == {"present: 1": "c0 97%", "doubtful: 1": "c1 50%", "absent: 1": "c2 <1%"}
    truth = Truth(np.where(np.arange(100) < 10, 1, codes), ("c0", "c1", "c2"))
    section = answer_section(RunView(run, truth=truth))
    right = (np.asarray(truth.yt) == codes).mean(), (np.asarray(truth.yt) == before).mean()
    assert f"Accuracy {right[0]:.1%}, {100 * (right[0] - right[1]):.1f} points more than {right[1]:.1%}" in section.lead
    assert "evaluation only" in section.lead
    baseline = dataclasses.replace(run, config=to_mapping(load_config("source-only")))
    assert RunView(baseline).changed is None  # a run that does not adapt is its own baseline


def write(
    run: FinishedRun, folder: Path, without: tuple[str, ...] = (), weight_column: str = "training_weight"
) -> Path:
    """Write a made-up run as its files, without some columns."""
    from warmpot._files import write_csv

    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(dict(run.config)))
    (folder / "run.json").write_text(json.dumps(run.record))
    (folder / "model.json").write_text(json.dumps(run.model))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in run.history) + '{"step": 9, "lo')
    targets: dict[str, Any] = {"row": range(run.n_target), "prediction": [run.classes[k] for k in run.predictions]}
    targets |= {"confidence": run.confidence, "weight": run.matched}
    sources: dict[str, Any] = {"row": range(run.n_source), "label": [run.classes[k] for k in run.labels]}
    sources |= {} if run.plan_weights is None else {"plan_weight": run.plan_weights}
    sources |= {weight_column: run.training_weights}
    for name, table in (("predictions.csv", targets), ("source_weights.csv", sources)):
        table = {column: values for column, values in table.items() if column not in without}
        write_csv(folder / name, list(table), list(zip(*table.values(), strict=True)))
    return folder


def test_a_thousand_classes_and_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    shares = np.r_[np.full(500, 1 / 500), np.zeros(500)]
    source = {"label": np.arange(8000) % 1000, "weight": rng.random(8000) ** 4}
    names = [f"class number {k} with a name of some length" for k in range(1000)]
    run = made_up(shares.tolist(), source, n=5000, classes=names, matched=0.5, confidence=0.5)
    page = report_run(write(run, tmp_path / "many"), figures=False)
    assert page.stat().st_size < LIMIT
    text = page.read_text("utf-8")
    assert "400 more are in predictions.csv" in text
    assert "900 more are in source_weights.csv" in text
    one = report_run(write(made_up([1.0, 0.0]), tmp_path / "one"), figures=False).read_text("utf-8")
    assert "All or nearly all samples are predicted as c0" in one
    assert "All source samples have the same training weight" in one
    assert read_run(tmp_path / "one").history == []  # a torn line is none


def test_a_run_without_its_lists_still_has_a_page(tmp_path: Path) -> None:
    folder = write(made_up([0.5, 0.5]), tmp_path / "run")
    for name in ("predictions.csv", "source_weights.csv", "metrics.jsonl"):
        (folder / name).unlink()
    text = report_run(folder, figures=False).read_text("utf-8")
    assert "predictions.csv is missing" in text
    assert "How it was made" in text


def changed(folder: Path, name: str, change: Any) -> None:
    """Change a file of a run, as another version or an editor would."""
    load, dump = (yaml.safe_load, yaml.safe_dump) if name.endswith("yaml") else (json.loads, json.dumps)
    (folder / name).write_text(dump(change(load((folder / name).read_text()))))


def without(*names: str) -> Any:
    return lambda found: {name: value for name, value in found.items() if name not in names}


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (
            "config.yaml",
            without("choose", "method", "preset", "engine", "weights", "params"),
            "does not contain preset, en",
        ),
        ("run.json", without("seed"), "run.json does not contain the seed"),
        ("run.json", lambda found: {**found, "facts": [], "versions": 3}, ""),
    ],
)
def test_an_older_run_has_a_page_that_says_what_it_lacks(tmp_path: Path, name: str, change: Any, said: str) -> None:
    folder = write(made_up([0.7, 0.3], HELD, history=[{"step": 1, "transport": 1.0}]), tmp_path / "run")
    changed(folder, name, change)
    text = report_run(folder, figures=False).read_text("utf-8")
    assert said in text
    assert "not recorded" in text or not said
    assert "How it was made" in text
    assert "## Results" in model_card(folder)


@pytest.mark.parametrize("name", ["config.yaml", "run.json", "model.json"])
def test_a_list_is_no_run(tmp_path: Path, name: str) -> None:
    folder = write(made_up([0.5, 0.5]), tmp_path / "run")
    changed(folder, name, lambda found: [found])
    with pytest.raises(InputError, match="a list"):
        read_run(folder)
    result = run_cli("report", folder)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


def test_damaged_lines_of_the_history_are_skipped(tmp_path: Path) -> None:
    lines = [{"step": 1, "loss": 2.0}, {"loss": 2.0}, {"step": 2, "loss": "low"}, [3], {"step": 3, "loss": np.nan}]
    run = read_run(write(made_up([0.5, 0.5], history=lines), tmp_path / "run"))  # type: ignore[arg-type]
    assert run.history == [{"step": 1, "loss": 2.0}, {"step": 3}]
    assert any("3 of 6 lines are damaged" in text for text in texts(run))
    assert [picture.name for picture in training_curves(RunView(run))] == ["training-losses"]


def test_a_file_without_its_columns_is_left_out_section(tmp_path: Path) -> None:
    run = made_up([0.5, 0.5])
    folder = write(run, tmp_path / "run", without=("confidence", "weight", "training_weight"))
    text = report_run(folder, figures=False).read_text("utf-8")
    assert "predictions.csv has no confidences" in text
    assert "source_weights.csv has no column training_weight; no weights are shown" in text
    assert "nan" not in text.replace("nano", "")
    assert "confidence" not in model_card(folder)


def test_numbers_that_are_none_are_left_out_and_told(tmp_path: Path) -> None:
    run = made_up([0.5, 0.5], {"label": np.arange(40) % 2, "weight": 1.0 + np.arange(40) % 4})
    confidence, weights = np.full(200, 0.95, object), run.training_weights.astype(object)
    confidence[:3], weights[:2] = ["nan", "inf", "?"], ["nan", "-1"]
    bad = dataclasses.replace(run, confidence=confidence, matched=np.r_[np.nan, np.full(199, 0.5)])
    bad = dataclasses.replace(bad, training_weights=weights)
    text = report_run(write(bad, tmp_path / "run"), figures=False).read_text("utf-8")
    for told in ("Confidences that are not finite: 3", "Source weights that are", "Target weights that are"):
        assert told in text
    assert "nan" not in text.replace("nano", "")
    seen = RunView(read_run(tmp_path / "run"))
    assert seen.mean_confidence == pytest.approx(0.95)
    assert sum(bars.get_data().values.sum() for bars in plot_weights(seen).patches[-1:]) == 38
    none = dataclasses.replace(run, training_weights=np.full(40, np.nan))
    section = weights_section(RunView(none))
    assert section is not None
    assert "are unknown" in words(section)
    assert "the same training weight" not in words(section)


def test_a_doubtful_class_is_marked_and_can_be_looked_at() -> None:
    run = made_up([0.3, 0.3, 0.3, 0.1])
    sure = np.full(200, 0.9)
    sure[185] = 0.8
    seen = RunView(dataclasses.replace(run, confidence=sure))
    section = answer_section(seen)
    tiles, table = section.blocks[0], next(block for block in section.blocks if isinstance(block, Pair)).blocks[1]
    assert isinstance(tiles, Tiles)
    assert tiles.items[-1][0::2] == ("3 of 4", "1 doubtful, 0 absent")
    marks = [cell.text for row in table.rows for cell in row[-1:] if isinstance(cell, TableCell)]
    assert marks == ["present"] * 3 + ["doubtful"]
    shown = next(block for block in section.blocks if isinstance(block, Details))
    rows = shown.blocks[0]
    assert isinstance(rows, ResultTable)
    assert [row[0] for row in rows.rows] == [185, *range(180, 185), *range(186, 192)]  # the least sure first
    stray = texts(made_up([0.48, 0.48, 0.04, *[0.0] * 2]))[0]
    assert "least confident target rows: 192, 193, 194, 195, 196, 197, 198, 199." in stray


def test_the_cap_s_warning_has_beta_and_a_command() -> None:
    logged = [{"step": 1, "beta": 0.87}]
    auto, fixed = (texts(made_up([0.7, 0.3], HELD, history=logged, params={"beta": b}))[0] for b in ("auto", 0.5))
    assert "(now 0.5)" in fixed
    assert "warmpot fit" in fixed
    assert fixed.rstrip().endswith("--beta 0.35")
    assert "(estimated 0.87)" in auto
    silent = texts(made_up([0.7, 0.3], HELD, params={"beta": "auto"}))[0]
    assert silent.rstrip().endswith("A lower beta lets each of them count for more.")  # not guessed from predictions


def test_thousands_of_classes_are_counted_in_pairs() -> None:
    rng = np.random.default_rng(0)
    n, predicted = 6000, rng.integers(0, 6000, 300)
    run = made_up(np.full(6000, 1 / 6000).tolist(), n=6000)
    run = dataclasses.replace(run, predictions=predicted, confidence=run.confidence[:300], matched=run.matched[:300])
    truth = predicted.copy()
    truth[:3] = (truth[:3] + 1) % n
    tracemalloc.start()
    section = evaluation_section(RunView(run, truth=Truth(truth, tuple(run.classes))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6  # a square of classes takes 288 MB
    assert section is not None
    assert "Accuracy 99.0%" in section.lead
    pairs = section.blocks[-1]
    assert isinstance(pairs, ResultTable)
    assert {(str(row[0].text), str(row[1].text)) for row in pairs.rows} == {  # type: ignore[union-attr]
        (f"c{truth[k]}", f"c{predicted[k]}") for k in range(3)
    }


def test_numbers_are_reported_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "warmpot")
    rng = np.random.default_rng(0)
    x, shifted = rng.normal(size=(60, 3)), rng.normal(size=(40, 3)) + 0.2
    task, truth = make_task(
        as_table(x, x.sum(axis=1), task="regression"), as_table(shifted, shifted.sum(axis=1), task="regression")
    )
    config = load_config("full", changes={**QUICK, "loss": "squared"})
    fitted = fit(task, config, out=tmp_path / "run", progress_bar=False)
    text = report_run(tmp_path / "run", task, truth, embedding="tsne", figures=False).read_text("utf-8")
    assert truth is not None
    assert f"{np.abs(fitted.outputs - truth.yt).mean():.4g}" in text
    assert "median prediction" in text
    assert "estimated present" not in text
    assert "t-SNE" in text
    assert "t-SNE of 100 samples, before the network" in caplog.text
    assert "tsne if that shows less than 20 % of the variance" in " ".join(run_cli("report", "--help").output.split())
    assert "Histogram of predictions" in text


def test_source_only_has_no_plan(tmp_path: Path) -> None:
    task, truth = small_task(["a", "b", "c", "d"])
    fit(task, load_config("source-only"), out=tmp_path / "run", progress_bar=False)
    seen = view_run(read_run(tmp_path / "run"), task, truth)
    assert not seen.weighted
    assert not seen.has_plan
    assert left_out_section(seen) is None
    section = weights_section(seen)
    assert section is not None
    assert "source-only does not weight them" in words(section)
    assert training_curves(seen) == []


def test_what_the_plan_leaves_out() -> None:
    run = made_up([0.5, 0.5], matched=0.5)
    log = [{"step": 1, "alpha": 0.93}, {"step": 2, "alpha": 0.95}]
    seen = RunView(dataclasses.replace(run, matched=np.repeat([0.0, 1.0], [15, 185]), history=log, step=1))
    section = left_out_section(seen)
    assert section is not None
    assert "15 of 200 samples are left out" in section.lead
    assert "alpha = 0.93 (estimated) makes the plan leave out 7% of the target's mass" in section.lead
    assert "may still belong to a class of the source" in section.lead
    fixed = left_out_section(RunView(dataclasses.replace(seen.run, config={**run.config, "params": {"alpha": 0.9}})))
    assert fixed is not None
    assert "alpha = 0.9 (set)" in fixed.lead
    table = section.blocks[0]
    assert isinstance(table, ResultTable)
    assert [row[0] for row in table.rows] == list(range(12))
    assert "They are predicted as c0 (15 samples)." in words(section)
    full = left_out_section(RunView(dataclasses.replace(run, matched=np.full(200, 0.9))))
    assert full is not None
    assert "at least in part" in words(full)
    whole = left_out_section(RunView(dataclasses.replace(seen.run, matched=np.full(200, 0.998))))
    assert whole is not None
    assert whole.lead == "The plan matches all of the target's mass, or nearly all."


def test_the_chosen_iterate_is_the_checkpoint_s(tmp_path: Path) -> None:
    task, _ = small_task(["a", "b", "c", "d"])
    from warmpot.select.best_iterate import fit_chosen

    config = load_config("full", changes={"full": {**QUICK["full"], "rounds": 4}, "choose": "entropy"})
    fitted = fit_chosen(task, config, out=tmp_path / "run", progress_bar=False)
    run = read_run(tmp_path / "run")
    assert run.step == fitted.step
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    best = max(line["score"] for line in run.history if "score" in line)
    assert next(line["score"] for line in run.history if line["step"] == read_run(tmp_path / "run").step) == best
    drawn = {picture.name for picture in training_curves(RunView(run))}
    assert {"training-transport", "training-mass", "training-score"} <= drawn
    assert "entropy (chose the iterate)" in words(trust_section(RunView(run), {}, {}))


def test_a_plane_holds_both_domains() -> None:
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(30, 6)) * [9, 4, 1, 1, 1, 1], rng.normal(size=(20, 6))
    points, axes = embed(source, target, "pca")
    both = np.concatenate([source, target])
    values = np.linalg.svd(both - both.mean(axis=0), compute_uv=False)
    assert np.linalg.norm(points, axis=0) == pytest.approx(values[:2], rel=1e-6)
    assert axes[0] == f"axis 1 ({100 * values[0] ** 2 / (values**2).sum():.0f}% of the variance)"
    assert embed(np.ones((3, 4)), np.ones((2, 4)), "pca")[0].tolist() == [[0, 0]] * 5
    assert embed(np.ones((3, 1)), np.zeros((2, 1)), "tsne")[0].shape == (5, 2)
    with pytest.raises(ValueError, match="umap"):
        embed(source, target, "umap")


def test_bounds_come_back_from_their_file() -> None:
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.ones(3), size=12)
    report = joint_bound(rng.normal(size=(12, 2)), np.arange(12) % 3, rng.normal(size=(12, 2)), proba, proba,
                         gamma=100.0, alpha=0.8, beta=1.0)  # fmt: skip
    curve = [{"alpha": 0.5, "beta": 1.0, "terms": {"source loss": 0.25}, "total": 0.25}]
    told = json.loads(json.dumps({"Theorem 3.3": {**report.to_dict(), "curve": curve}}))
    reports, curves = parse_bounds(told)
    assert reports["Theorem 3.3"] == report
    assert curves["Theorem 3.3"][0].total == 0.25
    run = dataclasses.replace(made_up([0.4, 0.3, 0.3]), bounds=reports)
    seen = RunView(run)
    said = words(trust_section(seen, reports, {}))
    assert ("target loss at most" in said) == (report.total < 1)
    assert bound_section(seen, (reports, curves)) is not None
    hopeless = dataclasses.replace(report, terms=(dataclasses.replace(report.terms[0], value=2.5),))
    assert "is 2.50, but a loss is at most 1" in words(trust_section(seen, {"Theorem 3.3": hopeless}, {}))


def test_the_bound_for_new_samples_is_quoted_first_and_nothing_is_one_line() -> None:
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.ones(3), size=12)
    base = joint_bound(rng.normal(size=(12, 2)), np.arange(12) % 3, rng.normal(size=(12, 2)), proba, proba, gamma=100.0)
    known, unknown = base.terms[0], base.terms[-1]

    def told(total: float, **changes: Any) -> Any:
        return dataclasses.replace(base, terms=(dataclasses.replace(known, value=total), unknown), **changes)

    reports = {"Theorem 3.3, sharp": told(0.2), "Plan labels": told(0.01),
               "Plan labels, new samples": told(0.07, confidence=0.95, guess=0.03),
               "Theorem 3.3, new samples": told(0.6, confidence=0.95)}  # fmt: skip
    seen = RunView(dataclasses.replace(made_up([0.4, 0.3, 0.3]), bounds=reports))
    section = bound_section(seen, (reports, {}))
    assert section is not None
    assert section.lead.startswith("With probability 0.95, the loss on new target samples is at most 0.07 + M")
    assert "target loss at most 0.07 + M, with probability 0.95" in words(trust_section(seen, reports, {}))
    in_sample = {name: reports[name] for name in ("Theorem 3.3, sharp", "Plan labels")}
    section = bound_section(seen, (in_sample, {}))
    assert section is not None
    assert "Nothing is proven about new samples" in section.lead
    assert "target loss at most 0.20 + an unknown term" in words(trust_section(seen, in_sample, {}))
    section = bound_section(seen, ({"Plan labels": told(0.12), "Theorem 3.3, sharp": told(1.2)}, {}))
    assert section is not None
    assert section.lead.startswith("The loss on these target samples is at most 0.12 + M (M: share")
    section = bound_section(seen, ({"Theorem 3.3, sharp": told(1.2)}, {}))
    assert section is not None
    assert section.lead.startswith("Nothing: ")
    assert len(section.blocks) == 1  # folded


def test_the_command_repeats_the_run(trained: tuple[Path, Task, Truth]) -> None:
    run = read_run(trained[0])
    facts = {"source": "/data/a b/$s.npz", "target": "/data/t.npz", "label": "my label", "regression": False,
             "ids": "my id", "features": ["a'b", "-c"], "root": "/data/my images"}  # fmt: skip
    run = dataclasses.replace(run, record={**run.record, "facts": facts})
    whole = shlex.split(repeat_command(run))
    assert whole[:4] == ["warmpot", "fit", "$s.npz", "t.npz"]  # no folders: a page or a card is sent to others
    assert whole[whole.index("--label") + 1] == "my label"
    assert "full.rounds=2" in whole
    given = [whole[k + 1] for k, word in enumerate(whole) if word in ("--id", "--feature", "--root")]
    assert given == ["my id", "a'b", "-c", "my images"]
    facts |= {"source": "/home/me/data/a b/x.npz", "target": "/home/me/data/c/x.npz"}
    assert shlex.split(repeat_command(run))[2:4] == ["a b/x.npz", "c/x.npz"]  # equal names, but no more than is needed


def test_the_command_of_a_run_on_images_has_no_defaults() -> None:
    run = made_up([0.5, 0.5], images={"backbone": {"name": "test_resnet"}, "view": {"crop": 32}})
    run = dataclasses.replace(
        run, model={"n_inputs": 5, "facts": {"classes": ["a", "b"], "images": run.config["images"]}}
    )
    assert run.changed_settings == ['images.backbone.name="test_resnet"', "images.view.crop=32"]
    settings = [f"--set {shlex.quote(change)}" for change in run.changed_settings]
    assert repeat_command(run) == f"warmpot fit source target --preset full {' '.join(settings)} --frozen"
    tuned = made_up([0.5, 0.5], images={"backbone": {"train_from": "all"}}, engine="minibatch")
    assert 'images.backbone.train_from="all"' in tuned.changed_settings


def test_samples_without_names_are_listed_by_class_and_row() -> None:
    run = dataclasses.replace(made_up([0.6, 0.4]), confidence=np.linspace(0.5, 1, 200))
    section = samples_section(RunView(run))
    assert section is not None
    (folded,) = section.blocks
    assert isinstance(folded, Details)
    tables = [block for block in folded.blocks if isinstance(block, ResultTable)]
    assert [table.title for table in tables] == ["c0: 6 of 120.", "c1: 6 of 80."]
    assert [row[0].text for row in tables[1].cells] == [str(row) for row in range(120, 126)]


def test_what_is_known_is_called_so() -> None:
    run = made_up([0.5, 0.5], n=4)
    truth = Truth(np.array([0, 0, 1, 0]), ("c0", "c1"))
    assert "the accuracy on the target is unknown" in trust_section(RunView(run), {}, {}).lead
    assert "unknown" not in trust_section(RunView(run, truth=truth), {}, {}).lead


def test_the_command_of_the_page_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng, y = np.random.default_rng(0), np.arange(24) % 3
    for name in ("s.csv", "t.csv"):
        x = rng.normal(size=(24, 2)) + 3 * y[:, None]
        lines = ["my name,the id,f,my $kind", *(f"n{k},{k},{x[k, 0]},c{y[k]}" for k in range(24))]
        Path(name).write_text("\n".join(lines))
    flags = ["--id", "my name", "--label", "my $kind", "--feature", "the id", "--seed", "3"]
    assert run_cli("fit", "s.csv", "t.csv", *flags, "--preset", "source-only", "--out", "a").exit_code == 0
    command = re.search(r"warmpot (fit s\.csv [^<]*)", html.unescape(Path("a/report.html").read_text()))
    assert command is not None
    again = run_cli(*shlex.split(command[1]), "--out", "b", "--no-report")
    assert again.exit_code == 0, again.output
    for name in ("predictions.csv", "config.yaml", "source_weights.csv"):
        assert Path("a", name).read_text() == Path("b", name).read_text()


def test_images_are_shown_small() -> None:
    from PIL import Image

    from warmpot.data.pixels import Pixels

    def picture(item: int) -> Image.Image:
        if item == 3:
            raise OSError("torn")
        return Image.fromarray(np.full((300, 200, 3), 10 * item, np.uint8))

    run = made_up([0.5, 0.5])
    task = Task(Pixels(range(40), picture), np.arange(40) % 2, Pixels(range(200), picture), ("c0", "c1"))
    seen = RunView(run, task)
    look_at, cells = opener(seen, "source"), lambda row: [TableCell(f"c{row}"), TableCell("0.5")]
    found = samples(seen, "source", [1, 2], look_at, ["label", "weight"], cells, "Most.")
    assert isinstance(found, Thumbnails)
    assert all(len(item.data) < 10_000 for item in found.items)
    assert found.items[0].caption == "c1 · 0.5"
    torn = samples(seen, "source", [1, 3], look_at, ["label", "weight"], cells, "Most.")
    assert isinstance(torn, ResultTable)  # one is gone: names and rows serve all
    grey = dataclasses.replace(task, xs=np.eye(40, 64), xt=np.zeros((200, 64)))
    drawn = dataclasses.replace(run, record={**run.record, "facts": {"picture": [8, 8]}})
    image = opener(RunView(drawn, grey), "source")(0)
    assert image is not None
    assert image.getpixel((0, 0)) == 0
    assert opener(RunView(run, grey), "source")(0) is None


def run_cli(*said: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in said])


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with the two files of a new user."""
    monkeypatch.chdir(tmp_path)
    task, truth = small_task(["ant", "bee", "cat", "dog"])
    names = np.array(task.classes)
    np.savez("s.npz", X=task.xs, y=names[task.ys])
    np.savez("t.npz", X=task.xt, y=names[truth.yt])
    return tmp_path


def test_those_who_are_left_out_are_counted() -> None:
    run = made_up([0.1] * 10, matched=0.5)
    matched = np.where(np.arange(200) % 20 < 2, 0.0, 1.0)
    section = left_out_section(RunView(dataclasses.replace(run, matched=matched)))
    assert section is not None
    assert "c7 (2) and 2 more classes (4 samples in total)." in words(section)


FEW = ["--set", "full.rounds=2", "--set", "full.iterations=4", "--set", "full.width=8"]


def test_fit_writes_its_page_and_report_writes_it_again(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_cli("fit", "s.npz", "t.npz", *FEW, "--out", "a")
    assert result.exit_code == 0, result.output
    assert "its report failed" not in result.output
    assert "model.json, model.safetensors, plan.npz, predictions.csv, report.html" in result.output
    text = Path("a/report.html").read_text("utf-8")
    assert "s.npz" in text
    assert str(files) not in text  # the page may be sent
    Path("moved").mkdir()
    for name in ("s.npz", "t.npz"):
        shutil.move(name, "moved")
    result = run_cli("report", "a", "--no-figures", "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    assert "its data has moved or was deleted" in Path("a/report.html").read_text("utf-8")
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or False)
    result = run_cli("report", "a", "moved/s.npz", "moved/t.npz", "--out", "p.html", "--no-figures", "--open")
    assert result.exit_code == 0, result.output
    assert "its data has moved or was deleted" not in Path("p.html").read_text("utf-8")
    assert opened == [(files / "p.html").as_uri()]
    assert "no browser available" in result.stderr
    changed(files / "a", "run.json", without("seed"))
    assert run_cli("report", "a", "moved/s.npz", "moved/t.npz", "--no-figures", "--quiet").exit_code == 0
    assert "Compared with the target labels" in Path("a/report.html").read_text("utf-8")
    assert run_cli("report", "a", "moved/t.npz", "none.npz").exit_code == 2
    assert "its report failed" not in run_cli("report", "a", "--embedding", "map").output


def test_a_page_that_fails_loses_no_run(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("no fonts")

    monkeypatch.setattr("warmpot.report.run_page.report_run", broken)
    result = run_cli("fit", "s.npz", "t.npz", *FEW, "--out", "a", "--quiet")
    assert result.exit_code == 0
    assert "the run is complete, but its report failed (no fonts); try again: warmpot report a" in result.stderr
    assert (files / "a" / "predictions.csv").exists()
    result = run_cli("fit", "s.npz", "t.npz", *FEW, "--out", "b", "--no-report", "--quiet")
    assert (result.exit_code, result.output) == (0, "")


@pytest.mark.parametrize(
    ("prepare", "told"),
    [
        (lambda folder: None, "not a run folder"),
        (lambda folder: (folder / "run.json").write_text('{"seed": 0, "facts": {"source": "s"}}'), "not finished"),
        (lambda folder: (folder / "demo.json").write_text("{}"), "did not finish"),
        (lambda folder: (write(made_up([1.0, 0.0]), folder / "best") / "model.json").write_text("{"), "not a run"),
    ],
)  # fmt: skip
def test_what_is_no_run_is_said(files: Path, prepare: Any, told: str) -> None:
    (files / "x").mkdir()
    prepare(files / "x")
    result = run_cli("report", "x")
    assert result.exit_code == 2
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def commands(text: str) -> list[str]:
    """Return the commands that compute the bound and write the page again."""
    return [line for line in html.unescape(re.sub(r"<[^>]*>", "", text)).splitlines()
            if line.startswith(("warmpot bound", "warmpot report"))]  # fmt: skip


def test_a_sweep_says_what_it_chose_and_by_how_much(tmp_path: Path) -> None:
    study = {"space": {"preset": "full", "params.alpha": [0.5, 0.9]}, "validator": "neighbours"}
    (tmp_path / "study.json").write_text(json.dumps(study))

    def lead(*scores: float) -> str:
        points = [{"block": 0, "params.alpha": alpha} for alpha in (0.5, 0.9)]
        trials = [{"point": point, "score": score, "classes": 2.0, "step": 1, "seconds": 1.0, "problem": None}
                  for point, score in zip(points, scores, strict=True)]  # fmt: skip
        (tmp_path / "trials.jsonl").write_text("\n".join(map(json.dumps, trials)))
        section = candidates_section(tmp_path)
        assert section is not None
        return section.lead

    assert lead(0.5, 0.75) == (
        "Chosen: full, params.alpha 0.9, by neighbours (0.750), from 2 candidates, without target labels. "
        "The score is 0.25 more than that of full, params.alpha 0.5, the second."
    )
    assert "no clear winner" in lead(0.5, 0.5)


def test_a_sweep_s_page_lists_its_candidates(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warmpot.report.page.save_figure", lambda *_: None)
    Path("space.yaml").write_text("preset: full\nparams.alpha: [0.5, 0.9]\n")
    result = run_cli("sweep", "s.npz", "t.npz", "--out", "w", "--space", "space.yaml", *FEW)
    assert result.exit_code == 0, result.output
    assert "report.html" in result.stdout
    assert "its report failed" not in result.output
    text = (files / "w" / "report.html").read_text("utf-8")
    assert "What the sweep chose" in text
    assert "full, params.alpha 0.5" in text
    bare = report_run("w", figures=False, out="w/report.html").read_text("utf-8")
    assert commands(bare) == ["warmpot bound w/best", "warmpot report w --out w/report.html"]
    assert commands(report_run("w", figures=False).read_text("utf-8")) == ["warmpot bound w/best", "warmpot report w"]
    assert "source-only (reference)" in text
    again = run_cli("sweep", "s.npz", "t.npz", "--out", "w", "--space", "space.yaml", *FEW)
    assert "nothing was left to train" in again.stdout


def test_a_demo_s_page_sets_source_only_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warmpot.report.page.save_figure", lambda *_: None)
    real = warmpot.data.digits_task
    monkeypatch.setattr(warmpot.data, "digits_task", lambda seed=0: real(200, seed))
    result = run_cli("demo")
    assert result.exit_code == 0, result.output
    assert "its report failed" not in result.output
    text = Path("demo/report.html").read_text("utf-8")
    assert "printed digits 0-9" in text
    assert "Compared with source-only" in text
    for value in json.loads(Path("demo/demo.json").read_text())["accuracy"].values():
        assert f"{value:.1%}" in text
    assert "data:image/png" in text  # the digits can be seen
    assert "printed digits 0-9 → handwritten" in text
    assert commands(text) == ["warmpot bound demo/full", "warmpot report demo"]  # it updates the page it stands on
    assert text.count("neighbour agreement (neighbours)") == 1
    assert ">neighbour agreement</th>" in text
    assert "took " in text
    assert len(text.encode()) < LIMIT


def test_a_live_result_gives_the_page_of_its_folder(trained: tuple[Path, Task, Truth], tmp_path: Path) -> None:
    task, truth = trained[1:]
    config = load_config("full", changes=QUICK)
    live = fit(task, config, progress_bar=False)
    written = fit(task, config, out=tmp_path / "run", progress_bar=False)
    report_run(live, task, truth, out=tmp_path / "live.html", figures=False)
    report_run(written, task, truth, figures=False)
    from_result = (tmp_path / "run" / "report.html").read_text("utf-8")
    report_run(tmp_path / "run", task, truth, figures=False)
    from_folder = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert from_result == from_folder
    facts = re.compile(r"<div><dt>(folder|finished)</dt>.*?</div>\s*", re.DOTALL)
    commands = re.compile(r"warmpot (report|bound) \S+?(?=[\s<])")

    def plain(text: str) -> str:
        return commands.sub("", facts.sub("", text))

    assert plain((tmp_path / "live.html").read_text("utf-8")) == plain(from_folder)
    with pytest.raises(InputError, match="task"):
        report_run(dataclasses.replace(live, task=None), out=tmp_path / "p.html")
    with pytest.raises(InputError, match="out"):
        report_run(live, task)


def test_both_kinds_of_weights_are_shown_by_name(tmp_path: Path) -> None:
    weights = np.where(np.arange(40) % 2, 1.0, 3.0)
    run = made_up([0.5, 0.5], {"label": np.arange(40) % 2, "weight": weights / weights.sum()})
    run = dataclasses.replace(run, plan_weights=np.where(np.arange(40) % 2, 0.0, 0.9 / 20))
    section = weights_section(RunView(read_run(write(run, tmp_path / "new"))))
    assert section is not None
    assert "sum to alpha, here 0.9" in section.lead
    table = next(block for block in section.blocks if isinstance(block, ResultTable))
    shares = dict(zip([column.name for column in table.columns], table.cells[0], strict=True))
    assert [shares[name].text for name in ("share of training weight", "share of plan weight")] == ["75.00%", "100.00%"]
    old = write(dataclasses.replace(run, plan_weights=None), tmp_path / "old", weight_column="weight")
    view = RunView(read_run(old))
    assert view.weight_shares == pytest.approx([0.75, 0.25])
    assert any("as version 0.1.0 wrote it" in problem for problem in view.run.problems)
    section = weights_section(view)
    assert section is not None
    assert "alpha" not in section.lead


def test_samples_have_the_rows_of_their_file_when_some_were_held_out(tmp_path: Path) -> None:
    task, _ = small_task(["a", "b", "c", "d"])
    fit(task, load_config("full", changes={**QUICK, "holdout": 0.4}), out=tmp_path / "run", progress_bar=False)
    run = read_run(tmp_path / "run")
    view, rows = RunView(run), list(range(run.n_target))
    table = samples(view, "target", rows, lambda _: None, [], lambda _: [], "")
    assert isinstance(table, ResultTable)
    shown = [row[0] for row in table.rows]
    assert shown == run.target_rows.tolist() != rows
    written = [line.split(",")[0] for line in (tmp_path / "run" / "predictions.csv").read_text().splitlines()[1:]]
    assert shown == [int(row) for row in written]


def test_numbers_of_hypotheses_are_not_drawn_as_losses(tmp_path: Path) -> None:
    task, _ = small_task(["a", "b", "c", "d"])
    fit(task, load_config("full", changes=QUICK), out=tmp_path / "run", progress_bar=False)
    drawn = {picture.name for picture in training_curves(RunView(read_run(tmp_path / "run")))}
    assert "training-hypotheses" in drawn
    assert "training-losses" not in drawn
