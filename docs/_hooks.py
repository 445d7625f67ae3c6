"""What the site has that is generated: method catalogue, commands, code of examples, docstrings as Markdown.

mkdocs.yml names this file twice: as a hook of mkdocs, and as an extension of griffe, which reads the docstrings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import griffe
import yaml

LAYERS = (
    "transport", "losses", "costs", "weights", "bounds", "data", "nets", "methods", "train", "select", "estimators",
    "bench", "report", "errors",
)  # fmt: skip
CATALOGUE, SYSTEMS, COMMANDS = "<!-- catalogue -->", "<!-- systems -->", "<!-- commands -->"
EXAMPLE = re.compile(r"^<!-- examples/(\w+\.py) -->$", re.MULTILINE)
LAYER = re.compile(r"^::: warmpot\.(\w+)$", re.MULTILINE)
SHADOWED = """
::: warmpot.{layer}.{name}.{name}
    options: {{show_root_heading: true, show_root_full_path: false, show_root_toc_entry: true}}
"""
PIPES = re.compile(r"`[^`\n]*`")
PAGE = re.compile(r"docs/(theory|method-specifications)\.md(?:,\s+([A-Z][\w\s-]*\w(?:, code and package)?))?")
"""A docstring's reference to a page and one of its headings: "docs/theory.md, Joint cost"."""
NAME = re.compile(r"(?<!`)`(\w+)`(?!`)")
MATHS = re.compile(r"^( *)\.\. math:: (.*(?:\n\1 +\S.*)*)", re.MULTILINE)
TEX = {
    r"\\(?:text|mathrm)\{([^}]*)\}": r"\1", r"\\textstyle *": "", r"\\q?quad": "  ", r"\\[,;]": " ",
    r"\\langle ?": "⟨", r" ?\\rangle": "⟩", r"\\varepsilon": "ε", r"\^\\top": "ᵀ", r"_\{([^}]*)\}": r"_\1",
    r"\\sum": "Σ", r"\\ge": "≥", r"\\le": "≤", r"\\mid": "|", r"\\min": "min", r"\\log": "log", r"\\beta": "β",
    r"\\rho": "rho", r"\\tau": "tau",
}  # fmt: skip


class Docstrings(griffe.Extension):
    """Turn the little reStructuredText that docstrings have into Markdown, and names of the API into links."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = _markdown(obj.docstring.value, obj.name)


def _markdown(text: str, own_name: str = "") -> str:
    from warmpot.methods.descriptions import citation_free

    text = _page_links(text, "../")
    text = citation_free(text)
    text = MATHS.sub(lambda math: f"{math[1]}```text\n{_formula(math[2], math[1])}\n{math[1]}```", text)
    text = text.replace("Class attributes\n----------------\n", "Attributes\n----------\n")
    public = _public()

    def link(name: re.Match[str]) -> str:
        return f"[`{name[1]}`][{public[name[1]]}]" if name[1] in public and name[1] != own_name else name[0]

    return NAME.sub(link, text)


def _page_links(text: str, folder: str) -> str:
    """Turn references to pages of the docs into links, relative to `folder`."""

    def link(reference: re.Match[str]) -> str:
        page, heading = reference[1], " ".join((reference[2] or "").split())
        title = {"theory": "Theory", "method-specifications": "Method specifications"}[page]
        # The slug that Python's Markdown gives the heading.
        anchor = "#" + re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") if heading else ""
        return f"[{title}{', ' * bool(heading)}{heading}]({folder}{page}.html{anchor})"

    return PAGE.sub(link, text)


def _formula(tex: str, indent: str) -> str:
    """Write a formula in plain letters; the site loads no formula renderer, since those come from another host."""
    for pattern, instead in TEX.items():
        tex = re.sub(pattern, instead, tex)
    return "\n".join(indent + line.strip() for line in tex.splitlines())


_NAMES: dict[str, str] = {}


def _public() -> dict[str, str]:
    """Return where every public class and function is described, by its name."""
    if not _NAMES:
        for layer in LAYERS:
            _NAMES.update({name: f"warmpot.{layer}.{name}" for name in import_module(f"warmpot.{layer}").__all__})
            _NAMES.update({name: f"warmpot.{layer}.{name}.{name}" for name in _shadowed(layer)})
    return _NAMES


def _shadowed(layer: str) -> list[str]:
    """Return the functions with the name of a file of their layer, which griffe takes for the file."""
    module = import_module(f"warmpot.{layer}")
    files = {entry.name for entry in resources.files(module).iterdir()} if hasattr(module, "__path__") else set()
    return [name for name in module.__all__ if f"{name}.py" in files]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Insert the generated parts; in tables, Python's Markdown shows the backslash that GitHub needs before a pipe."""
    if layer := LAYER.search(markdown):
        markdown += "".join(SHADOWED.format(layer=layer[1], name=name) for name in _shadowed(layer[1]))
    if CATALOGUE in markdown:
        markdown = markdown.replace(CATALOGUE, _catalogue()).replace(SYSTEMS, _systems())
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, _commands())
    markdown = EXAMPLE.sub(lambda mark: _code(mark[1]), markdown)
    lines = markdown.splitlines()
    return "\n".join(
        PIPES.sub(lambda code: code[0].replace(r"\|", "|"), line) if line.startswith("|") else line for line in lines
    )


def _catalogue() -> str:
    from warmpot.methods import METHODS, WEIGHTINGS

    methods = [_catalogue_entry(name, kind) for name, kind in METHODS.items()]
    weightings = [_catalogue_entry(name, kind) for name, kind in WEIGHTINGS.items()]
    return "\n\n".join(["## Methods", *methods, "## Weightings", *weightings])


def _catalogue_entry(name: str, kind: Any) -> str:
    from warmpot._tables import markdown_grid
    from warmpot.methods.descriptions import citation_free, class_names, description, markdown_notes, parameters

    names = class_names()
    head = NAME.sub(lambda code: f"`{names.get(code[1], code[1])}`", _page_links(citation_free(description(kind)), ""))
    facts = [getattr(kind, "reference", ""), ", ".join(getattr(kind, "tags", ()))]
    if "engines" in vars(kind) or hasattr(kind, "engines"):
        facts += [f"weights `{kind.weights}`", f"engine {' and '.join(kind.engines)}"]
    text = [f"### {name}", f"*{kind.summary}*", "; ".join(filter(None, facts)), head]
    rows = [(f"`{p.name}`", f"`{p.default}`", p.meaning.replace("|", r"\|")) for p in parameters(kind)]
    if rows:
        grid = markdown_grid(["parameter", "default", ""], rows)
        text += [f'<details markdown="1"><summary>Parameters</summary>\n\n{grid}\n\n</details>']
    if notes := _page_links(markdown_notes(kind), ""):
        text += ["**Deviations.**\n\n" + notes if notes.startswith("- ") else "**Notes and deviations.** " + notes]
    presets = _presets(name)
    text += [markdown_grid(["preset", "what it is", "status"], presets)] if presets else []
    return "\n\n".join(filter(None, text))


def _presets(name: str) -> list[tuple[str, str, str]]:
    from warmpot.cli.methods import preset_summary
    from warmpot.report.sections.provenance import preset_status
    from warmpot.train import load_config, preset_names

    rows = []
    for preset in preset_names():
        config = load_config(preset)
        if name not in (config.method, config.weights):
            continue
        status = preset_status(preset, type(config.built_method), config.engine)
        about = re.sub(r" \(ours[^)]*\)", "", preset_summary(preset)).replace("|", r"\|")
        rows.append((f"`{preset}`", about, status))
    return rows


def _systems() -> str:
    from warmpot._tables import escape_markdown, markdown_grid

    paper = yaml.safe_load((resources.files("warmpot") / "bench" / "reported.yaml").read_text(encoding="utf-8"))
    tables = [paper["tables"][name]["systems"] for name in ("office-home", "imagenet-caltech")]
    rows = []
    for system, facts in paper["systems"].items():
        numbers = [t[system].get("average", t[system]["accuracy"][0]) if system in t else "" for t in tables]
        ours = ", ".join(f"`{preset}`" for preset in facts.get("presets", ()))
        run = "run as an interpretation" if facts.get("interpretation") else "run"
        status = f"{run}: {ours}" if ours else f"reported only: {escape_markdown(facts['why'])}"
        rows.append(
            (
                f"{escape_markdown(system)} ({escape_markdown(facts['cited'])})",
                *numbers,
                escape_markdown(facts["chosen"]),
                status,
            )
        )
    head = ["system", "Office-Home", "ImageNet-Caltech", "chosen by", "here"]
    return markdown_grid(head, rows)


def _code(example: str) -> str:
    """Return an example as a block of code."""
    code = (Path(__file__).parents[1] / "examples" / example).read_text(encoding="utf-8")
    return f"```python\n{code}```"


class _Tables:
    """Stands in for the formatter of a command's help: the same lists of arguments and flags, as Markdown tables."""

    def __init__(self) -> None:
        self.title = ""
        self.parts: list[str] = []

    @contextmanager
    def section(self, title: str) -> Iterator[None]:
        self.title = title
        yield

    def write_dl(self, records: list[tuple[str, str]]) -> None:
        from warmpot._tables import markdown_grid

        rows = [(f"`{names}`".replace("|", r"\|"), meaning.replace("|", r"\|")) for names, meaning in records]
        self.parts.append(markdown_grid([self.title, ""], rows))


def _commands() -> str:
    """Describe every command by its help, commands of a group after the group's name."""
    import typer

    from warmpot.cli import app

    root: Any = typer.main.get_command(app)
    commands = {name: command for name, command in root.commands.items() if not hasattr(command, "commands")}
    for group in root.commands.values():
        commands |= {f"{group.name} {name}": command for name, command in getattr(group, "commands", {}).items()}
    text, parent = [], typer.Context(root, **root.context_settings)  # the flags of help are inherited from it
    for name, command in commands.items():
        context, tables = typer.Context(command, parent=parent), _Tables()
        usage = " ".join([f"warmpot {name}", *command.collect_usage_pieces(context)])
        command.format_options(context, tables)
        text += [f"## {name}", command.help, f"```text\n{usage}\n```", *tables.parts]
    return "\n\n".join(text)
