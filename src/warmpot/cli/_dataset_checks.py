"""What ``warmpot doctor --dataset`` looks at: the folders of a data set of this field."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from warmpot.cli._machine import Finding
from warmpot.cli._shared import one_line
from warmpot.errors import WarmpotError

__all__ = ["check_dataset", "describe_dataset"]


def check_dataset(name: str, root: Path) -> Iterator[Finding]:
    """Compare what lies below a folder with what should."""
    from warmpot.data.benchmarks import read_benchmark

    benchmark = read_benchmark(name)
    try:
        for finding in benchmark.check(root):
            yield Finding(finding.level, finding.domain, finding.text)
    except (OSError, WarmpotError) as error:
        yield Finding("fail", "root", one_line(error))


def describe_dataset(name: str) -> Iterator[str]:
    """Tell what is expected below the root, and where to get it."""
    from warmpot.data.benchmarks import read_benchmark

    benchmark = read_benchmark(name)
    yield f"{benchmark.title}: {benchmark.n_classes} classes in a source, {len(benchmark.shared)} of them in a target"
    yield from ("", benchmark.tree(), "", "A folder `images` between a domain and its classes is passed over.", "")
    if benchmark.classes:
        yield f"Classes of a target: {', '.join(benchmark.shared)}"
        yield f"Only in a source: {', '.join(name for name in benchmark.classes if name not in benchmark.shared)}"
    for domain in benchmark.domains:
        if any(folder != word for folder, word in domain.names.items()):
            pairs = ", ".join(f"{folder} = {word}" for folder, word in domain.names.items())
            yield f"Classes of {domain.name}: {pairs}"
    yield from ("", "Get it from (nothing is downloaded here):", *(f"  {place}" for place in benchmark.obtain), "")
    yield f"Terms: {benchmark.licence}"
    yield f"Cite: {benchmark.citation}"
    yield f"Lists: {benchmark.lists}"
    yield f"Note: {benchmark.note}"
    yield from ("", f"Check your copy: warmpot doctor --dataset {name} --root DIR")
