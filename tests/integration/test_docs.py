"""The pages of docs/: their Python blocks run, their outputs, figures, links and numbers are what they should be."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import warmpot
from warmpot.cli import app
from warmpot.data import digits_task
from warmpot.methods import METHODS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md"]
NOTES = [ROOT / "CHANGES.md", ROOT / "CONTRIBUTING.md"]
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)\)")
REFERENCE = re.compile(r"docs/([\w/-]+\.md)(?:,\s+([A-Z][\w\s-]*\w(?:, code and package)?))?")
UNSHIPPED = re.compile(r"\b(?:SPEC|METHODS|DESIGN)(?:\.md| sections? \d)|\b(?:eq|thm|app|lemma|cor):\w")


def load_figures() -> ModuleType:
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("docs_figures", DOCS / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks_with_output(page: Path) -> list[tuple[str, str | None]]:
    """Python blocks of a page in order, each with the text block right after it, if there is one."""
    found = list(BLOCK.finditer(page.read_text()))
    pairs: list[tuple[str, str | None]] = []
    for kind, body in (block.groups() for block in found):
        if kind == "python":
            pairs.append((body, None))
        elif pairs:
            pairs[-1] = (pairs[-1][0], body)
    return pairs


def test_there_are_pages_with_code() -> None:
    assert {"README.md", "engines.md", "first-run.md", "methods.md", "partial-transport.md", "which-solver.md"} <= {
        page.name for page in PAGES
    }
    assert all(blocks_with_output(DOCS / name) for name in ("first-run.md", "partial-transport.md"))


@mock.patch.dict(METHODS)  # a page may register a method
@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_python_blocks_run_and_print_what_the_page_says(page: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, (code, expected) in enumerate(blocks_with_output(page), start=1):
        printed = io.StringIO()
        # A page's code has no part in this file's __future__.
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{page.name}, python block {number}", "exec", dont_inherit=True), namespace)
        if expected is not None:
            assert printed.getvalue() == expected, f"{page.name}, python block {number}"


def _masked(text: str) -> str:
    return " ".join(re.sub(r"\d+(\.\d+)?", "#", text).split())


def test_first_run_shows_what_the_commands_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, table in zip(("source", "target"), digits_task(), strict=True):
        np.savez(f"{name}.npz", X=table.x, y=table.y, classes=np.array(table.classes))
    text = (DOCS / "first-run.md").read_text()
    for command in ("doctor source.npz target.npz", "fit source.npz target.npz", "explain runs/source-target-full 1"):
        shown = text.partition(f"$ warmpot {command}\n")[2].partition("```")[0].splitlines()
        printed = CliRunner().invoke(app, command.split(), terminal_width=200).stdout
        lines = {_masked(line) for line in printed.splitlines()}
        # times, the number of packages that the doctor checks, and the last digits differ between machines
        stable = [line for line in shown if not re.match(r"time|\.\.\.|\d+ ok,|ok .*gap|\s*\d+\.\d%", line)]
        assert len(stable) > 5
        assert not [line for line in stable if _masked(line) not in lines], command


@pytest.mark.parametrize("page", [*PAGES, *NOTES], ids=lambda page: f"{page.parent.name}/{page.name}")
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not missing


def test_the_package_refers_to_pages_and_headings_that_exist() -> None:
    missing = []
    for path in (path for kind in ("*.py", "*.yaml") for path in (ROOT / "src").rglob(kind)):
        for page, heading in REFERENCE.findall(path.read_text()):
            text = (DOCS / page).read_text() if (DOCS / page).exists() else ""
            # Only these two pages are cited by heading; after other names the sentence continues.
            cited = " ".join(heading.split()) if page in ("theory.md", "method-specifications.md") else ""
            if not text or (cited and not re.search(rf"^#+ {re.escape(cited)}$", text, re.MULTILINE)):
                missing.append((path.name, page, heading))
    assert not missing


def test_nothing_cites_documents_that_users_do_not_have() -> None:
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.yaml"), *PAGES]
    assert not [(path.name, cited[0]) for path in files for cited in UNSHIPPED.finditer(path.read_text())]


def test_index_names_every_page() -> None:
    index = (DOCS / "README.md").read_text()
    pages = [page.relative_to(DOCS).as_posix() for page in PAGES if page.name != "README.md"]
    assert not [page for page in pages if f"({page})" not in index]


def test_contributing_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text[text.index("## I want to add") : text.index("## Style")]
    names = [name for name in re.findall(r"`([\w./*<>-]+)`", table) if "/" in name or name.endswith(".py")]
    patterns = [re.sub(r"<\w+>\*?", "*", name) for name in names]
    # Files that a newcomer would add match those that are there already.
    missing = [name for name in patterns if not [*ROOT.glob(name), *(ROOT / "src" / "warmpot").glob(name)]]
    assert len(patterns) > 20
    assert not missing


def test_the_workflow_runs_what_the_makefile_has() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    commands = [step["run"].split() for job in jobs.values() for step in job["steps"] if "run" in step]
    targets = {word for command in commands for word in command[1:] if word.isalpha()}
    rules = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"lint", "types", "layers", "pytest", "docs"} <= targets
    assert targets <= rules


def test_citation_has_the_version_of_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == warmpot.__version__


def test_readme_names_extras_status_and_paper_as_the_package_has_them() -> None:
    readme, project = (ROOT / "README.md").read_text(), (ROOT / "pyproject.toml").read_text()
    extras = re.findall(r"^(\w+) = \[", project.partition("[project.optional-dependencies]")[2], re.MULTILINE)
    extras = extras[: extras.index("dev")]
    install = readme.partition("## Install")[2].partition("## ")[0]
    assert len(extras) == 6
    assert not [name for name in extras if f"`{name}`" not in install and f".[{name}]" not in install]
    assert "Development Status :: 3 - Alpha" in project
    assert "**Status: alpha.**" in readme
    paper = yaml.safe_load((ROOT / "CITATION.cff").read_text())["references"][0]
    entry = readme.partition("```bibtex")[2].partition("```")[0].replace('{\\"o}', "ö")
    people = " and ".join(f"{author['family-names']}, {author['given-names']}" for author in paper["authors"])
    facts = [paper["title"], people, paper["url"], paper["collection-title"], f"{paper['start']}--{paper['end']}"]
    assert not [fact for fact in facts if f"{{{fact}}}" not in entry]


def test_images_are_light() -> None:
    images = list((DOCS / "img").glob("*.png"))
    assert images
    assert all(image.stat().st_size < 150 * 1024 for image in images)


@pytest.mark.parametrize("name", ["which-solver.md", "cli.md"])
def test_numbers_are_those_of_the_last_measurement(name: str) -> None:
    figures, page = load_figures(), (DOCS / name).read_text()
    assert f"{figures.START}\n\n{figures.numbers()[name]}\n\n{figures.END}" in page, "run: python docs/figures.py"
