"""How a run was made, and the command that makes it again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import yaml

from warmpot._tables import printable
from warmpot.methods.descriptions import plain_notes
from warmpot.report._run import Run, repeat_command
from warmpot.report.card import status
from warmpot.report.page import Block, Code, Details, Facts, Section, Table, Text
from warmpot.report.run_words import chosen
from warmpot.report.seen import Seen

__all__ = ["made"]


def made(seen: Seen) -> Section:
    """Tell method, data, settings, versions and the command."""
    run = seen.run
    blocks: list[Block] = [
        Facts(list(_facts(run))),
        Text("The same again:"),
        Code(repeat_command(run, whole=True, safe=printable)),
    ]
    if run.changes:
        blocks.append(Text(f"Settings that are not the preset's: {', '.join(run.changes)}."))
    if said := plain_notes(run.method) if run.method else []:
        blocks.append(Details("Notes on the method, with its deviations from paper and code", [*map(Text, said)]))
    blocks.append(
        Details("All settings", [Code(yaml.safe_dump(dict(run.config), sort_keys=False, allow_unicode=True))])
    )
    versions = [[str(name), str(version)] for name, version in run.versions.items()]
    blocks += [Details("Versions", [Table(["package", "version"], versions)])] if versions else []
    return Section("How it was made", blocks)


def _facts(run: Run) -> Iterator[tuple[str, str, str]]:
    method = run.method
    yield "method", run.setting("method"), method.summary if method else ""
    if method and method.reference:
        yield "reference", method.reference, ""
    yield "status", status(run), ""
    yield "preset, engine", f"{run.setting('preset')}, {run.setting('engine')}", ""
    own = "row sums of its plan" if run.setting("weights") == "own" else ""
    yield "weights", run.setting("weights"), own
    yield "result", f"{run.unit} {run.step}", chosen(run)
    yield "seed", run.seed, ""
    if run.images:
        part = run.images["backbone"]["train_from"]
        yield "backbone", str(run.images["backbone"]["name"]), "frozen" if part is None else f"trained from {part} on"
    for side, n in (("source", run.n_source), ("target", run.n_target)):
        yield side, str(run.facts.get(side) or "not recorded"), f"{n:,} samples" if n else ""
    yield "fingerprint", str(run.mark.get("fingerprint", "")), "of the data"
    yield "folder", str(run.folder.resolve()), ""
    yield from _times(run)


def _times(run: Run) -> Iterator[tuple[str, str, str]]:
    """Tell when it was begun and finished, by the times of its files."""

    def written(name: str) -> datetime | None:
        file: Path = run.folder / name
        return datetime.fromtimestamp(file.stat().st_mtime, timezone.utc) if file.exists() else None

    begun, ended = written("run.json"), written("predictions.csv")
    if begun and ended and ended >= begun:
        took = (ended - begun).total_seconds()
        words = f"{took:.1f} s" if took < 120 else f"{took / 60:.0f} min" if took < 7200 else f"{took / 3600:.1f} h"
        yield "finished", f"{ended:%Y-%m-%d %H:%M} UTC", f"took {words}, by the times of its files"
