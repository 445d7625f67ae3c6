"""Training on images: frozen features, part of a backbone, all of it; from the cache, by workers, over processes."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

if importlib.util.find_spec("timm") is None:  # not importorskip: a plain import may stop at torchvision
    pytest.skip("the extra `vision` is not installed", allow_module_level=True)

from PIL import Image

from warmpot.cli import app
from warmpot.data import Task, Truth, make_task
from warmpot.data.images import load_images
from warmpot.errors import InputError
from warmpot.nets import build_backbone
from warmpot.nets.backbone import last_block
from warmpot.select.best_iterate import candidate_from_snapshot, fit_chosen
from warmpot.train import Fitted, Predictor, RunConfig, fit, load_config
from warmpot.train.defaults import config_for_data
from warmpot.train.images import ImageSettings, prepare

COLOURS = {"blue": (0, 0, 200), "green": (0, 200, 0), "red": (200, 0, 0), "yellow": (180, 180, 0)}
VIEW = {"resize": 40, "crop": 32}
NETWORK = {"name": "test_resnet", "weights": "none"}  # timm's smallest
FROZEN = ["--backbone", "test_resnet", "--backbone-weights", "none", "--set", "images.view={resize: 40, crop: 32}"]
SHORT = ["--set", "minibatch={steps: 4, source_batch: 8, target_batch: 6, log_every: 2}"]


def _draw(folder: Path, classes: list[str], n: int, light: int, rename: dict[str, str] | None = None) -> Path:
    """Write images of coloured squares, a folder a class."""
    rng = np.random.default_rng(light)
    for name in classes:
        place = folder / (rename or {}).get(name, name)
        place.mkdir(parents=True)
        for k in range(n):
            x = np.full((48, 48, 3), 40.0 + light)
            a, b = rng.integers(4, 20, size=2)
            x[a : a + 24, b : b + 24] = COLOURS[name]
            pixels = np.clip(x + rng.normal(0, 20, x.shape), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(place / f"{k}.png")
    return folder


@pytest.fixture(autouse=True)
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the page of a run, which tests/unit/test_report.py has."""
    monkeypatch.setattr(sys.modules["warmpot.cli.fit"], "write_report", lambda *_: None)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("images")
    return _draw(root / "source", list(COLOURS), 5, 0), _draw(root / "target", ["blue", "red"], 6, 60)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMPOT_CACHE", str(tmp_path / "cache"))


def _config(preset: str = "official", steps: int = 6, **images: Any) -> RunConfig:
    settings = {"view": VIEW, "workers": 0, **images, "backbone": {**NETWORK, **images.get("backbone", {})}}
    batches = {"steps": steps, "source_batch": 8, "target_batch": 6, "log_every": 2, "checkpoint_every": 2}
    changes: dict[str, Any] = {"images": settings, "minibatch": {**batches, "network": {"width": 8}}}
    return load_config(preset, changes=changes)


def _task(folders: tuple[Path, Path], config: RunConfig) -> tuple[Task, Truth | None]:
    assert config.images is not None
    return make_task(*prepare(*map(load_images, folders), settings=config.images, progress_bar=False))


def _fit(folders: tuple[Path, Path], config: RunConfig, **arguments: Any) -> Fitted:
    return fit(_task(folders, config)[0], config, progress_bar=False, **arguments)


class _Latest:
    """A chooser of the last iterate."""

    def offer(self, snapshot: Any) -> tuple[bool, dict[str, Any]]:
        return True, {}

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: dict[str, Any]) -> None: ...


class _AtStepFour(_Latest):
    """The same, but it stops the run."""

    def offer(self, snapshot: Any) -> tuple[bool, dict[str, Any]]:
        if snapshot.step == 4:
            raise RuntimeError("stop")
        return super().offer(snapshot)


def test_features_are_extracted_once_and_the_model_takes_images(folders: Any, tmp_path: Path) -> None:
    config = _config("full")
    task, truth = _task(folders, config)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npy")}
    assert len(kept) == 2
    again, _ = _task(folders, config)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert np.array_equal(task.xs[:], again.xs[:])
    fitted = fit(task, config, out=tmp_path / "run", progress_bar=False)
    assert truth is not None
    assert (fitted.outputs.argmax(axis=1) == truth.yt).mean() > 0.9  # colours survive a random network
    restored, images = Predictor.load(tmp_path / "run"), load_images(folders[1])
    np.testing.assert_allclose(restored.probabilities(images.x), fitted.outputs, atol=1e-6)
    np.testing.assert_allclose(restored.probabilities(task.xt), fitted.outputs, atol=1e-6)  # or its features
    expected = restored.predict(folders[1])
    assert expected.tolist() == [task.classes[k] for k in fitted.outputs.argmax(axis=1)]
    pictures = [Image.open(folders[1] / name) for name in images.names[:3]]
    for form in (pictures, [np.asarray(picture) for picture in pictures], [folders[1] / n for n in images.names[:3]]):
        assert restored.predict(form).tolist() == expected[:3].tolist()
    assert restored.predict(pictures[0]).tolist() == expected[:1].tolist()
    assert "images, " in repr(restored)
    assert str(Path(restored.images.backbone.weights)) == "none"
    with open(tmp_path / "run" / "predictions.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["name"] for row in rows] == list(images.names)


def test_other_settings_are_not_taken_from_the_cache(folders: Any) -> None:
    plain, wide = _config("full"), _config("full", view={"resize": 32, "crop": 32})
    task = _task(folders, plain)[0]
    assert not np.array_equal(task.xs[:], _task(folders, wide)[0].xs[:])
    same = _config("full", view={**VIEW, "flip": False})  # only training would see it
    folder = Path(os.environ["WARMPOT_CACHE"])
    before = set(folder.iterdir())
    _task(folders, same)
    assert set(folder.iterdir()) == before


def test_an_image_that_was_replaced_is_extracted_anew(folders: Any, tmp_path: Path) -> None:
    source, config = _draw(tmp_path / "source", list(COLOURS), 2, 0), _config("full")
    before = _task((source, folders[1]), config)[0].xs[:]
    file = source / "red" / "0.png"
    size, old = file.stat().st_size, file.stat().st_mtime_ns
    Image.new("RGB", (48, 48), "white").save(file)
    file.write_bytes(file.read_bytes().ljust(size, b"\0"))  # the same name and size
    os.utime(file, ns=(old + 1, old + 1))
    assert not np.array_equal(_task((source, folders[1]), config)[0].xs[:], before)


def test_training_from_the_cache_is_exactly_training_from_the_images(folders: Any) -> None:
    live, kept = (
        _config(backbone={"train_from": "layer3"}, cache=cache, view={**VIEW, "augment": False})
        for cache in (False, True)
    )
    one, two = _fit(folders, live), _fit(folders, kept)
    assert one.history == two.history
    assert np.array_equal(one.outputs, two.outputs)
    assert np.array_equal(one.source_weights, two.source_weights)
    for (name, first), second in zip(
        one.predictor.network.state_dict().items(), two.predictor.network.state_dict().values(), strict=True
    ):
        assert torch.equal(first, second), name


def test_the_cache_is_exact_in_mixed_precision_too(folders: Any) -> None:
    found = []
    for cache in (False, True):
        config = _config(backbone={"train_from": "layer3"}, cache=cache, view={**VIEW, "augment": False}, steps=2)
        changes = {**_changes(config), "minibatch": {**_changes(config)["minibatch"]}}
        changes["minibatch"]["hardware"] = {"accelerator": "cpu", "precision": "bf16-mixed"}
        found.append(_fit(folders, load_config("official", changes=changes)).outputs)
    assert np.array_equal(*found)


def test_labels_are_the_callers_not_the_caches(folders: Any, tmp_path: Path) -> None:
    files = sorted(folders[0].rglob("*.png"))[:6]
    config, listed = _config("full"), tmp_path / "list.txt"
    for labels in ("a a a b b b", "b a b a b a", "x x y y z z"):
        lines = zip(files, labels.split(), strict=True)
        listed.write_text("".join(f"{path} {label}\n" for path, label in lines))
        (table,) = prepare(load_images(listed), settings=config.images, progress_bar=False)
        assert [table.classes[code] for code in table.y] == labels.split()
        assert table.name == str(listed)
    assert len(list((tmp_path / "cache").glob("*/shards.json"))) == 1  # and the features were kept
    kept = json.loads(next((tmp_path / "cache").glob("*/shards.json")).read_text())
    assert kept["classes"] == []


def test_features_mean_nothing_to_a_backbone_that_was_trained(folders: Any, tmp_path: Path) -> None:
    config = _config(backbone={"train_from": "layer4"}, cache=True, steps=2)
    task, _ = _task(folders, config)
    predictor = fit(task, config, progress_bar=False).predictor
    with pytest.raises(InputError, match="Its backbone was trained"):
        predictor.probabilities(np.zeros((3, predictor.width)))
    assert np.isfinite(predictor.probabilities(task.xt)).all()  # what enters the block that was trained
    other, _ = _task(folders, _config(backbone={"train_from": "layer3"}, cache=True))
    with pytest.raises(InputError, match="allowed: images"):
        predictor.probabilities(other.xt)


def test_names_that_are_no_text_survive(folders: Any, tmp_path: Path) -> None:
    source = _draw(tmp_path / "source", ["blue", "red"], 3, 0)
    odd = os.fsencode(source / "red") + b"/caf\xe9.png"
    try:
        os.rename(source / "red" / "0.png", odd)
    except OSError:
        pytest.skip("this file system has names of text only")
    config = _config("full")
    _fit((source, folders[1]), config, out=tmp_path / "run")
    assert b"red/caf\xe9.png" in (tmp_path / "run" / "source_weights.csv").read_bytes()


def test_half_precision_comes_back_as_it_was(folders: Any, tmp_path: Path) -> None:
    config = _config(backbone={"train_from": "layer4"}, steps=2)
    changes = _changes(config)
    changes["minibatch"]["hardware"] = {"accelerator": "cpu", "precision": "bf16-true"}
    fitted = _fit(folders, load_config("official", changes=changes), out=tmp_path / "run")
    images = load_images(folders[1]).x
    again = Predictor.load(tmp_path / "run")
    assert np.array_equal(again.probabilities(images), fitted.predictor.probabilities(images))


@pytest.mark.parametrize("name", ["channels_last", "micro_batch", "compile"])
def test_faster_and_smaller_steps_train_the_same(folders: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    plain = torch.nn.Module.compile  # traced, but not translated to C++: that takes a minute
    monkeypatch.setattr(torch.nn.Module, "compile", lambda module: plain(module, backend="eager"))
    config = _config(backbone={"train_from": "layer4", "batch_norm": "frozen"}, steps=3)
    changes = _changes(config)
    changes["images"]["backbone"][name] = 3 if name == "micro_batch" else True
    fitted, other = _fit(folders, config), _fit(folders, load_config("official", changes=changes))
    np.testing.assert_allclose(other.outputs, fitted.outputs, atol=1e-4)
    assert fitted.predictor.network.state_dict().keys() == other.predictor.network.state_dict().keys()


def test_a_resumed_run_with_channels_last_is_exact(folders: Any, tmp_path: Path) -> None:
    config = _config(backbone={"train_from": "layer4", "channels_last": True})
    whole = _fit(folders, config)
    with pytest.raises(RuntimeError, match="stop"):
        _fit(folders, config, out=tmp_path / "run", chooser=_AtStepFour())
    assert np.array_equal(
        _fit(folders, config, out=tmp_path / "run", resume=True, chooser=_Latest()).outputs, whole.outputs
    )


def test_what_is_frozen_stays_and_the_rest_moves(folders: Any) -> None:
    config = _config(backbone={"train_from": "layer4", "batch_norm": "frozen"})
    assert config.images is not None
    before, after = build_backbone(config.images.backbone), _fit(folders, config).predictor.network.backbone
    old, new = before.state_dict(), after.state_dict()
    assert old.keys() == new.keys()
    moved = {name for name in old if not torch.equal(old[name], new[name])}
    assert moved
    assert all(name.startswith("tail.") for name in moved)
    assert not any("running" in name for name in moved)  # statistics of BatchNorm


def test_batch_norm_learns_its_statistics_unless_frozen(folders: Any) -> None:
    config = _config(backbone={"train_from": "all"}, steps=2)
    assert config.images is not None
    old = build_backbone(config.images.backbone).state_dict()
    new = _fit(folders, config).predictor.network.backbone.state_dict()
    running = [name for name in old if "running_mean" in name]
    assert running
    assert not any(torch.equal(old[name], new[name]) for name in running)


@pytest.mark.parametrize("part", ["all", "layer4", None])
def test_a_method_can_mix_images(folders: Any, part: str | None) -> None:
    """SLM passes mixtures of images as a step sees them; with a frozen backbone, of features."""
    fitted = _fit(folders, _config("slm", backbone={"train_from": part}))
    assert np.isfinite(fitted.history[-1]["mix"])
    assert np.isfinite(fitted.outputs).all()


def test_drawn_views_do_not_depend_on_workers_or_on_a_stop(folders: Any, tmp_path: Path) -> None:
    tuned = {"train_from": "all"}
    dropping = [_fit(folders, _config("ba3us", steps=2, backbone=tuned, workers=n)).outputs for n in (0, 1)]
    assert np.array_equal(*dropping)  # its discriminator drops units: workers must not touch torch's generator
    alone, helped = _config(backbone=tuned), _config(backbone=tuned, workers=2)
    whole = _fit(folders, alone)
    assert np.array_equal(whole.outputs, _fit(folders, helped).outputs)
    still = _config(backbone=tuned, view={**VIEW, "augment": False})
    assert not np.array_equal(whole.outputs, _fit(folders, still).outputs)  # there was something to draw
    with pytest.raises(RuntimeError, match="stop"):
        _fit(folders, alone, out=tmp_path / "run", chooser=_AtStepFour())
    resumed = _fit(folders, alone, out=tmp_path / "run", resume=True, chooser=_Latest())
    assert np.array_equal(whole.outputs, resumed.outputs)


def test_folder_names_of_the_target_reach_no_training(folders: Any, tmp_path: Path) -> None:
    other = _draw(tmp_path / "other", ["blue", "red"], 6, 60, {"blue": "green", "red": "yellow"})  # the same order
    config = _config(backbone={"train_from": "layer4"})
    told, misled = _fit(folders, config), _fit((folders[0], other), config)
    assert np.array_equal(told.outputs, misled.outputs)
    assert np.array_equal(told.source_weights, misled.source_weights)


def test_iterates_on_images_can_be_chosen_with_a_held_part(folders: Any) -> None:
    config = _config(backbone={"train_from": "layer4"}, steps=4)
    chosen = load_config("official", changes={**_changes(config), "choose": "source"})
    fitted = fit_chosen(_task(folders, chosen)[0], chosen, progress_bar=False)
    assert (fitted.source_weights == 0).sum() >= 4  # one of every class was held out
    assert {"score"} <= set().union(*fitted.history)


def test_iterates_on_images_are_compared_in_the_features_of_the_first(folders: Any) -> None:
    class Recorder(_Latest):
        def offer(self, snapshot: Any) -> tuple[bool, dict[str, Any]]:
            candidates.append(candidate_from_snapshot(snapshot, task))
            return True, {}

    candidates: list[Any] = []
    changes = _changes(_config(backbone={"train_from": "layer4"}, steps=6))
    changes["minibatch"]["network"]["width"] = 64  # features whose rows are scaled
    config = load_config("official", changes=changes)
    task, _ = _task(folders, config)
    fit(task, config, chooser=Recorder(), progress_bar=False)
    first = candidates[0].target_features
    for candidate in candidates:
        np.testing.assert_allclose(
            candidate.target_inputs, first / np.linalg.norm(first, axis=1, keepdims=True), atol=1e-6
        )
    assert not np.array_equal(candidates[-1].target_features, first)


def _changes(config: RunConfig) -> dict[str, Any]:
    import yaml

    return {key: value for key, value in yaml.safe_load(config.dump()).items() if key != "preset"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cache": True}, "cache: got true, and nothing is trained"),
        ({"cache": True, "backbone": {"train_from": "all"}}, "cache: got true, and everything is trained"),
        ({"workers": -1}, "workers"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        _config(**settings)


def test_the_full_engine_does_not_train_a_backbone() -> None:
    with pytest.raises(InputError, match="a backbone that is trained"):
        _config("full", backbone={"train_from": "all"})


def test_a_network_of_one_image_size_says_so(folders: Any) -> None:
    for backbone in ({"name": "test_vit", "train_from": None}, {"name": "test_vit", "train_from": "all"}):
        config = _config("frozen", backbone=backbone)
        with pytest.raises(InputError, match=r"images.view.crop: got 32 with test_vit; allowed: 160"):
            _fit(folders, config)


def test_images_need_settings(folders: Any) -> None:
    task, _ = make_task(*map(load_images, folders))
    with pytest.raises(InputError, match="not features"):
        fit(task, load_config("official"), progress_bar=False)
    with pytest.raises(InputError, match="Extract features first"):
        fit(task, load_config("full"), progress_bar=False)


def test_spare_cores_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {}
    for cores in (None, 1, 4, 64):
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # not every system has it
        monkeypatch.setattr(os, "cpu_count", lambda n=cores: n)
        counts[cores] = ImageSettings().processes
    assert counts == {None: 0, 1: 0, 4: 3, 64: 8}
    assert ImageSettings(workers=5).processes == 5
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 7}, raising=False)
    assert ImageSettings().processes == 2  # of the cores that this process may use


def _run(*words: Any) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_one_command_from_folders_to_predictions(folders: Any, tmp_path: Path) -> None:
    source, target = folders
    result = _run("fit", "--source", source, "--target", target, "--out", tmp_path / "run", *FROZEN)
    assert result.exit_code == 0, result.output
    assert "no GPU: " in result.stderr
    assert "20 source and 12 target samples, 96 features" in result.stderr
    loose = tmp_path / "loose"  # nobody knows the classes of these
    loose.mkdir()
    for k, path in enumerate(sorted(target.rglob("*.png"))):
        (loose / f"{k:02d}.png").write_bytes(path.read_bytes())
    result = _run("predict", tmp_path / "run", loose, "--out", tmp_path / "said.csv")
    assert result.exit_code == 0, result.output
    with open(tmp_path / "said.csv", newline="") as stream:
        said = list(csv.DictReader(stream))
    assert [row["name"] for row in said] == [f"{k:02d}.png" for k in range(12)]
    with open(tmp_path / "run" / "predictions.csv", newline="") as stream:
        assert [row["prediction"] for row in csv.DictReader(stream)] == [row["prediction"] for row in said]
    result = _run("bound", tmp_path / "run", "--quiet")
    assert result.exit_code == 0, result.output


def test_fine_tuning_from_the_command_line_and_going_on(folders: Any, tmp_path: Path) -> None:
    flags = ["--fine-tune", "--train-from", "layer4", "--cache", "--accelerator", "cpu"]
    result = _run("fit", *folders, "--out", tmp_path / "run", *FROZEN, *SHORT, *flags)
    assert result.exit_code == 0, result.output
    assert "preset deep" in result.stdout
    assert re.search(r"step 0 \(best by neighbours\) +frozen features: fine-tuning did", result.stdout), result.stdout
    assert "activations of" in result.stderr
    (tmp_path / "run" / "model.json").unlink()  # as if it had been stopped at its last step
    result = _run("fit", "--resume", tmp_path / "run")
    assert result.exit_code == 0, result.output
    result = _run("bound", tmp_path / "run", "--alpha", 0.5, "--beta", 0.5, "--quiet")  # its data are images
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "run" / "bound.json").read_text())["Theorem 3.3"]["alpha"] == 0.5


def test_without_a_gpu_fine_tuning_trains_the_last_block(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = config_for_data(images=True, changes={"images": {"backbone": NETWORK}}, fine_tune=True)
    assert config.images is not None
    assert (config.method, config.choose) == ("deep", "neighbours")
    assert (config.images.backbone.train_from, config.images.cache) == (last_block("test_resnet"), True)
    assert "only layer4 is trained" in caplog.text
    named = {"images": {"backbone": {**NETWORK, "train_from": "all"}}}
    whole = config_for_data(images=True, changes=named, fine_tune=True)
    assert whole.images is not None
    assert (whole.images.backbone.train_from, whole.images.cache) == ("all", False)
    live = {"images": {"backbone": NETWORK, "cache": False}}
    assert not config_for_data(images=True, changes=live, fine_tune=True).images.cache
    (tmp_path / "run.yaml").write_text("images: {cache: false, backbone: {name: test_resnet, weights: none}}")
    assert not config_for_data(images=True, file=tmp_path / "run.yaml", fine_tune=True).images.cache
    for preset, method in (("official", "warmpot"), ("arpm", "arpm")):
        assert config_for_data(images=True, preset=preset, changes=named).method == method
    assert config_for_data(images=True, regression=True, changes=named).method == "warmpot"
    assert config_for_data(images=True, changes={"images": {"backbone": NETWORK}}, fine_tune=False).preset == "full"


def test_with_a_gpu_the_whole_network_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    config = config_for_data(images=True, changes={"images": {"backbone": NETWORK}})
    assert config.images is not None
    assert (config.method, config.images.backbone.train_from, config.images.cache) == ("deep", "all", False)


def test_a_broken_image_is_named_or_skipped(folders: Any, tmp_path: Path) -> None:
    source = _draw(tmp_path / "source", list(COLOURS), 3, 0)
    (source / "red" / "0.png").write_bytes(b"no image")
    out = ["--out", tmp_path / "run", *FROZEN]
    result = _run("fit", source, folders[1], *out)
    assert result.exit_code == 2
    assert "0.png" in result.stderr
    assert not (tmp_path / "run").exists()
    result = _run("fit", source, folders[1], *out, "--corrupt", "skip")
    assert result.exit_code == 0, result.output
    assert "11 source" in result.stderr
    result = _run("fit", source, folders[1], *out[:1], tmp_path / "again", *FROZEN)
    assert result.exit_code == 2, "what was skipped once is fatal again"
    live = [source, folders[1], "--out", tmp_path / "two", *FROZEN, *SHORT, "--train-from", "layer4", "--workers", 0]
    result = _run("fit", *live)
    assert result.exit_code == 2, "before the training, not in it"
    assert "0.png" in result.stderr
    assert not (tmp_path / "two").exists()
    result = _run("fit", *live, "--corrupt", "skip")
    assert result.exit_code == 0, result.output
    assert "red/0.png" in result.stderr
    assert "11 source" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{source}", "{table}"], "images and a table"),
        (["{table}", "{table}", "--fine-tune"], "image settings for tables"),
        (["{source}", "{target}", "--frozen", "--train-from", "layer4"], "'layer4' is to be trained"),
        (["{source}", "{target}", "--source", "{source}"], "SOURCE as well"),
        (["{source}", "{target}", "--corrupt", "ignore"], "corrupt: got 'ignore'"),
        (["{source}", "{target}", "--backbone", "resnet5O", "--backbone-weights", "none"], "resnet5O"),
        (["{source}", "{target}", *FROZEN, "--train-from", "layer9"], "layer9"),
    ],
)
def test_flags_that_do_not_fit_are_explained(words: list[str], message: str, folders: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "table.npz", X=np.eye(4, 70), y=np.arange(4) % 2)
    places = {"source": folders[0], "target": folders[1], "table": tmp_path / "table.npz"}
    result = _run("fit", *(word.format(**places) if "{" in word and ":" not in word else word for word in words),
                  "--out", tmp_path / "run")  # fmt: skip
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert not (tmp_path / "run").exists()


def test_two_processes_do_what_one_does(folders: Any, tmp_path: Path) -> None:
    """The example of docs/scaling.md; ARPM, for its passes over both domains, which the processes share."""
    words = ["fit", *map(str, folders), *FROZEN, "--method", "ar", "--train-from", "layer4", "--cache",
             "--set", "images.backbone.batch_norm=frozen", "--accelerator", "cpu", "--workers", "0", "--no-report",
             "--set", "minibatch={steps: 4, source_batch: 8, target_batch: 6, log_every: 2, network: {width: 8}}",
             "--set", "weight_params={periods: 2, critic: {steps: 5}}", "--seed", "1"]  # fmt: skip
    result = _run(*words, "--out", tmp_path / "one")
    assert result.exit_code == 0, result.output
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "warmpot"]
    command = [*launcher, *words, "--devices", "2", "--strategy", "ddp", "--out", str(tmp_path / "two")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Wrote") == 1  # one of them talks
    texts = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("one", "two")]
    one, two = ([json.loads(line) for line in text.splitlines()] for text in texts)
    assert [line["step"] for line in one] == [line["step"] for line in two]
    np.testing.assert_allclose([line["loss"] for line in one], [line["loss"] for line in two], rtol=1e-4)
    weights = [np.loadtxt(tmp_path / name / "source_weights.csv", delimiter=",", skiprows=1, usecols=3)
               for name in ("one", "two")]  # fmt: skip
    assert weights[0].std() > 0
    np.testing.assert_allclose(*weights, rtol=1e-3, atol=1e-6)


def test_the_doctor_looks_at_images(folders: Any, tmp_path: Path) -> None:
    result = _run("doctor", *folders)
    assert result.exit_code == 0, result.output
    assert "12 images, 12 of them decoded" in result.stdout
    assert "no target image is a source image" in result.stdout
    target = _draw(tmp_path / "target", ["blue", "red"], 2, 60)
    (target / "red" / "0.png").write_bytes(b"no image")
    (target / "red" / "1.png").write_bytes((folders[0] / "red" / "1.png").read_bytes())
    result = _run("doctor", folders[0], target)
    assert result.exit_code == 1
    assert "red/0.png: " in result.stdout
    assert "1 of 3 target images (33%) are also source images" in result.stdout


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_signal_to_all_processes_of_a_run_stops_it_in_order(folders: Any, tmp_path: Path, nursery: Any) -> None:
    """What a batch system does when time is up: the processes that decode get the signal as well."""
    out = tmp_path / "run"
    many = "minibatch={steps: 100000, source_batch: 8, target_batch: 6, log_every: 1, network: {width: 8}}"
    words = ["fit", *map(str, folders), *FROZEN, "--set", many, "--train-from", "layer4", "--workers", "1",
             "--accelerator", "cpu", "--out", str(out)]  # fmt: skip
    run = nursery.start("from warmpot.cli import main; main()", *words, folder=tmp_path)
    run.wait_for((out / "metrics.jsonl").exists)
    os.killpg(run.pid, signal.SIGTERM)
    code, said = run.wait(), run.err.read_text()
    assert code == 143, said
    assert said.count("stopping after this step") == 1
    assert said.splitlines()[-1].startswith("interrupted; resume with: warmpot fit --resume")
    assert any((out / "checkpoints").iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "nowhere", "{target}"], "nowhere: got No such file or directory"),
        (["fit", "{loose}", "{target}"], "Put its images into one folder per class"),
    ],
)
def test_wrong_places_are_told_before_any_work(words: list[str], message: str, folders: Any, tmp_path: Path) -> None:
    places = {"source": folders[0], "target": folders[1], "loose": folders[1] / "red"}
    result = _run(*(word.format(**places) for word in words))
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert not list(tmp_path.glob("cache/*/*.npy"))


def test_a_run_of_an_earlier_version_is_read(folders: Any, tmp_path: Path) -> None:
    _fit(folders, _config("full"), out=tmp_path / "run")
    described = json.loads((tmp_path / "run" / "model.json").read_text())
    del described["backbone_dtype"]
    (tmp_path / "run" / "model.json").write_text(json.dumps(described))
    assert Predictor.load(tmp_path / "run").images is not None
    assert (tmp_path / "run" / "model.safetensors").stat().st_mode & 0o777 == (
        tmp_path / "run" / "model.json"
    ).stat().st_mode & 0o777
