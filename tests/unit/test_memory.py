"""The memory that is available, and what is refused without it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from warmpot import _memory, _progress
from warmpot._memory import GIB, available_memory, check_memory
from warmpot.data import Task, as_table, make_task
from warmpot.errors import InputError
from warmpot.methods.sizes import DataSize
from warmpot.train import fit, load_config, round_engine


def _task(n: int = 40, width: int = 300) -> Task:
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 4
    x = rng.normal(size=(n, width)).astype(np.float32) + labels[:, None]
    return make_task(as_table(x, labels), as_table(x[: n // 2]))[0]


def _only(monkeypatch: pytest.MonkeyPatch, free: int | None) -> None:
    for name in ("_of_control_groups", "_of_address_space"):
        monkeypatch.setattr(_memory, name, list)
    monkeypatch.setattr(_memory, "_of_machine", lambda: [] if free is None else [free])


def test_what_does_not_fit_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    _only(monkeypatch, 2 * GIB)
    check_memory("full", "some data", 1.9 * GIB, "Use less.")
    with pytest.raises(InputError) as caught:
        check_memory("full", "5 samples", 3 * GIB, "Use less.")
    expected = "full: got 5 samples, about 3.0 GiB of memory; allowed: the 2.0 GiB available. Use less."
    assert str(caught.value) == expected
    _only(monkeypatch, None)
    assert available_memory() is None
    check_memory("full", "5 samples", 1e30, "Use less.")


@pytest.mark.parametrize("version", [2, 1])
def test_the_limit_of_a_container_counts_without_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    limit, use, cache = _memory.FILES[2 - version]
    (tmp_path / limit).write_text("1000\n")
    (tmp_path / use).write_text("700\n")
    (tmp_path / "memory.stat").write_text(f"anon 500\n{cache} 150\n")
    monkeypatch.setattr(_memory, "CGROUPS", tmp_path)
    assert available_memory() == 450
    if version == 2:
        (tmp_path / limit).write_text("max\n")
        assert (available_memory() or GIB) > 1000


def test_a_fit_that_needs_more_memory_stops_at_once_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _only(monkeypatch, 2**20)
    for preset in ("full", "source-only", "frozen", "idsp"):
        with pytest.raises(InputError, match=r"GiB of memory; allowed: the 0\.0 GiB available") as caught:
            fit(_task(n=4000, width=100), load_config(preset), out=tmp_path / "run")
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "run").exists()


def test_a_prediction_that_needs_more_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    task = _task()
    predictor = fit(task, load_config("source-only")).predictor
    _only(monkeypatch, 2**14)
    with pytest.raises(InputError, match="20 samples x 300 features, 4 outputs, about") as caught:
        predictor.probabilities(task.xt, "new.npz")
    assert caught.value.what == "new.npz"
    assert "a part at a time" in caught.value.remedy


def test_a_report_without_memory_for_the_data_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from warmpot.report.run_view import view_run
    from warmpot.train.run_reader import read_run

    task = _task()
    fit(task, load_config("source-only"), out=tmp_path / "run")
    run: Any = read_run(tmp_path / "run")
    assert view_run(run, task, None).source is not None
    _only(monkeypatch, 2**14)
    view = view_run(run, task, None)
    assert view.source is None
    assert "60 samples x 300 features, about" in view.missing


def test_memory_grows_with_the_smaller_side_and_time_with_classes() -> None:
    wide = DataSize(300, 300, 100_000, 10, 512, 9, 8)
    assert wide.memory < 2 * GIB  # a covariance alone has 75
    assert wide._replace(n_source=20_000, n_target=20_000).memory > 40 * GIB
    many = DataSize(10_000, 5000, 64, 5000, 64, 64, 8)
    assert many.seconds > 5 * many._replace(outputs=50).seconds
    assert many.memory > 2 * many._replace(outputs=50).memory


def test_a_long_fit_says_about_how_long(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_engine, "LONG", 0.0)
    with caplog.at_level("INFO", logger="warmpot"):
        fit(_task(), load_config("source-only"), progress_bar=False)
    assert caplog.messages[0].startswith("40 and 20 samples, 300 features, 4 outputs: about ")
    assert "on one free core" in caplog.messages[0]


@pytest.mark.parametrize(("large", "threads"), [(round_engine.LARGE, {1}), (0.0, {2})])
def test_small_data_are_fitted_on_one_thread_and_the_others_given_back(
    large: float, threads: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[int]] = []

    def counts() -> set[int]:
        return {torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())}

    class Chooser:
        def offer(self, snapshot: Any) -> tuple[bool, dict[str, Any]]:
            seen.append(counts())
            return True, {}

        def state(self) -> dict[str, Any]:
            return {}

        def load(self, state: dict[str, Any]) -> None:
            raise NotImplementedError

    monkeypatch.setattr(round_engine, "LARGE", large)
    before = torch.get_num_threads()
    try:
        with threadpool_limits(2):
            torch.set_num_threads(2)
            fit(_task(), load_config("source-only"), progress_bar=False, chooser=Chooser())
            assert (seen, counts()) == ([threads], {2})
    finally:
        torch.set_num_threads(before)


def test_progress_lines_say_what_is_left_of_a_pass(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 10.0, 20.0, 130.0, 140.0, 150.0])
    monkeypatch.setattr(_progress.time, "monotonic", lambda: next(clock))
    logger = logging.getLogger("warmpot.test")
    with caplog.at_level("INFO", logger="warmpot"), _progress.progress("plan", logger, show=False) as report:
        report(0.25, "round 1")
        report(1.0, "round 1")
        report(0.1, "round 2")  # after a simplex of 100 s or so
        report(0.2, "round 2")
        report(0.4, "round 2")
    assert caplog.messages == [
        "plan: 25% round 1 (10 s, about 30 s left)",
        "plan: 100% round 1 (20 s)",
        "plan: 10% round 2 (130 s)",
        "plan: 20% round 2 (140 s, about 80 s left)",
        "plan: 40% round 2 (150 s, about 40 s left)",
    ]


def test_work_done_before_is_not_counted_in_the_rate(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 0.1, 10.1])
    monkeypatch.setattr(_progress.time, "monotonic", lambda: next(clock))
    logger = logging.getLogger("warmpot.test")
    with caplog.at_level("INFO", logger="warmpot"), _progress.progress("bench", logger, show=False) as report:
        report(0.40, "cell 41 of 100")  # a grid that is resumed
        report(0.41, "41 of 100 cells")
    assert caplog.messages == ["bench: 41% 41 of 100 cells (10 s, about 10 min left)"]


def test_an_estimate_is_shown_until_it_has_passed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 10.0, 10.0, 20.0, 30.0])
    monkeypatch.setattr(_progress.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(_progress, "LINE_EVERY_SECONDS", 0.0)
    logger = logging.getLogger("warmpot.test")
    with caplog.at_level("INFO", logger="warmpot"), _progress.progress("fit", logger, show=False) as report:
        report(0.0, "round 0", 0.04)
        report(0.0, "round 0", 2.1)
        report(0.0, "round 0 of 8", 25.0)
        report(0.0, "round 0 of 8", 25.0)
    assert caplog.messages == [
        "fit: 0% round 0 (10 s)", "fit: 0% round 0 (10 s)", "fit: 0% round 0 of 8, about 25 s in all (20 s)",
        "fit: 0% round 0 of 8 (30 s)",
    ]  # fmt: skip


def test_a_bar_shows_an_estimate_until_it_has_passed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal
    for expected in (1e6, 1e-6):
        with _progress.progress("fit", logging.getLogger("warmpot.test"), show=True) as report:
            report(0.0, "round 0", expected)
        shown = capsys.readouterr().err
        assert "round 0" in shown
        assert ("about 11.6 days in all" in shown) == (expected > 1)
