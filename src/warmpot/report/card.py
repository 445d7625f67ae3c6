"""The model card of a run, as Markdown: what it predicts, how it was made, and its limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from warmpot._run_files import MODEL_FACTS
from warmpot._tables import escape_markdown, markdown_grid, printable
from warmpot.methods.descriptions import markdown_notes
from warmpot.report.run_view import RunView, cost_per_mass
from warmpot.report.sections.parts import ALWAYS_A_CLASS
from warmpot.report.sections.provenance import repeat_command, status
from warmpot.train.config import LAST
from warmpot.train.export import Agreement
from warmpot.train.finished_run import UNKNOWN, FinishedRun, read_run

__all__ = ["model_card"]

MOST_CLASSES = 100
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
    read = read_run(Path(run))
    names = read.data_name("source"), read.data_name("target"), read.setting("method")
    source, target, method = map(escape_markdown, names)
    parts = [_front(read), f"# {source} to {target}: {method}"]
    for part in (_predicts(read), _made(read), _data(read), _results(read, agreement), _limits(read), _repeat(read)):
        parts += part
    return "\n\n".join(parts) + "\n"


def _front(run: FinishedRun) -> str:
    kind = "regression" if not run.classes else "classification"
    tags = ["domain-adaptation", "partial-domain-adaptation", "optimal-transport"]
    tags += [run.method.name] if run.method else []
    front: dict[str, Any] = {"library_name": "warmpot"}
    if run.classes or not run.images:  # hubs have no task for regression on images
        front["pipeline_tag"] = f"{'image' if run.images else 'tabular'}-{kind}"
    front["tags"] = list(dict.fromkeys(tags))
    return f"---\n{yaml.safe_dump(front, sort_keys=False)}# license: to be filled in\n---"


def _predicts(run: FinishedRun) -> Iterator[str]:
    yield "## What it predicts"
    yield from _classes(run) if run.classes else _values(run)
    takes = f"{run.model['n_inputs']} features"
    if run.images:
        view = run.images["view"]
        side, crop = (f"{view[name]} x {view[name]}" for name in ("resize", "crop"))
        takes = f"RGB images: resized to {side} pixels, then cropped to the central {crop}, as bytes"
    columns = run.model["facts"].get("columns", [])
    if columns:
        takes += ", in this order: " + ", ".join(escape_markdown(name) for name in columns[:MOST_CLASSES])
        takes += f" and {len(columns) - MOST_CLASSES} more" if len(columns) > MOST_CLASSES else ""
    yield f"It takes {takes}."
    yield "It was adapted to one target. Use it for more samples *of that target*, not of the source or anything else."


def _classes(run: FinishedRun) -> Iterator[str]:
    yield f"One of {len(run.classes)} classes."
    shown: list[str] = []
    if run.n_target:
        view = RunView(run)
        rows = [(escape_markdown(run.classes[k]), f"{view.shares[k]:.1%}") for k in view.present[:MOST_CLASSES]]
        yield f"{len(view.present)} of them are estimated present in the target (from predictions, which can be wrong):"
        yield markdown_grid(["class", "predicted share of the target"], rows)
        shown = [run.classes[k] for k in view.present]
    others = [escape_markdown(name) for name in run.classes if name not in shown]
    if others:
        more = f" and {len(others) - MOST_CLASSES} more (`{MODEL_FACTS}`)" if len(others) > MOST_CLASSES else ""
        yield f"{'The others' if shown else 'They are'}: {', '.join(others[:MOST_CLASSES])}{more}."


def _values(run: FinishedRun) -> Iterator[str]:
    facts = run.model["facts"]
    known = f"mean {facts['centre']:.6g}, standard deviation {facts['scale']:.4g}"
    yield f"A number, in units of the source labels ({known})."
    values = run.predictions
    if np.isfinite(values).any():
        yield f"Predictions on the target range from {np.nanmin(values):.6g} to {np.nanmax(values):.6g}."


def _made(run: FinishedRun) -> Iterator[str]:
    method, choose, name = run.method, run.setting("choose"), escape_markdown(run.setting("method"))
    rows = [("method", name + (escape_markdown(f": {method.summary}") if method else ""))]
    rows += [("reference", escape_markdown(method.reference))] if method else []
    chosen = f"the best iterate by {escape_markdown(choose)}, without target labels"
    rows += [
        ("status", status(run)),
        ("preset, engine", f"{escape_markdown(run.setting('preset'))}, {escape_markdown(run.setting('engine'))}"),
        ("source weights", escape_markdown(run.setting("weights"))),
        ("result", "the last iterate" if choose == LAST else UNKNOWN if choose == UNKNOWN else chosen),
        ("seed", escape_markdown(run.seed)),
    ]
    if run.images:
        backbone = run.images["backbone"]
        trained = backbone["train_from"]
        part = "frozen" if trained is None else f"trained from {escape_markdown(trained)} on"
        rows.append(("backbone", f"{escape_markdown(backbone['name'])}, {part}"))
    yield from ("## How it was made", markdown_grid(["", ""], rows))
    if remarks := markdown_notes(method) if method else "":
        yield from ("Notes on the method, and how it deviates from paper and code:", remarks)


def _data(run: FinishedRun) -> Iterator[str]:
    labels = f"{len(run.classes)} classes" if run.classes else "continuous targets"
    rows = [
        ("source", escape_markdown(run.data_name("source")), run.n_source or "", labels),
        ("target", escape_markdown(run.data_name("target")), run.n_target or "", "none: target labels were not used"),
    ]
    yield from ("## Data", markdown_grid(["", "file", "samples", "labels"], rows))
    fingerprint = re.sub(r"\W", "", str(run.record.get("fingerprint")))
    yield f"Fingerprint of both: `{fingerprint}`. The data is not included."


def _results(run: FinishedRun, agreement: Agreement | None) -> Iterator[str]:
    yield "## Results"
    text = "not measured**. Training had no target labels, and this card is written without any."
    yield f"{'Accuracy' if run.classes else 'Error'} on the target: **{text}"
    if indicators := list(_indicators(run)):
        yield "Indicators without labels; they detect some failures, but cannot confirm success:"
        yield markdown_grid(["indicator", "value", ""], indicators)
    if agreement is not None:
        sizes = ", ".join(map(str, agreement.batches))
        inputs = f"{sum(agreement.batches)} inputs ({escape_markdown(agreement.inputs)}) in batches of {sizes}"
        text = f"`model.onnx` was run by onnxruntime on {inputs}, and compared with the model in torch."
        if agreement.same is not None:
            text += f" Predicted classes agree on {agreement.same:.1%} of them."
        rows = [(f"`{name}`", f"{value:.2g}") for name, value in agreement.differences.items()]
        yield from ("### Exported model", text, markdown_grid(["output", "largest difference"], rows))


def _indicators(run: FinishedRun) -> Iterator[tuple[str, str, str]]:
    line = run.last_line
    when = f"step {line['step']}, the last" if line else ""
    if "effective_classes" in line:
        value = f"{line['effective_classes']:.1f} of {len(run.classes)}"
        yield "effective classes", value, f"exp of the entropy of the mean prediction; {when}"
    if run.n_source:
        share = RunView(run).effective_share
        yield "effective share", f"{share:.1%}", "of the source samples, by their training weights"
    if (cost := cost_per_mass(line)) is not None:
        yield "transported mass", f"{line['alpha']:.3g}", f"share of the target that the plan matches; {when}"
        yield "transport", f"{cost:.4g}", f"cost of the plan per unit of mass; {when}"
    if np.isfinite(run.confidence).any():
        mean = f"{np.nanmean(run.confidence):.1%}"
        yield "confidence", mean, "mean probability of the predicted class; not calibrated"


def _limits(run: FinishedRun) -> Iterator[str]:
    points = []
    if run.classes:
        points.append(ALWAYS_A_CLASS)
    if run.method is not None and run.method.uses_target:
        which = ", and the target's classes are some of the source's. The method estimates which ones"
        text = "Assumption: the labels depend on the features in the same way in both domains"
        points.append(f"{text}{which if run.classes else ''}; errors of the estimate can reinforce themselves.")
    else:
        points.append("Nothing was adapted to the target. Assumption: it resembles the source.")
    text = "No guarantee: without target labels, the accuracy on the target is unknown. Measure it on labelled samples."
    points += [text, *([] if run.bounds else ["No bound was computed; `warmpot bound RUN` computes one."])]
    yield from ("## Limits", "\n".join(f"- {point}" for point in points))
    rows = []
    for name, bound in run.bounds.items():
        remark = "vacuous" if bound.total >= 1 else ""
        if bound.confidence is not None:
            valid = f"with probability {bound.confidence:g}"
            remark = "not valid: its features depend on the target" if run.adapted else valid
        numbers = (f"{value:.3g}" for value in (bound.alpha, bound.beta, bound.total))
        rows.append((escape_markdown(name), escape_markdown(bound.loss), *numbers, remark))
    if rows:
        yield "Bounds on the target loss, each without a term that requires target labels:"
        yield markdown_grid(["bound", "loss", "alpha", "beta", "total", ""], rows)


def _repeat(run: FinishedRun) -> Iterator[str]:
    yield from ("## To repeat this run", f"```\n{repeat_command(run, escape=printable)}\n```")
    rows = [(escape_markdown(name), escape_markdown(version)) for name, version in run.versions.items()]
    yield markdown_grid(["package", "version"], rows)
