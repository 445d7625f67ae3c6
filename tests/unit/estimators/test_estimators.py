"""The estimators keep scikit-learn's contract, and never read target labels."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import sklearn
import torch
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.datasets import make_regression
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import warmpot
from warmpot.data import Task
from warmpot.errors import DivergedError, InputError, WarmpotWarning
from warmpot.estimators import (
    AdaptedClassifier,
    PartialReweighter,
    SourceOnlyClassifier,
    WarmpotClassifier,
    WarmpotRegressor,
    reweighter,
)

CENTRES = np.array([[0.0, 0.0, 1.0], [4.0, 0.0, 1.0], [0.0, 4.0, 1.0], [4.0, 4.0, 1.0]])
FULL, QUICK = WarmpotClassifier(), {"full": {"rounds": 2}}
FEW = {"minibatch": {"steps": 20, "source_batch": 24, "target_batch": 24, "network": {"width": 16}}}


def blobs(codes: Any, seed: int, shift: float = 0.0) -> Any:
    rng = np.random.default_rng(seed)
    return CENTRES[codes] + rng.normal(scale=0.5, size=(len(codes), 3)) + [shift, shift, 0.0]


YS = np.repeat(np.arange(4), 15)
XS = blobs(YS, 0)
YT = np.repeat([0, 1], 12)  # two of the four classes
XT = blobs(YT, 1, shift=0.6)
STACKED = np.concatenate([XS, XT])
DOMAIN = np.repeat([1, -2], [len(XS), len(XT)])
RS = np.sin(XS[:, 0] / 3) + XS[:, 1] / 5

ALL = [
    pytest.param(WarmpotClassifier(overrides=QUICK), YS, id="warmpot"),
    pytest.param(SourceOnlyClassifier(), YS, id="source-only"),
    pytest.param(AdaptedClassifier("jumbot", weights="class_share", overrides=FEW), YS, id="adapted"),
    pytest.param(WarmpotRegressor(overrides=QUICK), RS, id="regressor"),
    pytest.param(PartialReweighter(), YS, id="weights"),
    pytest.param(PartialReweighter(LogisticRegression()), YS, id="weighted-logistic"),
    pytest.param(PartialReweighter(Ridge()), RS, id="weighted-ridge"),
]
unwarned = pytest.mark.filterwarnings("ignore:X_target:warmpot.errors.WarmpotWarning")  # tested on its own, below


def every(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test with every estimator, quickly."""
    return pytest.mark.usefixtures("few_simulations")(pytest.mark.parametrize(("estimator", "y"), ALL)(test))


@pytest.fixture(autouse=True)
def short_training_of_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the time it takes; test_the_reweighter_takes_the_weights_of_a_training has the training that users get."""
    monkeypatch.setattr(reweighter, "WarmpotClassifier", partial(WarmpotClassifier, overrides=QUICK))


def outputs(estimator: Any, x: Any = XT) -> dict[str, Any]:
    """Return all numeric outputs of a fitted estimator."""
    found = {"p": estimator.source_weights_, "q": estimator.target_weights_}
    for name in ("predict", "predict_proba"):
        if hasattr(estimator, name):
            found[name] = getattr(estimator, name)(x)
    return found


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def expected_failures(estimator: Any) -> dict[str, str]:
    if is_regressor(estimator):
        return {
            "check_regressors_train": "sets alpha = .01, taking it for a ridge penalty; it is the share of the target "
            "that is matched, and two of 200 samples do not make an R^2 of .5 (see test_regressors_learn)"
        }
    if isinstance(estimator, AdaptedClassifier):
        return {
            "check_methods_subset_invariance": "allows 1e-7; networks predict in float32, where a product of matrices "
            "rounds by the number of its rows (see test_predictions_do_not_depend_on_the_other_rows)"
        }
    return {}


@unwarned  # the checks give no target
@pytest.mark.usefixtures("few_simulations")
@parametrize_with_checks(
    [
        WarmpotClassifier(overrides={"full": {"rounds": 3}}),  # for the time it takes
        SourceOnlyClassifier(),
        AdaptedClassifier("jumbot", overrides=FEW),
        WarmpotRegressor(),
        WarmpotRegressor(loss="absolute"),
        PartialReweighter(),
        PartialReweighter(LogisticRegression()),
        PartialReweighter(Ridge()),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learns_contract(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(
    "estimator", [WarmpotRegressor(), WarmpotRegressor(loss="absolute"), PartialReweighter(Ridge())]
)
@unwarned
def test_regressors_learn(estimator: Any) -> None:
    """The data and the threshold of the check that fails for a reason that is not ours."""
    x, y = make_regression(n_samples=200, n_features=10, n_informative=1, bias=5.0, noise=20, random_state=42)
    assert clone(estimator).fit(StandardScaler().fit_transform(x), y).score(StandardScaler().fit_transform(x), y) > 0.5


def test_importing_the_estimators_does_not_import_torch() -> None:
    code = "import sys, warmpot.estimators; sys.exit(any(m in sys.modules for m in ('torch', 'ot', 'numba', 'skada')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_partial_target_is_recognised() -> None:
    model = WarmpotClassifier(alpha=0.9, beta=0.5).fit(XS, YS, XT)
    assert list(model.target_classes_) == [0, 1]
    assert sum(model.target_classes_.values()) == 1.0
    assert (model.predict(XT) == YT).mean() > 0.95
    assert model.source_weights_.shape == (60,)
    assert model.source_weights_.sum() == pytest.approx(0.9)
    assert model.source_weights_[YS < 2].sum() > 0.85  # nearly all on the classes the target has
    assert model.source_weights_.max() <= 1 / (0.5 * 60) + 1e-12
    assert model.training_weights_.sum() == pytest.approx(1.0)
    assert model.training_weights_[YS < 2].sum() > 0.8
    assert model.target_weights_.sum() == pytest.approx(0.9)
    assert model.plan_.shape == (60, 24)
    np.testing.assert_allclose(model.plan_.sum(axis=1), model.source_weights_)
    np.testing.assert_allclose(model.predict_proba(XT), model.target_proba_, atol=1e-5)
    assert model.history_
    assert model.chosen_step_ == model.history_[-1]["step"]
    assert model.config_.params["alpha"] == 0.9


@pytest.mark.parametrize("scale", [None, "rows", "columns"])
def test_source_only_does_not_use_the_target(scale: str | None) -> None:
    with_target, without = (SourceOnlyClassifier(scale=scale).fit(XS, YS, target) for target in (XT, None))
    np.testing.assert_array_equal(with_target.source_weights_, np.full(60, 1 / 60))
    assert with_target.plan_ is None
    np.testing.assert_array_equal(with_target.predict_proba(XS), without.predict_proba(XS))


def test_target_classes_leave_stray_predictions_out() -> None:
    codes = np.concatenate([np.repeat([0, 1], 50), [2]])
    model = SourceOnlyClassifier().fit(XS, YS, blobs(codes, 3))
    assert set(model.target_classes_) == {0, 1}  # one of 101 is a stray
    assert list(model.target_classes_.values()) == pytest.approx([0.5, 0.5], abs=0.02)
    assert model.presence_.states[:2] == ("present", "present")
    assert model.presence_.probability[2] < 0.5


@every
@unwarned
def test_three_ways_to_name_the_target(estimator: Any, y: Any) -> None:
    direct = clone(estimator).fit(XS, y, X_target=XT)
    masked = np.concatenate([y, np.full(len(XT), np.nan if is_regressor(estimator) else -1)])
    assert_same(outputs(direct), outputs(clone(estimator).fit(STACKED, masked, sample_domain=DOMAIN)))
    own, itself = clone(estimator).fit(XS, y), clone(estimator).fit(XS, y, X_target=XS)
    assert_same(outputs(own), outputs(itself))
    assert own.target_weights_.shape == (60,)


@every
def test_domains_may_be_interleaved(estimator: Any, y: Any) -> None:
    order = np.random.default_rng(0).permutation(len(STACKED))
    filled = np.concatenate([y, np.zeros(len(XT), y.dtype)])
    mixed = clone(estimator).fit(STACKED[order], filled[order], sample_domain=DOMAIN[order])
    source, target = order[DOMAIN[order] > 0], order[DOMAIN[order] < 0]
    assert_same(outputs(mixed), outputs(clone(estimator).fit(STACKED[source], filled[source], STACKED[target])))


@every
def test_target_labels_are_never_read(estimator: Any, y: Any) -> None:
    truth = YT.astype(y.dtype)
    rng = np.random.default_rng(0)
    first = None
    for labels in (truth, rng.permutation(truth), np.full_like(truth, 99)):
        model = clone(estimator).fit(STACKED, np.concatenate([y, labels]), sample_domain=DOMAIN)
        first = first or outputs(model)
        assert_same(first, outputs(model))
        if is_classifier(model):
            assert model.classes_.tolist() == [0, 1, 2, 3]


def test_domain_zero_is_source_and_there_may_be_several() -> None:
    domain = DOMAIN.copy()
    domain[:10], domain[-5:] = 0, -7
    labels = np.concatenate([YS, YT])
    one = clone(FULL).fit(STACKED, labels, sample_domain=DOMAIN)
    assert_same(outputs(one), outputs(clone(FULL).fit(STACKED, labels, sample_domain=domain)))


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (np.ones(84), "no target rows"),
        (1, "at least 1 dimension"),
        (-np.ones(84), "no source rows"),
        (DOMAIN[:-1], "shape"),
        (DOMAIN / 2, "fractions"),
        (["s"] * 84, "sample_domain: got"),
        (np.where(DOMAIN < 0, np.nan, 1), "NaN"),
    ],
)
def test_unusable_domains_are_refused(domain: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        clone(FULL).fit(STACKED, np.concatenate([YS, YT]), sample_domain=domain)


@every
@unwarned
def test_unusable_targets_are_refused(estimator: Any, y: Any) -> None:
    spoilt = XT.copy()
    spoilt[3, 1] = np.nan
    with pytest.raises(InputError, match=r"X_target: got .*NaN"):
        clone(estimator).fit(XS, y, spoilt)
    with pytest.raises(InputError, match="X_target: got X has 2 features"):
        clone(estimator).fit(XS, y, XT[:, :2])
    with pytest.raises(InputError, match="X_target and sample_domain: got both"):
        clone(estimator).fit(STACKED, np.concatenate([y, y[:24]]), XT, DOMAIN)
    with pytest.raises(ValueError, match="NaN"):
        clone(estimator).fit(np.where(XS > 4, np.nan, XS), y, XT)
    with pytest.raises(InputError, match="numbers up to"):
        clone(estimator).fit(XS * 1e200, y, XT)


def test_predicting_before_fitting_is_refused() -> None:
    for estimator in (FULL, SourceOnlyClassifier(), WarmpotRegressor(), PartialReweighter(Ridge())):
        with pytest.raises(NotFittedError):
            estimator.predict(XT)


def test_one_class_is_refused() -> None:
    for model in (clone(FULL), SourceOnlyClassifier()):
        with pytest.raises(InputError, match="y: got one class only"):
            model.fit(XS, np.zeros(60), XT)
        with pytest.raises(InputError, match="y: got one class only"):  # the target's labels do not count
            model.fit(STACKED, np.concatenate([np.zeros(60), np.ones(24)]), sample_domain=DOMAIN)


def test_a_class_of_one_sample() -> None:
    rare = np.where(np.arange(60) == 0, 7, YS)
    model = clone(FULL).fit(XS, rare, XT)
    assert model.classes_.tolist() == [0, 1, 2, 3, 7]
    assert np.isfinite(model.predict_proba(XT)).all()


@every
def test_a_target_of_one_row(estimator: Any, y: Any) -> None:
    model = clone(estimator).fit(XS, y, XT[:1])
    assert model.target_weights_.shape == (1,)
    assert all(np.isfinite(value).all() for value in outputs(model).values())


@every
def test_a_target_larger_than_the_source(estimator: Any, y: Any) -> None:
    model = clone(estimator).fit(XS[::3], y[::3], np.tile(XT, (5, 1)) + np.arange(120)[:, None] / 1000)
    assert (model.source_weights_.shape, model.target_weights_.shape) == ((20,), (120,))
    assert all(np.isfinite(value).all() for value in outputs(model).values())


@pytest.mark.parametrize("kind", [np.str_, object])
def test_text_labels(kind: Any) -> None:
    names = np.array(["ant", "bee", "cat", "dog"], dtype=kind)
    model, plain = clone(FULL).fit(XS, names[YS], XT), clone(FULL).fit(XS, YS, XT)
    assert model.classes_.dtype == names.dtype
    np.testing.assert_array_equal(model.predict(XT), names[plain.predict(XT)])
    assert set(model.target_classes_) == {"ant", "bee"}
    labels = np.concatenate([names[YS].astype(object), np.full(24, -1, dtype=object)])  # masked as skada would
    again = clone(FULL).fit(STACKED, labels, sample_domain=DOMAIN)
    np.testing.assert_array_equal(again.predict(XT), model.predict(XT))


@unwarned
def test_labels_minus_one_and_one_are_classes() -> None:
    signs = np.where(YS % 2, 1, -1)
    assert clone(FULL).fit(XS, signs).classes_.tolist() == [-1, 1]
    masked = np.concatenate([signs, np.full(24, -1)])
    model = clone(FULL).fit(STACKED, masked, sample_domain=DOMAIN)
    assert model.classes_.tolist() == [-1, 1]
    assert model.source_weights_.shape == (60,)


@every
def test_float32(estimator: Any, y: Any) -> None:
    single, double = (clone(estimator).fit(XS.astype(dtype), y, XT.astype(dtype)) for dtype in (np.float32, np.float64))
    # the mass is alpha, which the default reads off predictions
    np.testing.assert_allclose(single.source_weights_.sum(), double.source_weights_.sum(), rtol=0.02)
    if is_classifier(single):
        assert (single.predict(XT.astype(np.float32)) == double.predict(XT)).mean() > 0.95
    mixed = clone(estimator).fit(XS.astype(np.float32), y, XT)
    assert all(np.isfinite(value).all() for value in outputs(mixed).values())


@every
def test_data_frames(estimator: Any, y: Any) -> None:
    pandas = pytest.importorskip("pandas")
    names = ["a", "b", "c"]
    source, target = pandas.DataFrame(XS, columns=names), pandas.DataFrame(XT, columns=names)
    model = clone(estimator).fit(source, pandas.Series(y), target)
    assert model.feature_names_in_.tolist() == names
    assert model.n_features_in_ == 3
    assert_same(outputs(model, target), outputs(clone(estimator).fit(XS, y, XT)))
    both = pandas.concat([source, target])  # with a repeated index
    labels = pandas.Series(np.concatenate([y, y[:24]]), index=both.index)
    stacked = clone(estimator).fit(both, labels, sample_domain=pandas.Series(DOMAIN, index=both.index))
    assert_same(outputs(stacked, target), outputs(model, target))
    with pytest.raises(InputError, match="X_target: got The feature names"):
        clone(estimator).fit(source, y, target[["b", "a", "c"]])


@every
def test_a_fitted_estimator_can_be_stored(estimator: Any, y: Any, tmp_path: Path) -> None:
    model = clone(estimator).fit(XS, y, XT)
    joblib.dump(model, tmp_path / "model.joblib")
    assert_same(outputs(model), outputs(joblib.load(tmp_path / "model.joblib")))


WIDE = np.random.default_rng(5).normal(size=(60, 70))  # scaled by rows
DEGENERATE: dict[str, Any] = {
    "constant": np.ones((60, 2)),
    "zeros": np.zeros((60, 1)),
    "tiny": XS * 1e-160,
    "huge": XS * 1e29,
    "mixed": np.column_stack([XS * [1e29, 1e-29, 1.0], np.full(60, 1e9)]),
    "denormal": np.where(XS > 2, 5e-324, 0.0),
    "an outlier": np.vstack([XS[:-1], [[1e29, -1e29, 0.0]]]),
    "wide zeros": np.zeros((60, 70)),
    "wide, some zero rows": np.where(np.arange(60)[:, None] % 7, WIDE, 0.0),
    "wide huge": WIDE * 1e29,
    "wide tiny": WIDE * 1e-300,
    "wide constant": np.where(np.arange(70) % 2, WIDE, 1e20),
}


@pytest.mark.parametrize("case", DEGENERATE)
@every
@unwarned
@pytest.mark.usefixtures("few_simulations")
def test_degenerate_features_give_finite_numbers(estimator: Any, y: Any, case: str) -> None:
    x = DEGENERATE[case]
    if getattr(estimator, "estimator", None) is not None and np.abs(x).max() > 1e9:
        pytest.skip("what a wrapped estimator makes of huge numbers is its own business")
    model = clone(estimator).fit(x, y)
    assert all(np.isfinite(value).all() for value in outputs(model, x).values())
    if hasattr(estimator, "preset"):
        far = model.predict(np.where(np.arange(60)[:, None] % 2, 1e30, x))
        assert np.isfinite(far).all() if is_regressor(estimator) else np.isin(far, y).all()
        with pytest.raises(InputError, match="X: got numbers up to 1e\\+31"):
            model.predict(np.full_like(x, 1e31))


@pytest.mark.parametrize("size", [1e-29, 1e3, 1e9, 1e18, 1e29])
@pytest.mark.parametrize(("estimator", "y"), [ALL[0], ALL[1], ALL[3]])
def test_unscaled_features_give_finite_numbers_or_an_error(estimator: Any, y: Any, size: float) -> None:
    try:
        model = clone(estimator).set_params(scale="none").fit(XS * size, y, XT * size)
        assert all(np.isfinite(value).all() for value in outputs(model, XT * size).values())
    except (InputError, DivergedError) as error:
        assert size > 1e3
        assert "scale" in str(error)  # noqa: PT017


def test_columns_far_from_zero_keep_their_digits() -> None:
    dates = XS + 1.7e9  # float32 has steps of 128 there
    model = clone(FULL).fit(dates, YS, XT + 1.7e9)
    np.testing.assert_allclose(model.target_proba_, clone(FULL).fit(XS, YS, XT).target_proba_, atol=0.01)
    np.testing.assert_allclose(model.predict_proba(XT + 1.7e9), model.target_proba_, atol=1e-4)


def test_huge_labels_are_refused() -> None:
    with pytest.raises(InputError, match="source labels: got numbers up to"):
        WarmpotRegressor().fit(XS, RS * 1e200, XT)


@pytest.mark.parametrize("preset", ["full", "frozen", "official", "source-only"])
@pytest.mark.parametrize("wide", [False, True])
def test_estimators_and_the_command_line_agree_bit_for_bit(preset: str, wide: bool) -> None:
    from warmpot.data import as_table, make_task
    from warmpot.train import fit, load_config

    xs, xt = (np.hstack([x, np.tile(x, (1, 30)) ** 2]) if wide else x for x in (XS, XT))
    short = {"minibatch": {"steps": 20}}
    told = fit(make_task(as_table(xs, YS), as_table(xt))[0], load_config(preset, changes=short))
    if preset == "source-only":
        model = SourceOnlyClassifier(overrides=short).fit(xs, YS, xt)
    else:
        model = WarmpotClassifier(preset, overrides=short).fit(xs, YS, xt)
    assert model.config_ == told.config
    np.testing.assert_array_equal(model.target_proba_, told.outputs)
    np.testing.assert_array_equal(model.source_weights_, told.source_weights)
    np.testing.assert_array_equal(model.predict_proba(xt), told.predictor.probabilities(xt))


@pytest.mark.parametrize("method", ["warmpot", "mpot", "ba3us", "source-only"])
def test_every_method_has_the_same_interface(method: str) -> None:
    from warmpot.train import fit, load_config
    from warmpot.train.recipes import preset_for

    model = AdaptedClassifier(method, overrides=FEW).fit(XS, YS, XT)
    config = load_config(preset_for(method), changes=FEW)
    assert model.config_ == config
    np.testing.assert_array_equal(model.target_proba_, fit(Task(XS, YS, XT, tuple("0123")), config).outputs)
    if method in ("warmpot", "source-only"):
        twin = WarmpotClassifier() if method == "warmpot" else SourceOnlyClassifier()
        assert_same(outputs(model), outputs(twin.fit(XS, YS, XT)))


def test_predictions_do_not_depend_on_the_other_rows() -> None:
    model = AdaptedClassifier("jumbot", overrides=FEW).fit(XS, YS, XT)
    alone = np.concatenate([model.predict_proba(row[None]) for row in XT])
    np.testing.assert_allclose(model.predict_proba(XT), alone, atol=2e-6)


def test_weights_and_parameters_of_any_method() -> None:
    chosen = {"weights": "chi2_ball", "weight_params": {"rho": np.float32(3.0), "critic": {"steps": 5, "hidden": 8}}}
    model = AdaptedClassifier("mpot", params={"alpha": np.float64(0.5)}, **chosen, overrides=FEW).fit(XS, YS, XT)
    assert (model.config_.preset, model.config_.params["alpha"], model.config_.params["eta2"]) == (
        "mpot-frozen",
        0.5,
        7.5,
    )
    assert (model.config_.weights, model.config_.weight_params["rho"]) == ("chi2_ball", 3.0)
    assert model.config_.built_weighting.critic.hidden == 8
    assert model.source_weights_.sum() == pytest.approx(1.0)
    assert len(set(model.source_weights_)) > 2
    assert model.plan_ is None
    own = AdaptedClassifier("mpot", weights="own", overrides=FEW).fit(XS, YS, XT)
    np.testing.assert_allclose(own.plan_.sum(axis=1), own.source_weights_)
    assert AdaptedClassifier("mpot", preset="mpot", overrides=FEW).fit(XS, YS, XT).config_.preset == "mpot"
    by_preset = AdaptedClassifier(preset="mpot-frozen", overrides=FEW).fit(XS, YS, XT).config_
    assert (by_preset.method, by_preset.preset) == ("mpot", "mpot-frozen")
    assert AdaptedClassifier()._config() == WarmpotClassifier()._config()
    wrong = {
        "method: got 'arpmm'": AdaptedClassifier("arpmm"),
        "which is for 'warmpot', with the method 'arpm'": AdaptedClassifier("arpm", preset="frozen"),
        "weights: got 'own' with the method 'ba3us'": AdaptedClassifier("ba3us", weights="own"),
        "params.alpha: got an unknown setting": AdaptedClassifier("ba3us", params={"alpha": 0.5}),
    }
    for message, estimator in wrong.items():
        with pytest.raises(InputError, match=message):
            estimator.fit(XS, YS, XT)


def test_regressor_and_the_command_line_agree_bit_for_bit() -> None:
    from warmpot.data import as_table, make_task
    from warmpot.train import fit, load_config

    task, _ = make_task(as_table(XS, RS, task="regression"), as_table(XT))
    told = fit(task, load_config("full", changes={"loss": "squared"}))
    np.testing.assert_array_equal(WarmpotRegressor().fit(XS, RS, XT).target_prediction_, told.outputs)


@unwarned
def test_columns_keep_what_unit_rows_forget() -> None:
    x = np.concatenate([np.linspace(1, 2, 30), np.linspace(4, 5, 30)])[:, None]
    y = np.repeat([0, 1], 30)
    assert clone(FULL).fit(x, y).score(x, y) == 1.0
    assert clone(FULL).set_params(scale="rows").fit(x, y).score(x, y) < 0.8  # all rows are (1,)


@unwarned
def test_the_scale_is_the_presets_unless_it_is_given() -> None:
    from warmpot.nets import network

    assert (reweighter.SCALES, reweighter.NARROW) == (network.SCALES, network.NARROW)
    steps = {"minibatch": {"steps": 2}, **QUICK}
    for preset, own in (("full", ("auto", "none")), ("frozen", ("auto", "auto")), ("official", ("auto", "none"))):
        for scale in (None, *network.SCALES):
            config = WarmpotClassifier(preset, scale=scale, overrides=steps).fit(XS, YS, XT).config_
            assert (config.full.scale, config.minibatch.network.scale) == (own if scale is None else (scale, scale))
    y = np.repeat([0, 1, 2], 20)
    for wide, kind in ((WIDE, "rows"), (np.abs(WIDE), "roots")):  # the latter have a variance that follows their mean
        auto, given = (WarmpotClassifier(scale=scale, overrides=QUICK).fit(wide, y) for scale in (None, kind))
        assert_same(outputs(auto, wide), outputs(given, wide))


@pytest.mark.parametrize("scale", ["none", "rows", "roots", "columns", "auto"])
def test_the_reweighter_scales_features(scale: str) -> None:
    def scaled(x: Any) -> Any:
        if scale == "roots":
            x = np.sign(x) * np.sqrt(np.abs(x))
        if scale in ("rows", "roots"):
            return x / np.linalg.norm(x, axis=1, keepdims=True)
        centre = (XS.mean(axis=0) + XT.mean(axis=0)) / 2
        spread = np.sqrt((((XS - centre) ** 2).mean(axis=0) + ((XT - centre) ** 2).mean(axis=0)) / 2)
        return x if scale == "none" else (x - centre) / spread

    model = PartialReweighter(scale=scale).fit(XS, X_target=XT)
    plain = PartialReweighter(scale="none").fit(scaled(XS), X_target=scaled(XT))
    np.testing.assert_allclose(model.source_weights_, plain.source_weights_, atol=1e-12)


@unwarned
def test_parameters_override_the_preset() -> None:
    model = WarmpotClassifier(alpha=0.5, overrides={"params": {"alpha": 0.9, "eta1": 2.0}, "full": {"rounds": 3}})
    model.fit(XS, YS, XT)
    assert model.config_.params["alpha"] == 0.5  # the named parameter wins
    assert model.config_.params["eta1"] == 2.0
    assert model.config_.full.rounds == 3
    assert model.overrides == {"params": {"alpha": 0.9, "eta1": 2.0}, "full": {"rounds": 3}}
    for wrong in ({"alpha": 1.5}, {"beta": 0.0}, {"preset": "ful"}, {"overrides": {"fulll": {}}}, {"scale": "row"}):
        with pytest.raises(InputError):
            WarmpotClassifier(**wrong).fit(XS, YS, XT)
    with pytest.raises(InputError, match="loss"):
        WarmpotRegressor(loss="cross_entropy").fit(XS, RS)


def test_the_mini_batch_presets() -> None:
    short = {"minibatch": {"steps": 30, "source_batch": 20, "target_batch": 12, "network": {"width": 8}}}
    first, again, other = (
        WarmpotClassifier("official", overrides=short, random_state=seed).fit(XS, YS, XT) for seed in (0, 0, 1)
    )
    assert_same(outputs(first), outputs(again))
    assert (first.target_proba_ != other.target_proba_).any()
    assert first.source_weights_.sum() == pytest.approx(0.8)
    drawn = WarmpotClassifier("official", overrides=short, random_state=np.random.RandomState(0))
    assert np.isfinite(drawn.fit(XS, YS, XT).target_proba_).all()
    huge = WarmpotClassifier("official", overrides=short).fit(XS, YS, XT)
    with torch.no_grad():
        huge.predictor_.network.head.weight *= 1e20
    with pytest.raises(InputError, match="X: got 24 samples whose predictions overflow"):
        huge.predict(XT * 1e25)


def test_regression_weights_follow_the_target() -> None:
    near = np.linspace(0, 3, 25)[:, None] + 0.05
    x = np.linspace(0, 10, 80)[:, None]
    model = WarmpotRegressor(alpha=1.0, beta=0.3).fit(x, 3 * x[:, 0] + 100, near)
    assert model.source_weights_[x[:, 0] < 4].sum() > 0.9
    np.testing.assert_allclose(model.predict(near), 3 * near[:, 0] + 100, atol=1.5)
    np.testing.assert_allclose(model.predict(near), model.target_prediction_, atol=1e-4)


def test_reweighter_weights() -> None:
    model = PartialReweighter(alpha=0.6, beta=0.4).fit(XS, X_target=XT)
    assert model.source_weights_.sum() == pytest.approx(0.6)
    assert model.sample_weight_.mean() == pytest.approx(1.0)
    assert model.source_weights_.max() <= 1 / (0.4 * 60) + 1e-12
    assert not hasattr(model, "predict")
    assert not hasattr(model, "estimator_")
    unlabelled = PartialReweighter(alpha=0.6, beta=0.4).fit(STACKED, sample_domain=DOMAIN)
    np.testing.assert_array_equal(unlabelled.source_weights_, model.source_weights_)


def test_reweighter_forgets_an_earlier_estimator() -> None:
    model = PartialReweighter(LogisticRegression()).fit(XS, YS, XT)
    assert hasattr(model.set_params(estimator=Ridge()).fit(XS, RS, XT), "predict")
    assert not hasattr(model, "classes_")
    assert not hasattr(model.set_params(estimator=None).fit(XS, RS, XT), "predict")


def test_fits_in_a_thread() -> None:
    with ThreadPoolExecutor(2) as pool:
        models = list(pool.map(lambda _: WarmpotClassifier(overrides=QUICK).fit(XS, YS, XT), range(2)))
    assert_same(outputs(models[0]), outputs(models[1]))


def test_reweighter_trains_what_it_wraps() -> None:
    model = PartialReweighter(LogisticRegression(), alpha=0.9, beta=0.5).fit(XS, YS, XT)
    direct = LogisticRegression().fit(XS, YS, sample_weight=model.sample_weight_)
    np.testing.assert_array_equal(model.predict_proba(XT), direct.predict_proba(XT))
    np.testing.assert_array_equal(model.decision_function(XT), direct.decision_function(XT))
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert model.score(XT, YT) == direct.score(XT, YT)
    assert model.score(XT, YT, sample_weight=YT + 1) == direct.score(XT, YT, sample_weight=YT + 1)
    assert is_classifier(model)
    assert is_regressor(PartialReweighter(Ridge()))
    with pytest.raises(InputError, match="estimator: got KNeighborsClassifier"):
        PartialReweighter(KNeighborsClassifier()).fit(XS, YS, XT)
    with pytest.raises(ValueError, match="requires y"):
        PartialReweighter(LogisticRegression()).fit(XS, X_target=XT)
    with pytest.raises(ValueError, match="requires y"):
        PartialReweighter(LogisticRegression()).fit(STACKED, sample_domain=DOMAIN)


@pytest.mark.parametrize("asked", [False, True])
@every
def test_pipelines_by_metadata_routing(estimator: Any, y: Any, asked: bool) -> None:
    def make() -> Any:
        model = clone(estimator)
        return model.set_fit_request(sample_domain=True, X_target=True) if asked else model

    labels = np.concatenate([y, y[:24]])
    with sklearn.config_context(enable_metadata_routing=True):
        stacked = make_pipeline(StandardScaler(), make()).fit(STACKED, labels, sample_domain=DOMAIN)
        apart = Pipeline([("scale", StandardScaler()), ("model", make())], transform_input=["X_target"])
        apart.fit(XS, y, X_target=XT)
    scaler = StandardScaler().fit(STACKED)
    direct = clone(estimator).fit(scaler.transform(XS), y, scaler.transform(XT))
    assert_same(outputs(stacked[-1], scaler.transform(XT)), outputs(direct, scaler.transform(XT)))
    scaler = StandardScaler().fit(XS)
    direct = clone(estimator).fit(scaler.transform(XS), y, scaler.transform(XT))
    assert_same(outputs(apart[-1], scaler.transform(XT)), outputs(direct, scaler.transform(XT)))


@pytest.mark.parametrize(
    ("estimator", "y"),
    [
        (WarmpotClassifier(overrides=QUICK), YS),
        (WarmpotRegressor(overrides=QUICK), RS),
        (AdaptedClassifier("jumbot", overrides=FEW), YS),
        (PartialReweighter(LogisticRegression()), YS),
    ],
)
def test_grid_search(estimator: Any, y: Any) -> None:
    grid: dict[str, Any] = {"alpha": [0.5, np.float32(0.75)], "beta": [0.4, 0.8]}
    if isinstance(estimator, AdaptedClassifier):
        grid = {"method": ["mpot"], "weights": [None, "class_share"], "params": [{"alpha": np.float32(0.25)}]}
    search = GridSearchCV(estimator, grid, cv=2, error_score="raise").fit(XS, y, X_target=XT)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.target_weights_.shape == (24,)
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(make_pipeline(StandardScaler(), estimator), {}, cv=2, error_score="raise")
        order = np.random.default_rng(0).permutation(len(STACKED))
        labels = np.concatenate([y, y[:24]])
        search.fit(STACKED[order], labels[order], sample_domain=DOMAIN[order])
    assert search.best_estimator_[-1].target_weights_.shape == (24,)


@pytest.mark.parametrize("masked", [None, "?", float("nan"), 0.5], ids=repr)
def test_masked_target_labels_do_not_change_the_source_labels(masked: Any) -> None:
    x, domain = np.vstack([XS, XT]), np.r_[np.ones(len(XS), int), -np.ones(len(XT), int)]
    codes = np.unique(YS, return_inverse=True)[1].tolist()
    model = SourceOnlyClassifier().fit(x, codes + [masked] * len(XT), sample_domain=domain)
    assert model.classes_.dtype.kind == "i"
    assert model.classes_.tolist() == sorted(set(codes))


@every
def test_a_fit_without_a_target_warns(estimator: Any, y: Any) -> None:
    model = clone(estimator)
    if isinstance(estimator, SourceOnlyClassifier):
        model.fit(XS, y)  # it needs none, and warnings are errors here
        return
    with pytest.warns(WarmpotWarning, match="X_target: got none") as caught:
        model.fit(XS, y)
    assert caught[0].filename == __file__


TABLE = XS * [20.0, 0.1, 3.0] + [50.0, 2.0, 9.0]  # in units of their own, far from standardized
TARGET_TABLE = XT * [20.0, 0.1, 3.0] + [50.0, 2.0, 9.0]


@pytest.mark.filterwarnings("ignore:X has feature names")  # scikit-learn's own, which says less
def test_a_frame_beside_a_transformed_source_is_noticed() -> None:
    pd = pytest.importorskip("pandas")
    source, target = (pd.DataFrame(x, columns=["a", "b", "c"]) for x in (XS, XT))
    with sklearn.config_context(enable_metadata_routing=True):
        wrong = make_pipeline(StandardScaler(), WarmpotClassifier(overrides=QUICK))
        with pytest.warns(WarmpotWarning, match="X_target: got a data frame, and X is none"):
            wrong.fit(source, YS, X_target=target)


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler()], ids=["standard", "min-max"])
@every
def test_a_target_that_the_pipeline_does_not_scale_is_noticed(estimator: Any, y: Any, scaler: Any) -> None:
    factor = 1.0 if isinstance(scaler, StandardScaler) else 10.0
    source, target = TABLE * factor, TARGET_TABLE * factor
    with sklearn.config_context(enable_metadata_routing=True):
        wrong = make_pipeline(clone(scaler), clone(estimator))
        with pytest.warns(WarmpotWarning, match="times the size of X's"):
            wrong.fit(source, y, X_target=target)
        right = Pipeline([("scale", clone(scaler)), ("model", clone(estimator))], transform_input=["X_target"])
        right.fit(source, y, X_target=target)  # warnings are errors here
        stacked = np.concatenate([source, target]), np.concatenate([y, y[:24]])
        make_pipeline(clone(scaler), clone(estimator)).fit(*stacked, sample_domain=DOMAIN)
    fitted = clone(scaler).fit(source)
    clone(estimator).fit(fitted.transform(source), y, fitted.transform(target))


@pytest.mark.parametrize(("estimator", "y"), ALL[:4])
def test_saved_and_loaded(estimator: Any, y: Any, tmp_path: Path) -> None:
    model = clone(estimator).fit(XS, y, XT)
    loaded = type(estimator).load(model.save(tmp_path / "run"))
    assert_same(outputs(loaded), outputs(model))
    assert loaded.get_params() == model.get_params()
    if is_classifier(model):
        assert loaded.classes_.dtype == model.classes_.dtype
        np.testing.assert_array_equal(loaded.predict(XT), warmpot.load(tmp_path / "run").predict(XT))
    for one in (model, loaded):
        assert "<html" in one.report(tmp_path / "page.html").read_text()
    with pytest.raises(InputError, match="save: got a model without its training data"):
        pickle.loads(pickle.dumps(model)).save(tmp_path / "other")
    with pytest.raises(InputError, match="the run of a "):
        (WarmpotClassifier if isinstance(model, WarmpotRegressor) else WarmpotRegressor).load(tmp_path / "run")
    with pytest.raises(NotFittedError):
        clone(estimator).save(tmp_path / "other")


def test_names_of_columns_and_text_labels_are_loaded(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    names, frame = np.array(["a", "b", "c", "d"]), pd.DataFrame(XS, columns=["p", "q", "r"])
    model = WarmpotClassifier(overrides=QUICK, random_state=np.int64(3))
    model.fit(frame, names[YS], pd.DataFrame(XT, columns=["p", "q", "r"]))
    loaded = WarmpotClassifier.load(model.save(tmp_path / "run"))
    assert loaded.feature_names_in_.tolist() == ["p", "q", "r"]
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
    assert loaded.random_state == 3


def test_the_reweighter_takes_the_weights_of_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reweighter, "WarmpotClassifier", WarmpotClassifier)
    trained = WarmpotClassifier().fit(XS, YS, XT)
    for estimator in (None, LogisticRegression()):
        model = PartialReweighter(estimator).fit(XS, YS, XT)
        np.testing.assert_allclose(model.sample_weight_, trained.training_weights_ * len(XS), rtol=1e-12)
        np.testing.assert_array_equal(model.source_weights_, trained.source_weights_)
    given = PartialReweighter(alpha=0.6, beta=0.4).fit(XS, YS, XT)
    assert given.source_weights_.sum() == pytest.approx(0.6)
    plan = PartialReweighter(weights="plan").fit(XS, YS, XT)
    for same in (PartialReweighter().fit(XS, X_target=XT), PartialReweighter().fit(XS, RS, XT)):  # no classes
        np.testing.assert_array_equal(same.source_weights_, plan.source_weights_)
    assert plan.source_weights_.sum() == pytest.approx(0.8)
    assert plan.source_weights_.max() <= 1 / (0.35 * 60) + 1e-12
    with pytest.raises(InputError, match="'training' without labels of classes"):
        PartialReweighter(weights="training").fit(XS, RS, XT)


@pytest.mark.parametrize("weights", ["training", "plan"])
def test_a_weighted_estimator_is_saved_with_the_run_of_its_weights(weights: str, tmp_path: Path) -> None:
    model = PartialReweighter(LogisticRegression(), weights=weights).fit(XS, YS, XT)
    folder = model.save(tmp_path / "weighted")
    loaded = PartialReweighter.load(folder)
    np.testing.assert_array_equal(loaded.predict_proba(XT), model.predict_proba(XT))
    np.testing.assert_array_equal(loaded.sample_weight_, model.sample_weight_)
    if weights == "training":
        assert "<html" in loaded.report(tmp_path / "page.html").read_text()
        assert warmpot.load(folder).predict(XT).shape == (len(XT),)
    else:
        with pytest.raises(InputError, match="labels of classes"):
            loaded.report(tmp_path / "page.html")
    with pytest.raises(InputError, match="folder"):
        model.save(folder)


def test_only_what_save_wrote_is_loaded_as_a_weighted_estimator(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="PartialReweighter"):
        PartialReweighter.load(tmp_path)
    joblib.dump(LogisticRegression(), tmp_path / "reweighter.joblib")
    with pytest.raises(InputError, match="LogisticRegression"):
        PartialReweighter.load(tmp_path)
    with pytest.raises(NotFittedError):
        PartialReweighter().save(tmp_path / "new")
