"""The numbers that the paper reports."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from warmpot.bench.paper_comparison import reported_table, reported_tables, systems
from warmpot.errors import InputError
from warmpot.methods import get_method
from warmpot.report.sections.provenance import preset_status
from warmpot.train.recipes import read_preset

CSVS = {
    "office-home": "office_home_methods", "imagenet-caltech": "imagenet_caltech_methods",
    "office-home-ablation": "office_home_weighting", "imagenet-caltech-ablation": "imagenet_caltech_weighting",
}  # fmt: skip


@pytest.mark.parametrize("name", CSVS)
def test_reported_numbers_are_the_papers(name: str, shared_data: Path) -> None:
    file = shared_data.parent / "paper" / f"{CSVS[name]}.csv"
    if not file.is_file():
        pytest.skip(f"needs {file}")
    table = reported_table(name)
    with open(file, newline="", encoding="utf-8") as stream:
        theirs = {
            (line["method"], line["task"]): (float(line["accuracy"]), float(line["std"]) if line["std"] else None)
            for line in csv.DictReader(stream)
        }
    ours = {(s, task): (n.accuracy, n.std) for s, tasks in table.numbers.items() for task, n in tasks.items()}
    ours |= {(s, "Avg"): (n.accuracy, n.std) for s, n in table.averages.items()}
    assert ours == theirs


def test_all_28_systems_stand_here_in_one_way() -> None:
    from warmpot.train.recipes import preset_names

    tables = [table for table in reported_tables().values() if table.kind == "methods"]
    assert len(systems()) == 28
    assert set(systems()) == {name for table in tables for name in table.numbers}
    for system in systems().values():
        assert bool(system.presets) != bool(system.why), system.name
        assert set(system.presets) <= set(preset_names())
        assert system.numbers
        assert system.chosen_words
    assert systems() is systems()  # read once


def test_interpretations_are_named_in_the_table_of_systems() -> None:
    for system in systems().values():
        statuses = []
        for name in system.presets:
            recipe = read_preset(name)
            statuses.append(preset_status(name, get_method(recipe["method"]), recipe["engine"]))
        named = [status.startswith("interpretation") for status in statuses]
        assert all(named) == system.interpretation or not named, system.name


def test_averages_agree_with_their_tasks_but_the_one_that_is_noted() -> None:
    wrong = [
        name
        for table in reported_tables().values()
        for name, average in table.averages.items()
        if abs(np.mean([n.accuracy for n in table.numbers[name].values()]) - average.accuracy) > 0.1 + 1e-9
    ]
    assert wrong == ["AR"]
    assert "AR: its twelve tasks have the mean 78.5" in reported_table("office-home").note


def test_tasks_of_a_grid_are_found_by_their_domains() -> None:
    table = reported_table("office-home")
    assert table.task_of("Real World -> Art") == table.task_of("realworld->A") == "R->A"
    assert table.task_of("Art -> Sketch") is None
    assert reported_table("imagenet-caltech").task_of("imagenet -> caltech") == "I->C"
    assert table.same_dataset("office_home")
    assert not table.same_dataset("Office-31")
    assert table.over("WARMPOT", table.tasks) == table.averages["WARMPOT"]  # as printed, with its std
    assert table.over("WARMPOT", ("A->C", "A->P")).accuracy == pytest.approx((62.5 + 83.0) / 2)  # type: ignore[union-attr]
    assert table.over("DAN", ("A->C",)) is None
    with pytest.raises(InputError, match=r"Did you mean 'office-home'"):
        reported_table("office-hom")
