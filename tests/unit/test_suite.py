"""The development suite: its tasks are what they are called, and a choice never sees the domain it is judged on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

Load = Callable[[str], ModuleType]


def test_a_draw_has_the_same_classes_in_all_pairs_of_a_family(benchmark_script: Load) -> None:
    tasks = benchmark_script("_suite_tasks")
    classes = [f"class {k}" for k in range(31)]
    draws: dict[tuple[str, int], set[tuple[str, ...]]] = {}
    for spec in tasks.specs({"office31": tasks.DOMAINS["office31"], **tasks.EXTRACTED}):
        if spec.kind.startswith("size-"):
            draws.setdefault((spec.kind, spec.draw), set()).add(tasks.target_classes(spec, classes))
    assert len(draws) == 18  # 1, 2, 5, 10, 15, 25 of 31 classes, three times
    for (kind, _), sets in draws.items():
        (drawn,) = sets
        assert len(set(drawn)) == int(kind.removeprefix("size-"))
    assert len({next(iter(draws["size-5", draw])) for draw in range(3)}) == 3


def test_names_of_tasks_differ(benchmark_script: Load) -> None:
    tasks = benchmark_script("_suite_tasks")
    names = [spec.name for spec in tasks.specs({**tasks.DOMAINS, **tasks.EXTRACTED})]
    assert len(set(names)) == len(names)
    assert "office31/amazon-webcam/size-5.0" in names
    assert not [name for name in names if name.startswith("office31/") and "size-40" in name]


def test_halves_are_disjoint(benchmark_script: Load) -> None:
    labels = np.repeat([0, 1, 2], [7, 20, 4])
    first, second = benchmark_script("_suite_tasks").halves(labels, np.random.default_rng(0))
    assert sorted([*first, *second]) == list(range(31))
    assert np.abs(np.bincount(labels[first]) - np.bincount(labels[second])).max() <= 1


def test_a_task_without_shift_shares_no_sample(benchmark_script: Load, tmp_path: Path) -> None:
    tasks = benchmark_script("_suite_tasks")
    (tmp_path / "digits").mkdir()
    images = np.random.default_rng(0).integers(0, 256, (200, 16, 16), dtype=np.uint8)
    np.savez(tmp_path / "digits" / "usps.npz", X=images, y=np.arange(200) % 10)
    source, target = tasks.load(tasks.Spec("digits", "usps", "usps", "same-standard"), tmp_path)
    assert (source.n, target.n) == (100, 50)
    assert not {row.tobytes() for row in source.x} & {row.tobytes() for row in target.x}
    assert {target.classes[code] for code in target.y} == {"0", "1", "2", "3", "4"}


def test_skewed_classes_fall_geometrically(benchmark_script: Load) -> None:
    sizes = benchmark_script("_suite_tasks").class_sizes("skew", np.array([900, 1000, 1000]))
    assert sizes.tolist() == [900, 285, 90]
    assert benchmark_script("_suite_tasks").class_sizes("skew", np.array([1000, 100, 1000])).tolist() == [316, 100, 32]


def records(name: str, accuracy: Callable[[str, str], float]) -> list[dict[str, Any]]:
    """All ordered pairs of three domains, one task each."""
    return [
        {
            "task": f"f/{s}-{t}/standard", "group": "f/standard", "domains": [f"f/{s}", f"f/{t}"], "name": name,
            "preset": "full", "known_classes": False, "changes": {}, "code": "0", "accuracy": accuracy(s, t),
        }
        for s in "abc" for t in "abc" if s != t
    ]  # fmt: skip


def test_the_choice_never_sees_the_domain_left_out(benchmark_script: Load) -> None:
    tables = benchmark_script("_suite_tables")
    # "other" is far better where "a" takes part and a little worse elsewhere: with "a" left out it must not be chosen
    runs = records("default", lambda s, t: 0.5)
    runs += records("other", lambda s, t: 1.0 if "a" in (s, t) else 0.4)
    rows = {row.domain: row for row in tables.choices(runs, ["default", "other"])}
    assert rows["f/a"] == ("f/a", "default", 0.5, 0.5)
    assert rows["f/b"].variant == rows["f/c"].variant == "other"
    assert rows["f/b"].chosen == pytest.approx((1.0 + 0.4) / 2)  # b-a and a-b; b-c and c-b


@pytest.mark.parametrize("domain", ["f/a", "f/b", "f/c"])
def test_the_choice_does_not_depend_on_tasks_with_the_domain(benchmark_script: Load, domain: str) -> None:
    tables = benchmark_script("_suite_tables")
    for better, accuracy in (("default", 0.4), ("other", 0.6)):
        runs = records("default", lambda s, t: 0.5) + records("other", lambda s, t, value=accuracy: value)
        for record in runs:
            if domain in record["domains"]:  # there the worse one is perfect
                record["accuracy"] = float(record["name"] != better)
        (row,) = [row for row in tables.choices(runs, ["default", "other"]) if row.domain == domain]
        assert (row.variant, row.chosen) == (better, 0.0)


def test_groups_count_equally_and_failed_runs_not(benchmark_script: Load) -> None:
    tables = benchmark_script("_suite_tables")
    runs = [{"group": "g", "accuracy": 1.0}] * 9 + [{"group": "h", "accuracy": 0.0}]
    assert tables.group_mean(runs) == 0.5
    failed = {"task": "t", "name": "n", "error": "InputError: ..."}
    assert tables.by_task([failed], "n") == {}


def test_scores_of_predictions(benchmark_script: Load) -> None:
    truth = np.array([0] * 10 + [1] * 10 + [2] * 20)
    predicted = np.array([0] * 10 + [3] * 10 + [2] * 20)
    scores = benchmark_script("suite").scores_of(np.eye(5)[predicted], truth, None)
    assert scores["accuracy"] == 0.75
    assert (scores["lost"], scores["present"], scores["classes"]) == (1, 3, 5)
    assert scores["absent_share"] == 0.25
    assert scores["share_auc"] == pytest.approx((1.5 + 0.5 + 2) / 6)  # pairs in the right order; ties count half
    assert "presence_auc" not in scores


def test_scores_of_presence(benchmark_script: Load) -> None:
    presence = SimpleNamespace(probability=np.array([0.9, 0.6, 0.5, 0.0]))
    truth = np.array([0, 1, 1, 3])
    scores = benchmark_script("suite").scores_of(np.eye(4)[truth], truth, presence)
    assert scores["presence_auc"] == pytest.approx(2 / 3)
    assert scores["presence_brier"] == pytest.approx((0.01 + 0.16 + 0.25 + 1.0) / 4)
    assert scores["presence_count"] == pytest.approx(2.0)
    everything = np.arange(4)  # nothing is absent, so there is no AUC
    scores = benchmark_script("suite").scores_of(np.eye(4)[everything], everything, presence)
    assert scores["presence_auc"] is scores["share_auc"] is None


def test_the_same_target_counts_once(benchmark_script: Load) -> None:
    """Two domains with one class in common: one, two, half and all of them are the same target."""
    tables = benchmark_script("_suite_tables")
    kinds = {"all": 1, "half": 1, "size-1.0": 1, "size-2.0": 1, "skew": 1}
    records = [
        {
            "task": f"forest_cover/rawah-neota/{kind}",
            "name": "full",
            "present": present,
            "group": f"forest_cover/{kind}",
        }
        for kind, present in kinds.items()
    ]
    records += [{"task": "forest_cover/neota-rawah/half", "name": "full", "present": 3, "group": "forest_cover/half"}]
    records += [{"task": "office31/amazon-dslr/size-1.0", "name": "full", "present": 1, "group": "office31/size-1"}]
    for given in (records, records[::-1]):
        kept = {task.split("/", 1)[1] for task in tables.by_task(given, "full")}
        assert kept == {"rawah-neota/size-1.0", "rawah-neota/skew", "neota-rawah/half", "amazon-dslr/size-1.0"}
