"""The page of one target sample: its prediction, and the source samples that it is matched with."""

from __future__ import annotations

from pathlib import Path

from warmpot._tables import TableCell, TableValue
from warmpot.report.page import Block, Facts, Section, Text, Thumb, Thumbnails, make_table, write_page
from warmpot.report.style import label
from warmpot.train.explain import Explanation

__all__ = ["write_explanation"]

MAX_ROWS = 100
"""Matches in the table."""


def write_explanation(explanation: Explanation, path: Path) -> Path:
    """Write the page of an `Explanation`, with thumbnails if the samples are images; return its path."""
    name = explanation.name or f"row {explanation.row}"
    sure = "" if explanation.confidence is None else f"confidence {explanation.confidence:.0%}"
    facts = [("prediction", _text(explanation.prediction), sure)]
    if explanation.probabilities:
        likely = [f"{label(name, 40)} {p:.0%}" for name, p in explanation.probabilities.items() if p >= 0.005]
        facts.append(("probabilities", ", ".join(likely), ""))
    facts.append(("matched", f"{1 - explanation.left_out:.0%}", f"{explanation.left_out:.0%} left out"))
    if explanation.unknown is not None:
        score, smaller = explanation.unknown
        note = f"score for samples of no source class, from 0 to 1; higher than for {smaller:.0%} of the target"
        facts.append(("unknown", f"{score:.2f}", note))
    shares = [f"{label(name, 40)} {share:.0%}" for name, share in explanation.labels.items()]
    facts += [("labels of matches", ", ".join(shares), "")] if shares else []
    own = [Thumbnails([Thumb(explanation.image, name)])] if explanation.image else []
    sections = [Section("The sample", [*own, Facts(facts)]), Section("Matched source samples", _matches(explanation))]
    write_page(path, title=f"Why {_text(explanation.prediction)}?", subtitle=f"target sample {name}", sections=sections)
    return path


def _matches(explanation: Explanation) -> list[Block]:
    if not explanation.matches:
        return [Text("The plan leaves it out: it is matched with no source sample.")]
    thumbs = [
        Thumb(match.image, match.name or f"row {match.row}", f"{label(_text(match.label), 18)} · {match.share:.0%}")
        for match in explanation.matches
        if match.image
    ]
    named = any(match.name for match in explanation.matches)
    rows: list[list[TableValue]] = [
        [match.row, *([match.name] if named else []), _text(match.label),
         TableCell(f"{match.share:.1%}", value=match.share),
         TableCell(f"{match.training_weight * explanation.n_source:.2f}", value=match.training_weight)]
        for match in explanation.matches[:MAX_ROWS]
    ]  # fmt: skip
    note = "Share: of the target sample. Weight: in training; 1 is the mean of the source samples."
    table = make_table(["source row", *(["name"] if named else []), "label", "share", "weight"], rows, note=note)
    return [*([Thumbnails(thumbs, "The largest shares. Below each: label · share.")] if thumbs else []), table]


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
