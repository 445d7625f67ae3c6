"""``warmpot fit --fine-tune`` as its own processes: killed and resumed, or two in place of one."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="signals of POSIX"),
    pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="the extra `vision` is not installed"),
]

PROGRAM = "from warmpot.cli import main; main()"
STEPS = 6
WORDS = ["fit", "source", "target", "--fine-tune", "--backbone", "test_resnet", "--backbone-weights", "none",
         "--set", "images={view: {resize: 40, crop: 32}, workers: 0}", "--accelerator", "cpu", "--no-report",
         "--set", f"minibatch={{steps: {STEPS}, source_batch: 8, target_batch: 8, log_every: 1, checkpoint_every: 2}}",
         "--set", "params.periods=2"]  # fmt: skip
SAME = ("model.safetensors", "model.json", "predictions.csv", "source_weights.csv", "metrics.jsonl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, nursery: Any) -> Iterator[Path]:
    """A folder with two domains of images and an unbroken run."""
    folder, rng = tmp_path_factory.mktemp("fine-tuning"), np.random.default_rng(0)
    colours = {"blue": (0, 0, 200), "green": (0, 200, 0), "red": (200, 0, 0)}
    for domain, names, light in (("source", list(colours), 0), ("target", ["blue", "red"], 40)):
        for name in names:
            (folder / domain / name).mkdir(parents=True)
            for k in range(8):
                pixels = rng.normal(60 + light, 40, (48, 48, 3)) + np.multiply(colours[name], rng.uniform(0.2, 0.6))
                Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / domain / name / f"{k}.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARMPOT_CACHE", str(folder / "cache"))
        code, _, errors = nursery.run(PROGRAM, *WORDS, "--out", "whole", folder=folder)
        assert code == 0, errors
        yield folder


def history(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_the_frozen_answer_is_scored_before_the_first_step(folder: Path) -> None:
    assert [line["step"] for line in history(folder / "whole") if "score" in line] == [0, 2, 4, 6]


def test_a_killed_run_resumes_to_the_same_bits(folder: Path, nursery: Any) -> None:
    point = "warmpot.train.run_folder:RunFolder.save"
    code, _, _ = nursery.run_until(signal.SIGKILL, point, *WORDS, "--out", "killed", folder=folder)
    assert code == -signal.SIGKILL
    assert [path.name for path in (folder / "killed" / "checkpoints").iterdir()] == ["step-00000002"]
    code, _, errors = nursery.run(PROGRAM, "fit", "--resume", "killed", "--no-report", folder=folder)
    assert code == 0, errors
    for name in SAME:
        assert (folder / "killed" / name).read_bytes() == (folder / "whole" / name).read_bytes(), name


def test_two_processes_train_as_one(folder: Path, nursery: Any) -> None:
    nursery.launch(PROGRAM, *WORDS, "--devices", "2", "--strategy", "ddp", "--out", "two", folder=folder)
    one, two = history(folder / "whole"), history(folder / "two")
    assert [line["step"] for line in one] == [line["step"] for line in two]
    for name in ("loss", "score"):
        pairs = [(a[name], b[name]) for a, b in zip(one, two, strict=True) if name in a]
        # the fits of the alternation end early, so that sums in another order show
        np.testing.assert_allclose(*zip(*pairs, strict=True), rtol=1e-2, atol=1e-3)
