"""A whole run in one call: `fit` trains on two domains in any form, `load` reads a finished run.

Both return a `Result`, with predictions, weights and a report.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmpot._run_files import PAGE
from warmpot._settings import merged, with_value
from warmpot._typing import FloatArray
from warmpot.data import Table, Truth, read_samples
from warmpot.data.inputs import is_path, of_images
from warmpot.errors import InputError, WarmpotError
from warmpot.report.run_page import locate_run, report_run
from warmpot.select import fit_chosen
from warmpot.train import Fitted, Predictor
from warmpot.train.defaults import config_for_data, data_facts, task_from_tables
from warmpot.train.explain import Explanation, explain_sample
from warmpot.train.finished_run import FinishedRun, from_fitted
from warmpot.train.run_data import read_run_data, remembered_files
from warmpot.train.run_folder import check_finished
from warmpot.train.run_reader import read_run
from warmpot.weights import Verdict

__all__ = ["Result", "fit", "load"]

SHOWN = 5
"""Classes, and target samples, that a notebook shows."""


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A finished run: what `fit` returns, or `load` reads.

    Attributes
    ----------
    run : FinishedRun
        Everything that the run computed.
    fitted : Fitted or None
        The live result of the training, with its plan and its data; None for a run that was read.
    truth : Truth or None
        Target labels, if the target had any, for evaluation only.
    index : index of a data frame or None
        Of the target, if that was a data frame.
    """

    run: FinishedRun
    fitted: Fitted | None = None
    truth: Truth | None = None
    index: Any = None

    @cached_property
    def predictor(self) -> Predictor:
        """The model."""
        return self.run.load_predictor()

    def predict(self, x: Any) -> NDArray[Any]:
        """Predict classes, or the values of a regression, (n,).

        `x` is anything that `Predictor` takes: arrays, data frames (matched by column names), paths, images.
        """
        return self.predictor.predict(x)

    def predict_proba(self, x: Any) -> FloatArray:
        """Predict class probabilities, (n, n_classes), in the order of `classes`."""
        if not self.classes:
            got, remedy = "a regression", "Call predict."
            raise InputError("predict_proba", got=got, allowed="a run on classes", remedy=remedy)
        return self.predictor.probabilities(x)

    @property
    def classes(self) -> list[Any]:
        """The source's classes, of the type that `predict` returns; empty in regression."""
        return self.predictor.labels.tolist() if self.run.classes else []

    @property
    def classes_present(self) -> dict[Any, float]:
        """Classes that are more likely in the target than not, with their expected shares, the largest first."""
        present = {} if self.run.presence is None else self.run.presence.present
        classes = self.classes
        return {classes[k]: share for k, share in present.items()}

    @property
    def predictions(self) -> Any:
        """One row per target sample, with the columns of ``predictions.csv``.

        `prediction`; of classes `confidence`, and `review`, whether to check it (`warmpot.weights.needs_review`);
        `weight`, the share of the sample that the plan matches; if the run has them, `unknown`, how unsure the fit on
        the source alone is, and `unadapted`, what it predicts. A pandas data frame whose index is that of the target,
        or its ids; without pandas, a dict of arrays.
        """
        run, of_classes = self.run, bool(self.run.classes)
        labels = self.predictor.labels if of_classes else None
        columns: dict[str, NDArray[Any]] = {"prediction": _labelled(run.predictions, labels)}
        if of_classes:
            columns |= {"confidence": run.confidence, "review": run.review}
        columns["weight"] = run.matched
        if run.unknown is not None:
            columns["unknown"] = run.unknown
        if run.unadapted is not None:
            columns["unadapted"] = _labelled(run.unadapted, labels)
        return _frame(columns, run.target_names, self.index)

    @property
    def weights(self) -> Any:
        """One row per source sample: label, plan weight (with a plan) and training weight; as `predictions`."""
        run = self.run
        labels = self.predictor.labels if run.classes else None
        columns: dict[str, NDArray[Any]] = {"label": _labelled(run.labels, labels)}
        if run.plan_weights is not None:
            columns["plan_weight"] = run.plan_weights
        return _frame({**columns, "training_weight": run.training_weights}, run.source_names)

    @property
    def verdict(self) -> Verdict | None:
        """Whether the adaptation is supported, and why; None where the result was not chosen from hypotheses."""
        return self.run.verdict

    @property
    def accuracy(self) -> float | None:
        """Accuracy on the target, if its labels were given: for evaluation only; None in regression."""
        return None if self.truth is None or not self.classes else self.truth.accuracy(self.run.predictions)

    def explain(self, sample: str | int) -> Explanation:
        """Explain the prediction of a target sample, given by its id or row; see `warmpot.train.explain_sample`."""
        if self.fitted is None:
            return explain_sample(self.run, sample, self._target())
        solution, outputs = self.fitted.solution, self.fitted.outputs
        return explain_sample(self.run, sample, plan=None if solution is None else solution.plan, outputs=outputs)

    def _target(self) -> Table | None:
        """Read the target of a run that was read, if its files are known and still there."""
        assert self.run.folder is not None, "a run that is not live was read from a folder"
        with suppress(WarmpotError, OSError):
            return remembered_files(self.run.folder, None, None, "run").side("target")
        return None

    def report(self, path: Path | str | None = None, **options: Any) -> Path:
        """Write the HTML page and return its path; see `warmpot.report.report_run` for the options.

        Default of `path`: ``report.html`` in the run folder, or in the current one if the run has no folder.
        """
        if self.fitted is not None:
            out = PAGE if path is None and self.fitted.folder is None else path
            return report_run(self.fitted, truth=self.truth, out=out, **{"figures": False, **options})
        assert self.run.folder is not None, "a run that is not live was read from a folder"
        task, truth, missing = read_run_data(self.run.folder)
        return report_run(self.run.folder, task, truth, out=path, **{"missing": missing, **options})

    def save(self, folder: Path | str) -> Path:
        """Write a run folder, which must be new; `load`, ``warmpot predict`` and ``warmpot report`` read it."""
        if self.fitted is not None:
            return self.fitted.save(folder, facts=self.run.facts)
        assert self.run.folder is not None, "a run that is not live was read from a folder"
        return Path(shutil.copytree(self.run.folder, folder))

    def __repr__(self) -> str:
        sizes = f"{self.run.n_source} source and {self.run.n_target} target samples"
        present = f", {len(self.classes_present)} of {len(self.classes)} classes present" if self.classes else ""
        return f"Result({self.run.setting('method')}, preset {self.run.setting('preset')}, {sizes}{present})"

    def _repr_html_(self) -> str:
        """Show the classes and the first predictions in a notebook; every name is escaped."""
        html, present = f"<p>{escape(repr(self))}</p>", self.classes_present
        rows = [f"<tr><td>{escape(str(name))}</td><td>{share:.0%}</td></tr>" for name, share in present.items()]
        if rows:
            more = f"<p>and {len(rows) - SHOWN} more</p>" if len(rows) > SHOWN else ""
            html += f"<table><tr><th>class</th><th>share</th></tr>{''.join(rows[:SHOWN])}</table>{more}"
        table = self.predictions
        return html + (table.head(SHOWN).to_html() if hasattr(table, "to_html") else "")


def _labelled(values: NDArray[Any], labels: NDArray[Any] | None) -> NDArray[Any]:
    """Return class codes as labels; the values of a regression as they are."""
    return values if labels is None else labels[values]


def _frame(columns: Mapping[str, NDArray[Any]], names: Sequence[str], index: Any = None) -> Any:
    """Return a data frame, with ids as its index; without pandas a dict of arrays, with ids as an entry."""
    try:
        import pandas as pd
    except ImportError:
        return {**({"name": np.array(names)} if len(names) else {}), **columns}
    if index is None and len(names):
        index = pd.Index(names, name="name")
    return pd.DataFrame(dict(columns), index=index)


def fit(
    source: Any,
    target: Any,
    *,
    method: str | None = None,
    preset: str | None = None,
    out: Path | str | None = None,
    label: str | None = None,
    id: str | None = None,  # noqa: A002 - as the flag --id
    features: Sequence[str] = (),
    regression: bool = False,
    settings: Mapping[str, Any] | None = None,
    config: Path | str | None = None,
    weights: str | None = None,
    alpha: float | str | None = None,
    beta: float | str | None = None,
    seed: int | None = None,
    choose: str | None = None,
    fine_tune: bool | None = None,
    corrupt: str = "raise",
    progress_bar: bool | None = None,
) -> Result:
    """Train on a labelled source and an unlabelled target: what ``warmpot fit`` does, in one call.

    Parameters
    ----------
    source, target : anything that `warmpot.data.read_samples` reads
        A pair ``(X, y)``, a data frame with a label column, the path of a file, a folder or list of images, images in
        memory, a data set. Both of the same kind: features, or images. Labels of the target are never used for
        training: only for `Result.accuracy` and the evaluation in the report.
    method, preset : str, optional
        See ``warmpot methods``. Default: the preset "full"; of a method, its preset for such data.
    out : path, optional
        A new run folder. Default: nothing is written; see `Result.save`.
    label, id : str, optional
        Columns of data frames and files that hold labels and ids. Default: a column called label, y, class or target
        has labels; the index of a data frame, if it is not a plain count, has ids.
    features : sequence of str
        Columns that are features although they look like ids.
    regression : bool
        Whether the labels are continuous targets.
    settings : mapping, optional
        Other settings, nested or with dots: ``{"full.rounds": 3}``.
    config : path, optional
        YAML file with settings, which the other arguments override.
    weights, alpha, beta, seed, choose : optional
        The settings of these names; see ``warmpot fit --help``.
    fine_tune : bool, optional
        Of images: whether the network is trained; without a GPU, its last block. Default: if there is a GPU.
    corrupt : "raise" or "skip"
        What to do with images that cannot be decoded.
    progress_bar : bool, optional
        Default: a bar on a terminal, log lines at INFO elsewhere.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> centres, y = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]), np.repeat([0, 1, 2], 20)
    >>> X = centres[y] + rng.normal(size=(60, 2)) / 2
    >>> X_target = centres[[0, 1] * 15] + rng.normal(size=(30, 2)) / 2 + 0.5
    >>> result = fit((X, y), X_target)
    >>> result
    Result(warmpot, preset full, 60 source and 30 target samples, 2 of 3 classes present)
    >>> result.predict([[0.2, 0.1], [4.2, 0.3]])
    array([0, 1])
    """
    images = of_images(source)
    if images != of_images(target):
        kinds = ["images" if kind else "features" for kind in (images, not images)]
        remedy = "Give two of the same kind; `warmpot extract` makes a table from images."
        raise InputError("source, target", got=" and ".join(kinds), allowed="two of the same kind", remedy=remedy)
    named = {"weights": weights, "params.alpha": alpha, "params.beta": beta, "seed": seed, "choose": choose}
    changes: dict[str, Any] = {}
    for name, value in [*(settings or {}).items(), *((name, v) for name, v in named.items() if v is not None)]:
        changes = merged(changes, with_value(name, value))
    run_config = config_for_data(
        images=images, regression=regression, method=method, preset=preset,
        file=None if config is None else Path(config), changes=changes, fine_tune=fine_tune,
    )  # fmt: skip
    roles: dict[str, Any] = {"label": label, "ids": id, "features": features}
    options: dict[str, Any] = {**roles, "task": "regression" if regression else "classification"}
    try:
        source_table = read_samples(source, name="source", needs_label=True, **options)
        target_table = read_samples(target, name="target", needs_ids=True, **options)
    except InputError as error:  # the argument has another name here
        error.remedy = error.remedy.replace("`ids=`", "`id=`")
        raise
    device = "cpu" if run_config.minibatch.hardware.accelerator == "cpu" else "auto"
    prepared: dict[str, Any] = {"corrupt": corrupt, "device": device, "progress_bar": progress_bar}
    task, truth = task_from_tables(source_table, target_table, run_config.images, **prepared)
    facts: dict[str, Any] = {}
    if is_path(source) and is_path(target):  # so that the commands find the data of a run folder
        of_run = {"root": None, "classes": None, "corrupt": corrupt} if images else None
        facts = data_facts(Path(source), Path(target), **roles, regression=regression, images=of_run)
    fitted = fit_chosen(task, run_config, out=out, progress_bar=progress_bar, facts=facts)
    run = from_fitted(fitted, facts=facts)
    samples = target[0] if isinstance(target, tuple) else target
    index = getattr(samples, "index", None) if id is None and hasattr(samples, "iloc") else None
    held = None if fitted.task is None else fitted.task.held_out
    if held is not None:  # the result is about the other target samples
        truth = None if truth is None else truth.of_rows(held.kept)
        index = None if index is None else index[held.kept]
    return Result(run, fitted, truth, index)


def load(run: Path | str) -> Result:
    """Read a finished run: a folder that `fit`, `Result.save`, or ``warmpot fit``, ``demo`` or ``sweep`` wrote.

    The predictions and weights are read from its files, the model when it is first used.
    """
    folder = locate_run(run).run
    check_finished(folder)
    return Result(read_run(folder))
