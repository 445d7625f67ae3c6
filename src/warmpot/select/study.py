"""Choose settings: train the candidates of a space, score each without target labels, keep the best.

Finished candidates are lines of ``trials.jsonl``; an interrupted sweep resumes after them. Optuna (extra ``search``)
proposes candidates if the space has ranges or if a number of trials is given: as many at a time as there are workers,
and it receives their scores in the order of its proposals. So its results depend on the number of workers, but not on
their speed, nor on whether they are local processes or run on Ray.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from warmpot._checks import check_count, check_fraction
from warmpot._files import is_unused, make_folder, parse_json, read_json, read_text, write_text
from warmpot._jobs import Done, Failed, Job, Runner, runner
from warmpot._progress import ProgressCallback, progress
from warmpot._run_files import BEST_CONFIG, BEST_RUN, CONFIG, STUDY, TRIALS
from warmpot.data import Task
from warmpot.errors import InputError, WarmpotError, listing
from warmpot.select.best_iterate import HeldOut, candidate_from_snapshot, fit_chosen, hold_out, warn_about_ties
from warmpot.select.candidate import Validator, collapse_reason, effective_target_classes
from warmpot.select.space import DEFAULT_SPACE, REFERENCE, GridProposer, OptunaProposer, Point, Proposer, Space
from warmpot.select.validators import DEFAULT_VALIDATOR, make_validator
from warmpot.train import Fitted, RunConfig, load_config
from warmpot.train.fitting import with_holdout
from warmpot.train.predictor import apply_network
from warmpot.train.run_folder import fingerprint
from warmpot.train.snapshots import Snapshot

__all__ = ["SweepResult", "Trial", "describe_lead", "sweep"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trial:
    """One finished candidate, a line of ``trials.jsonl``.

    Attributes
    ----------
    point : dict
        The point of the space; empty for the reference, which is source-only.
    score : float or None
        By the validator, larger is better; None if the candidate could not be trained or scored.
    classes : float or None
        Effective number of classes that it predicts on the target.
    step : int
        Its chosen iterate.
    problem : str or None
        Why it cannot win: an error, or collapsed predictions.
    """

    point: Point
    preset: str
    score: float | None
    classes: float | None
    step: int
    seconds: float
    problem: str | None = None

    @property
    def eligible_score(self) -> float | None:
        """The score if the trial can win, else None: a sampler must not be drawn towards collapses."""
        return self.score if self.problem is None else None


@dataclass(frozen=True)
class SweepResult:
    """A finished sweep.

    Attributes
    ----------
    config, fitted : RunConfig, Fitted
        Settings of the best trial, and the result of training with them on the whole source.
    trials : list of Trial
        All trials, the reference first.
    validator : str
        Name of the validator that chose.
    space : Space
        Its `name` describes the point of a trial.
    """

    best: Trial
    config: RunConfig
    fitted: Fitted
    trials: list[Trial]
    validator: str
    space: Space

    @property
    def ranked(self) -> list[Trial]:
        """All trials: the best, those that could have won by their scores, then the others."""

        def rank(trial: Trial) -> tuple[bool, bool, float]:
            return trial is not self.best, trial.problem is not None, math.inf if trial.score is None else -trial.score

        return sorted(self.trials, key=rank)

    def __repr__(self) -> str:
        score = "" if self.best.score is None else f", {self.validator} {self.best.score:.4g}"
        return f"SweepResult({self.best.preset}{score}, best of {len(self.trials)})"


def sweep(
    task: Task,
    *,
    out: Path | str,
    space: Any = DEFAULT_SPACE,
    validator: str = DEFAULT_VALIDATOR,
    changes: Mapping[str, Any] | None = None,
    trials: int | None = None,
    workers: int | None = None,
    ray_address: str | None = None,
    gpus: float = 0.0,
    seed: int = 0,
    held: float = 0.2,
    progress_bar: bool | None = None,
    facts: Mapping[str, Any] | None = None,
) -> SweepResult:
    """Choose settings without target labels.

    A source-only fit, the reference, comes first. Candidates whose predictions collapse compared with it cannot win,
    whatever their score; it wins if no other candidate can. Of equal scores the first in the order of the space wins;
    the reference comes last.

    Every candidate is trained with one thread, so that its score does not depend on the number of workers. A candidate
    whose worker died in every attempt, or that raised an error other than warmpot's own, is logged and left out; the
    same sweep tries it again.

    Parameters
    ----------
    task : Task
        A classification task.
    out : path
        Folder; the same sweep in it is resumed. The winner's run is ``out/best``.
    space : mapping or sequence of mappings
        See `Space`.
    validator : str
        One of `warmpot.select.VALIDATORS` that can compare runs.
    changes : mapping, optional
        Nested settings of all candidates.
    trials : int, optional
        Number of candidates; default: every point of a space of lists. Needs Optuna, as ranges do.
    workers : int, optional
        Number of candidates trained at the same time; default: one, or with Ray as many as it has CPUs for.
    ray_address : str, optional
        Train on Ray (extra ``ray``): ``local`` starts it here, ``auto``, ``host:port`` or ``ray://host:port`` connect
        to a cluster. Data is sent through Ray, and only this process writes to `out`; files that the data refers to
        (images, memory-mapped shards) must have the same path on all nodes. The winner is trained here.
    gpus : float
        GPUs per candidate on Ray; 0.5 trains two on one.
    seed : int
        Seed of the held-out part, of every run and of Optuna's sampler.
    held : float
        Held-out share of the source, if the validator needs it; the winner is trained on the whole source.
    progress_bar : bool, optional
        Default: a bar on a terminal, log lines at INFO elsewhere.
    facts : mapping, optional
        Stored in ``run.json`` of the winner.
    """
    settings = {"seed": seed, **(changes or {})}
    candidates, out = Space(space, settings), Path(out)
    task = with_holdout(
        task, load_config(REFERENCE, changes={k: v for k, v in settings.items() if k in ("seed", "holdout")})
    )
    needs_held = _check_arguments(task, candidates, make_validator(validator), trials, workers, held)
    description = {"fingerprint": fingerprint(task), "space": space, "validator": validator, "changes": settings}
    study = _Study(out, candidates, {**description, "held": held})
    rest, held_out = hold_out(task, held, seed) if needs_held else (task, None)
    reference = load_config(REFERENCE, changes={"seed": seed})
    jobs = runner(_try, (rest, held_out, validator), workers=workers, ray_address=ray_address, gpus=gpus)
    with progress("sweep", logger, progress_bar) as report, jobs as run:
        for outcome in run([Job("reference", (reference, {}))] if not study.trials else []):
            if isinstance(outcome, Failed):
                raise WarmpotError(f"{candidates.name({})} failed. {outcome}") from RuntimeError(outcome.trace)
            study.record(outcome.value)
        if study.trials[0].problem is not None:
            raise InputError(study.trials[0].problem)
        tried = [(trial.point, trial.eligible_score) for trial in study.trials[1:]]
        if trials is None:
            total = sum(1 for _ in candidates.points()) + 1
            _try_all(run, GridProposer(candidates, tried), None, study, total, report)
        else:
            _try_all(run, OptunaProposer(candidates, tried, trials, seed), run.workers, study, trials + 1, report)
    best = study.best(validator)
    config = candidates.config(best.point) if best.point else reference
    # The target sample chose, so a bound for new samples must hold for every candidate at once. Settings that were the
    # result of another sweep were not listed in advance.
    advance = trials is None and config.candidates == settings.get("candidates", 1) == 1
    config = dataclasses.replace(config, candidates=sum(1 for _ in candidates.points()) + 1 if advance else None)
    write_text(out / BEST_CONFIG, config.dump())
    fitted = _fit_best(task, config, out / BEST_RUN, facts, progress_bar)
    return SweepResult(best, config, fitted, study.trials, validator, candidates)


def describe_lead(ranked: Sequence[tuple[str, float]]) -> str:
    """Say by how much the first candidate leads, from names and scores, the best first; "" without others.

    Examples
    --------
    >>> describe_lead([("full", 0.5), ("bound", 0.5), ("frozen", 0.25)])
    "There is no clear winner: 'bound' has the same score."
    """
    (_, best), *others = ranked
    if equal := [name for name, score in others if math.isclose(score, best, rel_tol=1e-9, abs_tol=1e-12)]:
        have = "has" if len(equal) == 1 else "have"
        return f"There is no clear winner: {listing(equal)} {have} the same score."
    if not others:
        return ""
    (second, score), (last, lowest) = others[0], others[-1]
    lead = f"The score is {best - score:.3g} more than that of {second}, the second"
    return lead + (f", and {best - lowest:.3g} more than that of {last}, the last." if len(others) > 1 else ".")


def _check_arguments(
    task: Task, space: Space, validator: Validator, trials: int | None, workers: int | None, held: float
) -> bool:
    """Check what `sweep` got; return whether its validator needs a held-out part."""
    if task.for_regression:
        got, remedy = "continuous targets", "Choose settings by hand."
        raise InputError("sweep", got=got, allowed="classes", remedy=remedy)
    if trials is None and not space.finite:
        raise InputError("trials", got="none", allowed="a number, for ranges", remedy="Give the number of candidates.")
    for name, value in (("trials", trials), ("workers", workers)):
        if value is not None:
            check_count(name, value)
    check_fraction("held", held)
    if not validator.across_runs:
        got, allowed = repr(validator.name), "one that can compare runs of different settings"
        remedy = f"{validator.name} compares the rounds of one run; use transport."
        raise InputError("validator of a sweep", got=got, allowed=allowed, remedy=remedy)
    return "held" in validator.needs


class _Study:
    """The folder of a sweep, with its finished trials; created, or read and checked against the description."""

    def __init__(self, out: Path, space: Space, description: Mapping[str, Any]) -> None:
        self.space, self._file = space, out / TRIALS
        description = json.loads(json.dumps(description))
        if (out / STUDY).exists():
            before = read_json(out / STUDY)
            before = before if isinstance(before, dict) else {}
            if different := [key for key in description if before.get(key) != description[key]]:
                got, allowed = f"another sweep: other {', '.join(different)}", "the same sweep, to resume"
                remedy = "Name a new folder, or repeat the settings."
                raise InputError(str(out), got=got, allowed=allowed, remedy=remedy)
        elif not is_unused(out):
            got, allowed = "a file or a folder with other files", "a new or empty folder, or a sweep"
            raise InputError(str(out), got=got, allowed=allowed, remedy="Name a new folder.")
        else:
            write_text(make_folder(out) / STUDY, json.dumps(description, indent=1))
        self.trials: list[Trial] = []
        with suppress(ValueError, TypeError):  # a damaged line and those after it are dropped, so they are tried again
            for line in read_text(self._file).splitlines() if self._file.exists() else ():
                self.trials.append(Trial(**parse_json(line)))

    def record(self, trial: Trial) -> Trial:
        """Add a trial, after a check for collapse compared with the reference, and write all trials."""
        if trial.problem is None and trial.classes is not None and self.trials and self.trials[0].classes is not None:
            trial = dataclasses.replace(trial, problem=collapse_reason(trial.classes, self.trials[0].classes))
        self.trials.append(trial)
        write_text(self._file, "".join(json.dumps(vars(t)) + "\n" for t in self.trials))
        if trial.problem is not None:
            logger.warning("%s cannot win: %s", self.space.name(trial.point), trial.problem)
        return trial

    def best(self, validator: str) -> Trial:
        """Return the trial with the best score; among ties, the first in the order of the space, the reference last.

        The order in which trials finished is not used: with several workers it is random.
        """
        eligible = [(t.eligible_score, t) for t in self.trials if t.eligible_score is not None]
        scores = [score for score, _ in eligible]
        warn_about_ties(scores, validator, "candidates")
        equals = [trial for score, trial in eligible if score == max(scores)]
        points = list(self.space.points()) if len(equals) > 1 else []

        def rank(trial: Trial) -> tuple[bool, int, int, str]:
            index = points.index(trial.point) if trial.point in points else 0  # points of a range are not listed
            return not trial.point, trial.point.get("block", 0), index, json.dumps(trial.point)

        return min(equals, key=rank)


def _try(shared: tuple[Task, HeldOut | None, str], config: RunConfig, point: Point) -> Trial:
    """Train and score one candidate; an error of warmpot's own is recorded as its problem."""
    start, (task, held, validator) = time.perf_counter(), shared
    try:
        fitted = fit_chosen(task, config, progress_bar=False)
        network = fitted.predictor.network
        source, target = apply_network(network.for_source(), task.xs), apply_network(network, task.xt)
        mass = float(fitted.source_weights.sum())
        transport = float(fitted.solution.value) / mass if fitted.solution is not None else None
        candidate = candidate_from_snapshot(Snapshot(fitted.step, network, source, target, transport), task, held)
        score, problem = make_validator(validator).score(candidate), None
        classes: float | None = effective_target_classes(candidate)
        step = fitted.step
    except WarmpotError as error:
        score, classes, step, problem = None, None, 0, " ".join(str(error).split())
    return Trial(point, config.preset, score, classes, step, time.perf_counter() - start, problem)


def _try_all(
    run: Runner, proposer: Proposer, batch: int | None, study: _Study, total: int, report: ProgressCallback
) -> None:
    """Try what the proposer proposes, `batch` points at a time (None: all), and record every result at once."""
    space = study.space
    while points := list(islice(iter(proposer.propose, None), batch)):
        scores: list[float | None] = [None] * len(points)
        for outcome in run(Job(k, (space.config(point), point)) for k, point in enumerate(points)):
            if isinstance(outcome, Done):
                scores[outcome.key] = study.record(outcome.value).eligible_score
            else:
                name = space.name(points[outcome.key])
                logger.warning("%s failed, and is left out; the same sweep tries it again. %s", name, outcome)
                logger.debug("%s", outcome.trace)
            report(len(study.trials) / total, f"candidate {len(study.trials)} of {total}")
        for point, score in zip(points, scores, strict=True):
            proposer.learn(point, score)


def _fit_best(task: Task, config: RunConfig, out: Path, facts: Mapping[str, Any] | None, bar: bool | None) -> Fitted:
    """Train with the best settings on the whole source, or resume; a run of other settings in `out` is deleted."""
    file = out / CONFIG
    if file.exists() and read_text(file, errors="replace") != config.dump():
        shutil.rmtree(out)
    return fit_chosen(task, config, out=out, resume=out.exists(), progress_bar=bar, facts=facts)
