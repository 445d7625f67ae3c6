"""How a run was made: method, settings, data, versions, and the command that repeats it."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from warmpot._tables import printable
from warmpot.methods.descriptions import plain_notes
from warmpot.report.card import status
from warmpot.report.page import Block, Code, Details, Facts, Section, Table, Text
from warmpot.report.run_commands import changed_settings, repeat_command
from warmpot.report.run_view import RunView
from warmpot.report.sections.wording import chosen_iterate
from warmpot.train.finished_run import UNKNOWN, FinishedRun

__all__ = ["provenance_section"]


def provenance_section(view: RunView) -> Section:
    """Show method, data, settings, versions and the command."""
    run = view.run
    command = Code(repeat_command(run, full_paths=True, escape=printable))
    blocks: list[Block] = [Facts(list(_facts(run))), Text("To repeat this run:"), command]
    if changes := changed_settings(run):
        blocks.append(Text(f"Settings that differ from the preset: {', '.join(changes)}."))
    if notes := plain_notes(run.method) if run.method else []:
        blocks.append(Details("Notes on the method, and how it deviates from paper and code", [*map(Text, notes)]))
    settings = yaml.safe_dump(dict(run.config), sort_keys=False, allow_unicode=True)
    blocks.append(Details("All settings", [Code(settings)]))
    versions = [[str(name), str(version)] for name, version in run.versions.items()]
    blocks += [Details("Versions", [Table(["package", "version"], versions)])] if versions else []
    return Section("How it was made", blocks)


def _facts(run: FinishedRun) -> Iterator[tuple[str, str, str]]:
    method = run.method
    yield "method", run.setting("method"), method.summary if method else ""
    if method and method.reference:
        yield "reference", method.reference, ""
    yield "status", status(run), ""
    yield "preset, engine", f"{run.setting('preset')}, {run.setting('engine')}", ""
    yield "weights", run.setting("weights"), "row sums of its plan" if run.setting("weights") == "own" else ""
    yield "result", f"{run.unit} {run.step}", chosen_iterate(run)
    yield "seed", run.seed, ""
    if run.images:
        part = run.images["backbone"]["train_from"]
        yield "backbone", str(run.images["backbone"]["name"]), "frozen" if part is None else f"trained from {part} on"
    for side, n in (("source", run.n_source), ("target", run.n_target)):
        yield side, str(run.facts.get(side) or UNKNOWN), f"{n:,} samples" if n else ""
    yield "fingerprint", str(run.record.get("fingerprint", "")), "of the data"
    if run.folder is not None:
        yield "folder", str(run.folder.resolve()), ""
    if run.times is not None:
        start, end = run.times
        took = (end - start).total_seconds()
        time = f"{took:.1f} s" if took < 120 else f"{took / 60:.0f} min" if took < 7200 else f"{took / 3600:.1f} h"
        yield "finished", f"{end:%Y-%m-%d %H:%M} UTC", f"took {time}, according to the times of its files"
