"""The command ``warmpot predict``."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

import warmpot.train
from warmpot.cli import app
from warmpot.train import predictor

SMALL = ["--preset", "official", "--set", "minibatch.steps=4", "--set", "minibatch.checkpoint_every=2",
         "--set", "minibatch.log_every=2", "--set", "minibatch.hardware.accelerator=cpu"]  # fmt: skip
MODEL = ("model.safetensors", "model.json", "predictions.csv", "source_weights.csv")

rng = np.random.default_rng(0)
CENTRES = 3 * rng.normal(size=(4, 5))
YS, YT = np.arange(48) % 4, np.arange(24) % 2
XS, XT = CENTRES[YS] + rng.normal(size=(48, 5)), CENTRES[YT] + 0.3 + rng.normal(size=(24, 5))
NAMES = np.array(["ant", "bee", "cat", "dog"])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with the two files of a new user."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["warmpot.cli.fit"], "write_report", lambda *_: None)  # test_report.py has it
    np.savez("source.npz", X=XS, y=NAMES[YS])
    np.savez("target.npz", X=XT, y=NAMES[YT])
    return tmp_path


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def done(*words: object) -> Result:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result


def names(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.lstat().st_mtime_ns for path in folder.rglob("*")}


def write_csv(path: str, x: np.ndarray, labels: Any = None, column: str = "species") -> str:
    header = [f"f{j}" for j in range(x.shape[1])] + ([column] if labels is not None else [])
    rows = x.tolist() if labels is None else [[*row, label] for row, label in zip(x.tolist(), labels, strict=True)]
    with open(path, "w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])
    return path


def stop_after(steps: int, monkeypatch: pytest.MonkeyPatch, raised: BaseException) -> None:
    """Break the training after some checkpoints."""
    from warmpot.train.run_folder import RunFolder

    real, count = RunFolder.save, 0

    def save(self: RunFolder, checkpoint: Any) -> None:
        nonlocal count
        real(self, checkpoint)
        count += 1
        if count == steps:
            raise raised

    monkeypatch.setattr(RunFolder, "save", save)


def test_predictions_are_those_of_the_run() -> None:
    done("fit", "source.npz", "target.npz", "--out", "a")
    result = done("predict", "a", "target.npz", "--out", "p.csv", "--proba")
    with open("p.csv", newline="") as stream, open("a/predictions.csv", newline="") as told:
        rows, expected = list(csv.DictReader(stream)), list(csv.DictReader(told))
    columns = ["row", "prediction", "confidence", "review", "unknown"]
    assert list(rows[0]) == [*columns, *(f"proba_{name}" for name in NAMES)]
    for row, other in zip(rows, expected, strict=True):
        assert (row["row"], row["prediction"]) == (other["row"], other["prediction"])
        assert float(row["confidence"]) == pytest.approx(float(other["confidence"]))
        assert row["review"] == other["review"]
        assert float(row["unknown"]) == pytest.approx(float(other["unknown"]), abs=1e-5)
        assert float(row[f"proba_{row['prediction']}"]) == float(row["confidence"])
        assert sum(float(row[f"proba_{name}"]) for name in NAMES) == pytest.approx(1)
    right = np.mean([row["prediction"] == NAMES[y] for row, y in zip(rows, YT, strict=True)])
    assert re.search(rf"^accuracy +{right:.1%}", result.stdout, flags=re.MULTILINE)
    done("predict", "a", "target.npz", "--out", "p.csv")  # replaces
    assert Path("p.csv").read_text().startswith("row,prediction,confidence,review,unknown\n")
    np.savez("bare.npz", X=XT)
    assert "accuracy" not in done("predict", "a", "bare.npz", "--out", "p.csv").stdout
    np.savez("odd.npz", X=XT, y=np.full(24, "yak"))  # a class the run does not know
    result = done("predict", "a", "odd.npz", "--out", "p.csv")
    assert "accuracy" not in result.stdout  # 0 % would blame the model for a matter of spelling
    assert "warning: odd.npz: got classes the run lacks: 'yak' (none of its labels is known)" in result.stderr
    np.savez("mixed.npz", X=XT, y=np.where(np.arange(24) < 6, "yak", NAMES[YT]))
    result = done("predict", "a", "mixed.npz", "--out", "p.csv")
    right = np.mean([row["prediction"] == NAMES[y] for row, y in list(zip(rows, YT, strict=True))[6:]]) * 18 / 24
    assert re.search(rf"^accuracy +{right:.1%}", result.stdout, flags=re.MULTILINE)
    assert "got classes the run lacks: 'yak'; allowed: the run's classes." in result.stderr


def test_columns_are_matched_by_name() -> None:
    write_csv("s.csv", XS, NAMES[YS], "label")
    write_csv("t.csv", XT, NAMES[YT], "label")
    order = [4, 2, 0, 1, 3]
    with open("moved.csv", "w", newline="") as stream:
        csv.writer(stream).writerows([[f"f{j}" for j in order], *XT[:, order].tolist()])
    write_csv("other.csv", np.hstack([XT, XT[:, :1]]))
    done("fit", "s.csv", "t.csv", *SMALL, "--out", "a")
    done("fit", "s.csv", "moved.csv", *SMALL, "--out", "b")
    assert all(Path("a", name).read_bytes() == Path("b", name).read_bytes() for name in MODEL)
    assert warmpot.train.Predictor.load(Path("a")).columns == ("f0", "f1", "f2", "f3", "f4")
    for data in ("t.csv", "moved.csv"):
        done("predict", "a", data, "--out", f"p-{data}")
    assert Path("p-t.csv").read_text() == Path("p-moved.csv").read_text()
    result = run("fit", "s.csv", "other.csv", "--out", "c")
    assert result.exit_code == 2
    assert "other.csv: got extra columns 'f5'; allowed: the columns" in result.stderr
    assert not Path("c").exists()
    write_csv("less.csv", XT[:, :4])
    result = run("predict", "a", "less.csv", "--out", "c")
    assert result.exit_code == 2
    assert "less.csv: got no column 'f4'; allowed: the columns" in result.stderr
    assert not Path("c").exists()
    with open("more.csv", "w", newline="") as stream:  # with a note, numbers of rows, and an empty cell in the note
        rows = [[f"n{j}" if j else "", j, *row] for j, row in enumerate(XT[:, order].tolist())]
        csv.writer(stream).writerows([["note", "id", *(f"f{j}" for j in order)], *rows])
    for data in ("other.csv", "more.csv"):
        done("predict", "a", data, "--out", "extra.csv")
        assert Path("extra.csv").read_text() == Path("p-t.csv").read_text()
    described = json.loads(Path("a/model.json").read_text())
    del described["facts"]["columns"]  # as older versions wrote it
    Path("a/model.json").write_text(json.dumps(described))
    assert warmpot.train.Predictor.load(Path("a")).columns == ()
    done("predict", "a", "t.csv", "--out", "old.csv")
    assert Path("old.csv").read_text() == Path("p-t.csv").read_text()


def test_predict_knows_the_label_column_of_the_run() -> None:
    write_csv("s.csv", XS, NAMES[YS])
    write_csv("t.csv", XT, NAMES[YT])
    done("fit", "s.csv", "t.csv", "--label", "species", "--out", "a")
    assert "accuracy" in done("predict", "a", "t.csv", "--out", "p.csv").stdout
    write_csv("kind.csv", XT, NAMES[YT], column="kind")
    assert "accuracy" in done("predict", "a", "kind.csv", "--out", "p.csv", "--label", "kind").stdout
    write_csv("bare.csv", XT)
    assert "accuracy" not in done("predict", "a", "bare.csv", "--out", "p.csv").stdout


def test_parts_of_a_file_are_predicted_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    done("fit", "source.npz", "target.npz", "--out", "a", *SMALL)
    np.save("rows.npy", XT)
    names = [f"image {k % 23}" for k in range(24)]  # the last repeats the first
    np.savez("named.npz", X=XT, y=NAMES[YT], path=np.array(names))
    columns = {"path": names, **{f"f{j}": XT[:, j] for j in range(5)}, "label": [*NAMES[YT[:-1]], "yak"]}
    with open("named.csv", "w", newline="") as stream:
        csv.writer(stream).writerows([columns, *zip(*columns.values(), strict=True)])
    pyarrow.parquet.write_table(pyarrow.table(columns), "named.parquet")
    flags = {"named.csv": ["--id", "path"], "named.parquet": ["--id", "path"], "rows.npy": [], "named.npz": []}
    whole = {file: done("predict", "a", file, "--out", f"{file}.csv", "--proba", *flags[file]) for file in flags}
    assert all("accuracy" in whole[file].stdout for file in flags if file != "rows.npy")
    for file in ("named.csv", "named.parquet"):
        assert Path(f"{file}.csv").read_text() == Path("named.npz.csv").read_text()
        assert "ids more than once: 'image 0'" in whole[file].stderr
        assert "classes the run lacks: 'yak'" in whole[file].stderr
    monkeypatch.setattr(predictor, "PART", 8 * 600)  # a few rows
    for file, result in whole.items():
        parts = done("predict", "a", file, "--out", "parts.csv", "--proba", *flags[file])
        assert parts.stdout.replace("parts.csv", f"{file}.csv") == result.stdout
        assert parts.stderr == result.stderr
        with open("parts.csv") as stream, open(f"{file}.csv") as expected:
            for row, other in zip(csv.DictReader(stream), csv.DictReader(expected), strict=True):
                assert row.keys() == other.keys()
                for name, cell in row.items():
                    same = cell == other[name]
                    assert same or float(cell) == pytest.approx(float(other[name]), rel=1e-5)  # products round
    bad = XT.copy()
    bad[20, 2] = np.nan
    for values, message in (
        (bad, r"rows.npy: got 1 non-finite entries \(the first at \(20, 2\)\)"),
        (XT[:0], r"got shape \(0, 5\)"),
    ):
        np.save("rows.npy", values)
        assert re.search(message, run("predict", "a", "rows.npy", "--out", "p.csv").stderr)
    Path("rows.npy").write_bytes(Path("rows.npy").read_bytes()[:-8] or b"x")
    assert run("predict", "a", "rows.npy", "--out", "p.csv").exit_code == 2
    assert not Path("p.csv").exists()


def test_errors_of_a_regressor_are_added_up_over_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for path, x in (("s.csv", XS), ("t.csv", XT)):
        write_csv(path, x, x[:, 0] - x[:, 1], "label")
    done("fit", "s.csv", "t.csv", "--regression", "--out", "a", *SMALL)
    monkeypatch.setattr(predictor, "PART", 8 * 600)
    monkeypatch.setattr("warmpot._progress.LINE_EVERY_SECONDS", 0.0)
    result = done("predict", "a", "t.csv", "--out", "p.csv")
    assert re.search(r"predict: \d+% \d+ samples .*\npredict: 100% 24 samples", result.stderr)
    with open("p.csv") as stream:
        errors = [
            abs(float(row["prediction"]) - y)
            for row, y in zip(csv.DictReader(stream), XT[:, 0] - XT[:, 1], strict=True)
        ]
    assert re.search(rf"^mean absolute error +{np.mean(errors):.4g} *$", result.stdout, flags=re.MULTILINE)
    write_csv("t.csv", XT, [*range(20), "none", *range(3)], "label")
    assert "labels that are not numbers" in run("predict", "a", "t.csv", "--out", "q.csv").stderr
    assert not Path("q.csv").exists()


def test_predict_refuses_in_one_line_and_leaves_the_old_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done("fit", "source.npz", "target.npz", "--out", "a", *SMALL)
    with monkeypatch.context() as patched:
        stop_after(1, patched, KeyboardInterrupt())
        run("fit", "source.npz", "target.npz", "--out", "half", *SMALL)
    np.savez("narrow.npz", X=XT[:, :2])
    Path("p.csv").write_text("old")
    before = names(folder)
    cases: list[tuple[list[object], str]] = [
        (["none", "target.npz", "--out", "p.csv"], "none: got No such file"),
        (["half", "target.npz", "--out", "p.csv"], "half: got a run that is not finished; .*--resume half"),
        (["a", "narrow.npz", "--out", "p.csv"], "narrow.npz: got 2 columns; allowed: 5"),
        (["a", "none.npz", "--out", "p.csv"], "none.npz: got No such file"),
        (["a", "target.npz", "--out", "target.npz"], "--out: .*which is an input"),
        (["a", "target.npz", "--out", "no/p.csv"], "--out: got folder"),
        (["a", "target.npz", "--out", "p.csv", "--label", "kind"], "a key 'kind'"),
    ]
    for words, message in cases:
        result = run("predict", *words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert re.fullmatch(rf"(reading .*\n)?error: .*{message}.*\n", result.stderr)
    assert names(folder) == before
