"""The model card: what a run predicts, how it was made, and what nobody should take it for, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from warmpot._settings import to_mapping
from warmpot._tables import escape_markdown as safe
from warmpot._tables import markdown_grid as table
from warmpot._tables import printable
from warmpot.data import ViewSettings
from warmpot.methods.descriptions import markdown_notes
from warmpot.report._run import UNKNOWN, Run, numbers, read_run, repeat_command
from warmpot.train.config import LAST
from warmpot.train.export import Agreement
from warmpot.train.recipes import preset_names
from warmpot.weights import effective_share, estimate_present_classes

__all__ = ["model_card", "status"]

MOST_CLASSES = 100
"""Classes that a card names; `model.json` has all of them."""
REPRODUCTION = "reproduction of the official code's objective"
PRESETS = {
    "paper": "the paper's formulas as printed",
    **dict.fromkeys(("mpot-imagenet", "jumbot-imagenet"), "interpretation: its authors never ran it there"),
    **dict.fromkeys(
        ("arpm-warmpot", "arpm-warmpot-imagenet", "arpm-plan", "arpm-plan-imagenet"),
        "interpretation: the paper gives one number and no code",
    ),
}
"""Those that are no reproductions; docs/methods.md has the same list."""
PAPERS = "resnet50.tv_in1k"
OURS = ("frozen", "tuned")
"""Part of the names of presets whose training loop is ours."""
HARMLESS = (
    "seed=",
    "tensorboard=",
    "images.",
    "minibatch.hardware.",
    "minibatch.log_every=",
    "minibatch.checkpoint_every=",
)
"""Settings that do not make another method."""


def model_card(run: Path | str, agreement: Agreement | None = None) -> str:
    """Write the card of a finished run, with the front matter that model hubs read.

    Target labels have no part in it: it is made from ``config.yaml``, ``run.json``, ``model.json``, ``metrics.jsonl``,
    ``predictions.csv``, ``source_weights.csv``, and from what in ``bound.json`` is known without labels. The licence is
    the user's to state.

    Parameters
    ----------
    run : path
        Folder that `warmpot.train.fit` wrote.
    agreement : Agreement, optional
        How an exported ONNX model compares.

    Returns
    -------
    str
        Markdown; names of classes, columns and files are escaped.
    """
    found = read_run(Path(run))
    parts = (_front(found), _title(found), _predicts(found), _made(found), _data(found), _results(found, agreement),
             _limits(found), _repeat(found))  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _front(run: Run) -> str:
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
    return f"---\n{yaml.safe_dump(front, sort_keys=False)}# license: yours to state\n---"


def _title(run: Run) -> str:
    return f"# {safe(run.file('source'))} to {safe(run.file('target'))}: {safe(run.setting('method'))}"


def _predicts(run: Run) -> str:
    if run.images:
        view = run.images["view"]
        side, whole = view["crop"], view["resize"]
        takes = f"RGB images: squeezed to {whole} x {whole} pixels, then the centre of {side} x {side}, as bytes"
    else:
        takes = f"{run.model['n_inputs']} features"
    columns = run.model["facts"].get("columns", [])
    if columns:
        takes += ", in this order: " + ", ".join(safe(name) for name in columns[:MOST_CLASSES])
        takes += f" and {len(columns) - MOST_CLASSES} more" if len(columns) > MOST_CLASSES else ""
    text = [
        "## What it predicts",
        "\n\n".join([*(_classes(run) if run.classes else _values(run)), f"It takes {takes}."]),
        "It was adapted to one target. Use it for more samples *of that target*, not of the source or anything else.",
    ]
    return "\n\n".join(text)


def _classes(run: Run) -> Iterator[str]:
    yield f"One of {len(run.classes)} classes."
    shown: list[str] = []
    if run.n_target:
        counts = np.bincount(run.codes(run.predictions["prediction"]), minlength=len(run.classes))
        present = estimate_present_classes(counts / counts.sum())
        rows = [(safe(run.classes[k]), f"{share:.1%}") for k, share in list(present.items())[:MOST_CLASSES]]
        yield f"It believes that {len(present)} of them occur in the target (from its predictions, which can be wrong):"
        yield table(["class", "share of the target, as predicted"], rows)
        shown = [run.classes[k] for k in present]
    others = [safe(name) for name in run.classes if name not in shown]
    if others:
        more = f" and {len(others) - MOST_CLASSES} more (`model.json`)" if len(others) > MOST_CLASSES else ""
        yield f"{'The others' if shown else 'They are'}: {', '.join(others[:MOST_CLASSES])}{more}."


def _values(run: Run) -> Iterator[str]:
    facts = run.model["facts"]
    known = f"their mean is {facts['centre']:.6g}, their spread {facts['scale']:.4g}"
    yield f"A real number, in units of the source's labels ({known})."
    values = numbers(run.predictions.get("prediction", ()))
    if np.isfinite(values).any():
        yield f"Predictions on the target range from {np.nanmin(values):.6g} to {np.nanmax(values):.6g}."


def status(run: Run) -> str:
    """Say what a recipe is, next to its source."""
    preset, method = run.setting("preset"), run.method
    if method is None or not method.__module__.startswith("warmpot.") or preset not in preset_names():
        return "of the user"
    if not method.uses_target:
        return "baseline"
    if run.setting("engine") == "full" or any(mark in preset for mark in OURS):
        return "ours: the objective is the method's, the training loop is not"
    text = PRESETS.get(preset, REPRODUCTION) + _other_network(run)
    changed = any(not change.startswith(HARMLESS) for change in run.changes)
    return text + (", with other settings: see below" if changed else "")


def _other_network(run: Run) -> str:
    """Say when it is not the network of the papers, trained as they do: all of it, on drawn views."""
    if run.images is None:
        return ", on features, where the papers train the network too"
    backbone, view = run.images["backbone"], run.images["view"]
    plain = (backbone["name"], backbone["train_from"], backbone["batch_norm"]) == (PAPERS, "all", "train")
    return "" if plain and view == to_mapping(ViewSettings()) else f", with another network or view than {PAPERS}'s"


def _made(run: Run) -> str:
    method, choose = run.method, run.setting("choose")
    rows = [("method", f"{safe(run.setting('method'))}{safe(f': {method.summary}') if method else ''}")]
    rows += [("reference", safe(method.reference))] if method else []
    chosen = f"the best iterate by {safe(choose)}, without target labels"
    rows += [
        ("status", status(run)),
        ("preset, engine", f"{safe(run.setting('preset'))}, {safe(run.setting('engine'))}"),
        ("source weights", safe(run.setting("weights"))),
        ("result", "the last iterate" if choose == LAST else UNKNOWN if choose == UNKNOWN else chosen),
        ("seed", safe(run.seed)),
    ]
    if run.images:
        backbone = run.images["backbone"]
        trained = backbone["train_from"]
        part = "frozen" if trained is None else f"trained from {safe(trained)} on"
        rows.append(("backbone", f"{safe(backbone['name'])}, {part}"))
    text = ["## How it was made", table(["", ""], rows)]
    if said := markdown_notes(method) if method else "":
        text += ["Notes on the method, with its deviations from paper and code:", said]
    return "\n\n".join(text)


def _data(run: Run) -> str:
    labels = f"{len(run.classes)} classes" if run.classes else "real labels"
    rows = [
        ("source", safe(run.file("source")), run.n_source or "", labels),
        ("target", safe(run.file("target")), run.n_target or "", "none: labels of the target were not used"),
    ]
    text = [
        "## Data",
        table(["", "file", "samples", "labels"], rows),
        f"Fingerprint of both: `{_hex(run.mark.get('fingerprint'))}`. The data is not part of this folder.",
    ]
    return "\n\n".join(text)


def _hex(value: Any) -> str:
    return re.sub(r"\W", "", str(value))


def _results(run: Run, agreement: Agreement | None) -> str:
    what = "Accuracy" if run.classes else "Error"
    signs = [row for row in _signs(run) if row[1]]
    text = [
        "## Results",
        f"{what} on the target: **not measured**. Training had no target labels, and this card is written without any.",
    ]
    if signs:
        text += ["Signs without labels; they show some failures, never success:", table(["sign", "value", ""], signs)]
    if agreement is not None:
        text += ["### Exported model", _agreed(agreement)]
    return "\n\n".join(text)


def _signs(run: Run) -> Iterator[tuple[str, str, str]]:
    line = run.signs
    when = f"step {line['step']}, the last" if line else ""
    if "effective_classes" in line:
        value = f"{line['effective_classes']:.1f} of {len(run.classes)}"
        yield "classes in effect", value, f"exp of the entropy of the mean prediction; {when}"
    if run.n_source:
        weights = run.source_weights
        share = effective_share(weights[np.isfinite(weights)])
        yield "weight share", f"{share:.1%}", "of the source carries the weight, in effect"
    if line.get("transport") is not None and line.get("alpha"):
        yield "mass moved", f"{line['alpha']:.3g}", f"share of the target that the plan matches; {when}"
        yield "transport", f"{line['transport'] / line['alpha']:.4g}", f"cost of the plan per unit of mass; {when}"
    sure = numbers(run.predictions.get("confidence", ()))
    if run.classes and np.isfinite(sure).any():
        yield "confidence", f"{np.nanmean(sure):.1%}", "mean probability of the predicted class; not calibrated"


def _agreed(agreement: Agreement) -> str:
    sizes = ", ".join(map(str, agreement.batches))
    rows = [(f"`{name}`", f"{value:.2g}") for name, value in agreement.differences.items()]
    inputs = f"{sum(agreement.batches)} inputs ({safe(agreement.inputs)}) in batches of {sizes}"
    text = f"`model.onnx` was run by onnxruntime on {inputs}, and compared with the model in torch."
    if agreement.same is not None:
        text += f" Predicted classes agree on {agreement.same:.1%} of them."
    return f"{text}\n\n{table(['output', 'largest difference'], rows)}"


def _limits(run: Run) -> str:
    points = []
    if run.classes:
        points.append("A target sample is always given one of the source's classes, also when it belongs to none.")
    if run.method is not None and run.method.uses_target:
        points.append(
            "Assumed: what distinguishes the labels is the same in both domains"
            + (
                ", and the classes of the target are some of the source's. Which, the method guesses"
                if run.classes
                else ""
            )
            + "; a wrong guess can feed on itself."
        )
    else:
        points.append("Nothing was adapted to the target: that it resembles the source is assumed.")
    points.append(
        "No guarantee: without target labels nobody knows how well it does there. Measure it on labelled samples."
    )
    if not run.bounds:
        points.append("No bound was computed; `warmpot bound RUN` does.")
    text = ["## Limits", "\n".join(f"- {point}" for point in points)]
    if run.bounds:
        text += ["Bounds of the target loss, each up to a term that only target labels could tell:", _bounds(run)]
    return "\n\n".join(text)


def _bounds(run: Run) -> str:
    """Terms that are known without labels; whatever labels added to the file stays there."""
    rows = []
    for name, bound in run.bounds.items():
        total = sum(term["value"] or 0.0 for term in bound["terms"] if term["computable"])
        remark = "vacuous" if total >= 1 else ""
        if bound.get("confidence") is not None:
            remark = (
                "not valid: its features have seen the target"
                if run.adapted
                else f"with probability {bound['confidence']:g}"
            )
        rows.append(
            (safe(name), safe(bound["loss"]), f"{bound['alpha']:.3g}", f"{bound['beta']:.3g}", f"{total:.3g}", remark)
        )
    return table(["bound", "loss", "alpha", "beta", "total", ""], rows)


def _repeat(run: Run) -> str:
    command = repeat_command(run, safe=printable)
    rows = [(safe(name), safe(version)) for name, version in run.versions.items()]
    return "\n\n".join(["## Repeat it", f"```\n{command}\n```", table(["package", "version"], rows)])
