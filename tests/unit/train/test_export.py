"""Exported models say what the run says, or are not left behind; their cards are true and cannot be broken by names."""

from __future__ import annotations

import html
import importlib
import importlib.util
import json
import logging
import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from typer.testing import CliRunner

import warmpot.train.export
from warmpot._tables import escape_markdown, markdown_grid
from warmpot.bounds.report import PlanRecord
from warmpot.cli import app
from warmpot.cli._data_files import nested_changes
from warmpot.data import as_table, make_task
from warmpot.errors import InputError, MissingExtraError, WarmpotError
from warmpot.methods import METHODS
from warmpot.nets import Network, NetworkSettings, build_network
from warmpot.report.card import model_card
from warmpot.train import Predictor, fit, load_config, preset_names
from warmpot.train.export import Agreement, draw_inputs, export, to_onnx

NAMES = ("ant", "a|b", "<script>alert(1)</script>", "[x](http://y) `c` _d_\n# e")
SECONDS = 1.7e9
rng = np.random.default_rng(0)
MARKDOWN = MarkdownIt("commonmark").enable("table")


def filled(settings: NetworkSettings, n_inputs: int, n_outputs: int, **kwargs: Any) -> Network:
    """Make a network whose every tensor matters: nothing is 0 or 1 by initialisation."""
    network = build_network(settings, n_inputs, n_outputs, seed=0, **kwargs)
    generator = torch.Generator().manual_seed(1)
    for module in (network.bottleneck, network.head):
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                drawn = torch.randn(tensor.shape, generator=generator)
                tensor.copy_(drawn.abs() + 0.5 if "running_var" in name else drawn)
    return network.eval()


def case(name: str) -> tuple[Predictor, np.ndarray]:
    if name == "projection":
        settings = NetworkSettings(scale="rows", bottleneck="projection", width=4, unit_features=True)
        return Predictor(filled(settings, 6, 3), settings, ("a", "b", "c"), columns=tuple("uvwxyz")), rng.normal(
            size=(9, 6)
        )
    if name == "sphere":  # columns that float32 cannot tell apart
        settings = NetworkSettings(scale="columns", bottleneck="bn_relu", width=5, sphere="auto")
        x = SECONDS + rng.normal(size=(9, 6))
        network = filled(settings, 6, 3)
        network.fit_scale(torch.from_numpy(x))
        return Predictor(network, settings, ("a", "b", "c")), x
    settings = NetworkSettings(width=4)
    return Predictor(filled(settings, 6, 1), settings, (), centre=SECONDS, scale=3.0), rng.normal(size=(9, 6))


@pytest.mark.parametrize("name", ["projection", "sphere", "regression"])
def test_the_onnx_model_says_the_same(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    predictor, x = case(name)
    with caplog.at_level(logging.WARNING):
        agreement = to_onnx(predictor, tmp_path / "model.onnx", x, origin="rows")
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert agreement.batches == (1, 3, 5)
    assert agreement.largest[1] < 1e-4
    assert str(Path(__file__).parents[3]).encode() not in (tmp_path / "model.onnx").read_bytes()

    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    dtype = np.float64 if name == "sphere" else np.float32
    for n in (1, 2, 8):
        found = dict(
            zip([o.name for o in session.get_outputs()], session.run(None, {"x": x[:n].astype(dtype)}), strict=True)
        )
        outputs = predictor.outputs(x[:n])
        np.testing.assert_allclose(found["features"], outputs.features, atol=1e-5)
        if name == "regression":
            assert found.keys() == {"features", "prediction"}
            np.testing.assert_allclose(found["prediction"] - SECONDS, predictor.values(x[:n]) - SECONDS, atol=1e-4)
        else:
            assert found.keys() == {"features", "logits", "probabilities"}
            np.testing.assert_allclose(found["logits"], outputs.logits, atol=1e-4)
            np.testing.assert_allclose(found["probabilities"], predictor.probabilities(x[:n]), atol=1e-5)
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["classes"]) == list(predictor.classes)
    assert json.loads(facts["columns"]) == list(predictor.columns)
    assert "torch" in json.loads(facts["versions"])


def test_a_network_of_images_takes_pixels(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    from warmpot.data.pixels import ViewSettings
    from warmpot.nets import BackboneSettings, build_backbone
    from warmpot.train.images import ImageSettings

    if importlib.util.find_spec("timm") is None:  # imported by us, in our way
        pytest.skip("timm is not installed")
    images = ImageSettings(BackboneSettings("test_resnet", "none"), ViewSettings(resize=40, crop=32))
    backbone, settings = build_backbone(images.backbone), NetworkSettings(width=4)
    network = filled(settings, backbone.width, 3, backbone=backbone)
    predictor = Predictor(network, settings, ("a", "b", "c"), images=images)
    x = draw_inputs(predictor)
    assert (x.shape, x.dtype) == ((8, 3, 32, 32), np.uint8)
    to_onnx(predictor, tmp_path / "model.onnx", x)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].type == "tensor(uint8)"
    with torch.inference_mode():
        expected = network(torch.from_numpy(x[:2])).logits
    np.testing.assert_allclose(session.run(["logits"], {"x": x[:2]})[0], expected, atol=1e-4)
    assert json.loads(session.get_modelmeta().custom_metadata_map["view"])["crop"] == 32


@pytest.mark.parametrize("drift", [0.01, np.nan])
def test_a_model_that_differs_is_not_left_behind(drift: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor, x = case("projection")
    outputs = predictor.outputs(x)

    def drifted(path: Path, names: list[str], batches: Any) -> dict[str, np.ndarray]:
        logits = outputs.logits.numpy().copy()
        logits[5, 1] += drift
        return {"features": outputs.features.numpy(), "logits": logits}

    monkeypatch.setattr(warmpot.train.export, "_write", lambda *args: None)
    monkeypatch.setattr(warmpot.train.export, "_run", drifted)
    export(predictor, tmp_path / "out", onnx=False, card=lambda _: "old")
    with pytest.raises(WarmpotError, match=f"logits that differ by {drift:.3g}"):
        export(predictor, tmp_path / "out", inputs=x)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "README.md").read_text() == "old"
    with pytest.raises(WarmpotError, match="Nothing was written"):
        export(predictor, tmp_path / "new", inputs=x)
    assert not (tmp_path / "new").exists()


def test_what_is_written_can_be_read_again(tmp_path: Path) -> None:
    predictor, x = case("sphere")
    for _ in range(2):  # an older export is replaced
        assert export(predictor, tmp_path / "out", onnx=False, card=str) is None
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"model.safetensors", "model.json", "README.md"}
    again = Predictor.load(tmp_path / "out")
    np.testing.assert_array_equal(again.probabilities(x), predictor.probabilities(x))


@pytest.mark.parametrize("text", ["{}", "[1]", "not JSON", '{"network": {}, "facts": {}}'])
def test_files_of_others_with_the_same_names_are_kept(tmp_path: Path, text: str) -> None:
    predictor, inputs = case("projection")
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "model.json").write_text(text)
    with pytest.raises(InputError, match=r"'model\.json', but without a model that was exported"):
        export(predictor, folder, onnx=False, inputs=inputs)
    assert (folder / "model.json").read_text() == text


def test_no_folder_is_lost(tmp_path: Path) -> None:
    predictor, _ = case("projection")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    (tmp_path / "file").touch()
    for place, why in (("mine", "notes.txt"), ("file", "a file"), ("no/where", "mkdir -p")):
        with pytest.raises(InputError, match=why):
            export(predictor, tmp_path / place, onnx=False)
    assert (tmp_path / "mine" / "notes.txt").exists()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir()
    export(predictor, tmp_path / "link", onnx=False)
    assert (tmp_path / "real" / "model.json").exists()


def test_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor, x = case("projection")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "onnxscript" else find(name))
    with pytest.raises(MissingExtraError, match=r"onnxscript: .*pip install 'warmpot\[export\]'"):
        export(predictor, tmp_path / "out", inputs=x)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("opset", [17, 26, 0])
def test_operator_sets_that_would_be_others_are_refused(opset: int, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    predictor, x = case("projection")
    with pytest.raises(InputError, match="opset"):
        to_onnx(predictor, tmp_path / "model.onnx", x, opset=opset)


def test_inputs_are_drawn_where_the_data_was() -> None:
    predictor, x = case("sphere")
    drawn = draw_inputs(predictor, 2000)
    np.testing.assert_allclose(drawn.mean(axis=0), x.mean(axis=0), atol=0.2)
    np.testing.assert_allclose(drawn.std(axis=0), x.std(axis=0), rtol=0.1)


# ---- a run and its card


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run on two files, whose target has labels."""
    folder = tmp_path_factory.mktemp("secret-place")
    centres = 3 * rng.normal(size=(4, 5))
    ys, yt = np.arange(48) % 4, np.arange(24) % 2
    sides = {"source": (centres[ys] + rng.normal(size=(48, 5)), ys), "target": (centres[yt] + 0.3, yt)}
    for name, (x, y) in sides.items():
        np.savez(folder / f"{name}.npz", X=x, y=np.array(NAMES)[y])
    task, _ = make_task(*(as_table(x, np.array(NAMES)[y], name=name) for name, (x, y) in sides.items()))
    facts: dict[str, Any] = {name: str(folder / f"{name}.npz") for name in sides}
    fit(task, load_config("full"), out=folder / "run", facts=facts, progress_bar=False)
    return folder


def call(*words: object) -> Any:
    return CliRunner().invoke(app, ["export", *map(str, words)])


def test_export_of_a_run(finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    result = call(finished / "run", "--onnx", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    logits = r"^logits within \d\S* of the original model's, on 24 inputs \(rows of target.npz\)"
    assert re.search(logits, " ".join(result.stdout.split()))  # whatever the width of the terminal
    assert re.search(r"^same class +100.0%", result.stdout, flags=re.MULTILINE)
    assert result.stdout.endswith("README.md, model.json, model.onnx, model.safetensors\n")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "on 24 inputs (rows of target.npz) in batches of 1, 3, 20" in card
    assert "Predicted classes agree on 100.0% of them" in card


def test_without_onnx_there_is_no_need_of_it(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    result = call(finished / "run", "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    assert {path.name for path in (finished / "run/export").iterdir()} == {
        "README.md", "model.json", "model.safetensors"
    }  # fmt: skip


def test_data_that_is_gone_is_drawn(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = importlib.import_module("warmpot.cli.export")._inputs  # the package has the verb by that name
    predictor = Predictor.load(finished / "run")
    found, origin = inputs(finished / "run", predictor)
    np.testing.assert_array_equal(found, np.load(finished / "target.npz")["X"])
    assert origin == "rows of target.npz"
    mark = json.loads((finished / "run" / "run.json").read_text())
    mark["facts"]["target"] = str(tmp_path / "gone.npz")
    (tmp_path / "run.json").write_text(json.dumps(mark))
    assert inputs(tmp_path, predictor) == (None, "")
    np.savez(tmp_path / "gone.npz", X=np.zeros((3, 7)))  # other data by that name
    assert inputs(tmp_path, predictor) == (None, "")


def test_a_run_that_is_not_finished_is_refused(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text((finished / "run" / "run.json").read_text())
    result = call(tmp_path)
    assert result.exit_code == 2
    assert "not finished" in result.stderr
    assert not (tmp_path / "export").exists()


def texts(markdown: str) -> list[str]:
    """Return the cells and paragraphs that a reader sees."""
    shown = MARKDOWN.render(markdown.split("---\n", 2)[2])
    return [html.unescape(re.sub("<[^>]*>", "", part)) for part in re.split(r"</?(?:p|td|th|li|h\d)\b[^>]*>", shown)]


def test_the_card_cannot_be_broken_by_names(finished: Path) -> None:
    card = model_card(finished / "run", Agreement("rows of <b>|`x`", (1, 3), {"logits": 1e-7}, 1.0))
    assert "<script" not in card
    assert "<script" not in MARKDOWN.render(card)
    seen = texts(card)
    assert {"ant", "a|b"} <= set(seen)
    others = next(text for text in seen if text.startswith("The others: "))
    assert NAMES[2] in others
    assert " ".join(NAMES[3].split()) in others
    assert "<a href" not in MARKDOWN.render(card)
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in card.splitlines() if line.startswith("| a")}
    assert widths == {3}


@given(st.text())
def test_any_text_is_shown_as_it_is(text: str) -> None:
    shown = MARKDOWN.render(markdown_grid(["a", "b"], [[escape_markdown(text), "end"]]))
    cells = [html.unescape(cell) for cell in re.findall("<td>(.*?)</td>", shown)]
    visible = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    assert cells == [visible or "(empty)", "end"]


def test_the_card_holds_nothing_of_target_labels_and_places(finished: Path, tmp_path: Path) -> None:
    for path in (finished / "run").iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    known = {"name": "source loss", "value": 0.25, "meaning": "", "computable": True}
    unknown = {"name": "ideal", "value": 0.123456, "meaning": "", "computable": False}
    bound = {"loss": "tv", "alpha": 0.5, "beta": 0.4, "terms": [known, unknown], "target_loss": 0.123456}
    bound |= {"total": 0.25, "total_with_labels": 0.373456, "total_refined": 0.3, "confidence": None}
    bound |= {"theorem": "Theorem 3.2", "form": "paper", "union_bound": "none", "notes": []}
    bound |= {"lipschitz": {"value": 1.0, "origin": "given"}, "plan": vars(PlanRecord("exact", "OPTIMAL", 0.0, 0.0))}
    chosen = {"confidence": 0.95, "theorem": "PAC-Bayes"}
    (tmp_path / "bound.json").write_text(json.dumps({"Theorem 3.2": bound, "PAC-Bayes": {**bound, **chosen}}))
    card = model_card(tmp_path)
    assert "**not measured**" in card
    assert "| Theorem 3.2 | tv | 0.5 | 0.4 | 0.25 |  |" in card
    assert "| PAC-Bayes | tv | 0.5 | 0.4 | 0.25 | not valid: its features depend on the target |" in card
    assert not any(number in card for number in ("0.123", "0.373", "0.3 "))
    assert "secret-place" not in card
    assert str(tmp_path) not in card
    front = yaml.safe_load(card.split("---\n")[1])
    assert (front["library_name"], front["pipeline_tag"]) == ("warmpot", "tabular-classification")
    assert "license" not in front
    shares = dict(re.findall(r"^\| (ant|a\\\|b) \| (\S+)% \|$", card, flags=re.MULTILINE))
    assert sum(map(float, shares.values())) == pytest.approx(100, abs=0.2)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a finished run"):
        model_card(tmp_path)


def test_every_preset_has_a_card_and_its_command_repeats_the_run(tmp_path: Path) -> None:
    changes = {"seed": 3, "minibatch": {"steps": 7, "optimizer": {"lr": 0.5}}, "full": {"smooth": 0.0}}
    facts = {"classes": ["a", "b"], "centre": 0.0, "scale": 1.0}
    (tmp_path / "model.json").write_text(json.dumps({"n_inputs": 5, "facts": facts}))
    mark = {"seed": 3, "fingerprint": "0f", "versions": {}, "facts": {"source": "/x/`` `\n```\n.csv", "label": "l l"}}
    (tmp_path / "run.json").write_text(json.dumps(mark))
    for preset in preset_names():
        config = load_config(preset, changes=changes)
        (tmp_path / "config.yaml").write_text(config.dump())
        card = model_card(tmp_path)
        (command,) = re.findall(r"^```\n(.*)\n```$", card, flags=re.MULTILINE)
        words = shlex.split(command)
        assert words[:2] == ["warmpot", "fit"]
        assert words[words.index("--label") + 1] == "l l"
        sets = [after for word, after in pairwise(words) if word == "--set"]
        named = words[words.index("--preset") + 1]
        assert load_config(named, changes=nested_changes(sets, {})).dump() == config.dump()
        assert METHODS[config.method].reference.split(",")[0].split()[0] in card
        assert not re.search(r"(METHODS|SPEC) section", card)


def test_the_card_says_what_a_recipe_is(tmp_path: Path) -> None:
    facts = {"classes": ["a", "b"], "centre": 0.0, "scale": 1.0}
    (tmp_path / "model.json").write_text(json.dumps({"n_inputs": 5, "facts": facts}))
    (tmp_path / "run.json").write_text(json.dumps({"seed": 0, "fingerprint": "0f", "versions": {}}))
    wanted = {
        "official": "reproduction", "paper": "the paper's formulas", "full": "ours", "arpm-frozen": "ours",
        "arpm-plan": "interpretation", "mpot-imagenet": "interpretation", "source-only": "baseline",
    }  # fmt: skip
    for preset, status in wanted.items():
        (tmp_path / "config.yaml").write_text(load_config(preset).dump())
        assert f"| status | {status}" in model_card(tmp_path)
    (tmp_path / "config.yaml").write_text(load_config("official", changes={"params": {"alpha": 0.5}}).dump())
    assert "also train the network, with other settings" in model_card(tmp_path)
    plain = yaml.safe_load(load_config("official").dump())
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**plain, "method": "mine"}))
    assert "| status | the user's own |" in model_card(tmp_path)
