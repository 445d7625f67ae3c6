"""Shared by the benchmarks: the domains of the development data, read whole, and parts of them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from _jobs import ROOT

if TYPE_CHECKING:
    from warmpot.data import Table

OFFICE31 = ("back_pack", "bike", "calculator", "headphones", "keyboard", "laptop_computer", "monitor", "mouse", "mug",
            "projector")  # fmt: skip
KINDS = (
    "20newsgroups_lsa256", "chest_accel", "coil20", "cwru_12k_de", "digits16", "forest_cover", "gas_drift",
    "msrc_voc2007", "office_caltech10_surf", "satellitescene5_vggm", "wisdm_groups",
)  # fmt: skip
"""Sets of other kinds than photographs of office objects; folders of `other`."""
OFFICE = {"office31": ("amazon", "dslr", "webcam"), "office_home": ("Art", "Product", "RealWorld")}
DIGITS = 3000
"""Samples of MNIST and USPS drawn."""
CACHE = ROOT / "benchmarks" / "results" / ".cache"
"""Features that a benchmark extracted itself; not under version control."""


def data_folder() -> Path:
    return next((p / "shared" / "data" for p in ROOT.parents if (p / "shared" / "data").is_dir()), ROOT / "data")


def resize_digits(images: np.ndarray) -> np.ndarray:
    """Bring digits to 16 x 16 pixels in [0, 1]: MNIST's margin of 4 is cut off, as USPS has none."""
    from PIL import Image

    if images.shape[1] == 28:
        small = [Image.fromarray(image[4:24, 4:24]).resize((16, 16), Image.Resampling.BILINEAR) for image in images]
        images = np.stack([np.asarray(image) for image in small])
    return images.reshape(len(images), -1).astype(np.float32) / 255.0


def read_domain(family: str, domain: str, folder: Path) -> Table:
    """Return all samples of all classes of a domain."""
    from warmpot.data import as_table, digits_task, load_table

    if family == "digits":
        digits = np.load(folder / family / f"{domain}.npz")
        return as_table(resize_digits(digits["X"]), digits["y"], name=domain)
    if family == "built-in" and domain == "handwritten":
        from sklearn.datasets import load_digits

        return as_table(*load_digits(return_X_y=True), name=domain)  # `digits_task` has the digits 0 to 4 only
    if family == "built-in":
        return digits_task(seed=0)[0]
    root = CACHE if family.endswith("-lite0") else folder / "other" if family in KINDS else folder
    return load_table(root / family / f"{domain}.npz")


def standard_classes(family: str, classes: Collection[str]) -> tuple[str, ...]:
    """Return the target's classes in the usual partial task of a family."""
    if family.startswith("office31"):
        return OFFICE31
    return tuple(sorted(classes)[: 25 if family == "office_home" else 5])


def rows_of(table: Table, classes: Collection[str]) -> np.ndarray:
    """Return the rows of some classes."""
    return np.flatnonzero(np.isin(np.array(table.classes)[table.y], list(classes)))


def part(table: Table, rows: np.ndarray) -> Table:
    """Return some rows of a table, with its list of classes."""
    from warmpot.data import as_table

    return as_table(table.x[rows], table.y[rows], classes=table.classes, name=table.name)
