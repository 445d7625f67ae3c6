"""The training curves, and both domains before and after the network."""

from __future__ import annotations

from warmpot.report.embedding import pictures
from warmpot.report.page import Block, Section, Text
from warmpot.report.run_view import RunView
from warmpot.report.sections.figures import training_curves
from warmpot.report.sections.wording import chosen_iterate

__all__ = ["embedding_section", "training_section"]


def training_section(view: RunView) -> Section | None:
    """Plot the log; None if nothing was logged."""
    curves = training_curves(view)
    lead = f"The result is {view.run.unit} {view.run.step}, {chosen_iterate(view.run)}."
    return Section("Training", list(curves), lead=lead) if curves else None


def embedding_section(view: RunView, how: str) -> Section | None:
    """Plot both domains in a plane by "pca" or "tsne"; None without data."""
    plots = pictures(view, how)
    if not plots:
        return None
    methods = {
        "pca": "The first two principal components of both domains together.",
        "tsne": "t-SNE of both domains together: close samples are similar; distances between groups mean little.",
    }
    colours = "Colour: class of a source sample, predicted class of a target sample."
    colours = colours if view.classes else "Colour: value."
    sizes = " Larger source samples have a larger training weight." if view.weighted else ""
    blocks: list[Block] = list(plots)
    if len(plots) == 1:
        blocks.append(Text("For images there is only the plot after the network: the inputs are pixels, not features."))
    lead = f"{methods[how]} {colours}{sizes} Point at or tap a sample to see which one it is."
    return Section("Source and target in a plane", blocks, lead=lead)
