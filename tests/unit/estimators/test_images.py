"""The classifier of images: folders or arrays in, predictions out; with a frozen or a trained backbone."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import warmpot
from warmpot.data import Task, read_samples
from warmpot.data.shards import Shards
from warmpot.data.views import StoredViews
from warmpot.errors import InputError
from warmpot.estimators import ImageClassifier
from warmpot.train import fit, load_config

pytestmark = pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="the extra `vision` is not installed")

COLOURS = {"blue": (30, 40, 210), "green": (30, 200, 40), "red": (220, 30, 30)}
VIEW = {"images": {"workers": 0, "view": {"resize": 32, "crop": 32}}}
SHORT = {"steps": 4, "warmup": 0.0, "source_batch": 6, "target_batch": 6}
YS, YT = np.repeat(sorted(COLOURS), 6), np.repeat(["blue", "red"], 5)


def pictures(labels: Any, seed: int, dark: int = 0) -> list[Image.Image]:
    noise = np.random.default_rng(seed).integers(-20, 20, size=(len(labels), 40, 40, 3))
    colours = np.array([COLOURS[label] for label in labels])[:, None, None]
    return [Image.fromarray(pixels.astype(np.uint8)) for pixels in (colours + noise - dark).clip(0, 255)]


SOURCE, TARGET, NEW = pictures(YS, 0), pictures(YT, 1, dark=30), pictures(YT, 2, dark=30)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMPOT_CACHE", str(tmp_path / "cache"))


def make_model(**changes: Any) -> ImageClassifier:
    return ImageClassifier("test_resnet", backbone_weights="none", **{"overrides": VIEW, **changes})


def test_images_in_memory_and_in_folders_give_the_same(tmp_path: Path) -> None:
    for side, images, labels in (("source", SOURCE, YS), ("target", TARGET, YT)):
        for k, (image, label) in enumerate(zip(images, labels, strict=True)):
            folder = tmp_path / side / label
            folder.mkdir(parents=True, exist_ok=True)
            image.save(folder / f"{k:02}.png")
    model = make_model().fit(SOURCE, YS, TARGET)
    assert model.classes_.tolist() == sorted(COLOURS)
    assert (model.predict(NEW) == YT).mean() > 0.8
    assert model.predict_proba(np.stack([np.asarray(image) for image in NEW])) == pytest.approx(
        model.predict_proba(NEW)
    )
    folders = make_model().fit(tmp_path / "source", X_target=str(tmp_path / "target"))
    assert folders.predict_proba(NEW) == pytest.approx(model.predict_proba(NEW), abs=1e-6)
    assert len(folders.training_weights_) == len(SOURCE)
    assert folders.target_proba_.shape == (len(TARGET), 3)


def test_labels_keep_their_type() -> None:
    codes = np.searchsorted(sorted(COLOURS), YS)
    model = make_model().fit(SOURCE, codes, TARGET)
    assert model.predict(NEW).dtype.kind == "i"


@pytest.mark.parametrize("cache", [False, True])
def test_a_block_is_trained_and_the_model_saved(tmp_path: Path, cache: bool) -> None:
    overrides = {**VIEW, "minibatch": SHORT}
    model = make_model(fine_tune="layer4", cache=cache, overrides=overrides).fit(SOURCE, YS, TARGET)
    assert model.config_.engine == "minibatch"
    assert model.config_.images.backbone.train_from == "layer4"
    before = model.predict_proba(NEW)
    model.save(tmp_path / "run")
    again = ImageClassifier.load(tmp_path / "run")
    assert again.predict_proba(NEW) == pytest.approx(before, abs=1e-6)
    assert (again.predict(NEW) == model.predict(NEW)).all()
    assert again.get_params()["fine_tune"] == "layer4"
    assert (warmpot.load(tmp_path / "run").predict(NEW) == model.predict(NEW)).all()


def test_what_is_not_an_image_is_refused() -> None:
    with pytest.raises(InputError, match=r"X_target: got none.*WarmpotClassifier"):
        make_model().fit(SOURCE, YS)
    with pytest.raises(InputError, match=r"X: got ndarray"):
        make_model().fit(np.zeros((4, 3)), [0, 0, 1, 1], TARGET)
    with pytest.raises(InputError, match="sample_domain"):
        make_model().fit(SOURCE, YS, TARGET, sample_domain=[0])
    with pytest.raises(InputError, match="no labels"):
        make_model().fit(SOURCE, X_target=TARGET)


def image_task() -> Task:
    source, target = read_samples((SOURCE, YS)), read_samples(TARGET)
    assert source.y is not None
    return Task(source.x, np.asarray(source.y), target.x, source.classes)


def test_fit_stores_the_output_of_the_frozen_part() -> None:
    backbone = {"name": "test_resnet", "weights": "none"}
    images = {**VIEW["images"], "backbone": {**backbone, "train_from": "layer4"}, "cache": True}
    config = load_config("tuned", changes={"images": images, "minibatch": SHORT})
    stored = fit(image_task(), config)
    assert stored.task is not None
    assert isinstance(stored.task.xs, Shards)
    view = {**VIEW["images"]["view"], "augment": False}  # what a cache has of every image
    live = load_config("tuned", changes={"images": {**images, "cache": False, "view": view}, "minibatch": SHORT})
    assert fit(image_task(), live).outputs == pytest.approx(stored.outputs, abs=1e-6)
    frozen = fit(image_task(), load_config("full", changes={"images": {**VIEW["images"], "backbone": backbone}}))
    assert frozen.task is not None
    assert isinstance(frozen.task.xs, np.ndarray)
    assert frozen.predictor.probabilities(TARGET) == pytest.approx(frozen.outputs, abs=1e-5)
    assert dataclasses.asdict(frozen.config.images)["cache"] is False


def test_random_views_are_stored_and_drawn() -> None:
    backbone = {"name": "test_resnet", "weights": "none", "train_from": "layer4"}
    view = {"resize": 40, "crop": 32}
    images = {"workers": 0, "view": view, "backbone": backbone, "cache": True, "cache_views": 3}
    config = load_config("tuned", changes={"images": images, "minibatch": SHORT})
    fitted = fit(image_task(), config)
    assert fitted.task is not None
    xs = fitted.task.xs
    assert isinstance(xs, StoredViews)
    rows, stored = np.arange(len(SOURCE)), np.stack([xs.random[k][:] for k in range(3)])
    assert not np.array_equal(stored[0], stored[1])
    drawn = xs.augmented(rows, 7 * rows, seed=1)
    matches = (stored == drawn).reshape(3, len(rows), -1).all(axis=2)
    assert matches.any(axis=0).all()  # each is one of the stored views
    assert len(set(matches.argmax(axis=0))) == 3
    assert np.array_equal(xs.augmented(rows[::-1], 7 * rows[::-1], seed=1), drawn[::-1])
    assert np.array_equal(xs[:], xs.test[:])
    assert xs.subset(rows[:4]).fingerprint() != xs.fingerprint()
    assert np.array_equal(fit(image_task(), config).outputs, fitted.outputs)
    with pytest.raises(InputError, match="cache_views"):
        load_config("tuned", changes={"images": {"cache_views": 2}})


def test_a_transformer_is_trained_through_low_rank_updates(tmp_path: Path) -> None:
    images = {**VIEW["images"], "view": {"resize": 160, "crop": 160}, "backbone": {"lora": 2}}
    overrides = {"choose": "last", "images": images, "minibatch": SHORT}
    model = ImageClassifier("test_vit", backbone_weights="none", fine_tune=True, overrides=overrides)
    model.fit(SOURCE, YS, TARGET)
    updates = [value for name, value in model.predictor_.network.named_parameters() if name.endswith(".up")]
    assert updates
    assert all(update.any() for update in updates)
    loaded = ImageClassifier.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(NEW), model.predict_proba(NEW))
