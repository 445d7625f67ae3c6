"""One call from data in any form to predictions, weights and a report (`warmpot.results`)."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import warmpot
from warmpot.cli import app
from warmpot.data import read_samples
from warmpot.errors import InputError
from warmpot.report import plot_weights, report_run

pd = pytest.importorskip("pandas")
rng = np.random.default_rng(0)
YS, YT = np.repeat(np.arange(4), 15), np.repeat([0, 1], 12)
CENTRES = np.array([[0.0, 0.0, 1.0], [4.0, 0.0, 1.0], [0.0, 4.0, 1.0], [4.0, 4.0, 1.0]])
XS, XT = (CENTRES[y] + rng.normal(scale=0.5, size=(len(y), 3)) for y in (YS, YT))
NAMES = ["p", "q", "r"]
SOURCE = pd.DataFrame(XS, columns=NAMES).assign(kind=[f"class {y}" for y in YS])
TARGET = pd.DataFrame(XT, columns=NAMES, index=pd.Index(np.arange(24) * 7 + 100, name="case"))
QUICK = {"full.rounds": 1}


def fit(source: Any, target: Any, **options: Any) -> warmpot.Result:
    return warmpot.fit(source, target, **{"settings": QUICK, "progress_bar": False, **options})


@pytest.fixture(scope="module")
def result() -> warmpot.Result:
    return fit(SOURCE, TARGET, label="kind")


def test_arrays_frames_and_files_give_the_same(result: warmpot.Result, tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", X=XS, y=SOURCE.kind.to_numpy(str))
    np.savez(tmp_path / "t.npz", X=XT)
    SOURCE.to_csv(tmp_path / "s.csv", index=False)
    TARGET.iloc[:, ::-1].to_csv(tmp_path / "t.csv", index=False)  # matched by name
    expected = result.predict_proba(XT)
    for source, target, label in (
        ((XS, SOURCE.kind), XT, None),
        (tmp_path / "s.npz", str(tmp_path / "t.npz"), None),
        (tmp_path / "s.csv", tmp_path / "t.csv", "kind"),
    ):
        other = fit(source, target, label=label)
        np.testing.assert_allclose(other.predict_proba(XT), expected, atol=1e-9)
        assert other.predictions.prediction.tolist() == result.predictions.prediction.tolist()
        assert other.classes == [f"class {k}" for k in range(4)]


@pytest.mark.parametrize("of", [str, int, lambda k: str(k).encode(), lambda k: f"0{k}"])
def test_labels_come_back_as_they_were_given(of: Any, tmp_path: Path) -> None:
    labels = [of(k) for k in YS]
    expected = {k.decode() if isinstance(k, bytes) else k for k in labels}
    result = fit((XS, labels), XT, out=tmp_path / "run")
    for one in (result, warmpot.load(tmp_path / "run"), fit((XS, np.array(labels)), XT)):
        for found in (one.predict(XT), one.predictions.prediction, one.weights.label):
            assert set(found.tolist()) <= expected, found
    model = warmpot.WarmpotClassifier(progress_bar=False).fit(XS, np.array(sorted(expected))[YS], X_target=XT)
    for one in (model, model.predictor_):
        assert set(one.predict(XT).tolist()) <= expected


def test_what_a_result_has(result: warmpot.Result) -> None:
    assert list(result.classes_present) == ["class 0", "class 1"]
    predictions, weights = result.predictions, result.weights
    assert list(predictions) == ["prediction", "confidence", "review", "weight", "unknown", "unadapted"]
    assert predictions.review.tolist() == result.predictor.review(result.fitted.outputs).tolist()
    assert predictions.review[predictions.confidence < 0.8].all()
    assert set(predictions.unadapted) <= set(result.classes)
    pd.testing.assert_index_equal(predictions.index, TARGET.index)  # so that it can be joined to the target
    assert predictions.prediction.tolist() == result.predict(TARGET).tolist()
    np.testing.assert_allclose(predictions.confidence, result.predict_proba(TARGET).max(axis=1), atol=1e-9)
    assert list(weights) == ["label", "plan_weight", "training_weight"]
    assert weights.label.tolist() == SOURCE.kind.tolist()
    assert weights.training_weight.sum() == pytest.approx(1.0)
    assert result.predict(TARGET[["r", "p", "q"]]).tolist() == predictions.prediction.tolist()
    assert repr(result) == ("Result(warmpot, preset full, 60 source and 24 target samples, 2 of 4 classes present)")


def test_target_labels_are_for_evaluation_only(result: warmpot.Result) -> None:
    assert result.accuracy is None
    truth = np.array([f"class {y}" for y in YT])
    for labels in (truth, truth[::-1]):
        other = fit((XS, SOURCE.kind), (XT, labels))
        np.testing.assert_allclose(other.predict_proba(XT), result.predict_proba(XT), atol=1e-9)
        assert other.accuracy == (other.predict(XT) == labels).mean()


def test_whole_numbers_stay_numbers() -> None:
    other = fit((XS, YS), XT)
    assert (other.predict(XT) == YT).mean() > 0.9
    assert other.predictions.prediction.dtype.kind == "i"
    assert other.classes == [0, 1, 2, 3]
    assert set(other.classes_present) == {0, 1}


def test_a_live_result_is_explained_reported_and_plotted(result: warmpot.Result, tmp_path: Path) -> None:
    live = result.explain(str(TARGET.index[3]))
    assert live.matches[0].share > 0
    chances = result.predict_proba(TARGET)[3]
    assert live.probabilities == pytest.approx({result.classes[k]: chances[k] for k in range(4)}, abs=1e-6)
    assert next(iter(live.probabilities)) == live.prediction
    assert report_run(result, out=tmp_path / "page.html").exists()
    read = warmpot.load(result.save(tmp_path / "run")).explain(3)
    assert (read.name, read.prediction, len(read.matches)) == (live.name, live.prediction, len(live.matches))
    model = warmpot.WarmpotClassifier(progress_bar=False).fit(XS, YS, X_target=XT)
    plot_weights(model)
    assert report_run(model, out=tmp_path / "model.html").exists()
    with pytest.raises(InputError, match="a run with a plan"):
        fit((XS, YS), XT, preset="source-only").explain(0)


def test_an_id_among_the_features_is_named_by_the_argument_of_fit() -> None:
    frames = [frame.reset_index(drop=True).assign(id=range(len(frame))) for frame in (SOURCE, TARGET)]
    with pytest.raises(InputError, match="Pass `id=` 'id'"):
        fit(*frames, label="kind")


def test_a_picture_of_the_caller_stays_open() -> None:
    picture = Image.open(io.BytesIO(_png()))
    table = read_samples([picture])
    assert np.array_equal(table.x[:1], table.x[:1])
    assert picture.convert("RGB").size == (40, 30)


def _png() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(stream, "png")
    return stream.getvalue()


def test_ids_of_a_column_and_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = (frame.assign(key=[f"s{k}" for k in range(len(frame))]) for frame in (SOURCE, TARGET))
    other = fit(source, target, label="kind", id="key")
    assert other.predictions.index.tolist() == target.key.tolist()
    assert other.weights.index.tolist() == source.key.tolist()
    monkeypatch.setitem(sys.modules, "pandas", None)
    columns = other.predictions
    assert list(columns) == ["name", "prediction", "confidence", "review", "weight", "unknown", "unadapted"]
    assert columns["name"].tolist() == target.key.tolist()
    assert "<td>class 0</td>" in other._repr_html_()


def test_only_the_target_needs_the_ids_that_are_asked_for() -> None:
    target = TARGET.assign(key=[f"t{k}" for k in range(len(TARGET))])
    other = fit(SOURCE, target, label="kind", id="key")
    assert other.predictions.index.tolist() == target.key.tolist()
    with pytest.raises(InputError, match="key"):
        fit(target.assign(kind="a"), TARGET, label="kind", id="key")


def test_saved_and_loaded(result: warmpot.Result, tmp_path: Path) -> None:
    folder = result.save(tmp_path / "run")
    loaded = warmpot.load(folder)
    np.testing.assert_array_equal(loaded.predict_proba(TARGET), result.predict_proba(TARGET))
    assert loaded.predict(TARGET).tolist() == result.predict(TARGET).tolist()
    assert loaded.classes_present == pytest.approx(result.classes_present)
    assert repr(loaded) == repr(result)
    assert loaded.predictions.index.tolist() == [str(case) for case in TARGET.index]
    np.testing.assert_allclose(loaded.weights.training_weight, result.weights.training_weight)
    again = warmpot.load(loaded.save(tmp_path / "copy"))
    assert again.predict(XT).tolist() == result.predict(XT).tolist()
    with pytest.raises(InputError, match="in use"):
        result.save(folder)
    with pytest.raises(InputError, match="a finished run"):
        warmpot.load(tmp_path / "absent")
    TARGET.to_csv(tmp_path / "t.csv", index=False)
    said = tmp_path / "said.csv"
    ran = CliRunner().invoke(app, ["predict", str(folder), str(tmp_path / "t.csv"), "--out", str(said), "--quiet"])
    assert ran.exit_code == 0, ran.output
    assert pd.read_csv(said).prediction.tolist() == result.predictions.prediction.tolist()


def test_the_folder_of_a_fit_is_that_of_the_command(tmp_path: Path) -> None:
    for name, x, y in (("s", XS, YS), ("t", XT, YT)):
        np.savez(tmp_path / f"{name}.npz", X=x, y=y)
    files = [str(tmp_path / f"{name}.npz") for name in "st"]
    ours = fit(*files, out=tmp_path / "ours", alpha=0.7, seed=3)
    words = ["--alpha", "0.7", "--seed", "3", "--set", "full.rounds=1", "--quiet", "--no-report"]
    ran = CliRunner().invoke(app, ["fit", *files, "--out", str(tmp_path / "theirs"), *words])
    assert ran.exit_code == 0, ran.output
    for name in ("config.yaml", "predictions.csv", "source_weights.csv", "classes.csv", "run.json"):
        assert (tmp_path / "ours" / name).read_text() == (tmp_path / "theirs" / name).read_text(), name
    assert ours.run.facts == json.loads((tmp_path / "ours" / "run.json").read_text())["facts"]
    assert ours.report() == tmp_path / "ours" / "report.html"
    theirs = warmpot.load(tmp_path / "theirs")
    assert theirs.explain(5).probabilities == pytest.approx(ours.explain(5).probabilities, abs=1e-6)
    assert "Compared with the target labels" in theirs.report().read_text()  # the data are read again
    Path(files[1]).unlink()
    assert theirs.explain(5).probabilities == {}
    page = theirs.report().read_text()
    assert "moved or was deleted (t.npz)" in page
    assert str(tmp_path) not in page  # pages are sent to others


def test_reports_of_live_results(result: warmpot.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert result.report().resolve() == tmp_path / "report.html"
    page = result.report(tmp_path / "page.html").read_text()
    assert "class 0" in page
    assert result.fitted is not None
    assert "class 0" in report_run(result.fitted, out=tmp_path / "live.html", figures=False).read_text()  # no task
    assert warmpot.load(result.save("run")).report().exists()


def test_names_are_escaped_in_notebooks() -> None:
    other = fit((XS, [f"<b>{y}</b>" for y in YS]), XT)
    html = other._repr_html_()
    assert "<b>" not in html
    assert "&lt;b&gt;0&lt;/b&gt;" in html


def test_regression_and_other_methods(tmp_path: Path) -> None:
    other = fit((XS, XS[:, 0]), XT, regression=True)
    assert np.abs(other.predict(XT) - XT[:, 0]).mean() < 0.5
    assert list(other.predictions) == ["prediction", "weight", "unadapted"]
    assert (other.classes_present, other.accuracy) == ({}, None)
    with pytest.raises(InputError, match="predict_proba: got a regression"):
        other.predict_proba(XT)
    assert "Result(" in other._repr_html_()
    plain = fit((XS, YS), XT, method="source-only", settings=None)
    assert "source-only" in repr(plain)
    with pytest.raises(InputError, match="got 'full', which is for 'warmpot'"):
        fit((XS, YS), XT, method="arpm", preset="full")


def test_images_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("timm") is None:  # not importorskip: a plain import may stop at torchvision
        pytest.skip("the extra `vision` is not installed")
    monkeypatch.setenv("WARMPOT_CACHE", str(tmp_path / "cache"))
    colours = np.array([[220, 30, 30], [30, 200, 40], [30, 40, 210]])

    def pictures(y: Any, dark: int) -> list[Any]:
        noise = rng.integers(-20, 20, size=(len(y), 40, 40, 3))
        return [
            Image.fromarray(pixels.astype(np.uint8)) for pixels in (colours[y][:, None, None] + noise - dark).clip(0)
        ]

    ys, yt = np.repeat([0, 1, 2], 6), np.repeat([0, 2], 5)
    settings = {**QUICK, "images": {"backbone": {"name": "test_resnet", "weights": "none"}, "workers": 0,
                                    "view": {"resize": 32, "crop": 32}}}  # fmt: skip
    other = fit((pictures(ys, 0), ys), pictures(yt, 30), settings=settings, fine_tune=False)
    new = pictures(yt, 30)
    assert (other.predict(new) == yt).mean() > 0.8
    assert (other.predict(np.stack([np.asarray(image) for image in new])) == other.predict(new)).all()
    with pytest.raises(InputError, match="got images and features"):
        fit((pictures(ys, 0), ys), XT)
    with pytest.raises(InputError, match="image settings for tables"):
        fit((XS, YS), XT, fine_tune=True)
