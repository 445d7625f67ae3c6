"""Validators on candidate whose scores are known in closed form; the guard; the oracle."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import math
from typing import Any

import numpy as np
import pytest
import torch

from warmpot.bounds.lipschitz import head_lipschitz
from warmpot.bounds.theorems import joint_bound
from warmpot.data.task import Truth
from warmpot.errors import InputError
from warmpot.select import VALIDATORS, Candidate, Oracle, Validator, choose, explain_collapse, make_validator
from warmpot.select.candidate import log_softmax
from warmpot.transport import solve_partial

SURE = 1000.0
"""Logits so far apart that softmax is one-hot in float64."""


def one_hot(codes: Any, n_classes: int) -> np.ndarray:
    return SURE * np.eye(n_classes)[np.asarray(codes)]


def candidate(target_logits: Any, **changes: Any) -> Candidate:
    """Two source samples a class at the class's unit vector; target features there too unless told."""
    logits = np.asarray(target_logits, dtype=float)
    c = logits.shape[1]
    labels = np.repeat(np.arange(c), 2)
    source = np.eye(c)[labels]
    fields: dict[str, Any] = {
        "source_features": source,
        "source_logits": one_hot(labels, c),
        "source_labels": labels,
        "target_features": np.eye(c)[np.arange(len(logits)) % c],
        "target_logits": logits,
    }
    return Candidate(**fields | changes)


def held(e: Candidate, **changes: Any) -> Candidate:
    kept = {"held_features": e.source_features, "held_logits": e.source_logits, "held_labels": e.source_labels}
    return dataclasses.replace(e, **kept | changes)


def score(name: str, e: Candidate, **params: Any) -> float:
    return make_validator(name, params).score(e)


BALANCED = np.tile(np.arange(4), 5)


def full(target_logits: Any, **changes: Any) -> Candidate:
    """Candidate that serves every validator."""
    c = np.shape(target_logits)[1]
    rest: dict[str, Any] = {"transport": 0.5, "head": (SURE * np.eye(c), np.zeros(c))}
    return held(candidate(target_logits, **rest | changes))


@pytest.mark.parametrize("name", VALIDATORS)
@pytest.mark.parametrize("logits", [
    np.zeros((20, 4)), one_hot(BALANCED, 4), one_hot(np.zeros(20, int), 4), -1e30 * np.eye(4)[BALANCED],
    np.zeros((1, 4)), np.zeros((2, 2)),
])  # fmt: skip
def test_every_score_is_finite_whatever_the_predictions(name: str, logits: np.ndarray) -> None:
    # the bound refuses logits that the head does not give for these features
    e = full(logits, **({"target_features": logits / SURE} if name == "bound" else {}))
    assert math.isfinite(score(name, e))
    parts = ["source_features", "target_features", "held_features"]
    if name == "bound":
        parts += ["source_logits", "target_logits", "held_logits"]
    flat = dataclasses.replace(e, **{part: np.zeros_like(getattr(e, part)) for part in parts})
    assert math.isfinite(score(name, flat))


@pytest.mark.parametrize(("name", "uniform", "balanced", "single"), [
    ("entropy", -math.log(4), 0.0, 0.0),
    ("infomax", 0.0, math.log(4), 0.0),
    ("nuclear", math.sqrt(20 / 4) / 20, 4 * math.sqrt(5) / 20, math.sqrt(20) / 20),
    ("confusion", -3 / 4, 0.0, -3 / 4),
    ("neighbours", 0.0, 1.0, 0.0),
    ("snd", math.log(19), None, math.log(19)),
])  # fmt: skip
def test_closed_forms(name: str, uniform: float, balanced: float | None, single: float) -> None:
    # equal samples share a point, so the four nearest of five are its own class
    params = {"k": 4} if name == "neighbours" else {}
    assert score(name, candidate(np.zeros((20, 4))), **params) == pytest.approx(uniform, abs=1e-12)
    assert score(name, candidate(one_hot(np.full(20, 2), 4)), **params) == pytest.approx(single, abs=1e-12)
    if balanced is not None:
        assert score(name, candidate(one_hot(BALANCED, 4)), **params) == pytest.approx(balanced, abs=1e-12)


def test_few_samples_are_not_all_neighbours() -> None:
    codes = np.array([0, 0, 0, 1, 1, 1])
    e = candidate(one_hot(codes, 4), target_features=np.eye(4)[codes])
    assert score("neighbours", e) == 1.0  # with all five others as neighbours: below 0, whatever the predictions
    assert score("neighbours", dataclasses.replace(e, target_logits=one_hot(codes[::2].repeat(2), 4))) < 0.5


def test_clusters_are_those_of_the_data_and_not_of_the_classifier() -> None:
    rng = np.random.default_rng(0)
    x = 5 * rng.normal(size=(4, 6))[BALANCED] + rng.normal(size=(20, 6))
    right, merged, split = BALANCED, np.minimum(BALANCED, 2), np.where(np.arange(20) % 8 == 0, 3, BALANCED)
    inputs = {"source_inputs": x[:8], "target_inputs": x}
    scores = [score("clusters", candidate(one_hot(codes, 4), **inputs)) for codes in (right, merged, split)]
    assert scores[0] > max(scores[1:])
    renamed = score("clusters", candidate(one_hot(3 - BALANCED, 4), **inputs))
    assert renamed == pytest.approx(scores[0])  # clusters have no names
    moved = candidate(one_hot(right, 4), target_features=np.zeros((20, 4)), **inputs)
    assert score("clusters", moved) == pytest.approx(scores[0])


def test_density_of_clusters() -> None:
    # four alike (similarity 1/T) and fifteen at right angles (similarity 0)
    weights = np.array([math.exp(20.0)] * 4 + [1.0] * 15)
    p = weights / weights.sum()
    assert score("snd", candidate(one_hot(BALANCED, 4))) == pytest.approx(-(p @ np.log(p)), rel=1e-12)
    assert score("snd", candidate(np.zeros((2, 2)))) == 0.0


def test_density_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    e = candidate(np.random.default_rng(0).normal(size=(23, 4)))
    whole = score("snd", e)
    monkeypatch.setattr("warmpot.select.validators.BLOCK", 5)
    assert score("snd", e) == pytest.approx(whole, rel=1e-12)


def test_source_accuracy() -> None:
    e = candidate(np.zeros((3, 4)))
    assert score("source", held(e)) == 1.0
    wrong = np.roll(e.source_labels, 1)  # every other one
    assert score("source", held(e, held_labels=wrong)) == 0.5


def test_dev_of_equal_domains_is_the_source_risk() -> None:
    # one and the same set of features: the ratio is 1 everywhere
    e = candidate(np.zeros((8, 4)))
    same = dataclasses.replace(e, target_features=e.source_features)
    wrong = np.roll(e.source_labels, 1)
    assert score("dev", held(same, held_labels=wrong)) == pytest.approx(-0.5, abs=1e-12)
    logits = np.zeros((8, 4))
    assert score("dev", held(same, held_logits=logits), loss="cross_entropy") == pytest.approx(-math.log(4), rel=1e-9)


def test_dev_sees_errors_where_the_target_is() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=400)
    x = rng.normal(size=(400, 2))
    base = {"source_features": x[:200], "source_logits": np.zeros((200, 2)), "source_labels": labels[:200],
            "target_features": x[:100] + np.array([1.0, 0.0]), "target_logits": np.zeros((100, 2)),
            "held_features": x[200:], "held_labels": labels[200:]}  # fmt: skip
    kept, right = x[200:], labels[200:]
    near = Candidate(**base, held_logits=one_hot(np.where(kept[:, 0] > 0.5, 1 - right, right), 2))
    far = Candidate(**base, held_logits=one_hot(np.where(kept[:, 0] < -0.5, 1 - right, right), 2))
    assert score("dev", far) > score("dev", near) + 0.2
    assert score("dev", far) > score("source", far) - 1.0  # nearer than the plain risk


def test_reverse_counts_only_classes_believed_present() -> None:
    # the target holds classes 0 and 1 of 4; predictions are right
    codes = np.array([0, 1] * 6)
    e = candidate(one_hot(codes, 4), target_features=np.eye(4)[codes])
    assert score("reverse", e) == 1.0
    # swapped: whoever learns from it is wrong on the source everywhere; chance is a half
    assert score("reverse", dataclasses.replace(e, target_logits=one_hot(1 - codes, 4))) == -1.0
    assert score("reverse", dataclasses.replace(e, target_logits=one_hot(0 * codes, 4))) == 0.0
    # a held part without any of these classes cannot tell
    absent = {"held_features": np.eye(4)[2:], "held_logits": np.zeros((2, 4)), "held_labels": np.array([2, 3])}
    assert score("reverse", dataclasses.replace(e, **absent)) == 0.0


def test_reverse_is_sklearns_adjusted_balanced_accuracy() -> None:
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.neighbors import NearestCentroid

    rng = np.random.default_rng(1)
    labels, codes = rng.integers(3, size=90), rng.integers(3, size=60)
    xs, xt = rng.normal(size=(90, 2)) + 2 * np.eye(3)[labels, :2], rng.normal(size=(60, 2)) + 2 * np.eye(3)[codes, :2]
    e = Candidate(xs, np.zeros((90, 3)), labels, xt, one_hot(codes, 3))
    found = NearestCentroid().fit(xt, codes).predict(xs)
    assert score("reverse", e) == pytest.approx(balanced_accuracy_score(labels, found, adjusted=True), rel=1e-12)


@pytest.mark.parametrize("name", ["neighbours", "reverse"])
def test_inputs_are_where_candidates_are_compared(name: str) -> None:
    codes = np.tile([0, 1], 10)
    e = candidate(one_hot(codes, 4), target_features=np.eye(4)[codes])
    collapsed = dataclasses.replace(e, source_features=np.zeros((8, 4)), target_features=np.zeros((20, 4)))
    seen = dataclasses.replace(collapsed, source_inputs=e.source_features, target_inputs=e.target_features)
    assert score(name, seen, space="inputs") == score(name, e, space="inputs") == 1.0
    assert score(name, seen, space="features") == score(name, collapsed) < 0.5


def test_reverse_tests_on_the_held_part_in_the_space_it_learned_in() -> None:
    codes = np.tile([0, 1], 6)
    e = held(candidate(one_hot(codes, 4), target_features=np.eye(4)[1 - codes]))
    assert score("reverse", e) == -1.0
    inputs = {"source_inputs": np.zeros((8, 4)), "target_inputs": np.eye(4)[codes], "held_inputs": e.held_features}
    assert score("reverse", dataclasses.replace(e, **inputs), space="inputs") == 1.0


def test_transport_is_zero_where_everything_fits_and_one_per_wrong_label() -> None:
    codes = np.tile(np.arange(4), 2)
    right = candidate(one_hot(codes, 4), target_features=np.eye(4)[codes])
    assert score("transport", right) == pytest.approx(0.0, abs=1e-12)
    # labels that say nothing: 1 - 1/4 on top of distance 0
    unsure = dataclasses.replace(right, target_logits=np.zeros((8, 4)))
    assert score("transport", unsure, alpha=1.0, beta=1.0) == pytest.approx(-0.75, abs=1e-9)


def test_transport_has_no_unit_of_features() -> None:
    rng = np.random.default_rng(0)
    e = candidate(rng.normal(size=(12, 4)), target_features=rng.normal(size=(12, 4)))
    scaled = dataclasses.replace(e, source_features=1e3 * e.source_features, target_features=1e3 * e.target_features)
    assert score("transport", scaled) == pytest.approx(score("transport", e), rel=1e-6)
    assert score("transport", e) < -0.1


def test_transport_is_the_value_of_its_cost() -> None:
    rng = np.random.default_rng(0)
    e = candidate(
        rng.normal(size=(6, 4)), source_features=rng.normal(size=(8, 3)), target_features=rng.normal(size=(6, 3))
    )
    apart = np.linalg.norm(e.source_features[:, None] - e.source_features, axis=2)
    distances = np.linalg.norm(e.source_features[:, None] - e.target_features, axis=2)
    cost = distances / math.sqrt((apart**2).mean()) + 1 - e.target_proba.T[e.source_labels]
    found = solve_partial(cost, np.full(8, 1 / (0.5 * 8)), mass=0.75)
    assert score("transport", e, alpha=0.75, beta=0.5) == pytest.approx(-found.value / 0.75, rel=1e-6)


def test_plan_and_bound() -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(4, 4))
    e = candidate(rng.normal(size=(12, 4)), target_features=rng.normal(size=(12, 4)), transport=0.25,
                 head=(weight, np.zeros(4)), source_logits=rng.normal(size=(8, 4)))  # fmt: skip
    assert score("plan", e) == -0.25
    report = joint_bound(e.source_features, e.source_labels, e.target_features, e.source_proba, e.target_proba,
                         gamma=head_lipschitz(weight, "euclidean"), alpha=0.6, beta=0.5)  # fmt: skip
    assert score("bound", e, alpha=0.6, beta=0.5) == pytest.approx(-report.total, rel=1e-12)


@pytest.mark.parametrize("name", [name for name, cls in VALIDATORS.items() if cls.needs])
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(InputError, match=rf"validator '{name}': got no \w+; allowed: a candidate with"):
        score(name, candidate(np.zeros((4, 3))))


def test_registry() -> None:
    assert set(VALIDATORS) == {"source", "dev", "entropy", "infomax", "nuclear", "confusion", "snd", "neighbours",
                               "clusters", "reverse", "plan", "transport", "bound"}  # fmt: skip
    for name, cls in VALIDATORS.items():
        assert cls.name == name
        assert cls.summary
        assert "\n" not in cls.summary
        assert cls.needs <= {"held", "transport", "head"}
    with pytest.raises(InputError, match="Did you mean 'entropy'"):
        make_validator("entropie")
    with pytest.raises(InputError) as caught:  # every name once
        make_validator("xyz")
    assert str(caught.value).count("infomax") == 1
    with pytest.raises(InputError) as caught:
        make_validator("neighbours", {"xyz": 1.0})
    assert str(caught.value).count("space") == 1
    with pytest.raises(InputError, match=r"temprature.*Did you mean 'temperature'"):
        make_validator("snd", {"temprature": 1.0})


@pytest.mark.parametrize(("name", "params"), [
    ("snd", {"temperature": 0.0}), ("confusion", {"temperature": -1.0}), ("neighbours", {"k": 0}),
    ("neighbours", {"space": "outputs"}), ("reverse", {"space": "outputs"}),
    ("dev", {"loss": "hinge"}), ("transport", {"alpha": 1.5}), ("transport", {"beta": 0.0}), ("bound", {"alpha": 0.0}),
    ("bound", {"beta": 2.0}),
])  # fmt: skip
def test_bad_parameters(name: str, params: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(params))):
        make_validator(name, params)


def test_no_way_in_for_target_labels() -> None:
    assert "oracle" not in VALIDATORS
    with pytest.raises(InputError, match=r"validator: .*needs target labels.*only in Python.*warmpot\.select\.Oracle"):
        make_validator("oracle")
    fields = [field.name for field in dataclasses.fields(Candidate)]
    assert [name for name in fields if "label" in name or "truth" in name or name.startswith("y")] == [
        "source_labels", "held_labels",
    ]  # fmt: skip
    for cls in (*VALIDATORS.values(), Oracle):
        assert list(inspect.signature(cls.score).parameters) == ["self", "candidate"]
    for cls in VALIDATORS.values():
        assert not {"truth", "labels", "yt", "y"} & {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]


class TestEvidence:
    def test_tensors_come_out_as_float64_arrays(self) -> None:
        x, logits = torch.eye(2), torch.tensor([[2.0, 0.0], [0.0, 2.0]], requires_grad=True)
        e = Candidate(x, logits, torch.tensor([0, 1]), x, logits, head=(logits, torch.zeros(2)))  # type: ignore[arg-type]
        assert e.target_logits.dtype == e.source_features.dtype == np.float64
        assert e.source_labels.dtype == np.int64
        assert e.head is not None
        assert e.head[0].dtype == np.float64
        np.testing.assert_allclose(e.target_proba, torch.softmax(logits.double(), 1).detach(), rtol=1e-12)

    def test_log_softmax_does_not_overflow(self) -> None:
        np.testing.assert_array_equal(log_softmax(np.array([[1e30, 0.0], [-1e30, -1e30]])),
                                      [[0.0, -1e30], [-math.log(2)] * 2])  # fmt: skip

    @pytest.mark.parametrize(("changes", "message"), [
        ({"target_logits": np.zeros((4, 2))}, "target_logits: got 2 columns; allowed: 3"),
        ({"target_logits": np.full((4, 3), np.nan)}, "target_logits: got 12 non-finite"),
        ({"source_features": np.full((6, 3), 1e40)}, "source_features: got numbers up to"),
        ({"target_features": np.zeros((5, 3))}, "target: got 5 features, 4 logits"),
        ({"target_features": np.zeros((4, 2))}, "target_features: got 2 columns"),
        ({"source_labels": np.array([0, 0, 1, 1, 2, 3])}, "source_labels: got codes 0 to 3"),
        ({"source_labels": np.zeros(6)}, "source_labels: got float64"),
        ({"source_labels": np.zeros((6, 1), int)}, "source_labels: got int64, shape"),
        ({"source_labels": np.zeros(5, int)}, "source: got 6 features, 6 logits, 5 labels"),
        ({"held_features": np.zeros((2, 3))}, "candidate: got held_features only"),
        ({"source_inputs": np.zeros((6, 3))}, "candidate: got source_inputs only"),
        ({"held_inputs": np.zeros((6, 3))}, "candidate: got held_inputs only"),
        ({"source_inputs": np.zeros((6, 7)), "target_inputs": np.zeros((4, 8))}, "target_inputs: got 8 columns"),
        ({"source_weights": -np.ones(6)}, "source_weights"),
        ({"transport": math.nan}, "transport"),
        ({"head": (np.zeros((2, 3)), np.zeros(3))}, "head weight: got 2 rows"),
        ({"head": (np.zeros((3, 3)), np.zeros(2))}, "head bias"),
    ])  # fmt: skip
    def test_bad_evidence_is_refused_by_name(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            dataclasses.replace(candidate(np.zeros((4, 3))), **changes)

    def test_regression_is_refused(self) -> None:
        x = np.zeros((2, 1))
        with pytest.raises(InputError, match="2 or more classes"):
            Candidate(x, x, np.zeros(2, np.int64), x, x)


class TestGuard:
    rng = np.random.default_rng(0)
    reference = candidate(one_hot(BALANCED, 4) / SURE * 2.0)
    better = candidate(one_hot(BALANCED, 4) / SURE * 4.0)
    collapsed = candidate(one_hot(np.zeros(20, int), 4))

    def test_entropy_alone_picks_the_collapse_and_the_guard_refuses_it(self) -> None:
        validator = make_validator("entropy")
        candidates = [self.reference, self.better, self.collapsed]
        assert np.argmax([validator.score(e) for e in candidates]) == 2
        choice = choose(candidates, validator, self.reference)
        assert choice.index == 1
        assert choice.validator == "entropy"
        assert list(choice.refusals) == [2]
        assert "1.00 classes, those of the reference 4.00" in choice.refusals[2]
        assert choice.scores[2] == max(choice.scores)

    def test_the_reference_wins_when_all_collapse(self) -> None:
        choice = choose([self.collapsed, self.collapsed], make_validator("entropy"), self.reference)
        assert choice.index is None
        assert set(choice.refusals) == {0, 1}

    def test_a_quarter_of_the_classes_is_the_least(self) -> None:
        reference = candidate(one_hot(np.arange(16), 16))
        few, fewer = (candidate(one_hot(np.arange(48) % k, 16)) for k in (4, 3))
        assert explain_collapse(few, reference) is None
        assert explain_collapse(fewer, reference) is not None

    def test_a_target_of_one_class_is_no_collapse(self) -> None:
        assert explain_collapse(self.collapsed, self.collapsed) is None

    def test_the_first_wins_a_tie(self) -> None:
        assert choose([self.better] * 3, make_validator("infomax"), self.reference).index == 0

    def test_a_score_that_is_not_finite_is_refused(self) -> None:
        class Broken(Validator):
            name = "broken"

            def _score(self, candidate: Candidate) -> float:
                return math.nan if candidate is TestGuard.better else 1.0

        choice = choose([self.better, self.reference], Broken(), self.reference)
        assert choice.index == 1
        assert choice.refusals == {0: "its score is nan"}


class TestOracle:
    truth = Truth(np.array([0, 1, -1, 1]), ("a", "b", "c"))
    right = candidate(one_hot([0, 1, 2, 0], 3))

    def test_unknown_classes_count_as_wrong(self) -> None:
        assert Oracle(self.truth).score(self.right) == 0.5

    def test_it_always_says_its_name(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            oracle = Oracle(self.truth)
        assert "oracle" in caplog.text
        assert "oracle" in str(oracle)
        assert "oracle" in repr(choose([self.right], oracle, self.right))

    def test_labels_of_another_task_are_refused(self) -> None:
        with pytest.raises(InputError, match="oracle: got 4 samples of 3 classes; allowed: 4 of 2"):
            Oracle(Truth(self.truth.yt, ("a", "b"))).score(self.right)


@pytest.mark.parametrize(
    ("old", "new"), [("Evidence", "Candidate"), ("Swept", "SweepResult"), ("degenerate", "explain_collapse")]
)
def test_old_names_work_with_a_warning(old: str, new: str) -> None:
    import warmpot.select

    with pytest.warns(DeprecationWarning, match=f"use warmpot.select.{new}"):
        assert getattr(warmpot.select, old) is getattr(warmpot.select, new)


def test_terms_of_neighbours_have_the_score_as_their_mean() -> None:
    rng = np.random.default_rng(0)
    e = candidate(rng.normal(size=(30, 4)), target_features=rng.normal(size=(30, 4)))
    terms = make_validator("neighbours").target_terms(e)
    assert terms is not None
    assert len(terms) == 30
    assert terms.mean() == pytest.approx(score("neighbours", e), abs=1e-14)
    assert make_validator("snd").target_terms(e) is None
