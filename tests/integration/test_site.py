"""The docs site: every page is in its navigation, it builds without a warning, and asks no other host for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import warmpot
from warmpot.cli import app
from warmpot.methods import METHODS, WEIGHTINGS

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")


def leaves(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for value in entry.values() if isinstance(entry, dict) else entry:
            yield from leaves(value)


def settings() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    return found


def test_navigation_has_every_page_once() -> None:
    pages = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
    assert sorted(leaves(settings()["nav"])) == pages


def test_every_layer_has_a_page_of_its_api() -> None:
    contracts = (ROOT / "pyproject.toml").read_text()
    layers = set(re.findall(r'"warmpot\.([a-z]\w*)",?$', contracts[contracts.index("layers = [") :], re.MULTILINE))
    pages = {path.stem for path in (ROOT / "docs" / "api").glob("*.md")}
    assert layers - {"cli"} <= pages
    assert {"transport", "methods", "report", "bench"} <= layers


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("material") is None or find_spec("mkdocstrings_handlers") is None:
        pytest.skip("the site needs mkdocs-material and mkdocstrings-python")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stdout + done.stderr
    return folder


def test_pages_ask_no_other_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert not [(page.name, found) for page in pages for found in FOREIGN.findall(page.read_text())]


def test_catalogue_has_every_method_with_its_deviations(site: Path) -> None:
    page = (site / "catalogue.html").read_text()
    assert not [name for name in (*METHODS, *WEIGHTINGS) if f'<h3 id="{name}">' not in page]
    assert page.count("eviations") > len(METHODS)
    runs, interpretations = page.count("run: <code>"), page.count("run as an interpretation: <code>")
    assert (page.count("reported only:"), runs, interpretations) == (4, 21, 3)


def test_reference_has_every_command_with_its_help_and_flags(site: Path) -> None:
    page = unescape((site / "cli.html").read_text())
    root: Any = typer.main.get_command(app)
    bench = root.commands["bench"]
    commands = {**root.commands, **{f"bench {name}": command for name, command in bench.commands.items()}}
    del commands["bench"]
    sections = {}
    for section in page.split("<h2 id=")[1:]:
        name, _, text = section.partition(">")[2].partition("<")
        sections[name] = text
    assert list(sections) == list(commands)
    for name, command in commands.items():
        assert " ".join(command.help.partition("\n\n")[0].split()) in sections[name]
        names = [word for param in command.params if not getattr(param, "hidden", False) for word in param.opts]
        flags = ["-h, --help", *(word for word in names if word.startswith("-"))]
        assert not [flag for flag in flags if flag not in sections[name]], name


def test_api_has_every_public_class_and_function(site: Path) -> None:
    for page in (site / "api").glob("*.html"):
        text, module = page.read_text(), import_module(f"warmpot.{page.stem}")
        names = [name for name in module.__all__ if callable(getattr(module, name))]
        layer = re.escape(module.__name__)
        missing = [name for name in names if not re.search(rf'id="{layer}(\.\w+)?\.{name}"', text)]
        assert not missing, module.__name__


def test_api_shows_inherited_methods(site: Path) -> None:
    text = (site / "api" / "estimators.html").read_text()
    own = {"PartialReweighter": ["fit"], "WarmpotRegressor": ["fit", "predict", "save", "load", "report"]}
    shared = ["fit", "predict", "predict_proba", "save", "load", "report"]
    names = [f"{kind}.{name}" for kind in warmpot.estimators.__all__ for name in own.get(kind, shared)]
    assert len(names) > 20
    assert not [name for name in names if f'id="warmpot.estimators.{name}"' not in text]
