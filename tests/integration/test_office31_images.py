"""From the images of Office-31 to features, by the command line."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from numpy.typing import NDArray
from PIL import Image
from typer.testing import CliRunner

from warmpot.cli.extract import extract

EVERY = 40
"""One image in so many is looked at."""


@pytest.fixture(scope="module")
def reference(shared_data: Path) -> dict[str, NDArray]:
    """Features that others computed; probably of the images as they were before they were resized and encoded."""
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed")
    if not (shared_data / "office31_images" / "webcam").is_dir():
        pytest.skip("the images of Office-31 are not on this machine")
    with np.load(shared_data / "office31" / "webcam.npz") as held:
        return dict(held)


@pytest.fixture(scope="module")
def extracted(
    shared_data: Path, reference: dict[str, NDArray], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, NDArray]:
    """Features of some of the images, out of a list as this field ships them."""
    folder = tmp_path_factory.mktemp("webcam")
    pairs = zip(reference["path"][::EVERY], reference["y"][::EVERY], strict=True)
    (folder / "webcam.txt").write_text("".join(f"{path} {label}\n" for path, label in pairs))
    (folder / "classes.txt").write_text("\n".join(reference["classes"]))
    app = typer.Typer()
    app.command()(extract)
    flags = {
        "--out": folder / "webcam.npz",
        "--root": shared_data / "office31_images" / "webcam",
        "--classes": folder / "classes.txt",
        "--backbone": "resnet50_v1",
        "--backbone-weights": shared_data / "weights" / "resnet50_v1.safetensors",
        "--batch": 8,
    }
    called = [str(folder / "webcam.txt"), *(str(text) for pair in flags.items() for text in pair)]
    result = CliRunner().invoke(app, called)
    assert result.exit_code == 0, result.output
    with np.load(folder / "webcam.npz") as held:
        return dict(held)


def test_features_go_with_the_published_file(extracted: dict[str, NDArray], reference: dict[str, NDArray]) -> None:
    for key in ("y", "path"):
        np.testing.assert_array_equal(extracted[key], reference[key][::EVERY])
    np.testing.assert_array_equal(extracted["classes"], reference["classes"])
    ours, theirs = extracted["X"].astype(float), reference["X"].astype(float)
    # Of all 795: 0.9776. Of 16 images: 0.977; with wrong strides, or blue for red, 0.84; a crop one pixel off 0.970.
    assert np.corrcoef(ours.ravel(), theirs[::EVERY].ravel())[0, 1] > 0.974
    unit_ours, unit_theirs = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (ours, theirs))
    nearest = (unit_ours @ unit_theirs.T).argmax(axis=1)
    np.testing.assert_array_equal(nearest, np.arange(0, len(theirs), EVERY))


def test_features_are_those_of_a_plain_forward_pass(extracted: dict[str, NDArray], shared_data: Path) -> None:
    from safetensors.torch import load_file

    from warmpot.nets.backbone import import_timm

    import_timm()  # makes torchvision importable beside a CPU torch
    from torchvision.models import resnet50

    weights = load_file(shared_data / "weights" / "resnet50_v1.safetensors")
    net = resnet50()
    net.fc = torch.nn.Identity()
    net.load_state_dict({name: tensor.float() for name, tensor in weights.items() if not name.startswith("fc.")})
    for block in (net.layer2[0], net.layer3[0], net.layer4[0]):
        block.conv1.stride, block.conv2.stride = (2, 2), (1, 1)
    images = [Image.open(shared_data / "office31_images" / "webcam" / path) for path in extracted["path"][:4]]
    pixels = np.stack([np.asarray(image.convert("RGB"), dtype=np.float32)[16:240, 16:240] for image in images])
    x = (pixels - [123.68, 116.779, 103.939]) / (255 * np.array([0.229, 0.224, 0.225]))
    with torch.no_grad():
        plain = net.eval()(torch.from_numpy(x).float().permute(0, 3, 1, 2)).numpy()
    found = extracted["X"][:4]
    np.testing.assert_allclose(found, plain, atol=1e-4)
    assert (found.astype(np.float16) == plain.astype(np.float16)).mean() > 0.98
