"""Grids, their cells, their data, and running them."""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from warmpot._jobs import Done, Failed, Job
from warmpot.bench import DataSet, Grid, Record, append, grid_names, load_grid, read_grid, read_store, runner
from warmpot.bench.grid_data import GridData
from warmpot.bench.paper_comparison import reported_table, reported_tables
from warmpot.bench.runner import Schedule, TimeEstimate, list_cells, make_schedule, read_reused, run_grid
from warmpot.bench.store import BINS
from warmpot.bench.training import make_record, weight_cap
from warmpot.data.benchmarks import read_benchmark
from warmpot.errors import InputError
from warmpot.train import load_config, preset_names

SHARED = next((p / "shared" / "data" for p in Path(__file__).parents if (p / "shared" / "data").is_dir()), None)
SMALL = {
    "minibatch": {"steps": 6, "checkpoint_every": 2, "source_batch": 8, "target_batch": 8, "network": {"width": 4}},
    "full": {"rounds": 2, "iterations": 3, "width": 4},
}
BLOBS = {"name": "blobs", "source": "s.npz", "target": "t.npz"}
ROWS = [
    {"name": "none", "preset": "source-only-frozen"},
    {"name": "plan", "preset": "frozen"},
    {"name": "all pairs", "preset": "full"},
]


def make(**changes: Any) -> Grid:
    base = {"title": "tiny", "data": [BLOBS], "rows": ROWS, "seeds": 2, "choose": ["neighbours"], "set": SMALL}
    return Grid.load({**base, **changes})


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    return write_blobs(tmp_path / "data")


def plan(grid: Grid, out: Path | str, only: tuple[str, ...] = (), data: Path | str | None = None) -> Schedule:
    reader = None if data is None else GridData(data)
    return make_schedule(grid, list_cells(grid, only), read_store(out), read_reused([]), reader)


def write_blobs(folder: Path, shuffle: bool = False) -> Path:
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(4, 6))
    ys, yt = np.repeat(np.arange(4), 10), np.repeat([0, 1], 12)
    xs, xt = (centres[y] + rng.normal(size=(len(y), 6)) for y in (ys, yt))
    folder.mkdir()
    names = np.array(["ant", "bee", "cow", "dog"])
    np.savez(folder / "s.npz", X=xs, y=names[ys])
    np.savez(folder / "t.npz", X=xt, y=names[rng.permutation(yt) if shuffle else yt])
    return folder


def lasting(record: Record) -> dict[str, Any]:
    """What two runs of a cell must agree on."""
    found = record.to_dict()
    return {name: value for name, value in found.items() if name not in ("seconds", "finished", "content")}


# --- the grid -------------------------------------------------------------------------------------------------------


def test_a_grid_survives_its_file(tmp_path: Path) -> None:
    grid = make(vary={"params.beta": [0.5, 1]}, rows=ROWS[1:2], baseline="plan", seconds={"plan": 3}, reported="x")
    assert Grid.load(yaml.safe_load(grid.dump())) == grid
    (tmp_path / "grid.yaml").write_text(grid.dump())
    assert read_grid(tmp_path) == grid == load_grid(tmp_path / "grid.yaml")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"row": []}, "Did you mean 'rows'"),
        ({"rows": []}, "rows: got none"),
        ({"rows": [{"name": "a"}]}, r"rows\[0\].*preset"),
        ({"rows": [{"name": "a", "preset": "full", "sets": {}}]}, r"rows\[0\].sets: got an unknown setting"),
        ({"rows": [*ROWS, ROWS[0]]}, "none twice"),
        ({"baseline": "non"}, "Did you mean 'none'"),
        ({"figure": "pie"}, "figure"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": [1, 1]}, "1 twice"),
        ({"seeds": ["a"]}, "seeds"),
        ({"choose": ["oracle"]}, "always evaluated"),
        ({"choose": 3}, "choose"),
        ({"vary": {"params.alpha": 0.5}}, "vary.params.alpha"),
        ({"vary": {"params.alpha": ["x"]}}, "vary.params.alpha"),
        ({"vary": [3]}, "vary"),
        ({"seconds": {"plan": "long"}}, "seconds.plan"),
        ({"data": [{"name": "x"}]}, "no data"),
        ({"data": [{"name": "x", "built_in": 9, "features": "{domain}"}]}, "features and built_in"),
        ({"data": [{"name": "x", "source": "a.npz"}]}, "source with target"),
        ({"data": [{"name": "x", "features": "a.npz", "tasks": ["a -> b"]}]}, "{domain} in it"),
        ({"data": [{"name": "x", "features": "{root}/{domain}", "tasks": ["a -> b"]}]}, "no other braces"),
        ({"data": [{"name": "x", "digits": "{domain}{", "tasks": ["a -> b"]}]}, "no other braces"),
        ({"data": [{"name": "x", "features": "{domain:d}", "tasks": ["a -> b"]}]}, "no other braces"),
        ({"data": [{"name": "x", "features": "{domain}", "tasks": ["a to b"]}]}, "SOURCE -> TARGET"),
        ({"data": [{"name": "x", "features": "{domain}"}]}, "tasks: got none"),
        ({"data": [{"name": "x", "features": "{domain}", "tasks": "all"}]}, "domains"),
        ({"data": [{"name": "x", "images": "office-hom", "tasks": "all"}]}, "Did you mean 'office-home'"),
        ({"data": [{"name": "x", "images": "office-home", "tasks": ["Art -> Art"]}]}, "SOURCE -> TARGET"),
        ({"data": [{"name": "x", "images": "office-home", "tasks": ["Art -> Paint"]}]}, "domain of office-home"),
        ({"data": [{"name": "x", "images": "office-home", "tasks": "all", "classes": ["Bed"]}]}, "classes"),
        ({"data": "all"}, "data"),
    ],
)  # fmt: skip
def test_a_wrong_grid_is_refused_in_words(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        make(**changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rows": [{"name": "a", "preset": "frozn"}]}, "row 'a'.*Did you mean 'frozen'"),
        ({"rows": [{"name": "a", "preset": "frozen", "set": {"params.alpah": 1}}]}, "row 'a'.*alpah"),
        ({"choose": ["neighbour"]}, "Did you mean 'neighbours'"),
        ({"choose": ["source_accuracy"]}, "held-out part of the source"),
    ],
)
def test_wrong_settings_are_refused_before_any_training(changes: dict[str, Any], said: str) -> None:
    from warmpot.select import VALIDATORS

    held = next(name for name, rule in VALIDATORS.items() if "held" in rule.needs)
    changes = {k: [held] if v == ["source_accuracy"] else v for k, v in changes.items()}
    with pytest.raises(InputError, match=said):
        make(**changes).cells()


def test_files_that_are_no_grids_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: [")
    (tmp_path / "list.yaml").write_text("- 1")
    for name, said in (("bad.yaml", "a YAML file"), ("list.yaml", "mapping"), ("none.yaml", "No such file")):
        with pytest.raises(InputError, match=said):
            load_grid(tmp_path / name)
    with pytest.raises(InputError, match="Did you mean 'ablation-features'"):
        load_grid("ablation-feature")
    with pytest.raises(InputError, match=r"no grid\.yaml"):
        read_grid(tmp_path)


def test_tasks_and_classes_of_described_data_sets() -> None:
    homes = DataSet("x", ["all"], images="office-home")
    assert len(homes.tasks) == 12
    assert "Real World -> Art" in homes.tasks
    assert DataSet("x", ["all"], images="imagenet-caltech").tasks == ("imagenet -> caltech",)
    features = DataSet("x", ["all"], ["a", "b", "c"], features="{domain}.npz", classes=["office-31"])
    assert len(features.tasks) == 6
    assert "mug" in features.classes


def test_a_cell_is_a_training() -> None:
    cells = make(vary={"params.alpha": [0.3, 0.6]}, rows=ROWS[1:]).cells()
    assert len(cells) == 1 * 2 * 2 + 1 * 2  # the full engine draws nothing, and these data are taken whole
    assert {cell.any_seed for cell in cells if cell.row.name == "all pairs"} == {True}
    assert {cell.seed for cell in cells if cell.row.name == "plan"} == {0, 1}
    assert len({cell.key for cell in cells}) == len(cells) == len({cell.coordinates for cell in cells})
    assert {cell.config.params["alpha"] for cell in cells} == {0.3, 0.6}
    drawn = make(rows=ROWS[2:], data=[{"name": "built-in", "built_in": 50}]).cells()
    assert [cell.seed for cell in drawn] == [0, 1]
    assert not any(cell.any_seed for cell in drawn)


def test_points_of_several_lines_are_not_repeated() -> None:
    grid = make(
        vary=[{"params.alpha": [0.1, 0.2], "params.beta": [0.5]}, {"params.beta": [0.5, 1], "params.alpha": [0.2]}]
    )
    assert grid.points() == [
        {"params.alpha": 0.1, "params.beta": 0.5}, {"params.alpha": 0.2, "params.beta": 0.5},
        {"params.alpha": 0.2, "params.beta": 1.0},
    ]  # fmt: skip


def test_only_leaves_what_is_named() -> None:
    home = {"name": "Home", "features": "{domain}", "domains": ["Art", "Product"], "tasks": "all"}
    grid = make(data=[BLOBS, home], seeds=1)

    def left(*only: str) -> set[tuple[str, str, str]]:
        return {cell.coordinates[:3] for cell in grid.cells(only)}

    everything = left()
    assert len(everything) == 9
    assert left("plan", "none") == {place for place in everything if place[2] != "all pairs"}
    assert left("HOME", "plan") == {("Home", "Art -> Product", "plan"), ("Home", "Product -> Art", "plan")}
    assert left("Art ->", "plan") == {("Home", "Art -> Product", "plan")}
    with pytest.raises(InputError, match="Give a part of one"):
        left("nowhere")
    with pytest.raises(InputError, match="Leave one out"):
        plan(grid, "nowhere", only=("blobs", "Art"))


@given(order=st.permutations(range(3)), first=st.booleans())
def test_keys_know_what_is_trained_and_nothing_else(order: list[int], first: bool) -> None:
    rows = [ROWS[k] for k in order]
    named = [{**row, "name": f"my {row['name']}", "reported": "x"} for row in rows]
    other = {"title": "other", "setting": "s", "seeds": [1, 0] if first else [0, 1, 2], "rows": named}
    keys = {(cell.config.method, cell.config.engine, cell.seed): cell.key for cell in make().cells()}
    for cell in make(**other, data=[{**BLOBS, "source": "/elsewhere/s.npz"}]).cells():
        same = keys.get((cell.config.method, cell.config.engine, cell.seed))
        assert cell.seed == 2 or cell.key == same
    for change in (
        {"set": {**SMALL, "params": {}, "loss": "cross_entropy", "held": 0.3}}, {"choose": []},
        {"data": [{**BLOBS, "classes": ["ant", "bee"]}]}, {"data": [{**BLOBS, "name": "others"}]},
    ):  # fmt: skip
        assert not set(keys.values()) & {cell.key for cell in make(**change).cells()}


def test_a_setting_added_later_keeps_the_keys_of_older_records() -> None:
    folder = Path(__file__).parents[3] / "benchmarks" / "results" / "comparison"
    all_seeds = dataclasses.replace(read_grid(folder), seeds=(0, 1, 2))  # a further one may be under way
    known = {cell.key for cell in all_seeds.cells()}
    records = [record for record in read_store(folder) if record.done]
    assert records
    assert {record.name for record in records if record.key not in known} == set()


def test_a_preset_that_says_the_same_has_the_same_key() -> None:
    official = load_config("frozen")
    rows = [
        {"name": "a", "preset": "frozen"},
        {
            "name": "b",
            "preset": "tuned",
            "set": {"minibatch.optimizer.backbone": official.minibatch.optimizer.backbone},
        },
    ]
    keys = [cell.key for cell in make(rows=rows, seeds=1).cells()]
    assert keys[0] == keys[1]


# --- what the package ships ------------------------------------------------------------------------------------------


def test_grids_are_no_presets() -> None:
    assert not set(grid_names()) & set(preset_names())
    assert {"ablation-features", "office-home-comparison", "sensitivity", "weights-histogram"} <= set(grid_names())


@pytest.mark.parametrize("name", grid_names())
def test_every_grid_of_the_package_can_be_run(name: str) -> None:
    grid = load_grid(name)
    cells = grid.cells()
    assert cells
    assert grid.title
    assert grid.setting
    assert {row.preset for row in grid.rows} <= set(preset_names())
    assert "neighbours" in grid.choose
    assert set(grid.seconds) <= {row.name for row in grid.rows} | {"full", "minibatch"}
    if name.endswith("-features"):
        assert all(
            schedule.estimate.total(list(schedule.trainings.values()), 2) for schedule in [plan(grid, "nowhere")]
        )
        if SHARED:
            assert all(path.exists() for cell in cells for path in GridData(SHARED).paths(cell.data, cell.task))
    else:
        assert all(cell.config.images is not None and cell.config.images.fine_tunes for cell in cells)
        assert f"{name}-features" in grid_names() or f"{name.removeprefix('office-home-')}-features" in grid_names()
    if grid.reported:
        kind = reported_table(grid.reported).kind
        printed = {system for table in reported_tables().values() if table.kind == kind for system in table.numbers}
        assert {row.reported for row in grid.rows if row.reported} <= printed


def test_twins_share_what_is_the_same_training() -> None:
    keys = {name: {cell.key for cell in load_grid(name).cells()} for name in grid_names()}
    # WARMPOT itself, on 15 tasks with 3 seeds
    assert len(keys["ablation-features"] & keys["comparison-features"]) == 45
    assert len(keys["weights-histogram"] & keys["office-home-comparison"]) == 1


# --- data -----------------------------------------------------------------------------------------------------------


def test_digits_are_drawn_with_the_seed_and_features_are_restricted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, side, folder in (("mnist", 28, "digits"), ("usps", 16, "digits")):
        (tmp_path / folder).mkdir(exist_ok=True)
        x, y = rng.integers(0, 256, (60, side, side), dtype=np.uint8), np.repeat(np.arange(10), 6)
        np.savez(tmp_path / folder / f"{name}.npz", X=x, y=y)
    data = DataSet("d", ["mnist -> usps"], digits="digits/{domain}.npz", classes=["0", "1", "2"], samples=40)
    reader = GridData(tmp_path)
    task, truth = reader.load(data, data.tasks[0], 0)
    assert (task.xs.shape, task.xt.shape) == ((40, 256), (18, 256))
    assert task.xs.max() <= 1
    assert set(np.array(truth.classes)[truth.yt]) == {"0", "1", "2"}
    assert reader.load(data, data.tasks[0], 0)[0] is task  # kept
    other, _ = reader.load(data, data.tasks[0], 1)
    assert not np.array_equal(other.ys, task.ys)
    with pytest.raises(InputError, match=r"a \.npz with X and y"):
        reader.load(dataclasses.replace(data, digits="{domain}.npz"), data.tasks[0], 0)


def test_targets_must_be_labelled_and_have_the_classes(blobs: Path, tmp_path: Path) -> None:
    data = make().data[0]
    task, truth = GridData(blobs).load(dataclasses.replace(data, classes=["bee"]), data.tasks[0], 0)
    assert task.n_target == 12
    assert set(truth.yt) == {1}
    with pytest.raises(InputError, match="emu"):
        GridData(blobs).load(dataclasses.replace(data, classes=["emu"]), data.tasks[0], 0)
    np.savez(blobs / "t.npz", X=np.zeros((4, 6)))
    with pytest.raises(InputError, match=r"target of blobs.*no labels"):
        GridData(blobs).load(dataclasses.replace(data, name="blobs", label=None), data.tasks[0], 0)


@pytest.mark.skipif(find_spec("timm") is None, reason="the extra `vision` is not installed")
def test_images_of_a_described_data_set_are_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    monkeypatch.setenv("WARMPOT_CACHE", str(tmp_path / "cache"))
    for number, (domain, name) in enumerate(
        itertools.product(("train", "validation"), read_benchmark("visda-2017").classes)
    ):
        (tmp_path / "data" / "visda-2017" / domain / name).mkdir(parents=True)
        for k in range(2):
            place = tmp_path / "data" / "visda-2017" / domain / name / f"{k}.png"
            Image.new("RGB", (40, 40), (9 * number, 60 * k, 90)).save(place)
    backbone = {"name": "test_resnet", "weights": "none", "train_from": "all"}
    images = {"view": {"resize": 32, "crop": 32}, "workers": 0, "backbone": backbone}
    entry = {"name": "VisDA", "images": "visda-2017", "tasks": ["train -> validation"]}
    mixed = make(
        data=[entry, BLOBS], rows=[{"name": "plan", "preset": "official"}], seeds=1, set={**SMALL, "images": images}
    )
    pictured, plain = mixed.cells()
    assert plain.config.images is None
    assert pictured.config.images is not None
    mixed = dataclasses.replace(mixed, known_classes=True)
    record, oracle = run_grid(mixed, data=tmp_path / "data", out=tmp_path / "out", only=["visda"])
    assert record.done, record.error
    assert len(record.per_class) == 6
    assert record.outlier_samples == 0.5
    assert oracle.done, oracle.error
    assert oracle.per_class.keys() == record.per_class.keys()
    assert oracle.outlier_samples == 0


# --- runs -----------------------------------------------------------------------------------------------------------


def test_a_grid_is_run_kept_and_gone_on_with(
    blobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    out, trained = tmp_path / "out", list[str]()
    original = runner._train

    def counted(data: GridData, cell: Any) -> Record:
        trained.append(cell.name)
        return original(data, cell)

    monkeypatch.setattr(runner, "_train", counted)
    bad = {"name": "bad", "preset": "frozen", "set": {"minibatch.optimizer.lr": 1e30}}
    again = {"name": "plan again", "preset": "frozen"}
    grid = make(rows=[bad, *ROWS, again], seeds=1)
    records = {record.row: record for record in run_grid(grid, data=blobs, out=out)}
    assert [name.split(", ")[2] for name in trained] == ["bad", "none", "plan", "all pairs"]
    assert "bad, seed 0 failed; the other cells continue" in caplog.text
    failed = records.pop("bad")
    assert (failed.status, failed.accuracy) == ("failed", {})
    assert failed.error.startswith("DivergedError")
    assert "\n" not in failed.error
    assert "Traceback" in failed.trace
    assert dataclasses.replace(records["plan again"], row="plan") == records["plan"]
    assert records["all pairs"].any_seed
    for record in records.values():
        check_record(record)
    # the same call trains what failed, and nothing else
    trained.clear()
    assert {r.row: lasting(r) for r in run_grid(grid, data=blobs, out=out) if r.done} == {
        name: lasting(record) for name, record in records.items()
    }
    assert [name.split(", ")[2] for name in trained] == ["bad"]
    # one seed more: what a seed does not change is not trained again
    trained.clear()
    more = dataclasses.replace(grid, seeds=(0, 1))
    run_grid(more, data=blobs, out=out, only=["all pairs", "none"])
    assert trained == ["blobs, s -> t, none, seed 1"]
    assert read_grid(out).seeds == (0, 1)
    # a row gets its name in the paper later
    named = dataclasses.replace(more, rows=(dataclasses.replace(more.rows[0], reported="DAN"), *more.rows[1:]))
    run_grid(named, data=blobs, out=out, only=["all pairs", "none"])
    assert read_grid(out).rows[0].reported == "DAN"
    # another folder takes over what it has in common with this one
    trained.clear()
    other = make(rows=[{**ROWS[1], "name": "warmpot"}], seeds=1, title="other")
    (taken,) = run_grid(other, data="nowhere", out=tmp_path / "other", reuse=[out])
    assert trained == []
    assert lasting(taken) == {**lasting(records["plan"]), "row": "warmpot"}
    with pytest.raises(InputError, match="another grid: other rows"):
        run_grid(other, data=blobs, out=out)


def check_record(record: Record) -> None:
    assert record.done
    assert set(record.accuracy) == {"last", "neighbours", "oracle"} == set(record.steps)
    assert record.accuracy["oracle"] >= max(record.accuracy.values())
    assert set(record.scores) == {"neighbours"}
    assert set(record.per_class) == {"ant", "bee"}
    assert record.accuracy["last"] == pytest.approx(np.mean(list(record.per_class.values())))  # 12 of each
    assert record.outlier_samples == 0.5
    assert record.outlier_weight is not None
    assert 0 <= record.outlier_weight <= 1
    assert {name: (len(counts), sum(counts)) for name, counts in record.histogram.items()} == {
        "shared": (BINS, 20), "outlier": (BINS, 20)
    }  # fmt: skip
    assert Record.from_dict(json.loads(json.dumps(record.to_dict()))) == record
    assert record.capped is record.row.startswith("plan")


def test_target_labels_change_accuracies_and_nothing_else(blobs: Path, tmp_path: Path) -> None:
    grid = make(seeds=1)
    mixed = write_blobs(tmp_path / "mixed", shuffle=True)
    honest, mixed_records = (run_grid(grid, data=data, out=tmp_path / f"out-{data.name}") for data in (blobs, mixed))
    for one, two in zip(honest, mixed_records, strict=True):
        assert one.accuracy != two.accuracy
        evaluated = dict.fromkeys(("accuracy", "per_class", "lost_classes"), 0)
        a, b = ({**lasting(record), **evaluated} for record in (one, two))
        for found in (a, b):
            found["steps"] = {name: step for name, step in found["steps"].items() if name != "oracle"}
        assert a == b


def test_other_data_under_the_same_names_is_trained_anew(blobs: Path, tmp_path: Path) -> None:
    grid, out, mixed = make(rows=ROWS[:1], seeds=1), tmp_path / "out", write_blobs(tmp_path / "mixed", shuffle=True)
    (first,) = run_grid(grid, data=blobs, out=out)
    assert len(plan(grid, out, data=blobs).done) == 1
    assert len(plan(grid, out, data=mixed).trainings) == 1
    (taken,) = run_grid(grid, data=mixed, out=tmp_path / "other", reuse=[out])
    assert taken.key == first.key
    assert taken.accuracy != first.accuracy
    (second,) = run_grid(grid, data=mixed, out=out)
    assert lasting(second) == lasting(taken)
    # what nobody can look at, and records of before, are believed
    assert plan(grid, out, data="nowhere").done
    append(out, dataclasses.replace(first, content=""))
    assert plan(grid, out, data=mixed).done


def test_a_record_that_is_no_number_is_a_failed_cell(
    blobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = runner._train

    def odd(data: GridData, cell: Any) -> Record:
        found = original(data, cell)
        return dataclasses.replace(found, scores={"neighbours": float("nan")}) if cell.row.name == "none" else found

    monkeypatch.setattr(runner, "_train", odd)
    records = run_grid(make(rows=ROWS[:2], seeds=1), data=blobs, out=tmp_path / "out")
    assert [(record.status, record.error) for record in records] == [
        ("failed", "not a finite number: neighbours"), ("done", "")
    ]  # fmt: skip


def test_a_worker_that_dies_is_a_failed_cell(blobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying:
        workers = 2

        def __call__(self, jobs: Iterator[Job]) -> Iterator[Done | Failed]:
            for number, job in enumerate(jobs):
                if number == 1:
                    yield Failed(job.key, "WorkerDied", "the worker was killed by SIGKILL (out of memory?)")
                else:
                    yield Done(job.key, runner._train(GridData(blobs), *job.args))

    @contextmanager
    def dying(*args: Any, **kwargs: Any) -> Iterator[Dying]:
        yield Dying()

    failures: list[Record] = []
    with monkeypatch.context() as patch:
        patch.setattr(runner, "runner", dying)
        records = run_grid(make(seeds=1), data=blobs, out=tmp_path / "out", workers=2, on_failure=failures.append)
    assert [record.status for record in records] == ["done", "failed", "done"]
    assert [record.error for record in failures] == ["WorkerDied: the worker was killed by SIGKILL (out of memory?)"]
    assert all(record.done for record in run_grid(make(seeds=1), data=blobs, out=tmp_path / "out"))


@pytest.mark.slow
def test_the_number_of_workers_changes_nothing(blobs: Path, tmp_path: Path) -> None:
    grid = make(rows=ROWS[1:], seeds=2)
    alone, together = (
        {record.coordinates: lasting(record) for record in run_grid(grid, data=blobs, out=tmp_path / f"{n}", workers=n)}
        for n in (1, 2)
    )
    assert alone == together


def test_a_folder_is_one_grids(blobs: Path, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "note").touch()
    with pytest.raises(InputError, match="a folder with other files"):
        run_grid(make(), data=blobs, out=tmp_path / "used")
    assert [entry.name for entry in (tmp_path / "used").iterdir()] == ["note"]  # not even a lock is left
    with pytest.raises(InputError, match="a folder"):
        run_grid(make(), data=blobs, out=blobs / "s.npz")
    with pytest.raises(InputError, match=r"data of blobs: got no .*s\.npz.*--data"):
        run_grid(make(), data=tmp_path / "nowhere", out=tmp_path / "out")
    assert read_store(tmp_path / "out") == []
    hardware = {"minibatch": {**SMALL["minibatch"], "hardware": {"devices": 2, "accelerator": "cpu"}}}
    with pytest.raises(InputError, match="--jobs"):
        run_grid(make(set=hardware), data=blobs, out=tmp_path / "more")
    with pytest.raises(InputError, match=r"no grid\.yaml"):
        run_grid(make(), data=blobs, out=tmp_path / "new", reuse=[tmp_path])
    assert not (tmp_path / "new").exists()


def test_one_bench_a_folder_at_a_time(blobs: Path, tmp_path: Path) -> None:
    from filelock import FileLock

    (tmp_path / "out").mkdir()
    with FileLock(tmp_path / "out" / runner.LOCK), pytest.raises(InputError, match="another process writes"):
        run_grid(make(), data=blobs, out=tmp_path / "out")


def test_progress_follows_the_work_and_not_the_number_of_cells(
    blobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, reports = {"none": 1.0, "plan": 6.0, "all pairs": 2.0}, list[tuple[float, str, float]]()

    def trained(data: GridData, cell: Any) -> Record:
        return make_record(cell, accuracy={"last": 0.5}, seconds=seconds[cell.row.name])

    @contextmanager
    def recorded(*_: Any) -> Iterator[Any]:
        yield lambda share, text, expected=0.0: reports.append((share, text, expected))

    monkeypatch.setattr(runner, "_train", trained)
    monkeypatch.setattr(runner, "progress", recorded)
    run_grid(make(seeds=1, seconds=seconds), data=blobs, out=tmp_path / "out")
    # after the first, "plan" is expected to take 1 s too, as its engine is the same
    assert [share for share, _, _ in reports] == pytest.approx([0, 1 / 4, 7 / 9, 1])
    assert [text for _, text, _ in reports] == ["cell 1 of 3", "1 of 3 cells", "2 of 3 cells", "3 of 3 cells"]
    assert reports[0][2] == pytest.approx(2 + 7 * 6 / 1500)  # until one is finished; hints are for a preset's steps


def test_the_estimate_takes_the_nearest_that_is_finished() -> None:
    grid = make(data=[BLOBS, {**BLOBS, "name": "others"}], seeds=1)
    cells = {(cell.data.name, cell.row.name): cell for cell in grid.cells()}
    all_of_them = list(cells.values())
    estimate = TimeEstimate(all_of_them, {"none": 5, "full": 7, "minibatch": 9}, {"none": 12, "plan": 6})
    # hints are for so many steps
    assert [estimate.seconds(cells["blobs", row]) for row in ("none", "plan", "all pairs")] == [2.5, 9, 7]
    assert TimeEstimate(all_of_them, {}).total(all_of_them, 1) is None  # unknown, and not guessed
    assert TimeEstimate(all_of_them, {}, {}).total([], 1) == 0
    assert TimeEstimate(all_of_them, {"plan": 2}, {}).total(all_of_them, 2) == 6  # the others as long as these
    for row, data, seconds in (("plan", "blobs", 10.0), ("plan", "blobs", 20.0), ("none", "others", 1.0)):
        estimate.add(Record(row=row, dataset=data, seconds=seconds))
    estimate.add(Record(row="plan", dataset="blobs", seconds=1000.0, status="failed"))
    assert estimate.seconds(cells["blobs", "plan"]) == 15  # same row and data set
    assert estimate.seconds(cells["blobs", "none"]) == 1  # same row
    assert estimate.seconds(cells["blobs", "all pairs"]) == 7  # nothing of its engine yet
    estimate = TimeEstimate(all_of_them, {}, {})
    estimate.add(Record(row="none", dataset="others", seconds=4.0))
    assert estimate.seconds(cells["blobs", "plan"]) == 4  # same engine
    assert estimate.total([cells["blobs", "plan"]] * 4, 2) == 8


def test_weights_are_held_against_their_cap() -> None:
    def cap(preset: str, **changes: Any) -> float | None:
        return weight_cap(load_config(preset, changes=changes), 100)

    assert cap("frozen") == pytest.approx(1 / 35)
    assert cap("frozen", params={"beta": "auto"}) is None
    assert cap("full") is None
    assert cap("frozen", weights="uniform") is None
    assert cap("frozen", weights="plan", weight_params={"alpha": 0.5, "beta": 0.2}) == pytest.approx(0.1)
    assert cap("arpm-warmpot-frozen") == pytest.approx(0.03)


def test_ctrl_c_is_answered_though_a_cell_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    from warmpot.bench.training import _quiet

    before = [logging.getLogger(name).level for name in (None, "warmpot", "warmpot.train.interrupt")]
    with _quiet():
        logging.getLogger("warmpot.train.fit").warning("of one training")
        logging.getLogger("warmpot.train.interrupt").warning("stopping")
    assert caplog.messages == ["stopping"]
    assert before == [logging.getLogger(name).level for name in (None, "warmpot", "warmpot.train.interrupt")]


@pytest.mark.slow
@pytest.mark.skipif(SHARED is None, reason="needs ../shared/data")
def test_a_cell_gives_what_the_bench_before_gave() -> None:
    assert SHARED is not None
    entry = {
        "name": "Office-31",
        "features": "office31/{domain}.npz",
        "classes": "office-31",
        "tasks": ["dslr -> webcam"],
    }
    grid = Grid.load({"title": "x", "data": [entry], "rows": [ROWS[1]], "seeds": 1, "choose": ["neighbours"]})
    (cell,) = grid.cells()
    from threadpoolctl import threadpool_limits

    from warmpot.bench.training import train_cell

    with threadpool_limits(1):
        record = train_cell(GridData(SHARED), cell)
    assert record.accuracy["last"] == pytest.approx(0.9728813559322034, abs=0.005)
    assert record.scores["neighbours"] == pytest.approx(0.9954567622372237, abs=0.005)
    assert record.outlier_weight == pytest.approx(0.0, abs=1e-6)


def test_durations_are_formatted() -> None:
    assert [runner.format_duration(seconds) for seconds in itertools.accumulate([5.0, 90.0, 100.0])] == [
        "5.0 s",
        "95 s",
        "3 min",
    ]


@pytest.mark.parametrize(
    ("name", "periods", "every"), [("imagenet-caltech-ablation", 24, 2000), ("office-home-ablation", 10, 500)]
)
def test_the_ablation_grids_weigh_as_the_paper_says(name: str, periods: int, every: int) -> None:
    """Section 5.3: weights again every 2000 or 500 steps, and BA3US weights from counted predictions."""
    rows = {row.name: load_config(row.preset, changes=row.changes) for row in load_grid(name).rows}
    shares, ball = rows["class share"], rows["chi2 ball"]
    assert (shares.weight_params["hard"], shares.weight_params["periods"]) == (True, periods)
    assert (ball.weight_params["rho"], ball.weight_params["periods"]) == (5.0, periods)
    assert shares.minibatch.steps == ball.minibatch.steps == every * periods


def test_a_row_names_a_preset_or_a_method() -> None:
    grid = make(
        rows=[{"name": "m", "method": "mpot", "set": {"params.alpha": 0.3}}, {"name": "s", "method": "shot-plus"}]
    )
    assert [row.recipe(images=False) for row in grid.rows] == ["mpot-frozen", "shot-plus-frozen"]
    assert [row.recipe(images=True) for row in grid.rows] == ["mpot", "shot-plus"]
    same = make(rows=[{"name": "m", "preset": "mpot-frozen", "set": {"params.alpha": 0.3}}])
    assert grid.cells(["m"])[0].key == same.cells()[0].key
    assert Grid.load(grid.to_mapping()) == grid
    with pytest.raises(InputError, match="which is for 'warmpot', with the method 'mpot'"):
        make(rows=[{"name": "m", "method": "mpot", "preset": "frozen"}]).cells()
    with pytest.raises(InputError, match=r"rows\[0\]\.preset: got none, and no method"):
        make(rows=[{"name": "m"}])


def test_settings_of_a_row_are_called_set() -> None:
    with pytest.raises(InputError, match=r"rows\[0\]\.changes: got an unknown setting; allowed: .*\bset\b"):
        make(rows=[{"name": "m", "preset": "full", "changes": {}}])
