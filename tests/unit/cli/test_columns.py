"""Labels, ids and features of tables, in every command that reads them."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import warmpot
from warmpot.cli import app
from warmpot.cli._data_files import remembered_files
from warmpot.data import Task

rng = np.random.default_rng(0)
CENTRES = 3 * rng.normal(size=(4, 3))
YS, YT = np.arange(24) % 4, np.arange(16) % 2
XS, XT = CENTRES[YS] + rng.normal(size=(24, 3)), CENTRES[YT] + rng.normal(size=(16, 3))
NAMES = np.array(["ant", "bee", "cat", "dog"])
QUICK = ["--preset", "source-only", "--no-report"]


def write_table(path: str, x: np.ndarray, **more: Any) -> None:
    columns = {**more, **{f"f{j}": column.tolist() for j, column in enumerate(x.T)}}
    with open(path, "w", newline="") as stream:
        csv.writer(stream).writerows([list(columns), *zip(*columns.values(), strict=True)])


def column(path: str, name: str) -> list[str]:
    with open(path, newline="") as stream:
        return [row[name] for row in csv.DictReader(stream)]


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def done(*words: object) -> Result:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result


def read_again(folder: str) -> Task:
    """Read the data of a run as `bound`, `report` and `fit --resume` do: with the flags that the run had."""
    return remembered_files(Path(folder), None, None, "RUN").read()[0]


IDS = [f"{1000 + 3 * j}" for j in range(24)], [f"{7 + 2 * j}" for j in range(16)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with tables that have labels, and ids under two names."""
    monkeypatch.chdir(tmp_path)
    for name, key in (("", "id"), ("-code", "code")):
        write_table(f"s{name}.csv", XS, **{key: IDS[0]}, label=NAMES[YS].tolist())
        write_table(f"t{name}.csv", XT, **{key: IDS[1]}, label=NAMES[YT].tolist())
    write_table("s-plain.csv", XS, label=NAMES[YS].tolist())
    write_table("t-plain.csv", XT)
    return tmp_path


COMMANDS = {
    "fit": ("fit", "{s}", "{t}", "--out", "a", *QUICK),
    "sweep": ("sweep", "{s}", "{t}", "--out", "a", "--no-report"),
    "weights": ("weights", "--source", "{s}", "--target", "{t}", "--out", "a"),
    "doctor": ("doctor", "{s}", "{t}"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_id_is_never_silently_a_feature(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["warmpot.cli.doctor"], "CHECKS", {})  # of the installation; test_doctor.py has them
    for key, end, why in (("id", "", ""), ("code", "-code", ": 24 integers that only rise")):
        result = run(*(word.format(s=f"s{end}.csv", t=f"t{end}.csv") for word in COMMANDS[command]))
        assert result.exit_code == (1 if command == "doctor" else 2)
        text = " ".join(result.output.split())
        assert f"s{end}.csv: got a column {key!r} that looks like an id{why}" in text
        assert f"Pass --id {key!r} if it is an id, --feature {key!r} if it is a feature" in text
        assert not Path("a").exists()


def test_ids_travel_to_the_results_and_are_no_features() -> None:
    done("fit", "s-plain.csv", "t-plain.csv", "--out", "plain", *QUICK)
    done("fit", "s.csv", "t.csv", "--id", "id", "--out", "a", *QUICK)
    assert Path("a/model.safetensors").read_bytes() == Path("plain/model.safetensors").read_bytes()
    assert json.loads(Path("a/model.json").read_text())["facts"]["columns"] == ["f0", "f1", "f2"]
    assert column("a/predictions.csv", "name") == IDS[1]
    assert column("a/source_weights.csv", "name") == IDS[0]
    assert column("a/predictions.csv", "prediction") == column("plain/predictions.csv", "prediction")
    done("predict", "a", "t.csv", "--out", "p.csv")  # the ids of the run
    assert column("p.csv", "name") == IDS[1]
    done("predict", "a", "t-plain.csv", "--out", "p.csv")  # without ids
    assert "name" not in Path("p.csv").read_text().splitlines()[0]
    done("predict", "plain", "t.csv", "--id", "id", "--out", "p.csv")
    assert column("p.csv", "name") == IDS[1]
    result = run("predict", "a", "t.csv", "--id", "code", "--out", "q.csv")
    assert result.exit_code == 2
    assert "t.csv: got columns 'id', 'label', 'f0', 'f1', 'f2' (labels: 'label'); allowed: one column 'code'" in (
        result.stderr
    )
    assert read_again("a").source_names == tuple(IDS[0])


def test_paths_of_npz_files_are_names_by_themselves() -> None:
    files = [f"{side}/{j}.png" for side, n in (("s", 24), ("t", 16)) for j in range(n)]
    names = files[:24], files[24:]
    np.savez("s.npz", X=XS, y=NAMES[YS], path=names[0], code=IDS[0])
    np.savez("t.npz", X=XT, path=names[1], code=IDS[1])
    np.savez("t-plain.npz", X=XT)
    done("fit", "s.npz", "t.npz", "--out", "a", *QUICK)
    assert column("a/predictions.csv", "name") == names[1]
    assert column("a/source_weights.csv", "name") == names[0]
    done("predict", "a", "t.npz", "--out", "p.csv")
    assert column("p.csv", "name") == names[1]
    done("weights", "s.npz", "t.npz", "--out", "w.csv")
    assert column("w.csv", "name") == [*names[0], *names[1]]
    done("fit", "s.npz", "t.npz", "--id", "code", "--out", "b", *QUICK)
    assert column("b/predictions.csv", "name") == IDS[1]
    done("fit", "s.npz", "t-plain.npz", "--out", "c", *QUICK)  # only one of the two has paths
    assert column("c/source_weights.csv", "name") == names[0]
    assert "name" not in Path("c/predictions.csv").read_text().splitlines()[0]
    result = warmpot.fit("s.npz", "t.npz", preset="source-only", progress_bar=False)
    assert list(result.run.target_names) == names[1]


def test_a_column_that_looks_like_an_id_can_be_a_feature() -> None:
    done("fit", "s-code.csv", "t-code.csv", "--feature", "code", "--out", "a", *QUICK)
    facts = json.loads(Path("a/model.json").read_text())["facts"]
    assert facts["columns"] == ["code", "f0", "f1", "f2"]
    done("predict", "a", "t-code.csv", "--out", "p.csv")
    assert column("p.csv", "prediction") == column("a/predictions.csv", "prediction")
    assert read_again("a").columns == ("code", "f0", "f1", "f2")
    record = json.loads(Path("a/run.json").read_text())
    del record["facts"]["features"]  # as older versions wrote it: every column was a feature
    Path("a/run.json").write_text(json.dumps(record))
    assert read_again("a").width == 4


def test_a_run_from_python_takes_the_flags_with_the_files() -> None:
    from warmpot.data import load_table, make_task
    from warmpot.train import fit, load_config

    task, _ = make_task(*(load_table(f"{side}.csv", ids="id") for side in "st"))
    fit(task, load_config("source-only"), out=Path("a"), progress_bar=False)
    write_table("s-kind.csv", XS, id=IDS[0], kind=NAMES[YS].tolist())
    flags = ("s-kind.csv", "t.csv", "--label", "kind", "--id", "id")
    result = run("bound", "a", *flags, "--quiet")
    assert result.exit_code == 2  # the target has the labels under another name, so that they are features
    assert "not numeric: 'label'" in result.stderr
    write_table("t-kind.csv", XT, id=IDS[1], kind=NAMES[YT].tolist())
    done("bound", "a", "s-kind.csv", "t-kind.csv", *flags[2:], "--quiet")


def test_weights_leave_labels_and_ids_out() -> None:
    """Labels are numbers here: taken for features, they would pull samples of a class together."""
    write_table("s-plain.csv", XS)
    done("weights", "--source", "s-plain.csv", "--target", "t-plain.csv", "--out", "expected.csv")
    order = [2, 0, 1]
    for label in ("label", "kind"):
        write_table("s-y.csv", XS, id=IDS[0], **{label: (100 * YS).tolist()})
        with open("t-y.csv", "w", newline="") as stream:  # the columns in another order
            head = ["id", label, *(f"f{j}" for j in order)]
            rows = zip(IDS[1], (0.5 * YT).tolist(), *XT[:, order].T.tolist(), strict=True)
            csv.writer(stream).writerows([head, *rows])
        flags = ["--label", label] if label == "kind" else []
        done("weights", "--source", "s-y.csv", "--target", "t-y.csv", "--out", "w.csv", "--id", "id", *flags)
        assert column("w.csv", "weight") == column("expected.csv", "weight")
        assert column("w.csv", "name") == [*IDS[0], *IDS[1]]


def test_ids_may_be_in_the_target_only() -> None:
    done("fit", "s-plain.csv", "t.csv", "--id", "id", "--out", "a", *QUICK)
    assert column("a/predictions.csv", "name") == IDS[1]
    assert "name" not in Path("a/source_weights.csv").read_text().splitlines()[0]
    done("weights", "s-plain.csv", "t.csv", "--id", "id", "--out", "w.csv")
    assert column("w.csv", "name") == [*[""] * 24, *IDS[1]]
    result = run("fit", "s.csv", "t-plain.csv", "--id", "id", "--out", "b", *QUICK)
    assert (result.exit_code, "t-plain.csv: got columns" in result.stderr) == (2, True)


def test_ids_of_several_target_samples_are_warned_about() -> None:
    write_table("t-twice.csv", XT, id=["x", "x", *IDS[1][2:]])
    said = "warning: t-twice.csv: got ids more than once: 'x'; allowed: one id per sample."
    assert said in done("fit", "s.csv", "t-twice.csv", "--id", "id", "--out", "a", *QUICK).stderr
    assert said in done("predict", "a", "t-twice.csv", "--out", "p.csv").stderr
    assert said in done("weights", "s.csv", "t-twice.csv", "--id", "id", "--out", "w.csv").stderr
