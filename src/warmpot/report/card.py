"""The model card of a run, as Markdown: what it predicts, how it was made, and its limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from warmpot._run_files import MODEL_FACTS
from warmpot._settings import to_mapping
from warmpot._tables import escape_markdown, markdown_grid, printable
from warmpot.data import ViewSettings
from warmpot.methods.descriptions import markdown_notes
from warmpot.report.run_commands import changed_settings, repeat_command
from warmpot.report.run_view import RunView
from warmpot.train.config import LAST
from warmpot.train.export import Agreement
from warmpot.train.finished_run import UNKNOWN, FinishedRun, read_run
from warmpot.train.recipes import preset_names

__all__ = ["model_card", "status"]

MOST_CLASSES = 100
"""Classes named on a card; the model has all of them."""
REPRODUCTION = "reproduction of the official code's objective"
PRESETS = {
    "paper": "the paper's formulas as printed",
    **dict.fromkeys(("mpot-imagenet", "jumbot-imagenet"), "interpretation: its authors did not run it there"),
    **dict.fromkeys(
        ("arpm-warmpot", "arpm-warmpot-imagenet", "arpm-plan", "arpm-plan-imagenet"),
        "interpretation: the paper gives one number and no code",
    ),
}
"""Presets that are not reproductions; docs/methods.md has the same list."""
PAPERS = "resnet50.tv_in1k"
OURS = ("frozen", "tuned")
"""Parts of the names of presets whose training loop is not that of the paper."""
NEUTRAL = (
    "seed=",
    "tensorboard=",
    "images.",
    "minibatch.hardware.",
    "minibatch.log_every=",
    "minibatch.checkpoint_every=",
)
"""Settings that do not change the method."""


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
    parts = (_front(read), _title(read), _predicts(read), _made(read), _data(read), _results(read, agreement),
             _limits(read), _repeat(read))  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _front(run: FinishedRun) -> str:
    kind = "regression" if not run.classes else "classification"
    tags = ["domain-adaptation", "partial-domain-adaptation", "optimal-transport"]
    tags += [run.method.name] if run.method else []
    front = {
        "library_name": "warmpot",
        "pipeline_tag": f"{'image' if run.images else 'tabular'}-{kind}",
        "tags": list(dict.fromkeys(tags)),
    }
    if run.images and not run.classes:
        del front["pipeline_tag"]  # hubs have no such task
    return f"---\n{yaml.safe_dump(front, sort_keys=False)}# license: to be filled in\n---"


def _title(run: FinishedRun) -> str:
    names = run.data_name("source"), run.data_name("target"), run.setting("method")
    source, target, method = map(escape_markdown, names)
    return f"# {source} to {target}: {method}"


def _predicts(run: FinishedRun) -> str:
    if run.images:
        view = run.images["view"]
        side, whole = view["crop"], view["resize"]
        takes = (
            f"RGB images: resized to {whole} x {whole} pixels, then cropped to the central {side} x {side}, as bytes"
        )
    else:
        takes = f"{run.model['n_inputs']} features"
    columns = run.model["facts"].get("columns", [])
    if columns:
        takes += ", in this order: " + ", ".join(escape_markdown(name) for name in columns[:MOST_CLASSES])
        takes += f" and {len(columns) - MOST_CLASSES} more" if len(columns) > MOST_CLASSES else ""
    text = [
        "## What it predicts",
        "\n\n".join([*(_classes(run) if run.classes else _values(run)), f"It takes {takes}."]),
        "It was adapted to one target. Use it for more samples *of that target*, not of the source or anything else.",
    ]
    return "\n\n".join(text)


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


def status(run: FinishedRun) -> str:
    """Return whether the settings are a reproduction of the paper, an interpretation, ours or the user's."""
    preset, method = run.setting("preset"), run.method
    if method is None or not method.__module__.startswith("warmpot.") or preset not in preset_names():
        return "the user's own"
    if not method.uses_target:
        return "baseline"
    if run.setting("engine") == "full" or any(mark in preset for mark in OURS):
        return "ours: the objective is the method's, the training loop is not"
    text = PRESETS.get(preset, REPRODUCTION) + _other_network(run)
    changed = any(not change.startswith(NEUTRAL) for change in changed_settings(run))
    return text + (", with other settings: see below" if changed else "")


def _other_network(run: FinishedRun) -> str:
    """Return a remark unless the network is that of the papers, trained as a whole on random views."""
    if run.images is None:
        return ", on features, whereas the papers also train the network"
    backbone, view = run.images["backbone"], run.images["view"]
    plain = (backbone["name"], backbone["train_from"], backbone["batch_norm"]) == (PAPERS, "all", "train")
    return "" if plain and view == to_mapping(ViewSettings()) else f", with another network or view than {PAPERS}"


def _made(run: FinishedRun) -> str:
    method, choose = run.method, run.setting("choose")
    rows = [
        (
            "method",
            f"{escape_markdown(run.setting('method'))}{escape_markdown(f': {method.summary}') if method else ''}",
        )
    ]
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
    text = ["## How it was made", markdown_grid(["", ""], rows)]
    if remarks := markdown_notes(method) if method else "":
        text += ["Notes on the method, and how it deviates from paper and code:", remarks]
    return "\n\n".join(text)


def _data(run: FinishedRun) -> str:
    labels = f"{len(run.classes)} classes" if run.classes else "continuous targets"
    rows = [
        ("source", escape_markdown(run.data_name("source")), run.n_source or "", labels),
        ("target", escape_markdown(run.data_name("target")), run.n_target or "", "none: target labels were not used"),
    ]
    text = [
        "## Data",
        markdown_grid(["", "file", "samples", "labels"], rows),
        f"Fingerprint of both: `{_hex(run.record.get('fingerprint'))}`. The data is not included.",
    ]
    return "\n\n".join(text)


def _hex(value: Any) -> str:
    return re.sub(r"\W", "", str(value))


def _results(run: FinishedRun, agreement: Agreement | None) -> str:
    what = "Accuracy" if run.classes else "Error"
    indicators = [row for row in _indicators(run) if row[1]]
    text = [
        "## Results",
        f"{what} on the target: **not measured**. Training had no target labels, and this card is written without any.",
    ]
    if indicators:
        text += ["Indicators without labels; they detect some failures, but cannot confirm success:",
                 markdown_grid(["indicator", "value", ""], indicators)]  # fmt: skip
    if agreement is not None:
        text += ["### Exported model", _comparison(agreement)]
    return "\n\n".join(text)


def _indicators(run: FinishedRun) -> Iterator[tuple[str, str, str]]:
    line = run.last_line
    when = f"step {line['step']}, the last" if line else ""
    if "effective_classes" in line:
        value = f"{line['effective_classes']:.1f} of {len(run.classes)}"
        yield "effective classes", value, f"exp of the entropy of the mean prediction; {when}"
    if run.n_source:
        share = RunView(run).effective_share
        yield "effective share", f"{share:.1%}", "of the source samples, by their training weights"
    if line.get("transport") is not None and line.get("alpha"):
        yield "transported mass", f"{line['alpha']:.3g}", f"share of the target that the plan matches; {when}"
        yield "transport", f"{line['transport'] / line['alpha']:.4g}", f"cost of the plan per unit of mass; {when}"
    if np.isfinite(run.confidence).any():
        yield (
            "confidence",
            f"{np.nanmean(run.confidence):.1%}",
            "mean probability of the predicted class; not calibrated",
        )


def _comparison(agreement: Agreement) -> str:
    sizes = ", ".join(map(str, agreement.batches))
    rows = [(f"`{name}`", f"{value:.2g}") for name, value in agreement.differences.items()]
    inputs = f"{sum(agreement.batches)} inputs ({escape_markdown(agreement.inputs)}) in batches of {sizes}"
    text = f"`model.onnx` was run by onnxruntime on {inputs}, and compared with the model in torch."
    if agreement.same is not None:
        text += f" Predicted classes agree on {agreement.same:.1%} of them."
    return f"{text}\n\n{markdown_grid(['output', 'largest difference'], rows)}"


def _limits(run: FinishedRun) -> str:
    points = []
    if run.classes:
        points.append(
            "Every target sample is assigned one of the source's classes, even if it belongs to none of them."
        )
    if run.method is not None and run.method.uses_target:
        points.append(
            "Assumption: the labels depend on the features in the same way in both domains"
            + (
                ", and the target's classes are some of the source's. The method estimates which ones"
                if run.classes
                else ""
            )
            + "; errors of the estimate can reinforce themselves."
        )
    else:
        points.append("Nothing was adapted to the target. Assumption: it resembles the source.")
    points.append(
        "No guarantee: without target labels, the accuracy on the target is unknown. Measure it on labelled samples."
    )
    if not run.bounds:
        points.append("No bound was computed; `warmpot bound RUN` computes one.")
    text = ["## Limits", "\n".join(f"- {point}" for point in points)]
    if run.bounds:
        text += ["Bounds on the target loss, each without a term that requires target labels:", _bounds(run)]
    return "\n\n".join(text)


def _bounds(run: FinishedRun) -> str:
    """List the bounds without the terms that were computed from target labels."""
    rows = []
    for name, bound in run.bounds.items():
        remark = "vacuous" if bound.total >= 1 else ""
        if bound.confidence is not None:
            remark = (
                "not valid: its features depend on the target"
                if run.adapted
                else f"with probability {bound.confidence:g}"
            )
        numbers = (f"{value:.3g}" for value in (bound.alpha, bound.beta, bound.total))
        rows.append((escape_markdown(name), escape_markdown(bound.loss), *numbers, remark))
    return markdown_grid(["bound", "loss", "alpha", "beta", "total", ""], rows)


def _repeat(run: FinishedRun) -> str:
    command = repeat_command(run, escape=printable)
    rows = [(escape_markdown(name), escape_markdown(version)) for name, version in run.versions.items()]
    return "\n\n".join(["## To repeat this run", f"```\n{command}\n```", markdown_grid(["package", "version"], rows)])
