"""Commands that adapt features accept folders of images: a network that is not trained extracts them."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from warmpot.cli import app

pytestmark = pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="the extra `vision` is not installed")

NETWORK = ["--backbone", "test_resnet", "--backbone-weights", "none"]
COLOURS = {"blue": (30, 40, 210), "green": (30, 200, 40), "red": (220, 30, 30)}


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WARMPOT_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for side, names in (("source", sorted(COLOURS)), ("target", ["blue", "red"])):
        for name in names:
            (tmp_path / side / name).mkdir(parents=True)
            for k in range(5):
                pixels = np.array(COLOURS[name]) + rng.integers(-20, 20, size=(32, 32, 3))
                Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(tmp_path / side / name / f"{k}.png")
    return tmp_path


def columns(file: Path) -> dict[str, list[str]]:
    with file.open() as stream:
        rows = list(csv.DictReader(stream))
    return {name: [row[name] for row in rows] for name in rows[0]}


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_the_best_run_of_a_sweep_predicts_images(folders: Path) -> None:
    (folders / "space.yaml").write_text("- {preset: full, full.rounds: [1, 2]}\n")
    view = ["--set", "images.view.resize=32", "--set", "images.view.crop=32"]
    output = run("sweep", "source", "target", "--space", "space.yaml", "--out", "swept", *NETWORK, *view)
    assert [f"{side}: {n} images in" in output for side, n in (("source", 15), ("target", 10))] == [True, True]
    run("predict", "swept/best", "target", "--out", "p.csv")
    rows = columns(folders / "p.csv")
    assert len(rows["prediction"]) == 10
    assert set(rows["prediction"]) <= set(COLOURS)
    assert rows["name"][0].endswith("blue/0.png")
    run("predict", "swept/best", "target/red/2.png", "--out", "one.csv")
    one = columns(folders / "one.csv")
    assert one["name"] == ["target/red/2.png"]
    assert one["prediction"] == [rows["prediction"][7]]
    for name in ("confidence", "unknown"):
        assert float(one[name][0]) == pytest.approx(float(rows[name][7]), abs=1e-4)


def test_weights_of_images_have_their_names(folders: Path) -> None:
    run("weights", "source", "target", "--out", "w.csv", *NETWORK)
    rows = columns(folders / "w.csv")
    assert rows["domain"].count("source") == 15
    assert rows["name"][-1].endswith("red/4.png")
    target = [float(w) for w, domain in zip(rows["weight"], rows["domain"], strict=True) if domain == "target"]
    assert sum(target) == pytest.approx(0.8)


def test_weights_take_lists_of_images(folders: Path) -> None:
    (folders / "names.txt").write_text("blue\nred\n")
    for side in ("source", "target"):
        listed = [f"{side}/{name}/{k}.png {code}" for code, name in enumerate(("blue", "red")) for k in range(5)]
        (folders / "lists" / f"{side}.txt").parent.mkdir(exist_ok=True)
        (folders / "lists" / f"{side}.txt").write_text("\n".join(listed))
    (folders / "source/blue/0.png").write_bytes(b"broken")
    flags = ["--root", ".", "--classes", "names.txt", "--corrupt", "skip"]
    run("weights", "lists/source.txt", "lists/target.txt", "--out", "w.csv", *NETWORK, *flags)
    assert columns(folders / "w.csv")["domain"].count("source") == 9


@pytest.mark.parametrize("command", ["sweep", "weights"])
def test_a_network_for_tables_is_refused(folders: Path, command: str) -> None:
    for name in ("a.npz", "b.npz"):
        np.savez(folders / name, X=np.eye(4), y=np.arange(4))
    result = CliRunner().invoke(app, [command, "a.npz", "b.npz", "--out", "out", *NETWORK])
    assert result.exit_code != 0
    assert "image settings for tables" in result.output
    assert not (folders / "out").exists()
