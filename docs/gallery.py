"""Run the examples, and write docs/gallery.md with what they print and draw (`make gallery`).

The code of each example is inserted when the site is built, by docs/_hooks.py.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import runpy
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parent
EXAMPLES = DOCS.parent / "examples"
WIDTH = 170  # of the small pictures, in pixels: two fit on a phone
HEAD = """# Gallery

Programs of the folder `examples`, with what they print and draw. They need no data and no GPU; all of them together
take less than a minute. `make gallery` runs them and writes this page.

The first one as a notebook: `examples/quickstart.ipynb`. A service over HTTP, `examples/serve.py`: [load and
serve](how-to/serving.md)."""


class Example(NamedTuple):
    """An example: file without suffix, title, the picture that it writes, whether it prints times or sizes."""

    name: str
    title: str
    picture: str
    varies: bool = False


GALLERY = (
    Example("quickstart", "Quick start", "quickstart.png"),
    Example("partial_transport", "Relevant source samples", "transport-demo/plan.png", varies=True),
    Example("certified_plan", "A certified plan", "certified_plan.png"),
    Example("weights_for_any_model", "Weights for any model", "weights_for_any_model.png"),
    Example("bound_of_a_run", "A bound, term by term", "bound_of_a_run.png"),
    Example("report_of_a_run", "A report", "report-demo/figures/embedding-after.png", varies=True),
    Example("own_method", "Your own method", "own_method.png"),
    Example("bench_grid", "A small bench", "bench-demo/bench_grid.png"),
)


def description(name: str) -> str:
    """Return the docstring of an example without the paragraph that says how to call it."""
    docstring = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))) or ""
    return "\n\n".join(part for part in docstring.split("\n\n") if not part.startswith("python "))


def section(example: Example, printed: str) -> str:
    """Write the part of the page about one example."""
    name, title = example.name, example.title
    folded = f'<details markdown="1"><summary>examples/{name}.py</summary>\n\n<!-- examples/{name}.py -->\n\n</details>'
    picture = f"![{title}](img/gallery-{name}.png)"
    return "\n\n".join([f"## {title}", description(name), picture, f"```text\n{printed}```", folded])


def contents() -> str:
    """Write small pictures that lead to the sections."""
    links = []
    for name, title, *_ in GALLERY:
        anchor = title.lower().replace(",", "").replace(" ", "-")
        picture = f'<img src="img/gallery-{name}.png" alt="{title}" title="{title}" width="{WIDTH}">'
        links.append(f"[{picture}](#{anchor})")
    return "\n".join(links)


def run(name: str) -> str:
    """Run an example in the current folder, and return what it prints."""
    sys.argv = [f"{name}.py"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return printed.getvalue()


def main() -> None:
    sections = []
    for example in GALLERY:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            sections.append(section(example, run(example.name)))
            shutil.copyfile(example.picture, DOCS / "img" / f"gallery-{example.name}.png")
            os.chdir(DOCS)
        print(example.name)
    (DOCS / "gallery.md").write_text("\n\n".join([HEAD, contents(), *sections]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
