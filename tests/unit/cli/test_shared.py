"""How errors and warnings of the library become lines of the command line."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from warmpot.cli._data_files import ColumnFlags, read_table
from warmpot.cli._shared import messages, one_line, present_classes
from warmpot.data import as_table, load_table
from warmpot.errors import InputError, MissingLabelsError
from warmpot.train import load_config
from warmpot.weights import ClassPresence

X = np.arange(6.0).reshape(3, 2)


def test_arguments_of_the_library_become_flags() -> None:
    with pytest.raises(InputError) as caught:
        as_table(X, [0.5, 1.5, 2.5])
    assert "Pass `task='regression'` for" in str(caught.value)
    assert one_line(caught.value).endswith("Pass --regression for continuous targets.")
    with pytest.raises(InputError) as caught:
        as_table(X, ["a", "b", "a"], task="regression")
    assert one_line(caught.value).endswith("Pass numbers, or no --regression.")


def test_an_error_names_the_flag_that_sets_the_setting() -> None:
    with pytest.raises(InputError) as caught:
        load_config(changes={"params": {"alpha": 2.0}})
    assert str(caught.value).startswith("config.params.alpha: got 2.0;")
    assert one_line(caught.value).startswith("--alpha: got 2.0;")


def test_doubtful_classes_are_named_apart() -> None:
    names, chances = ("ant", "bee", "cat", "dog"), np.array([0.99, 0.7, 0.98, 0.01])
    presence = ClassPresence(chances, np.array([0.3, 0.1, 0.6, 0.0]), {})

    def fitted(presence: Any) -> Any:
        classes = {} if presence is None else {names[k]: share for k, share in presence.present.items()}
        return SimpleNamespace(predictor=SimpleNamespace(classes=names), presence=presence, target_classes=classes)

    assert present_classes(fitted(presence)) == "cat 60%, ant 30%; doubtful: bee 10%"
    certain = dataclasses.replace(presence, probability=np.array([1.0, 0, 1, 0]))
    assert present_classes(fitted(certain)) == "cat 60%, ant 30%"
    assert present_classes(fitted(None)) == ""


def test_other_text_stays_as_it_is() -> None:
    error = InputError("x", got="label=\n3", allowed="`y`", remedy="Run `warmpot fit`.")
    assert one_line(error) == "x: got label= 3; allowed: `y`. Run `warmpot fit`."
    assert one_line("task='regression'\n") == "task='regression'"


def test_log_lines_name_flags(capsys: pytest.CaptureFixture[str]) -> None:
    with messages(True):
        logging.getLogger("warmpot.train").info("no GPU; `fine_tune=True` trains it, as in `warmpot fit`")
    assert capsys.readouterr().err == "no GPU; --fine-tune trains it, as in `warmpot fit`\n"


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".csv"])
def test_a_label_column_that_is_absent_has_its_own_error(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    if suffix == ".npz":
        np.savez(path, X=X)
    elif suffix == ".npy":
        np.save(path, X)
    else:
        path.write_text("a,b\n" + "\n".join(",".join(map(str, row)) for row in X.tolist()))
    for read in (
        lambda: load_table(path, label="kind"),
        lambda: read_table(path, ColumnFlags("kind"), regression=False, needs_label=True),
    ):
        with pytest.raises(MissingLabelsError, match="'kind'"):
            read()
    assert read_table(path, ColumnFlags("kind"), regression=False, needs_label=False).y is None


def test_other_errors_of_an_optional_label_are_raised(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,kind,kind\n1,2,3\n4,5,6\n")
    with pytest.raises(InputError, match="2 columns for labels"):
        read_table(tmp_path / "x.csv", ColumnFlags("kind"), regression=False, needs_label=False)
