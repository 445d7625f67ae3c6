"""The tasks of the development suite: which exist, which classes their targets have, and their samples."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from _domains import DIGITS, OFFICE, part, read_domain, rows_of, standard_classes

if TYPE_CHECKING:
    from warmpot.data import Table

DOMAINS = {**OFFICE, "digits": ("mnist", "usps"), "built-in": ("fonts", "handwritten")}
EXTRACTED = {"office31-lite0": ("amazon", "webcam")}
"""Families whose features the suite extracts itself, from images."""
SHARED = {
    "20newsgroups_lsa256": tuple(f"subgroups{k}" for k in range(1, 5)),
    "chest_accel": tuple(f"subject{k:02d}" for k in range(1, 16)),
    "coil20": ("coil1", "coil2"),
    "cwru_12k_de": tuple(f"load{k}hp" for k in range(4)),
    "digits16": ("mnist", "semeion", "usps"),
    "forest_cover": ("cache_la_poudre", "comanche_peak", "neota", "rawah"),
    "gas_drift": tuple(f"batch{k}" for k in (1, 2, 3, 4, 5, 6, 8, 9)),
    "msrc_voc2007": ("msrc", "voc2007"),
    "office_caltech10_surf": ("amazon", "caltech", "dslr", "webcam"),
    "satellitescene5_vggm": ("remotesensing", "ucmerced-landuse"),
    "wisdm_groups": tuple(f"group{k}" for k in range(4)),
    "pacs": ("art_painting", "cartoon", "photo"),
    "text": ("bbc_lead", "bbc_title", "huffpost"),
}
"""Sets of which at most `PAIRS` pairs of domains are drawn, with other classes for each; their domains may have
different classes, of which the target has some that the source has, too."""
PAIRS = 6
FAMILIES = {
    "office31": "office", "office_home": "office", "office31-lite0": "office", "office_caltech10_surf": "surf",
    "satellitescene5_vggm": "aerial", "coil20": "objects", "msrc_voc2007": "visual words", "digits": "digits",
    "digits16": "digits", "20newsgroups_lsa256": "text", "gas_drift": "gas", "chest_accel": "wearables",
    "wisdm_groups": "wearables", "cwru_12k_de": "bearings", "forest_cover": "forest",
}  # fmt: skip
"""The family of a set, which constants are chosen without; the name of the set itself where it is missing."""
CLASSES = {"office31": 31, "office_home": 65, "digits": 10, "built-in": 10}
SIZES = (1, 2, 5, 10, 15, 25, 40)
DRAWS = 3
SKEW = 10.0
"""Samples of the first class of a skewed target for one of the last."""
FEW = 5
"""Samples per class of a small target."""


@dataclass(frozen=True)
class Spec:
    """A task by name.

    Attributes
    ----------
    family, source, target : str
        Where it comes from. With the same source and target, the two are disjoint halves of the domain.
    kind : str
        "standard", "all", "size-5", "skew", "small"; "same-standard" and "same-all" for halves of one domain.
    draw : int
        Number of the draw of classes.
    """

    family: str
    source: str
    target: str
    kind: str
    draw: int = 0

    @property
    def name(self) -> str:
        """Family, pair, kind and draw."""
        draw = f".{self.draw}" if self.kind.startswith("size-") else ""
        return f"{self.family}/{self.source}-{self.target}/{self.kind}{draw}"

    @property
    def group(self) -> str:
        """Family and kind: what is averaged."""
        return f"{self.family}/{self.kind}"

    @property
    def domains(self) -> frozenset[str]:
        """The data sets it contains, whatever the features are made with."""
        return frozenset(f"{data_set(self.family)}/{domain}" for domain in (self.source, self.target))


def data_set(family: str) -> str:
    """Return the data set of a family: other features of the same images are the same data."""
    return family.removesuffix("-lite0")


def kind_of_data(family: str) -> str:
    """Return the family of data sets that are left out together."""
    return FAMILIES.get(family, family)


def drawn_pairs(family: str) -> list[tuple[str, str]]:
    """Return the ordered pairs of domains of a set of `SHARED`, `PAIRS` of them drawn if there are more."""
    domains = SHARED[family]
    pairs = [(s, t) for s in domains for t in domains if s != t]
    if family == "text":  # titles and first sentences are of the same articles
        pairs = [pair for pair in pairs if "huffpost" in pair]
    drawn = generator("pairs", family).permutation(len(pairs))[:PAIRS]
    return [pairs[k] for k in sorted(drawn)]


def shared_specs(families: Sequence[str] = tuple(SHARED)) -> list[Spec]:
    """List all tasks of some sets of `SHARED`."""
    kinds = ("size-1", "size-2", "half", "all", "skew", "small")
    return [
        Spec(family, *pair, kind)
        for family in families for pair in drawn_pairs(family) for kind in kinds
        # of 41 topics, those that are shared are fewer than half
        if (pair[0], kind) != ("huffpost", "half")
    ]  # fmt: skip


def specs(families: dict[str, tuple[str, ...]]) -> list[Spec]:
    """List all tasks of some families."""
    tasks = []
    for family, domains in families.items():
        sizes = [size for size in SIZES if size < CLASSES[data_set(family)]]
        kinds = [("standard", 0), *((f"size-{size}", draw) for size in sizes for draw in range(DRAWS))]
        kinds += [("all", 0), ("skew", 0), ("small", 0)]
        for source in domains:
            for target in domains:
                pair = [("same-standard", 0), ("same-all", 0)] if source == target else kinds
                tasks += [Spec(family, source, target, kind, draw) for kind, draw in pair]
    return tasks


def generator(*keys: str | int) -> np.random.Generator:
    """Return random numbers that depend on these keys only."""
    return np.random.default_rng([zlib.crc32(str(key).encode()) for key in keys])


def target_classes(spec: Spec, classes: Sequence[str]) -> tuple[str, ...]:
    """Return the classes of the target; a draw depends on data set, size and number only, not on the pair."""
    if spec.kind.startswith("size-"):
        size = int(spec.kind.removeprefix("size-"))
        drawn = generator(data_set(spec.family), size, spec.draw).choice(len(classes), size, replace=False)
        return tuple(sorted(np.array(sorted(classes))[drawn].tolist()))
    if spec.kind in ("all", "same-all"):
        return tuple(sorted(classes))
    return standard_classes(spec.family, classes)


def halves(labels: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Split samples at random into two disjoint halves, each with half of every class."""
    mixed = rng.permutation(len(labels))
    by_class = mixed[np.argsort(labels[mixed], kind="stable")]
    return np.sort(by_class[::2]), np.sort(by_class[1::2])


def class_sizes(kind: str, available: np.ndarray) -> np.ndarray:
    """Return how many samples of every class a target has: as many as possible, unless it is skewed or small."""
    if kind == "small":
        return np.minimum(FEW, available)
    if kind == "skew":
        shape = SKEW ** -np.linspace(0, 1, len(available))
        largest = np.min(available / shape)  # with which no class runs out of samples
        return np.maximum(1, np.round(largest * shape)).astype(int)
    return available


def shared_classes(spec: Spec, source: Table, target: Table) -> tuple[str, ...]:
    """Return the target's classes of a task of a set of `SHARED`: drawn for each pair from those that both have."""
    ours, theirs = ({table.classes[code] for code in np.unique(table.y)} for table in (source, target))
    both = sorted(ours & theirs)
    half = (len(ours) + 1) // 2
    size = {"size-1": 1, "size-2": 2, "all": len(both)}.get(spec.kind, half)
    drawn = generator(spec.family, spec.source, spec.target, size).permutation(len(both))[:size]
    return tuple(sorted(np.array(both)[drawn].tolist()))


def target_rows(
    spec: Spec, table: Table, candidates: np.ndarray, rng: np.random.Generator, classes: Sequence[str]
) -> np.ndarray:
    """Draw the rows of the target from the candidates."""
    pools = [rng.permutation(np.intersect1d(rows_of(table, [name]), candidates)) for name in classes]
    sizes = class_sizes(spec.kind, np.array([len(pool) for pool in pools]))
    return np.concatenate([pool[:size] for pool, size in zip(pools, sizes, strict=True)])


def load(spec: Spec, folder: Path) -> tuple[Table, Table]:
    """Return source and target; the target's labels shall be used after training only."""
    source, target = (read_domain(spec.family, domain, folder) for domain in (spec.source, spec.target))
    rng = generator("rows", data_set(spec.family), spec.source, spec.target)
    if spec.source == spec.target:
        rows, candidates = halves(np.asarray(source.y), rng)
    else:
        rows, candidates = np.arange(source.n), np.arange(target.n)
    classes = shared_classes(spec, source, target) if spec.family in SHARED else target_classes(spec, target.classes)
    drawn = target_rows(spec, target, candidates, rng, classes)
    if spec.family == "digits":
        rows, drawn = rng.permutation(rows)[:DIGITS], rng.permutation(drawn)
        # a skewed target stays skewed: every class loses the same share
        drawn = drawn[:DIGITS]
    return part(source, rows), part(target, np.sort(drawn))
