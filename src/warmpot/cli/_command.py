"""What all commands have in common: panels of options, flags that were renamed, and inputs that must exist."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from warmpot.cli._shared import complain
from warmpot.errors import InputError

__all__ = ["HELP", "Command"]

HELP = {"help_option_names": ["-h", "--help"]}
RENAMED = {
    "extract": {"--weights": "--backbone-weights"},
    "sweep": {"--workers": "--jobs"},
    "run": {"--workers": "--jobs"},
}
"""Old names of flags, by command: in other commands they mean something else."""
DEFAULT_PANEL = "Options"
READS = {
    "bound": ("run",), "explain": ("run",), "export": ("run",), "extract": ("images",), "predict": ("run", "data"),
    "report": ("run",),
}  # fmt: skip
"""What commands read that print nothing else before their imports, which can take seconds."""


class Command(TyperCommand):
    """A command whose help has one list per panel, and whose arguments that are paths must exist.

    The paths are checked here because this is before anything heavy is imported: a mistyped name is reported at once.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        new_names, words = RENAMED.get(self.name or "", {}), []
        for word in args:
            flag, equals, value = word.partition("=")
            if flag in new_names:
                complain(f"warning: {flag} is now called {new_names[flag]}; the old name will be removed", "yellow")
            words.append(new_names.get(flag, flag) + equals + value)
        return super().parse_args(ctx, words)

    def invoke(self, ctx: Any) -> Any:
        for param in self.params:
            value = ctx.params.get(param.name)
            is_input = param.param_type_name == "argument" or param.name in ("source_", "target_")
            if is_input and isinstance(value, Path) and not os.path.lexists(value):
                is_run = param.name == "run"
                allowed = "the folder of a run" if is_run else "a file or folder you may read"
                remedy = "Name one that `warmpot fit` wrote." if is_run else "Check spelling, folder and permissions."
                raise InputError(str(value), got="No such file or directory", allowed=allowed, remedy=remedy)
        if self.name in READS and not ctx.params.get("quiet"):
            complain(f"reading {' and '.join(str(ctx.params[name]) for name in READS[self.name])}", "dim")
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        # some versions of typer put required arguments into braces, which elsewhere mean a choice
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            default = "Arguments" if param.param_type_name == "argument" else DEFAULT_PANEL
            record = param.get_help_record(ctx)
            if record is not None:
                panels.setdefault(getattr(param, "rich_help_panel", None) or default, []).append(record)
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records)
