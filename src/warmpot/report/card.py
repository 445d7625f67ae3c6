"""The model card of a run, as Markdown: what it predicts, how it was made, and its limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from warmpot._run_files import MODEL_FACTS
from warmpot._tables import escape_markdown, markdown_grid, printable
from warmpot.methods.descriptions import markdown_notes
from warmpot.report.run_view import RunView, cost_per_mass
from warmpot.report.sections.parts import calibration_words
from warmpot.report.sections.provenance import repeat_command, status
from warmpot.train.config import LAST
from warmpot.train.export import Agreement
from warmpot.train.finished_run import UNKNOWN, FinishedRun
from warmpot.train.run_reader import read_run

__all__ = ["model_card"]

MAX_CLASSES = 100
"""Classes named on a card; the model has all of them."""


def model_card(run: Path | str, agreement: Agreement | None = None) -> str:
    """Write the card of a finished run, with the front matter that model hubs read.

    Nothing on it was computed from target labels; of the bounds, it shows only what is known without labels. The
    licence is left for the user to fill in.

    Parameters
    ----------
    run : path
        Folder that `warmpot.train.fit` wrote.
    agreement : Agreement, optional
        Comparison of an exported ONNX model with the original.

    Returns
    -------
    str
        Markdown; names of classes, columns and files are escaped.
    """
    import jinja2

    read = read_run(Path(run))
    view, predictions = RunView(read), read.predictions
    present = view.present if read.classes and read.n_target else []
    template = (files("warmpot.report") / "templates" / "card.md").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["md"] = escape_markdown
    return environment.from_string(template).render(
        run=read,
        agreement=agreement,
        grid=markdown_grid,
        most=MAX_CLASSES,
        model_facts=MODEL_FACTS,
        facts={"columns": [], **read.model["facts"]},
        front=_front(read),
        present=[(escape_markdown(read.classes[k]), f"{view.shares[k]:.1%}") for k in present],
        others=[name for k, name in enumerate(read.classes) if k not in present],
        ends=(np.nanmin(predictions), np.nanmax(predictions)) if np.isfinite(predictions).any() else None,
        made=list(_made(read)),
        notes=markdown_notes(read.method) if read.method else "",
        fingerprint=re.sub(r"\W", "", str(read.record.get("fingerprint"))),
        indicators=list(_indicators(view)),
        bounds=list(_bounds(read)),
        command=repeat_command(read, escape=printable),
        versions=[(escape_markdown(name), escape_markdown(version)) for name, version in read.versions.items()],
    )


def _front(run: FinishedRun) -> str:
    kind = "regression" if not run.classes else "classification"
    tags = ["domain-adaptation", "partial-domain-adaptation", "optimal-transport"]
    tags += [run.method.name] if run.method else []
    front: dict[str, Any] = {"library_name": "warmpot"}
    if run.classes or not run.images:  # hubs have no task for regression on images
        front["pipeline_tag"] = f"{'image' if run.images else 'tabular'}-{kind}"
    front["tags"] = list(dict.fromkeys(tags))
    return str(yaml.safe_dump(front, sort_keys=False))


def _made(run: FinishedRun) -> Iterator[tuple[str, str]]:
    method, choose = run.method, run.setting("choose")
    name = escape_markdown(run.setting("method"))
    yield "method", name + (escape_markdown(f": {method.summary}") if method else "")
    if method:
        yield "reference", escape_markdown(method.reference)
    yield "status", status(run)
    yield "preset, engine", f"{escape_markdown(run.setting('preset'))}, {escape_markdown(run.setting('engine'))}"
    yield "source weights", escape_markdown(run.setting("weights"))
    chosen = f"the best iterate by {escape_markdown(choose)}, without target labels"
    yield "result", "the last iterate" if choose == LAST else UNKNOWN if choose == UNKNOWN else chosen
    yield "seed", escape_markdown(run.seed)
    if run.images:
        trained = run.images["backbone"]["train_from"]
        part = "frozen" if trained is None else f"trained from {escape_markdown(trained)} on"
        yield "backbone", f"{escape_markdown(run.images['backbone']['name'])}, {part}"


def _indicators(view: RunView) -> Iterator[tuple[str, str, str]]:
    run = view.run
    line = run.last_line
    when = f"step {line['step']}, the last" if line else ""
    if "effective_classes" in line:
        value = f"{line['effective_classes']:.1f} of {len(run.classes)}"
        yield "effective classes", value, f"exp of the entropy of the mean prediction; {when}"
    if (verdict := run.verdict) is not None:
        yield "verdict", f"adaptation {verdict.state}", verdict.reason
    if run.n_source:
        yield "effective share", f"{view.effective_share:.1%}", "of the source samples, by their training weights"
    if (cost := cost_per_mass(line)) is not None:
        yield "transported mass", f"{line['alpha']:.3g}", f"share of the target that the plan matches; {when}"
        yield "transport", f"{cost:.4g}", f"cost of the plan per unit of mass; {when}"
    if np.isfinite(run.confidence).any():
        mean = f"{np.nanmean(run.confidence):.1%}"
        yield "confidence", mean, f"mean probability of the predicted class; {calibration_words(run)}"


def _bounds(run: FinishedRun) -> Iterator[tuple[str, ...]]:
    """Yield the bounds without the terms that were computed from target labels."""
    for name, bound in run.bounds.items():
        remark = "vacuous" if bound.total >= 1 else ""
        if bound.confidence is not None:
            valid = f"with probability {bound.confidence:g}"
            invalid = run.adapted and bound.needs_fixed_features
            remark = "not valid: its features depend on the target" if invalid else valid
        numbers = (f"{value:.3g}" for value in (bound.alpha, bound.beta, bound.total))
        yield (escape_markdown(name), escape_markdown(bound.loss), *numbers, remark)
