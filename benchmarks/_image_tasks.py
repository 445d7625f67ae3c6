"""Tasks of the benchmark of images: the standard ones, and development tasks, which leave more room for improvement."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from _domains import rows_of
from _suite_tasks import Spec, target_classes
from PIL import Image, ImageFilter, ImageOps

if TYPE_CHECKING:
    from warmpot.data import Table

STANDARD = ("amazon-webcam", "webcam-amazon")
DEVELOPMENT = (
    "amazon-webcam-31", "webcam-amazon-31", "webcam-amazon-10", "amazon-webcam.edges-20", "amazon-webcam.blur-20",
    "webcam-amazon.invert-31", "webcam-amazon.edges-20", "webcam.edges-amazon-20", "amazon.edges-webcam-20",
)  # fmt: skip
"""Source, target and the number of drawn classes of the target; after a point, the filter of a domain's images."""
MOST = 30
"""Images per class of a development task."""
SIDE = 256


def filtered(image: Image.Image, name: str) -> Image.Image:
    """Return an image as a line drawing, at a low resolution, or with inverted colours."""
    image = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    if name == "edges":
        lines = image.convert("L").filter(ImageFilter.GaussianBlur(1)).filter(ImageFilter.FIND_EDGES)
        return ImageOps.invert(ImageOps.autocontrast(lines)).convert("RGB")
    if name == "blur":
        return image.resize((40, 40), Image.Resampling.BILINEAR).resize(image.size, Image.Resampling.BILINEAR)
    return ImageOps.invert(image) if name == "invert" else image


def domain_folder(domain: str, data: Path, cache: Path) -> Path:
    """Return a folder with at most `MOST` images of every class, through the domain's filter; made once."""
    folder, (name, _, effect) = cache / "filtered" / domain, domain.partition(".")
    for code, class_folder in enumerate(sorted((data / "office31_images" / name).iterdir())):
        files = sorted(class_folder.iterdir())
        drawn = np.sort(np.random.default_rng(code).permutation(len(files))[:MOST])
        out = folder / class_folder.name
        out.mkdir(parents=True, exist_ok=True)
        for file in (files[k] for k in drawn):
            if not (image := out / f"{file.stem}.png").exists():
                filtered(Image.open(file), effect).save(image)
    return folder


def load_pair(pair: str, data: Path, cache: Path) -> tuple[Table, Table]:
    """Return source and target; the target's labels shall be used after training only."""
    from warmpot.data import load_images
    from warmpot.data.benchmarks import benchmark_task
    from warmpot.data.images import drop_samples

    if pair in STANDARD:
        return benchmark_task("office-31", data / "office31_images", *pair.split("-"))
    *domains, size = pair.split("-")
    source, target = (load_images(domain_folder(domain, data, cache)) for domain in domains)
    kind = "all" if int(size) == len(target.classes) else f"size-{size}"
    rows = rows_of(target, target_classes(Spec("office31", *domains, kind), target.classes))
    return source, drop_samples(target, np.setdiff1d(np.arange(target.n), rows))
