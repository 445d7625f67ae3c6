"""The choice of settings: train candidates of a space, score each without target labels, take the best.

Finished candidates are lines of ``trials.jsonl``; a sweep that was stopped goes on after them. Optuna (extra
``search``) proposes candidates when the space has ranges or fewer trials are asked for than it has points.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from warmpot._checks import check_count, check_fraction
from warmpot._files import replacing
from warmpot._progress import Report, progress
from warmpot.data import Task
from warmpot.errors import InputError, WarmpotError, explain
from warmpot.select.guard import classes_in_effect, collapsed
from warmpot.select.registry import DEFAULT_VALIDATOR, make_validator
from warmpot.select.search import Listed, Proposer, Searched
from warmpot.select.space import DEFAULT_SPACE, REFERENCE, Space
from warmpot.select.within import Held, evidence_of, fit_chosen, hold_out, warn_of_ties
from warmpot.train import Fitted, RunConfig, load_config
from warmpot.train.keep import Snapshot
from warmpot.train.predictor import apply_network
from warmpot.train.rundir import fingerprint

__all__ = ["Swept", "Trial", "sweep"]

logger = logging.getLogger(__name__)

TRIALS, STUDY = "trials.jsonl", "study.json"


@dataclass(frozen=True)
class Trial:
    """One candidate.

    Attributes
    ----------
    point : dict
        The point of the space; empty for the reference, the source-only fit that every candidate is guarded against.
    preset : str
        The recipe it started from.
    score : float or None
        By the validator, the larger the better; None when it could not be trained or scored.
    classes : float or None
        Classes in effect that it predicts on the target.
    step : int
        The iterate that was chosen.
    seconds : float
    problem : str or None
        Why it cannot win: it failed, or its predictions collapsed.
    """

    point: dict[str, Any]
    preset: str
    score: float | None
    classes: float | None
    step: int
    seconds: float
    problem: str | None = None

    @property
    def fair_score(self) -> float | None:
        """The score, if it can win by it: a sampler must not be drawn towards collapses."""
        return self.score if self.problem is None else None


@dataclass(frozen=True)
class Swept:
    """A finished sweep.

    Attributes
    ----------
    best : Trial
    config : RunConfig
        The settings of the best.
    fitted : Fitted
        Trained with them, on the whole source.
    trials : list of Trial
        The reference first.
    validator : str
        Who chose.
    """

    best: Trial
    config: RunConfig
    fitted: Fitted
    trials: list[Trial]
    validator: str

    def __repr__(self) -> str:
        score = "" if self.best.score is None else f", {self.validator} {self.best.score:.4g}"
        return f"Swept({self.best.preset}{score}, best of {len(self.trials)})"


_shared: dict[str, Any] = {}
"""What every trial of a worker process needs; set once, so that the data is not sent with every trial."""


def _set_up(task: Task, held: Held | None, validator: str, threads: int) -> None:
    _shared.update(task=task, held=held, validator=make_validator(validator))
    torch.set_num_threads(threads)


def _set_up_worker(*shared: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where `_interrupts_wait` can do nothing
    threading.Thread(target=_follow_parent, daemon=True).start()
    _set_up(*shared)


def _follow_parent() -> None:
    """End this process when its parent is gone, killed perhaps: nobody would wait for the result."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _try(config: RunConfig, point: dict[str, Any]) -> Trial:
    """Train and score one candidate; what the library refuses is a result too."""
    start, task, held, validator = time.perf_counter(), _shared["task"], _shared["held"], _shared["validator"]
    try:
        fitted = fit_chosen(task, config, progress_bar=False)
        network = fitted.predictor.network
        source, target = apply_network(network.for_source(), task.xs), apply_network(network, task.xt)
        mass = float(fitted.source_weights.sum())
        transport = float(fitted.solution.value) / mass if fitted.solution is not None else None
        evidence = evidence_of(Snapshot(fitted.step, network, source, target, transport), task, held)
        score, problem = validator.score(evidence), None
        classes: float | None = classes_in_effect(evidence)
        step = fitted.step
    except WarmpotError as error:
        score, classes, step, problem = None, None, 0, " ".join(str(error).split())
    return Trial(point, config.preset, score, classes, step, time.perf_counter() - start, problem)


def sweep(
    task: Task,
    *,
    out: Path | str,
    space: Any = DEFAULT_SPACE,
    validator: str = DEFAULT_VALIDATOR,
    changes: Mapping[str, Any] | None = None,
    trials: int | None = None,
    workers: int = 1,
    seed: int = 0,
    held: float = 0.2,
    progress_bar: bool | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Swept:
    """Choose settings without target labels.

    A source-only fit comes first; candidates whose predictions collapse against it cannot win, however well they
    score, and when none is left it wins itself. Among equal scores the first in the order of the space wins, and the
    source-only fit last.

    Parameters
    ----------
    task : Task
        Of classification.
    out : path
        Folder; one with the same sweep in it is continued. The winner's run is ``out/best``.
    space : see `Space`
    validator : str
        One of `warmpot.select.VALIDATORS`, for candidates of different settings.
    changes : mapping, optional
        Nested settings of all candidates.
    trials : int, optional
        Candidates to try; default: every point of a space of lists. Needs Optuna, as ranges do.
    workers : int
        Processes that train at a time.
    seed : int
        Of the held part, of every run and of Optuna's sampler.
    held : float
        Share of the source held out, if the validator needs it; the winner is trained on the whole source again.
    progress_bar : bool, optional
        Default: a bar on a terminal, log lines at INFO elsewhere.
    facts : mapping, optional
        Kept in ``run.json`` of the winner.
    """
    places, out = Space(space), Path(out)
    if task.for_regression:
        got, remedy = "real labels", "Choose settings by hand."
        raise InputError(explain("sweep", got=got, allowed="classes", remedy=remedy))
    if trials is None and not places.finite:
        remedy = "Say how many candidates to try."
        raise InputError(explain("trials", got="none", allowed="a number, for ranges", remedy=remedy))
    if trials is not None:
        check_count("trials", trials)
    judge = make_validator(validator)
    if not judge.across_runs:
        got, allowed = repr(validator), "one that can compare runs of different settings"
        remedy = f"{validator} compares the rounds of one run; use transport."
        raise InputError(explain("validator of a sweep", got=got, allowed=allowed, remedy=remedy))
    check_count("workers", workers)
    check_fraction("held", held)
    settings = {"seed": seed, **(changes or {})}
    places.check(settings)
    said = {"fingerprint": fingerprint(task), "space": space, "validator": validator, "changes": settings}
    _remember(out, {**said, "held": held})
    inner, apart = hold_out(task, held, seed) if "held" in judge.needs else (task, None)
    found, reference = _read(out), load_config(REFERENCE, changes={"seed": seed})
    with progress("sweep", logger, progress_bar) as report, _pool(inner, apart, validator, workers) as pool:
        if not found:
            _record(out, found, pool.submit(_try, reference, {}).result(), places)
        if found[0].problem is not None:
            raise InputError(found[0].problem)
        seen = [(trial.point, trial.fair_score) for trial in found[1:]]
        if trials is None:
            proposer: Proposer = Listed(places, seen)
            total = sum(1 for _ in places.points()) + 1
        else:
            proposer, total = Searched(places, seen, trials, seed), trials + 1
        _run_all(pool, proposer, (places, settings), out, found, (workers, total), report)
    best = _best(found, places, validator)
    config = places.config(best.point, settings) if best.point else reference
    with replacing(out / "best.yaml") as draft:
        draft.write_text(config.dump(), encoding="utf-8")
    return Swept(best, config, _final(task, config, out / "best", facts, progress_bar), found, validator)


def _best(found: list[Trial], places: Space, validator: str) -> Trial:
    """Return the first in the order of the space among those with the best score; the reference is the last.

    Not the first that was found: with several workers that is a matter of luck.
    """
    fair = [(t.score, t) for t in found if t.problem is None and t.score is not None]
    scores = [score for score, _ in fair]
    warn_of_ties(scores, validator, "candidates")
    equals = [trial for score, trial in fair if score == max(scores)]
    order = list(places.points()) if len(equals) > 1 else []

    def place(trial: Trial) -> tuple[bool, int, int]:
        listed = order.index(trial.point) if trial.point in order else 0  # a point of a range is in no list
        return not trial.point, trial.point.get("block", 0), listed

    return min(equals, key=place)


def _run_all(
    pool: Any,
    proposer: Proposer,
    swept: tuple[Space, dict[str, Any]],
    out: Path,
    found: list[Trial],
    sizes: tuple[int, int],
    report: Report,
) -> None:
    """Keep all workers busy until the proposer has no more points."""
    (places, settings), (workers, total) = swept, sizes
    waiting: dict[Future[Trial], dict[str, Any]] = {}
    while True:
        while len(waiting) < workers and (point := proposer.propose()) is not None:
            waiting[pool.submit(_try, places.config(point, settings), point)] = point
        if not waiting:
            return
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            point = waiting.pop(future)
            trial = _record(out, found, future.result(), places)
            proposer.learn(point, trial.fair_score)
            report(len(found) / total, f"candidate {len(found)} of {total}")


class _Here:
    """A pool of one: this process."""

    def submit(self, function: Callable[..., Trial], *args: Any) -> Future[Trial]:
        future: Future[Trial] = Future()
        future.set_result(function(*args))
        return future


class _Workers:
    """A pool of processes that Ctrl-C does not reach: it is for the parent, who ends them."""

    def __init__(self, workers: int, *shared: Any) -> None:
        spawn = multiprocessing.get_context("spawn")  # a fork would copy the locks of running threads
        threads = max((os.cpu_count() or 1) // workers, 1)
        self._pool = ProcessPoolExecutor(workers, spawn, _set_up_worker, (*shared, threads))

    def submit(self, function: Callable[..., Trial], *args: Any) -> Future[Trial]:
        with _interrupts_wait():  # a process begins with the signals blocked that are blocked here
            return self._pool.submit(function, *args)

    def end(self, *, now: bool) -> None:
        """Wait for the processes, or kill them: they write nothing, and training would take the milder signals."""
        if now:
            for process in list((self._pool._processes or {}).values()):
                process.kill()
        self._pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Put off Ctrl-C, where the system can."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _pool(task: Task, held: Held | None, validator: str, workers: int) -> Iterator[Any]:
    if workers == 1:
        _set_up(task, held, validator, torch.get_num_threads())
        try:
            yield _Here()
        finally:
            _shared.clear()
        return
    pool = _Workers(workers, task, held, validator)
    try:
        yield pool
    except BaseException:
        pool.end(now=True)
        raise
    pool.end(now=False)


def _remember(out: Path, said: dict[str, Any]) -> None:
    """Write what is swept into a new folder, or check that an old one holds the same."""
    said = json.loads(json.dumps(said))
    if (out / STUDY).exists():
        before = json.loads((out / STUDY).read_text(encoding="utf-8"))
        if before != said:
            got = "another sweep: other " + ", ".join(key for key in said if before.get(key) != said[key])
            remedy = "Name a new folder, or repeat the settings."
            raise InputError(explain(str(out), got=got, allowed="the same sweep, to go on with", remedy=remedy))
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        got, remedy = "something that is there already", "Name a new folder."
        raise InputError(explain(str(out), got=got, allowed="a new or empty folder, or a sweep", remedy=remedy))
    out.mkdir(parents=True, exist_ok=True)
    with replacing(out / STUDY) as draft:
        draft.write_text(json.dumps(said, indent=1), encoding="utf-8")


def _read(out: Path) -> list[Trial]:
    """Read the finished trials; what comes after a damaged line is tried again."""
    file, found = out / TRIALS, []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            found.append(Trial(**json.loads(line)))
        except (ValueError, TypeError):  # noqa: PERF203
            break
    return found


def _record(out: Path, found: list[Trial], trial: Trial, places: Space) -> Trial:
    """Add a trial, judged, and write all of them whole; what collapsed against the reference cannot win."""
    if trial.problem is None and trial.classes is not None and found and found[0].classes is not None:
        trial = dataclasses.replace(trial, problem=collapsed(trial.classes, found[0].classes))
    found.append(trial)
    with replacing(out / TRIALS) as draft:
        draft.write_text("".join(json.dumps(vars(t)) + "\n" for t in found), encoding="utf-8")
    if trial.problem is not None:
        logger.warning("%s cannot win: %s", places.name(trial.point), trial.problem)
    return trial


def _final(task: Task, config: RunConfig, out: Path, facts: Mapping[str, Any] | None, bar: bool | None) -> Fitted:
    """Train the winner on the whole source; a run that was stopped goes on, a finished one gives the same again.

    A run of an earlier winner, of a sweep of fewer trials, makes room.
    """
    file = out / "config.yaml"
    if file.exists() and file.read_text(encoding="utf-8") != config.dump():
        shutil.rmtree(out)
    return fit_chosen(task, config, out=out, resume=out.exists(), progress_bar=bar, facts=facts)
