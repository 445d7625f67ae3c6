"""The choice of settings: train candidates of a space, score each without target labels, take the best.

Finished candidates are lines of ``trials.jsonl``; a sweep that was stopped goes on after them. Optuna (extra
``search``) proposes candidates when the space has ranges or fewer trials are asked for than it has points: as many at
a time as there are workers, and it hears of them in the order in which it proposed them. So the result depends on the
number of workers then, but not on which of them is the faster, nor on whether they are processes or run on Ray.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from warmpot._checks import check_count, check_fraction
from warmpot._files import atomic_write
from warmpot._jobs import Done, Failed, Job, Runner, runner
from warmpot._progress import ProgressCallback, progress
from warmpot._run_files import BEST_CONFIG, BEST_RUN, CONFIG, STUDY, TRIALS
from warmpot.data import Task
from warmpot.errors import InputError, WarmpotError
from warmpot.select.guard import classes_in_effect, collapsed
from warmpot.select.registry import DEFAULT_VALIDATOR, make_validator
from warmpot.select.search import Listed, Proposer, Searched
from warmpot.select.space import DEFAULT_SPACE, REFERENCE, Space
from warmpot.select.within import Held, evidence_of, fit_chosen, hold_out, warn_of_ties
from warmpot.train import Fitted, RunConfig, load_config
from warmpot.train.predictor import apply_network
from warmpot.train.run_folder import fingerprint
from warmpot.train.snapshots import Snapshot

__all__ = ["Swept", "Trial", "sweep"]

logger = logging.getLogger(__name__)


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


def _try(shared: tuple[Task, Held | None, str], config: RunConfig, point: dict[str, Any]) -> Trial:
    """Train and score one candidate; what the library refuses is a result too."""
    start, (task, held, validator) = time.perf_counter(), shared
    try:
        fitted = fit_chosen(task, config, progress_bar=False)
        network = fitted.predictor.network
        source, target = apply_network(network.for_source(), task.xs), apply_network(network, task.xt)
        mass = float(fitted.source_weights.sum())
        transport = float(fitted.solution.value) / mass if fitted.solution is not None else None
        evidence = evidence_of(Snapshot(fitted.step, network, source, target, transport), task, held)
        score, problem = make_validator(validator).score(evidence), None
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
    workers: int | None = None,
    ray_address: str | None = None,
    gpus: float = 0.0,
    seed: int = 0,
    held: float = 0.2,
    progress_bar: bool | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Swept:
    """Choose settings without target labels.

    A source-only fit comes first; candidates whose predictions collapse against it cannot win, however well they
    score, and when none is left it wins itself. Among equal scores the first in the order of the space wins, and the
    source-only fit last.

    Every candidate is trained with one thread, so that its score does not depend on how many are trained at a time.
    A candidate whose worker died, again and again, or that failed by an error that is not of warmpot, is told in the
    log and left out; it is not kept as finished, and the same sweep tries it again.

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
    workers : int, optional
        Candidates trained at a time, in processes; default: one, here, or with Ray as many as it has CPUs for.
    ray_address : str, optional
        Train on Ray (extra ``ray``): ``local`` starts one here, ``auto``, ``host:port`` or ``ray://host:port`` join a
        cluster. The data travels through Ray, and only this process writes to `out`; files that the data only points
        to (images, memory-mapped shards) must have the same path on all nodes. The winner is trained here.
    gpus : float
        GPUs that Ray gives to a candidate; 0.5 trains two on one.
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
        raise InputError("sweep", got=got, allowed="classes", remedy=remedy)
    if trials is None and not places.finite:
        remedy = "Say how many candidates to try."
        raise InputError("trials", got="none", allowed="a number, for ranges", remedy=remedy)
    if trials is not None:
        check_count("trials", trials)
    judge = make_validator(validator)
    if not judge.across_runs:
        got, allowed = repr(validator), "one that can compare runs of different settings"
        remedy = f"{validator} compares the rounds of one run; use transport."
        raise InputError("validator of a sweep", got=got, allowed=allowed, remedy=remedy)
    if workers is not None:
        check_count("workers", workers)
    check_fraction("held", held)
    settings = {"seed": seed, **(changes or {})}
    places.check(settings)
    said = {"fingerprint": fingerprint(task), "space": space, "validator": validator, "changes": settings}
    _remember(out, {**said, "held": held})
    inner, apart = hold_out(task, held, seed) if "held" in judge.needs else (task, None)
    found, reference = _read(out), load_config(REFERENCE, changes={"seed": seed})
    runs = runner(_try, (inner, apart, validator), workers=workers, ray_address=ray_address, gpus=gpus)
    with progress("sweep", logger, progress_bar) as report, runs as run:
        if not found:
            _try_reference(run, reference, out, found, places)
        if found[0].problem is not None:
            raise InputError(found[0].problem)
        seen = [(trial.point, trial.fair_score) for trial in found[1:]]
        if trials is None:
            total = sum(1 for _ in places.points()) + 1
            _try_all(run, Listed(places, seen), None, (places, settings), out, found, total, report)
        else:
            proposer = Searched(places, seen, trials, seed)
            _try_all(run, proposer, run.workers, (places, settings), out, found, trials + 1, report)
    best = _best(found, places, validator)
    config = places.config(best.point, settings) if best.point else reference
    with atomic_write(out / BEST_CONFIG) as draft:
        draft.write_text(config.dump(), encoding="utf-8")
    return Swept(best, config, _final(task, config, out / BEST_RUN, facts, progress_bar), found, validator)


def _best(found: list[Trial], places: Space, validator: str) -> Trial:
    """Return the first in the order of the space among those with the best score; the reference is the last.

    Not the first that was found: with several workers that is a matter of luck.
    """
    fair = [(t.score, t) for t in found if t.problem is None and t.score is not None]
    scores = [score for score, _ in fair]
    warn_of_ties(scores, validator, "candidates")
    equals = [trial for score, trial in fair if score == max(scores)]
    order = list(places.points()) if len(equals) > 1 else []

    def place(trial: Trial) -> tuple[bool, int, int, str]:
        listed = order.index(trial.point) if trial.point in order else 0  # a point of a range is in no list
        return not trial.point, trial.point.get("block", 0), listed, json.dumps(trial.point)

    return min(equals, key=place)


def _try_reference(run: Runner, config: RunConfig, out: Path, found: list[Trial], places: Space) -> None:
    """Fit the source alone, before any candidate: they are judged against it."""
    for outcome in run([Job("reference", (config, {}))]):
        if isinstance(outcome, Failed):
            raise WarmpotError(f"{places.name({})} failed. {outcome}") from RuntimeError(outcome.trace)
        _record(out, found, outcome.value, places)


def _try_all(
    run: Runner,
    proposer: Proposer,
    at_a_time: int | None,
    swept: tuple[Space, dict[str, Any]],
    out: Path,
    found: list[Trial],
    total: int,
    report: ProgressCallback,
) -> None:
    """Try what the proposer proposes, and keep every result as it comes; it learns in the order of its proposals."""
    places, settings = swept
    while points := list(islice(iter(proposer.propose, None), at_a_time)):
        scores: list[float | None] = [None] * len(points)
        for outcome in run(Job(k, (places.config(point, settings), point)) for k, point in enumerate(points)):
            if isinstance(outcome, Done):
                scores[outcome.key] = _record(out, found, outcome.value, places).fair_score
            else:
                name = places.name(points[outcome.key])
                logger.warning("%s failed, and is left out; the same sweep tries it again. %s", name, outcome)
                logger.debug("%s", outcome.trace)
            report(len(found) / total, f"candidate {len(found)} of {total}")
        for point, score in zip(points, scores, strict=True):
            proposer.learn(point, score)


def _remember(out: Path, said: dict[str, Any]) -> None:
    """Write what is swept into a new folder, or check that an old one holds the same."""
    said = json.loads(json.dumps(said))
    if (out / STUDY).exists():
        before = json.loads((out / STUDY).read_text(encoding="utf-8"))
        if before != said:
            got = "another sweep: other " + ", ".join(key for key in said if before.get(key) != said[key])
            remedy = "Name a new folder, or repeat the settings."
            raise InputError(str(out), got=got, allowed="the same sweep, to go on with", remedy=remedy)
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        got, remedy = "something that is there already", "Name a new folder."
        raise InputError(str(out), got=got, allowed="a new or empty folder, or a sweep", remedy=remedy)
    out.mkdir(parents=True, exist_ok=True)
    with atomic_write(out / STUDY) as draft:
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
    with atomic_write(out / TRIALS) as draft:
        draft.write_text("".join(json.dumps(vars(t)) + "\n" for t in found), encoding="utf-8")
    if trial.problem is not None:
        logger.warning("%s cannot win: %s", places.name(trial.point), trial.problem)
    return trial


def _final(task: Task, config: RunConfig, out: Path, facts: Mapping[str, Any] | None, bar: bool | None) -> Fitted:
    """Train the winner on the whole source; a run that was stopped goes on, a finished one gives the same again.

    A run of an earlier winner, of a sweep of fewer trials, makes room.
    """
    file = out / CONFIG
    if file.exists() and file.read_text(encoding="utf-8") != config.dump():
        shutil.rmtree(out)
    return fit_chosen(task, config, out=out, resume=out.exists(), progress_bar=bar, facts=facts)
